// y = x · scale + shift over rows × cols; scale and shift hold one value a column.
// Defines (see template.txtpb): RT_DTYPE RT_BLOCK RT_VEC RT_ROWS.
//
// types.cuh brings the storage types and rounds to nearest even; rooftune's own headers are all that may be included.
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;
typedef Type::Store Store;

// What one access of so many bytes moves. Tensors are aligned to 16 bytes and a row is a whole number of vectors (a
// constraint in template.txtpb), so every access is aligned.
template <int BYTES>
struct Access;
template <>
struct Access<2> { typedef rt_u16 Word; };
template <>
struct Access<4> { typedef rt_u32 Word; };
template <>
struct Access<8> { typedef uint2 Word; };
template <>
struct Access<16> { typedef uint4 Word; };
constexpr int kVectorBytes = RT_VEC * sizeof(Store);

// RT_VEC neighbours that are loaded together.
union Vector {
  typedef Access<kVectorBytes>::Word Word;
  Word word;
  Store element[RT_VEC];
  __device__ __forceinline__ void load(const Store* from) { word = *reinterpret_cast<const Word*>(from); }
};

// One store of 4, 8 or 16 bytes. In assembly, since the compiler splits what it has just put together.
__device__ __forceinline__ void store_words(void* to, const rt_u32 (&w)[1]) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(w[0]) : "memory");
}
__device__ __forceinline__ void store_words(void* to, const rt_u32 (&w)[2]) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(w[0]), "r"(w[1]) : "memory");
}
__device__ __forceinline__ void store_words(void* to, const rt_u32 (&w)[4]) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
               : "memory");
}

// Rounds to the storage type and stores.
__device__ __forceinline__ void store(Store* to, const float (&value)[RT_VEC]) {
#if RT_VEC == 1
  *to = Type::store(value[0]);
#else
  rt_u32 words[kVectorBytes / 4];
#pragma unroll
  for (int i = 0; i < kVectorBytes / 4; ++i) {
#if RT_DTYPE == RT_FP32
    words[i] = __float_as_uint(value[i]);
#else
    words[i] = rt_pack2<RT_DTYPE>(value[2 * i], value[2 * i + 1]);
#endif
  }
  store_words(to, words);
#endif
}

// The launch bound lets the compiler count on the block size, and makes a launch with a larger one fail.
extern "C" __global__ void __launch_bounds__(RT_BLOCK)
    rt_@NAME@(const Store* __restrict__ x, const Store* __restrict__ scale, const Store* __restrict__ shift,
              Store* __restrict__ y, rt_i64 rows, rt_i64 cols) {
  // Blocks beside each other take neighbouring columns of the same rows. In 64 bits: a large tensor has more than
  // 2^31 elements.
  const rt_i64 column_blocks = (cols + RT_BLOCK * RT_VEC - 1) / (RT_BLOCK * RT_VEC);
  const rt_i64 column = (blockIdx.x % column_blocks * RT_BLOCK + threadIdx.x) * RT_VEC;
  const rt_i64 first_row = blockIdx.x / column_blocks * RT_ROWS;
  if (column >= cols) return;  // the last block of a row has threads to spare

  // All loads first, so that they are under way together: memory is fast, but each answer takes long.
  Vector factor, addend, held[RT_ROWS];
  factor.load(scale + column);
  addend.load(shift + column);
#pragma unroll
  for (int r = 0; r < RT_ROWS; ++r) {
    if (first_row + r < rows) held[r].load(x + (first_row + r) * cols + column);
  }
#pragma unroll
  for (int r = 0; r < RT_ROWS; ++r) {
    if (first_row + r >= rows) return;
    float result[RT_VEC];
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) {
      result[i] = Type::load(held[r].element[i]) * Type::load(factor.element[i]) + Type::load(addend.element[i]);
    }
    store(y + (first_row + r) * cols + column, result);
  }
}

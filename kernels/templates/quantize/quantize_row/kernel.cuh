// Quantisation with a scale for each row.
//
// Defines: RT_DTYPE; RT_QTYPE; RT_POW2 (scales are powers of two); RT_VARIANT (0 the row in registers in its storage
// type; 1 two passes over global memory, any length); RT_BLOCK threads a block; RT_ROWS rows a block (variant 0);
// RT_VEC elements a vector, a divisor of cols; RT_ITEMS vectors a thread holds (0) or loads at once (1).
#include "common/quantized.cuh"
#include "common/row.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
constexpr int kThreads = RT_BLOCK / RT_ROWS;  // of one row
typedef RtRow<kThreads, RT_ROWS, 1> Row;

__device__ __forceinline__ int column(int k) {
  return (k * kThreads + static_cast<int>(threadIdx.x % kThreads)) * RT_VEC;
}

__device__ __forceinline__ void to_floats(const Vector& in, float (&v)[RT_VEC]) {
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) v[i] = in.get(i);
}

// Largest magnitude of vectors that stay packed; zeros past the end are none.
__device__ __forceinline__ float largest_of(const Vector (&in)[RT_ITEMS], float largest) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    float v[RT_VEC];
    to_floats(in[k], v);
    largest = rt_largest(v, largest);
  }
  return largest;
}

template <bool STREAM>
__device__ __forceinline__ void load_chunk(const Store* x, int cols, int base, Vector (&in)[RT_ITEMS]) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    in[k].fill(0);
    if (column(base + k) >= cols) continue;
    if constexpr (STREAM) {
      in[k].load(x + column(base + k));
    } else {
      in[k].load(x + column(base + k));
    }
  }
}

__device__ __forceinline__ void store_chunk(Vector (&in)[RT_ITEMS], float inverse, rt_u8* q, int cols, int base) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (column(base + k) >= cols) continue;
    float v[RT_VEC];
    to_floats(in[k], v);
    constexpr int kBits = RtQuantized<RT_QTYPE, RT_VEC>::kBits / RT_VEC;
    rt_store_quantized<RT_QTYPE>(v, inverse, q + column(base + k) * static_cast<rt_i64>(kBits) / 8);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK)
    rt_quantize_row(const Store* x, rt_u8* q, float* scales, float amax_floor, rt_i64 rows, rt_i64 cols) {
  __shared__ Row::Shared shared;
  const rt_i64 row = static_cast<rt_i64>(blockIdx.x) * RT_ROWS + threadIdx.x / kThreads;
  // A row past the end takes part in the barriers with no columns of its own.
  const int mine = row < rows ? static_cast<int>(cols) : 0;
  const Store* const from = x + row * cols;
  rt_u8* const to = q + row * cols * (RT_QTYPE == RT_INT4 ? 4 : 8) / 8;
  float largest = 0.0f;
  Vector in[RT_ITEMS];
#if RT_VARIANT == 0
  load_chunk<true>(from, mine, 0, in);
  largest = largest_of(in, largest);
#else
  int base = 0;
  for (; column(base) < mine; base += RT_ITEMS) {
    load_chunk<false>(from, mine, base, in);
    largest = largest_of(in, largest);
  }
#endif
  largest = Row::max(largest, &shared);
  const RtScale s = rt_scale_of<RT_QTYPE, RT_POW2>(fmaxf(largest, amax_floor));
  if (threadIdx.x % kThreads == 0 && mine > 0) scales[row] = s.scale;
#if RT_VARIANT == 0
  // Without this the compiler holds all vectors as floats across the barrier, twice the registers.
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) in[k].keep(static_cast<rt_u32>(rows >> 63));
  store_chunk(in, s.inverse, to, mine, 0);
#else
  // Backwards: what was read last is still in a cache.
  for (base -= RT_ITEMS; base >= 0; base -= RT_ITEMS) {
    load_chunk<false>(from, mine, base, in);
    store_chunk(in, s.inverse, to, mine, base);
  }
#endif
}

// A strided view made contiguous, in the order of the output: stores are whole vectors; loads are vectors where the
// view's rows are in one piece, else single elements through the caches, which serve those that share a sector.
//
// Defines: RT_DTYPE; RT_RANK axes that count (1 … 5); RT_BLOCK threads a block; RT_VEC elements a vector, a divisor of
// the innermost extent; RT_WIDE (1: the innermost stride is 1 and the others are multiples of RT_VEC); RT_ITEMS vectors
// that a thread has in flight. At most 2^31 vectors.
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
constexpr rt_u32 kTile = RT_BLOCK * RT_ITEMS;

struct View {
  rt_u32 extent[5];  // the innermost in vectors
  rt_i64 stride[5];  // in elements; the innermost of one element

  // Where the output's vector number `index` begins in x.
  __device__ __forceinline__ rt_i64 offset(rt_u32 index) const {
    rt_i64 offset = 0;
#pragma unroll
    for (int axis = RT_RANK - 1; axis > 0; --axis) {
      const rt_u32 next = index / extent[axis];
      const rt_i64 coordinate = index - next * extent[axis];
      offset += coordinate * (axis == RT_RANK - 1 ? RT_VEC : 1) * stride[axis];
      index = next;
    }
    return offset + static_cast<rt_i64>(index) * (RT_RANK == 1 ? RT_VEC : 1) * stride[0];
  }
};

__device__ __forceinline__ void load(const Store* x, rt_i64 stride, Vector* v) {
  if constexpr (RT_WIDE || RT_VEC == 1) {
    v->load(x);
  } else {
    Store element[RT_VEC];
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) element[i] = x[i * stride];
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) v->set_bits(i, element[i]);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK)
    rt_contiguous(const Store* x, Store* y, rt_i64 d0, rt_i64 d1, rt_i64 d2, rt_i64 d3, rt_i64 d4, rt_i64 s0,
                  rt_i64 s1, rt_i64 s2, rt_i64 s3, rt_i64 s4) {
  View view = {{static_cast<rt_u32>(d0), static_cast<rt_u32>(d1), static_cast<rt_u32>(d2), static_cast<rt_u32>(d3),
                static_cast<rt_u32>(d4)},
               {s0, s1, s2, s3, s4}};
  view.extent[RT_RANK - 1] /= RT_VEC;
  const rt_u32 vectors = static_cast<rt_u32>(d0 * d1 * d2 * d3 * d4 / RT_VEC);
  const rt_u32 first = blockIdx.x * kTile + threadIdx.x;
  Vector v[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    const rt_u32 at = first + k * RT_BLOCK;
    if (at < vectors) load(x + view.offset(at), view.stride[RT_RANK - 1], &v[k]);
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    const rt_u32 at = first + k * RT_BLOCK;
    if (at < vectors) v[k].store(y + static_cast<rt_i64>(at) * RT_VEC);
  }
}

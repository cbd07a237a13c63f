// Quantisation with a scale for each group of neighbours in a row, or with one that is given.
//
// Defines: RT_DTYPE; RT_QTYPE; RT_GROUP (32, 64 or 128 elements, divisors of a row; 0: the scale is given); RT_COLUMN
// (scales as [groups of a row, rows rounded up to 4] instead of [rows, groups of a row]); RT_POW2 (scales are powers of
// two); RT_BLOCK threads a block; RT_VEC elements a vector, a divisor of a row; RT_ITEMS vectors that a thread loads
// before it computes.
//
// The lanes that hold a group are neighbours in a warp, and find its largest element by shuffles.
#include "common/quantized.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
constexpr int kTile = RT_BLOCK * RT_ITEMS;  // vectors

__device__ __forceinline__ void to_floats(const Vector& in, float (&v)[RT_VEC]) {
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) v[i] = in.get(i);
}

__device__ __forceinline__ void* place(rt_u8* q, rt_i64 vector) {
  return q + vector * RtQuantized<RT_QTYPE, RT_VEC>::kBits / 8;
}

#if RT_GROUP
constexpr int kLanes = RT_GROUP / RT_VEC;  // of a group
static_assert(kLanes >= 1 && kLanes <= 32, "a group lies in one warp");

// Writes the scale of group number `group`, and zeros behind the last row.
__device__ __forceinline__ void write_scale(float* scales, rt_u32 group, rt_u32 groups, rt_u32 rows, float scale) {
#if RT_COLUMN
  const rt_u32 row = group / groups, padded = (rows + 3) / 4 * 4;
  float* const to = scales + static_cast<rt_i64>(group % groups) * padded + row;
  *to = scale;
  if (row + 1 == rows) {
    for (rt_u32 k = 1; row + k < padded; ++k) to[k] = 0.0f;
  }
#else
  scales[group] = scale;
#endif
}
#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_quantize_flat(const Store* x,
#if RT_GROUP
                                                                        rt_u8* q, float* scales, float amax_floor,
#else
                                                                        const float* scale, rt_u8* q,
#endif
                                                                        rt_i64 vectors, int groups, int rows) {
#if !RT_GROUP
  const float inverse = 1.0f / *scale;
#endif
  for (rt_i64 first = static_cast<rt_i64>(blockIdx.x) * kTile; first < vectors;
       first += static_cast<rt_i64>(gridDim.x) * kTile) {
    Vector in[RT_ITEMS];
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      const rt_i64 at = first + k * RT_BLOCK + threadIdx.x;
      in[k].fill(0);
      if (at < vectors) in[k].load_stream(x + at * RT_VEC);
    }
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      const rt_i64 at = first + k * RT_BLOCK + threadIdx.x;
      float v[RT_VEC];
      to_floats(in[k], v);
#if RT_GROUP
      float largest = rt_largest(v, 0.0f);
#pragma unroll
      for (int offset = kLanes / 2; offset > 0; offset /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, offset));
      }
      const RtScale s = rt_scale_of<RT_QTYPE, RT_POW2>(fmaxf(largest, amax_floor));
      const float inverse = s.inverse;
      if (threadIdx.x % kLanes == 0 && at < vectors) {
        write_scale(scales, static_cast<rt_u32>(at / kLanes), static_cast<rt_u32>(groups), static_cast<rt_u32>(rows),
                    s.scale);
      }
#endif
      if (at < vectors) rt_store_quantized<RT_QTYPE>(v, inverse, place(q, at));
    }
  }
}

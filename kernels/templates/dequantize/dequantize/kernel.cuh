// y = q · scale, for a scale of everything, of each row, of each 128 × 128 block or of each group of neighbours in a row.
//
// Defines: RT_DTYPE; RT_QTYPE; RT_SHARED (0 one scale, 1 one a row, 2 one a block, 3 one a group); RT_GROUP (columns that
// share a scale, for 2 and 3); RT_COLUMN (3: scales as [groups of a row, rows rounded up to 4] instead of [rows, groups
// of a row]); RT_BLOCK threads a block; RT_VEC elements a vector, a divisor of a row; RT_ITEMS vectors that a thread
// loads before it computes.
#include "common/quantized.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtQuantized<RT_QTYPE, RT_VEC> Quantized;
typedef RtVector<RT_DTYPE, RT_VEC> Vector;
constexpr int kTile = RT_BLOCK * RT_ITEMS;  // vectors

// Scale of vector number `at`; a row has `row_vectors` of them and `groups` scales.
__device__ __forceinline__ float scale_of(const float* scales, rt_u32 at, rt_u32 row_vectors, rt_u32 groups,
                                          rt_u32 padded) {
#if RT_SHARED == 0
  return *scales;
#elif RT_SHARED == 1
  return scales[at / row_vectors];
#elif RT_SHARED == 2
  const rt_u32 row = at / row_vectors, group = at % row_vectors / (RT_GROUP / RT_VEC);
  return scales[static_cast<rt_i64>(row / 128) * groups + group];
#elif RT_COLUMN
  const rt_u32 row = at / row_vectors, group = at % row_vectors / (RT_GROUP / RT_VEC);
  return scales[static_cast<rt_i64>(group) * padded + row];
#else
  return scales[at / (RT_GROUP / RT_VEC)];
#endif
}

__device__ __forceinline__ Vector scaled(const Quantized& in, float scale) {
  float v[RT_VEC];
  in.get(v);
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) v[i] *= scale;
  Vector out;
  out.set(v);
  return out;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK)
    rt_dequantize(const rt_u8* q, const float* scales, Vector::Store* y, int vectors, int row_vectors, int groups,
                  int padded) {
  const rt_u32 count = static_cast<rt_u32>(vectors);
  for (rt_u32 first = blockIdx.x * kTile; first < count; first += gridDim.x * kTile) {
    Quantized in[RT_ITEMS];
    float scale[RT_ITEMS];
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      const rt_u32 at = first + k * RT_BLOCK + threadIdx.x;
      if (at >= count) continue;
      in[k].load(q + static_cast<rt_i64>(at) * Quantized::kBits / 8);
      scale[k] = scale_of(scales, at, static_cast<rt_u32>(row_vectors), static_cast<rt_u32>(groups),
                          static_cast<rt_u32>(padded));
    }
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      const rt_u32 at = first + k * RT_BLOCK + threadIdx.x;
      if (at < count) scaled(in[k], scale[k]).store(y + static_cast<rt_i64>(at) * RT_VEC);
    }
  }
}

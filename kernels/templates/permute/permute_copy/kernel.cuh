// Permutation whose innermost axis stays innermost: rows are copied to their new places, in vectors.
//
// Defines: RT_DTYPE; RT_PERM, RT_RANK (common/permute.cuh); RT_BLOCK threads a block; RT_VEC elements a vector, a
// divisor of the innermost extent; RT_ITEMS vectors that a thread has in flight. At most 2^31 vectors.
#include "common/permute.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
constexpr int kInner = kRtGroups.count - 1;
static_assert(kRtGroups.source[kInner] == kInner, "the innermost axis stays");
constexpr rt_u32 kTile = RT_BLOCK * RT_ITEMS;

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK)
    rt_permute_copy(const Store* x, Store* y, rt_i64 d0, rt_i64 d1, rt_i64 d2, rt_i64 d3, rt_i64 d4,
                    rt_i64 d5, rt_i64 d6, rt_i64 d7) {
  const rt_i64 extent[kRtMaxAxes] = {d0, d1, d2, d3, d4, d5, d6, d7};
  const RtLayout layout = rt_layout(extent);
  const rt_u32 row = static_cast<rt_u32>(layout.extent[kInner] / RT_VEC);
  const rt_u32 vectors = static_cast<rt_u32>(d0 * d1 * d2 * d3 * d4 * d5 * d6 * d7 / RT_VEC);
  const rt_u32 first = blockIdx.x * kTile + threadIdx.x;
  Vector v[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    // In output order, so that stores are in one piece.
    const rt_u32 at = first + k * RT_BLOCK;
    if (at >= vectors) continue;
    const rt_u32 outer = at / row;
    v[k].load(x + rt_offsets<kInner, kInner>(layout, outer).from +
                     static_cast<rt_i64>(at - outer * row) * RT_VEC);
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    const rt_u32 at = first + k * RT_BLOCK;
    if (at < vectors) v[k].store(y + static_cast<rt_i64>(at) * RT_VEC);
  }
}

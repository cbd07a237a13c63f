// Permutation through boxes in shared memory (common/box.cuh): X is the run of innermost axes of the source, Y that of
// the output, so that both sides move whole lines however short the single axes are (patches of a video, channels first
// to channels last).
//
// Defines: those of common/box.cuh; RT_PERM, RT_RANK (common/permute.cuh); RT_EVEN0 … RT_EVEN7, powers of two that
// divide the extents. RT_UNIT is the extent of an innermost axis that stays, or 1.
#include "common/box.cuh"
#include "common/permute.cuh"

namespace {

constexpr RtRoles roles() {
  RtRoles roles = {};
  const int last = kRtGroups.count - 1;
  // Without the group that is the unit.
  const int count = kRtGroups.source[last] == last ? last : last + 1;
  bool in_x[kRtMaxAxes] = {}, in_y[kRtMaxAxes] = {};
  for (int o = count - 1; o >= 0 && kRtGroups.source[o] != count - 1; --o) {
    in_y[kRtGroups.source[o]] = true;
    roles.y.axis[roles.y.count++] = kRtGroups.source[o];
  }
  for (int g = count - 1; g >= 0 && !in_y[g]; --g) {
    in_x[g] = true;
    roles.x.axis[roles.x.count++] = g;
  }
  for (int o = count - 1; o >= 0; --o) {
    const int g = kRtGroups.source[o];
    if (!in_x[g] && !in_y[g]) roles.rest.axis[roles.rest.count++] = g;
  }
  return roles;
}

// What divides a unit and the extents of these axes.
constexpr int even_part(const RtAxes& axes) {
  const int even[kRtMaxAxes] = {RT_EVEN0, RT_EVEN1, RT_EVEN2, RT_EVEN3, RT_EVEN4, RT_EVEN5, RT_EVEN6, RT_EVEN7};
  rt_i64 product = rt_even_part(RT_UNIT);
  for (int i = 0; i < axes.count; ++i) {
    for (int s = 0; s < RT_RANK; ++s) product *= kRtGroups.of_axis[s] == axes.axis[i] ? even[s] : 1;
  }
  return rt_even_part(product);
}

struct Permutation {
  static constexpr RtRoles kRoles = roles();
  static constexpr int kEvenX = even_part(kRoles.x), kEvenY = even_part(kRoles.y);
  const rt_i64 (&extent)[kRtMaxAxes];

  // Anew for each box: kept, they would take registers that blocks need.
  __device__ __forceinline__ RtLayout layout() const {
    rt_i64 fresh[kRtMaxAxes];
#pragma unroll
    for (int s = 0; s < kRtMaxAxes; ++s) {
      fresh[s] = extent[s];
      asm volatile("" : "+l"(fresh[s]));
    }
    return rt_layout(fresh);
  }
};
static_assert(Permutation::kRoles.y.count > 0, "something moves");
typedef RtBoxes<Permutation> Boxes;

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK, RT_RESIDENT)
    rt_permute_box(const Boxes::Store* x, Boxes::Store* y, rt_i64 d0, rt_i64 d1, rt_i64 d2, rt_i64 d3, rt_i64 d4,
                   rt_i64 d5, rt_i64 d6, rt_i64 d7) {
  const rt_i64 extent[kRtMaxAxes] = {d0, d1, d2, d3, d4, d5, d6, d7};
  Boxes::move(x, y, {extent});
}

// Permutation through boxes in shared memory (common/box.cuh): X is the run of innermost axes of the source, Y that of
// the output, so that both sides move whole lines however short the single axes are (patches of a video, channels first
// to channels last).
//
// Defines: those of common/box.cuh; RT_PERM, RT_RANK (common/permute.cuh); RT_D0 … RT_D7, the extents: as
// constants they cost no divisions. RT_UNIT is the extent of an innermost axis that stays, or 1.
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
  const rt_i64 extent[kRtMaxAxes] = {RT_D0, RT_D1, RT_D2, RT_D3, RT_D4, RT_D5, RT_D6, RT_D7};
  rt_i64 product = rt_even_part(RT_UNIT);
  for (int i = 0; i < axes.count; ++i) {
    for (int s = 0; s < RT_RANK; ++s) product *= kRtGroups.of_axis[s] == axes.axis[i] ? rt_even_part(extent[s]) : 1;
  }
  return rt_even_part(product);
}

struct Permutation {
  static constexpr RtRoles kRoles = roles();
  static constexpr int kEvenX = even_part(kRoles.x), kEvenY = even_part(kRoles.y);

  static __device__ __forceinline__ RtLayout layout() {
    const rt_i64 extent[kRtMaxAxes] = {RT_D0, RT_D1, RT_D2, RT_D3, RT_D4, RT_D5, RT_D6, RT_D7};
    return rt_layout(extent);
  }
};
static_assert(Permutation::kRoles.y.count > 0, "something moves");
typedef RtBoxes<Permutation> Boxes;

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK, RT_RESIDENT)
    rt_permute_box(const Boxes::Store* x, Boxes::Store* y) {
  Boxes::move(x, y, Permutation());
}

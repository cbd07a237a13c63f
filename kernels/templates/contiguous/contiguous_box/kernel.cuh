// A strided view made contiguous through boxes in shared memory (common/box.cuh): X is the run of axes that are
// innermost in x, Y the run of those that are innermost in the output, so that both sides move whole lines of a
// transposed view.
//
// Defines: those of common/box.cuh; RT_RANK axes that count (1 … 5); RT_D0 … RT_D4 extents, RT_S0 … RT_S4 strides.
// RT_UNIT is the extent of the innermost axis where its stride is 1, or 1.
#include "common/box.cuh"

namespace {

constexpr rt_i64 kExtent[] = {RT_D0, RT_D1, RT_D2, RT_D3, RT_D4};
constexpr rt_i64 kStride[] = {RT_S0, RT_S1, RT_S2, RT_S3, RT_S4};
// Without the axis that is the unit.
constexpr int kAxes = kStride[RT_RANK - 1] == 1 ? RT_RANK - 1 : RT_RANK;

constexpr RtRoles roles() {
  RtRoles roles = {};
  bool in_x[5] = {};
  // The outermost axis whose neighbours are a unit apart, then the axes outside of Y that go on where X ends.
  rt_i64 end = RT_UNIT;
  int inner = kAxes;
  for (int axis = 0; axis < inner; ++axis) {
    if (in_x[axis] || kExtent[axis] == 1 || kStride[axis] != end) continue;
    in_x[axis] = true;
    roles.x.axis[roles.x.count++] = axis;
    if (inner == kAxes) inner = axis;
    end *= kExtent[axis];
    axis = -1;
  }
  for (int axis = kAxes - 1; axis > inner; --axis) roles.y.axis[roles.y.count++] = axis;
  for (int axis = inner - 1; axis >= 0; --axis) {
    if (!in_x[axis]) roles.rest.axis[roles.rest.count++] = axis;
  }
  return roles;
}

// What divides the extents of these axes together, and the strides.
constexpr int even_extent(const RtAxes& axes, rt_i64 run) {
  for (int i = 0; i < axes.count; ++i) run *= kExtent[axes.axis[i]];
  return rt_even_part(run);
}
constexpr int even_stride(const RtAxes& axes, int even) {
  for (int i = 0; i < axes.count; ++i) even = rt_least(even, rt_even_part(kStride[axes.axis[i]]));
  return even;
}

struct View {
  static constexpr RtRoles kRoles = roles();
  static constexpr int kEvenX = even_stride(kRoles.y, even_stride(kRoles.rest, even_extent(kRoles.x, RT_UNIT)));
  static constexpr int kEvenY = even_extent(kRoles.y, RT_UNIT);

  static __device__ __forceinline__ RtLayout layout() {
    RtLayout layout = {};
    rt_i64 to = RT_UNIT;
#pragma unroll
    for (int axis = kAxes - 1; axis >= 0; --axis) {
      layout.extent[axis] = kExtent[axis];
      layout.from[axis] = kStride[axis];
      layout.to[axis] = to;
      to *= kExtent[axis];
    }
    return layout;
  }
};
static_assert(View::kRoles.x.count > 0, "some axis has its neighbours next to it in x");
typedef RtBoxes<View> Boxes;

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK, RT_RESIDENT)
    rt_contiguous_box(const Boxes::Store* x, Boxes::Store* y) {
  Boxes::move(x, y, View());
}

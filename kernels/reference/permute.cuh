// Reference of permute: element by element, y[i0, i1, …] = x at the same coordinates in x's order.
// The magnitude is 0: a copy has no rounding.
// Defines: RT_DTYPE, RT_PERM (digits), RT_RANK. Launch: 256 threads, one thread an element.
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;

extern "C" __global__ void __launch_bounds__(256)
    rt_reference(const Type::Store* x, double* value, float* magnitude, rt_i64 d0, rt_i64 d1, rt_i64 d2, rt_i64 d3,
                 rt_i64 d4, rt_i64 d5, rt_i64 d6, rt_i64 d7) {
  const rt_i64 id = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const rt_i64 extent[8] = {d0, d1, d2, d3, d4, d5, d6, d7};
  if (id >= d0 * d1 * d2 * d3 * d4 * d5 * d6 * d7) return;
  rt_i64 coordinate[8] = {};  // by axis of x
  rt_i64 rest = id;
  int digits = RT_PERM;
  for (int axis = RT_RANK - 1; axis >= 0; --axis) {
    const int source = digits % 10;
    coordinate[source] = rest % extent[source];
    rest /= extent[source];
    digits /= 10;
  }
  rt_i64 from = 0;
  for (int axis = 0; axis < 8; ++axis) from = from * extent[axis] + coordinate[axis];
  value[id] = static_cast<double>(Type::load(x[from]));
  magnitude[id] = 0;
}

// Reference of contiguous: element by element, y[i0, i1, …] = x[i0·s0 + i1·s1 + …]. A copy has no rounding.
// Defines: RT_DTYPE. Launch: 256 threads, one thread an element.
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;

extern "C" __global__ void __launch_bounds__(256)
    rt_reference(const Type::Store* x, double* value, float* magnitude, rt_i64 d0, rt_i64 d1, rt_i64 d2, rt_i64 d3,
                 rt_i64 d4, rt_i64 s0, rt_i64 s1, rt_i64 s2, rt_i64 s3, rt_i64 s4) {
  const rt_i64 id = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (id >= d0 * d1 * d2 * d3 * d4) return;
  const rt_i64 i4 = id % d4, i3 = id / d4 % d3, i2 = id / d4 / d3 % d2, i1 = id / d4 / d3 / d2 % d1;
  const rt_i64 i0 = id / d4 / d3 / d2 / d1;
  value[id] = static_cast<double>(Type::load(x[i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3 + i4 * s4]));
  magnitude[id] = 0;
}

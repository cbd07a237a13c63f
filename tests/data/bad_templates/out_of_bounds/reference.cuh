// y = 2·x.
#include "common/types.cuh"

extern "C" __global__ void rt_reference(const float* x, double* value, float* magnitude, rt_i64 n) {
  const rt_i64 i = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  value[i] = 2.0 * x[i];
  magnitude[i] = static_cast<float>(fabs(value[i]));
}

// y = 2·x with a fault to order. Writes one element past the end of the output where fault = 1.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_double(const float* x, float* y, rt_i64 n) {
  const rt_i64 i = static_cast<rt_i64>(blockIdx.x) * RT_BLOCK + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
  if (RT_FAULT && i == 0) y[n] = 1.0f;
}

// y = 2·x with a fault to order. The last element is off by a factor where fault = 1.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_double(const float* x, float* y, rt_i64 n) {
  const rt_i64 i = static_cast<rt_i64>(blockIdx.x) * RT_BLOCK + threadIdx.x;
  if (i < n) y[i] = (RT_FAULT && i == n - 1 ? 3.0f : 2.0f) * x[i];
}

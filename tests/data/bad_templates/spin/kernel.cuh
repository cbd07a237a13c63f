// y = 2·x with a fault to order. Does not end for 60 seconds where fault = 1: long past every deadline, yet not
// forever.
#include "common/types.cuh"

__device__ rt_u64 nanoseconds() {
  rt_u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_double(const float* x, float* y, rt_i64 n) {
  const rt_i64 i = static_cast<rt_i64>(blockIdx.x) * RT_BLOCK + threadIdx.x;
  if (RT_FAULT) {
    const rt_u64 start = nanoseconds();
    while (nanoseconds() - start < 60000000000ull) {
    }
  }
  if (i < n) y[i] = 2.0f * x[i];
}

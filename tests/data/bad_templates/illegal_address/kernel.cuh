// y = 2·x with a fault to order. Writes to an unmapped address where fault = 1.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_double(const float* x, float* y, rt_i64 n) {
  const rt_i64 i = static_cast<rt_i64>(blockIdx.x) * RT_BLOCK + threadIdx.x;
  if (RT_FAULT && i == 0) {
    // The first pages of the address space are never mapped.
    asm volatile("st.global.f32 [%0], %1;" ::"l"(16ull), "f"(1.0f) : "memory");
  }
  if (i < n) y[i] = 2.0f * x[i];
}

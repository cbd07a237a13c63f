// Activations of gated linear units and after norms.
#pragma once

#include "common/types.cuh"

// ACT: 2 gelu in its tanh form, 3 silu. Both are g / (1 + e^−z): silu with z = g, gelu with
// z = 2·√(2/π)·(g + 0.044715·g³). Multiplied by the reciprocal: a division asks for its divisor's range, a comparison
// and two products more. Results smaller than 1.1e-36 may be 0.
template <int ACT>
__device__ __forceinline__ float rt_glu_activate(float g) {
  const float z = ACT == 3 ? g : 1.5957691216057308f * fmaf(0.044715f * g * g, g, g);
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + rt_exp(-z)));
  return g * r;
}

// Products of a warp on tensor cores (sm_80 and later), fp16 or bf16 (RT_DTYPE) with fp32 sums.
#pragma once
#include "common/types.cuh"

// c[16 × 8] += a[16 × 16] · b[8 × 16]ᵀ, each lane with its fragments.
__device__ __forceinline__ void multiply(float* c, const rt_u32* a, const rt_u32* b) {
#if RT_DTYPE == RT_BF16
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

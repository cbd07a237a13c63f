// Products of a warp on tensor cores (sm_80 and later): fp16 or bf16 (RT_DTYPE) with fp32 sums, int8 with int32 ones,
// 8-bit floats with fp32 ones (sm_89).
//
// Operands are counted in units of two bytes, along k: an element of 16 bits, or two neighbours of 8. Fragments of
// m16n8k32 with 8-bit elements are those of m16n8k16 with such units.
#pragma once
#include "common/types.cuh"

#if RT_DTYPE == RT_INT8
typedef int RtSum;
#define RT_MMA_SUM(c) "+r"(c)
#define RT_MMA_FRESH(c) "=r"(c)
#define RT_MMA_ZERO "r"(0)
#define RT_MMA_TYPES "m16n8k32.row.col.s32.s8.s8.s32"
#else
typedef float RtSum;
#define RT_MMA_SUM(c) "+f"(c)
#define RT_MMA_FRESH(c) "=f"(c)
#define RT_MMA_ZERO "f"(0.0f)
#if RT_DTYPE == RT_BF16
#define RT_MMA_TYPES "m16n8k16.row.col.f32.bf16.bf16.f32"
#elif RT_DTYPE == RT_FP16
#define RT_MMA_TYPES "m16n8k16.row.col.f32.f16.f16.f32"
#elif RT_DTYPE == RT_FP8_E4M3
#define RT_MMA_TYPES "m16n8k32.row.col.f32.e4m3.e4m3.f32"
#elif RT_DTYPE == RT_FP8_E5M2
#define RT_MMA_TYPES "m16n8k32.row.col.f32.e5m2.e5m2.f32"
#endif
#endif

// c[16 × 8] += a[16 × 16 units] · b[8 × 16 units]ᵀ, each lane with its fragments.
__device__ __forceinline__ void multiply(RtSum* c, const rt_u32* a, const rt_u32* b) {
  asm("mma.sync.aligned." RT_MMA_TYPES " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : RT_MMA_SUM(c[0]), RT_MMA_SUM(c[1]), RT_MMA_SUM(c[2]), RT_MMA_SUM(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// c = a · b: the hardware has a zero to add to, registers would have to be set.
__device__ __forceinline__ void multiply_fresh(RtSum* c, const rt_u32* a, const rt_u32* b) {
  asm("mma.sync.aligned." RT_MMA_TYPES " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : RT_MMA_FRESH(c[0]), RT_MMA_FRESH(c[1]), RT_MMA_FRESH(c[2]), RT_MMA_FRESH(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), RT_MMA_ZERO);
}

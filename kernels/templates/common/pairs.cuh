// Two 16-bit floats in a word, D is RT_BF16 or RT_FP16.
#pragma once

#include "common/types.cuh"

// The larger ones of two pairs; a NaN beside a number is no maximum.
template <int D>
__device__ __forceinline__ rt_u32 rt_larger_pair(rt_u32 a, rt_u32 b) {
  rt_u32 v;
  if constexpr (D == RT_BF16) {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
  } else {
    asm("max.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
  }
  return v;
}

// Takes `pair` into the largest ones so far and, where it is larger, `index` into theirs. A NaN stays and leaves the
// index as it was. Of bf16 from sm_90 on.
template <int D>
__device__ __forceinline__ void rt_take_larger(rt_u32 pair, int index, rt_u32* largest, int* low, int* high) {
  if constexpr (D == RT_BF16) {
    asm("{.reg .pred p, q; setp.gt.bf16x2 p|q, %3, %0; max.NaN.bf16x2 %0, %0, %3;"
        " @p mov.b32 %1, %4; @q mov.b32 %2, %4;}"
        : "+r"(*largest), "+r"(*low), "+r"(*high)
        : "r"(pair), "r"(index));
  } else {
    asm("{.reg .pred p, q; setp.gt.f16x2 p|q, %3, %0; max.NaN.f16x2 %0, %0, %3;"
        " @p mov.b32 %1, %4; @q mov.b32 %2, %4;}"
        : "+r"(*largest), "+r"(*low), "+r"(*high)
        : "r"(pair), "r"(index));
  }
}

// Integer codes of 4 or 8 bits to pairs of fp16 or bf16, minus a zero point. Exact: every difference is an integer of
// at most 8 bits, which both types hold.
//
// Codes are or-ed into the mantissa of a power of two whose unit is 1 (1024 in fp16, 128 in bf16), which is subtracted
// again together with the zero point; bf16 has 7 such bits, so that the eighth bit of an int8 chooses what is
// subtracted.
#pragma once

#include "common/types.cuh"

// a − b of two packed pairs.
template <int D>
__device__ __forceinline__ rt_u32 rt_sub2(rt_u32 a, rt_u32 b) {
  rt_u32 r;
  if constexpr (D == RT_FP16) {
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  } else {
    // sm_80 has no subtraction of bf16: b · −1 + a.
    asm("fma.rn.bf16x2 %0, %2, %3, %1;" : "=r"(r) : "r"(a), "r"(b), "r"(0xBF80BF80u));
  }
  return r;
}

// (a & MASK) | b.
template <rt_u32 MASK>
__device__ __forceinline__ rt_u32 rt_mask_or(rt_u32 a, rt_u32 b) {
  rt_u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(a), "n"(MASK), "r"(b));
  return r;
}

template <int D, int BITS>
struct RtCodes {
  static constexpr rt_u32 kUnit = D == RT_FP16 ? 0x64006400u : 0x43004300u;
  // Zero point where none is stored.
  static constexpr int kMiddle = BITS == 4 ? 8 : 0;

  // What rt_unpack takes for zero point `zero`.
  static __device__ __forceinline__ rt_u32 offset(int zero) {
    const int base = D == RT_FP16 ? (BITS == 4 ? 1024 : 1024 + 128) : (BITS == 4 ? 128 : 0);
    const float f = static_cast<float>(base + zero);
    return rt_pack2<D>(f, f);
  }

  // 8 codes of 4 bits to pairs (0, 4), (1, 5), (2, 6), (3, 7): rt_interleave gives the other operand that order.
  // 4 codes of 8 bits to pairs (0, 1), (2, 3).
  static __device__ __forceinline__ void unpack(rt_u32 word, rt_u32 offset, rt_u32* pair) {
    if constexpr (BITS == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) pair[i] = rt_sub2<D>(rt_mask_or<0x000F000Fu>(word >> (4 * i), kUnit), offset);
    } else if constexpr (D == RT_FP16) {
      const rt_u32 biased = word ^ 0x80808080u;
      pair[0] = rt_sub2<D>(__byte_perm(biased, 0x64646464u, 0x4140), offset);
      pair[1] = rt_sub2<D>(__byte_perm(biased, 0x64646464u, 0x4342), offset);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const rt_u32 h = __byte_perm(word, 0, i == 0 ? 0x4140 : 0x4342);
        // 128 + the low 7 bits − 128, or − 256 where the sign is set.
        pair[i] = rt_sub2<D>(rt_mask_or<0x007F007Fu>(h, kUnit), rt_mask_or<0x00800080u>(h, kUnit));
        if (RT_ZERO) pair[i] = rt_sub2<D>(pair[i], offset);
      }
    }
  }
};

// 8 neighbouring 16-bit values to the order of 8 codes of 4 bits after unpack.
__device__ __forceinline__ void rt_interleave(rt_u32* v) {
  const rt_u32 a = v[0], b = v[1], c = v[2], d = v[3];
  v[0] = __byte_perm(a, c, 0x5410);
  v[1] = __byte_perm(a, c, 0x7632);
  v[2] = __byte_perm(b, d, 0x5410);
  v[3] = __byte_perm(b, d, 0x7632);
}

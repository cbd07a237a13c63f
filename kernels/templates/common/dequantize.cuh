// Integer codes of 4 or 8 bits to pairs of fp16 or bf16, minus a zero point, in units of 1 / kUnits. Exact: every
// difference is an integer of at most 8 bits, which both types hold.
//
// A code in the low 8 bits of either type is its own value times the smallest subnormal number: no bits have to be
// or-ed in, and in bf16, where the eighth of these bits belongs to the exponent, that still holds, since subnormal
// numbers and the first normal ones are evenly spaced. One fused multiply-add brings the pair to 1 / kUnits and takes
// off the zero point. Integer instructions, of which an SM does half as many a cycle, are two or three for four codes.
#pragma once

#include "common/types.cuh"

// a · b + c of packed pairs.
template <int D>
__device__ __forceinline__ rt_u32 rt_fma2(rt_u32 a, rt_u32 b, rt_u32 c) {
  rt_u32 r;
  if constexpr (D == RT_FP16) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  }
  return r;
}

template <int D, int BITS>
struct RtCodes {
  // The smallest subnormal number is 2^-24 or 2^-133, the largest power of two 2^15 or 2^127.
  static constexpr int kUnits = D == RT_FP16 ? 512 : 64;
  static constexpr rt_u32 kLargest = D == RT_FP16 ? 0x78007800u : 0x7F007F00u;
  // A sixteenth of it, for codes that lie four bits higher.
  static constexpr rt_u32 kSixteenth = D == RT_FP16 ? 0x68006800u : 0x7D007D00u;
  // Zero point where none is stored.
  static constexpr int kMiddle = BITS == 4 ? 8 : 0;

  // What unpack adds for zero point `zero`. Codes of 8 bits are made unsigned first.
  static __device__ __forceinline__ rt_u32 offset(int zero) {
    const float f = static_cast<float>(zero + (BITS == 4 ? 0 : 128)) * (-1.0f / kUnits);
    return rt_pack2<D>(f, f);
  }

  // 8 codes of 4 bits to pairs (0, 4), (1, 5), (2, 6), (3, 7): rt_interleave gives the other operand that order.
  // 4 codes of 8 bits to pairs (0, 1), (2, 3).
  static __device__ __forceinline__ void unpack(rt_u32 word, rt_u32 offset, rt_u32* pair) {
    if constexpr (BITS == 4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        pair[2 * i] = rt_fma2<D>(word & 0x000F000Fu, kLargest, offset);
        pair[2 * i + 1] = rt_fma2<D>(word & 0x00F000F0u, kSixteenth, offset);
        word >>= 8;
      }
    } else {
      const rt_u32 biased = word ^ 0x80808080u;
      pair[0] = rt_fma2<D>(__byte_perm(biased, 0, 0x4140), kLargest, offset);
      pair[1] = rt_fma2<D>(__byte_perm(biased, 0, 0x4342), kLargest, offset);
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

// Warpgroup matrix multiply of 16-bit floats with the 64-row operand in registers: D[64, N] += A[64, 16]·B[16, N].
//
// Thread t of the warpgroup holds of A, with g = (t % 32) / 4 and row 16·(t / 32) + g: columns 2·(t % 4) and the next
// in a[0], the same eight rows below in a[1], eight columns further in a[2] and a[3]. These registers belong to the
// product until rt_wgmma_wait.
#pragma once
#include "common/wgmma.cuh"

// multiply: sums = a·b + (accumulate ? sums : 0); b lies along k.
template <int N>
struct RtWgmmaRegisters;

#define RT_WGMMA_REGISTERS_CASE(N, REGISTERS, SUMS, A0, A1, A2, A3, B, ACCUMULATE)                            \
  template <>                                                                                                 \
  struct RtWgmmaRegisters<N> {                                                                                \
    static __device__ __forceinline__ void multiply(RtSum* d, const rt_u32* a, rt_u64 b, int accumulate) {    \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #ACCUMULATE                                              \
                   ", 0;\n"                                                                                   \
                   "wgmma.mma_async.sync.aligned.m64n" #N RT_WGMMA_TYPES " {" REGISTERS "}, {%" #A0 ", %" #A1 \
                   ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, 0;}"                                             \
                   : SUMS                                                                                     \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                    \
    }                                                                                                         \
  }
RT_WGMMA_REGISTERS_CASE(8, RT_WGMMA_R4, RT_WGMMA_D4, 4, 5, 6, 7, 8, 9);
RT_WGMMA_REGISTERS_CASE(16, RT_WGMMA_R8, RT_WGMMA_D8, 8, 9, 10, 11, 12, 13);
RT_WGMMA_REGISTERS_CASE(32, RT_WGMMA_R16, RT_WGMMA_D16, 16, 17, 18, 19, 20, 21);
RT_WGMMA_REGISTERS_CASE(48, RT_WGMMA_R24, RT_WGMMA_D24, 24, 25, 26, 27, 28, 29);
RT_WGMMA_REGISTERS_CASE(64, RT_WGMMA_R32, RT_WGMMA_D32, 32, 33, 34, 35, 36, 37);
RT_WGMMA_REGISTERS_CASE(96, RT_WGMMA_R48, RT_WGMMA_D48, 48, 49, 50, 51, 52, 53);
RT_WGMMA_REGISTERS_CASE(128, RT_WGMMA_R64, RT_WGMMA_D64, 64, 65, 66, 67, 68, 69);
RT_WGMMA_REGISTERS_CASE(192, RT_WGMMA_R96, RT_WGMMA_D96, 96, 97, 98, 99, 100, 101);
RT_WGMMA_REGISTERS_CASE(256, RT_WGMMA_R128, RT_WGMMA_D128, 128, 129, 130, 131, 132, 133);

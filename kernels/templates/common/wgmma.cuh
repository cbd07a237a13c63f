// Warpgroup matrix multiply (sm_90a): D[64, N] += A[64, 32 bytes]·B[32 bytes, N], operands in shared memory, sums in
// registers: fp32 of fp16, bf16 and 8-bit floats (of which both operands have the same type and rows along k), int32
// of int8. Reads RT_DTYPE.
//
// Thread t of the warpgroup holds, for every eight columns j, sums j·4 … j·4 + 3: row 16·(t / 32) + (t % 32) / 4,
// columns 8·j + 2·(t % 4) and the next; then the same eight rows below.
#pragma once
#include "common/types.cuh"

// Types with the depth of a step, and what follows the operands: signs, then which ones lie across k.
#if RT_DTYPE == RT_BF16
#define RT_WGMMA_TYPES "k16.f32.bf16.bf16"
#elif RT_DTYPE == RT_FP16
#define RT_WGMMA_TYPES "k16.f32.f16.f16"
#elif RT_DTYPE == RT_FP8_E4M3
#define RT_WGMMA_TYPES "k32.f32.e4m3.e4m3"
#elif RT_DTYPE == RT_FP8_E5M2
#define RT_WGMMA_TYPES "k32.f32.e5m2.e5m2"
#elif RT_DTYPE == RT_INT8
#define RT_WGMMA_TYPES "k32.s32.s8.s8"
#endif
#if RT_DTYPE == RT_INT8
typedef int RtSum;
#define RT_WGMMA_SUM(d) "+r"(d)
#define RT_WGMMA_FLAGS(TA, TB)
#else
typedef float RtSum;
#define RT_WGMMA_SUM(d) "+f"(d)
#if RT_DTYPE == RT_BF16 || RT_DTYPE == RT_FP16
#define RT_WGMMA_FLAGS(TA, TB) ", 1, 1, %" #TA ", %" #TB
#else
#define RT_WGMMA_FLAGS(TA, TB) ", 1, 1"
#endif
#endif

// Upper half of the descriptor of an operand with 128-byte swizzle: eight rows of 128 bytes are 1024 apart.
constexpr rt_u32 kRtOperandHigh = (1u << 30) | (1024 >> 4);
// Lower half: address (16-byte units), and bytes between slabs of 128 bytes where the operand is not along k. In a
// cluster, address bits 24 and up name the block and would fall among the slab bits.
__device__ __forceinline__ rt_u32 rt_operand_low(rt_u32 address, rt_u32 slab_bytes) {
  return (address & 0x3ffff) >> 4 | (slab_bytes >> 4) << 16;
}
__device__ __forceinline__ rt_u64 rt_operand(rt_u32 low) { return (static_cast<rt_u64>(kRtOperandHigh) << 32) | low; }

// Before the first multiply, and between any other use of the sums' registers and the next one.
__device__ __forceinline__ void rt_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void rt_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until all but the last N groups are done.
template <int N>
__device__ __forceinline__ void rt_wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Keeps the compiler from reading or moving a sum before the wait above.
__device__ __forceinline__ void rt_wgmma_pin(RtSum& sum) { asm volatile("" : RT_WGMMA_SUM(sum)::"memory"); }

// Registers of each thread of a warpgroup, a multiple of 8; all of its threads call it.
template <int N>
__device__ __forceinline__ void rt_registers_raise() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void rt_registers_lower() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// multiply: sums = a·b + (accumulate ? sums : 0). TRANS_A and TRANS_B: 0 along k, 1 along m or n.
template <int N, int TRANS_A, int TRANS_B>
struct RtWgmma;

#define RT_WGMMA_R4 "%0, %1, %2, %3"
#define RT_WGMMA_D4 RT_WGMMA_SUM(d[0]), RT_WGMMA_SUM(d[1]), RT_WGMMA_SUM(d[2]), RT_WGMMA_SUM(d[3])
#define RT_WGMMA_R8 RT_WGMMA_R4 ", %4, %5, %6, %7"
#define RT_WGMMA_D8 RT_WGMMA_D4, RT_WGMMA_SUM(d[4]), RT_WGMMA_SUM(d[5]), RT_WGMMA_SUM(d[6]), RT_WGMMA_SUM(d[7])
#define RT_WGMMA_R12 RT_WGMMA_R8 ", %8, %9, %10, %11"
#define RT_WGMMA_D12 RT_WGMMA_D8, RT_WGMMA_SUM(d[8]), RT_WGMMA_SUM(d[9]), RT_WGMMA_SUM(d[10]), RT_WGMMA_SUM(d[11])
#define RT_WGMMA_R16 RT_WGMMA_R12 ", %12, %13, %14, %15"
#define RT_WGMMA_D16 RT_WGMMA_D12, RT_WGMMA_SUM(d[12]), RT_WGMMA_SUM(d[13]), RT_WGMMA_SUM(d[14]), RT_WGMMA_SUM(d[15])
#define RT_WGMMA_R20 RT_WGMMA_R16 ", %16, %17, %18, %19"
#define RT_WGMMA_D20 RT_WGMMA_D16, RT_WGMMA_SUM(d[16]), RT_WGMMA_SUM(d[17]), RT_WGMMA_SUM(d[18]), RT_WGMMA_SUM(d[19])
#define RT_WGMMA_R24 RT_WGMMA_R20 ", %20, %21, %22, %23"
#define RT_WGMMA_D24 RT_WGMMA_D20, RT_WGMMA_SUM(d[20]), RT_WGMMA_SUM(d[21]), RT_WGMMA_SUM(d[22]), RT_WGMMA_SUM(d[23])
#define RT_WGMMA_R28 RT_WGMMA_R24 ", %24, %25, %26, %27"
#define RT_WGMMA_D28 RT_WGMMA_D24, RT_WGMMA_SUM(d[24]), RT_WGMMA_SUM(d[25]), RT_WGMMA_SUM(d[26]), RT_WGMMA_SUM(d[27])
#define RT_WGMMA_R32 RT_WGMMA_R28 ", %28, %29, %30, %31"
#define RT_WGMMA_D32 RT_WGMMA_D28, RT_WGMMA_SUM(d[28]), RT_WGMMA_SUM(d[29]), RT_WGMMA_SUM(d[30]), RT_WGMMA_SUM(d[31])
#define RT_WGMMA_R36 RT_WGMMA_R32 ", %32, %33, %34, %35"
#define RT_WGMMA_D36 RT_WGMMA_D32, RT_WGMMA_SUM(d[32]), RT_WGMMA_SUM(d[33]), RT_WGMMA_SUM(d[34]), RT_WGMMA_SUM(d[35])
#define RT_WGMMA_R40 RT_WGMMA_R36 ", %36, %37, %38, %39"
#define RT_WGMMA_D40 RT_WGMMA_D36, RT_WGMMA_SUM(d[36]), RT_WGMMA_SUM(d[37]), RT_WGMMA_SUM(d[38]), RT_WGMMA_SUM(d[39])
#define RT_WGMMA_R44 RT_WGMMA_R40 ", %40, %41, %42, %43"
#define RT_WGMMA_D44 RT_WGMMA_D40, RT_WGMMA_SUM(d[40]), RT_WGMMA_SUM(d[41]), RT_WGMMA_SUM(d[42]), RT_WGMMA_SUM(d[43])
#define RT_WGMMA_R48 RT_WGMMA_R44 ", %44, %45, %46, %47"
#define RT_WGMMA_D48 RT_WGMMA_D44, RT_WGMMA_SUM(d[44]), RT_WGMMA_SUM(d[45]), RT_WGMMA_SUM(d[46]), RT_WGMMA_SUM(d[47])
#define RT_WGMMA_R52 RT_WGMMA_R48 ", %48, %49, %50, %51"
#define RT_WGMMA_D52 RT_WGMMA_D48, RT_WGMMA_SUM(d[48]), RT_WGMMA_SUM(d[49]), RT_WGMMA_SUM(d[50]), RT_WGMMA_SUM(d[51])
#define RT_WGMMA_R56 RT_WGMMA_R52 ", %52, %53, %54, %55"
#define RT_WGMMA_D56 RT_WGMMA_D52, RT_WGMMA_SUM(d[52]), RT_WGMMA_SUM(d[53]), RT_WGMMA_SUM(d[54]), RT_WGMMA_SUM(d[55])
#define RT_WGMMA_R60 RT_WGMMA_R56 ", %56, %57, %58, %59"
#define RT_WGMMA_D60 RT_WGMMA_D56, RT_WGMMA_SUM(d[56]), RT_WGMMA_SUM(d[57]), RT_WGMMA_SUM(d[58]), RT_WGMMA_SUM(d[59])
#define RT_WGMMA_R64 RT_WGMMA_R60 ", %60, %61, %62, %63"
#define RT_WGMMA_D64 RT_WGMMA_D60, RT_WGMMA_SUM(d[60]), RT_WGMMA_SUM(d[61]), RT_WGMMA_SUM(d[62]), RT_WGMMA_SUM(d[63])
#define RT_WGMMA_R72 RT_WGMMA_R64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define RT_WGMMA_D72                                                                                \
  RT_WGMMA_D64, RT_WGMMA_SUM(d[64]), RT_WGMMA_SUM(d[65]), RT_WGMMA_SUM(d[66]), RT_WGMMA_SUM(d[67]), \
      RT_WGMMA_SUM(d[68]), RT_WGMMA_SUM(d[69]), RT_WGMMA_SUM(d[70]), RT_WGMMA_SUM(d[71])
#define RT_WGMMA_R80 RT_WGMMA_R72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define RT_WGMMA_D80                                                                                \
  RT_WGMMA_D72, RT_WGMMA_SUM(d[72]), RT_WGMMA_SUM(d[73]), RT_WGMMA_SUM(d[74]), RT_WGMMA_SUM(d[75]), \
      RT_WGMMA_SUM(d[76]), RT_WGMMA_SUM(d[77]), RT_WGMMA_SUM(d[78]), RT_WGMMA_SUM(d[79])
#define RT_WGMMA_R88 RT_WGMMA_R80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define RT_WGMMA_D88                                                                                \
  RT_WGMMA_D80, RT_WGMMA_SUM(d[80]), RT_WGMMA_SUM(d[81]), RT_WGMMA_SUM(d[82]), RT_WGMMA_SUM(d[83]), \
      RT_WGMMA_SUM(d[84]), RT_WGMMA_SUM(d[85]), RT_WGMMA_SUM(d[86]), RT_WGMMA_SUM(d[87])
#define RT_WGMMA_R96 RT_WGMMA_R88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define RT_WGMMA_D96                                                                                \
  RT_WGMMA_D88, RT_WGMMA_SUM(d[88]), RT_WGMMA_SUM(d[89]), RT_WGMMA_SUM(d[90]), RT_WGMMA_SUM(d[91]), \
      RT_WGMMA_SUM(d[92]), RT_WGMMA_SUM(d[93]), RT_WGMMA_SUM(d[94]), RT_WGMMA_SUM(d[95])
#define RT_WGMMA_R104 RT_WGMMA_R96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define RT_WGMMA_D104                                                                               \
  RT_WGMMA_D96, RT_WGMMA_SUM(d[96]), RT_WGMMA_SUM(d[97]), RT_WGMMA_SUM(d[98]), RT_WGMMA_SUM(d[99]), \
      RT_WGMMA_SUM(d[100]), RT_WGMMA_SUM(d[101]), RT_WGMMA_SUM(d[102]), RT_WGMMA_SUM(d[103])
#define RT_WGMMA_R112 RT_WGMMA_R104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define RT_WGMMA_D112                                                                                    \
  RT_WGMMA_D104, RT_WGMMA_SUM(d[104]), RT_WGMMA_SUM(d[105]), RT_WGMMA_SUM(d[106]), RT_WGMMA_SUM(d[107]), \
      RT_WGMMA_SUM(d[108]), RT_WGMMA_SUM(d[109]), RT_WGMMA_SUM(d[110]), RT_WGMMA_SUM(d[111])
#define RT_WGMMA_R120 RT_WGMMA_R112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define RT_WGMMA_D120                                                                                    \
  RT_WGMMA_D112, RT_WGMMA_SUM(d[112]), RT_WGMMA_SUM(d[113]), RT_WGMMA_SUM(d[114]), RT_WGMMA_SUM(d[115]), \
      RT_WGMMA_SUM(d[116]), RT_WGMMA_SUM(d[117]), RT_WGMMA_SUM(d[118]), RT_WGMMA_SUM(d[119])
#define RT_WGMMA_R128 RT_WGMMA_R120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define RT_WGMMA_D128                                                                                    \
  RT_WGMMA_D120, RT_WGMMA_SUM(d[120]), RT_WGMMA_SUM(d[121]), RT_WGMMA_SUM(d[122]), RT_WGMMA_SUM(d[123]), \
      RT_WGMMA_SUM(d[124]), RT_WGMMA_SUM(d[125]), RT_WGMMA_SUM(d[126]), RT_WGMMA_SUM(d[127])

#define RT_WGMMA_CASE(N, REGISTERS, SUMS, A, B, ACCUMULATE, TA, TB)                                        \
  template <int TRANS_A, int TRANS_B>                                                                      \
  struct RtWgmma<N, TRANS_A, TRANS_B> {                                                                    \
    static __device__ __forceinline__ void multiply(RtSum* d, rt_u64 a, rt_u64 b, int accumulate) {        \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #ACCUMULATE                                           \
                   ", 0;\n"                                                                                \
                   "wgmma.mma_async.sync.aligned.m64n" #N RT_WGMMA_TYPES " {" REGISTERS "}, %" #A ", %" #B \
                   ", p" RT_WGMMA_FLAGS(TA, TB) ";}"                                                       \
                   : SUMS                                                                                  \
                   : "l"(a), "l"(b), "r"(accumulate), "n"(TRANS_A), "n"(TRANS_B));                         \
    }                                                                                                      \
  }
RT_WGMMA_CASE(8, RT_WGMMA_R4, RT_WGMMA_D4, 4, 5, 6, 7, 8);
RT_WGMMA_CASE(16, RT_WGMMA_R8, RT_WGMMA_D8, 8, 9, 10, 11, 12);
RT_WGMMA_CASE(24, RT_WGMMA_R12, RT_WGMMA_D12, 12, 13, 14, 15, 16);
RT_WGMMA_CASE(32, RT_WGMMA_R16, RT_WGMMA_D16, 16, 17, 18, 19, 20);
RT_WGMMA_CASE(40, RT_WGMMA_R20, RT_WGMMA_D20, 20, 21, 22, 23, 24);
RT_WGMMA_CASE(48, RT_WGMMA_R24, RT_WGMMA_D24, 24, 25, 26, 27, 28);
RT_WGMMA_CASE(56, RT_WGMMA_R28, RT_WGMMA_D28, 28, 29, 30, 31, 32);
RT_WGMMA_CASE(64, RT_WGMMA_R32, RT_WGMMA_D32, 32, 33, 34, 35, 36);
RT_WGMMA_CASE(72, RT_WGMMA_R36, RT_WGMMA_D36, 36, 37, 38, 39, 40);
RT_WGMMA_CASE(80, RT_WGMMA_R40, RT_WGMMA_D40, 40, 41, 42, 43, 44);
RT_WGMMA_CASE(88, RT_WGMMA_R44, RT_WGMMA_D44, 44, 45, 46, 47, 48);
RT_WGMMA_CASE(96, RT_WGMMA_R48, RT_WGMMA_D48, 48, 49, 50, 51, 52);
RT_WGMMA_CASE(104, RT_WGMMA_R52, RT_WGMMA_D52, 52, 53, 54, 55, 56);
RT_WGMMA_CASE(112, RT_WGMMA_R56, RT_WGMMA_D56, 56, 57, 58, 59, 60);
RT_WGMMA_CASE(120, RT_WGMMA_R60, RT_WGMMA_D60, 60, 61, 62, 63, 64);
RT_WGMMA_CASE(128, RT_WGMMA_R64, RT_WGMMA_D64, 64, 65, 66, 67, 68);
RT_WGMMA_CASE(144, RT_WGMMA_R72, RT_WGMMA_D72, 72, 73, 74, 75, 76);
RT_WGMMA_CASE(160, RT_WGMMA_R80, RT_WGMMA_D80, 80, 81, 82, 83, 84);
RT_WGMMA_CASE(176, RT_WGMMA_R88, RT_WGMMA_D88, 88, 89, 90, 91, 92);
RT_WGMMA_CASE(192, RT_WGMMA_R96, RT_WGMMA_D96, 96, 97, 98, 99, 100);
RT_WGMMA_CASE(208, RT_WGMMA_R104, RT_WGMMA_D104, 104, 105, 106, 107, 108);
RT_WGMMA_CASE(224, RT_WGMMA_R112, RT_WGMMA_D112, 112, 113, 114, 115, 116);
RT_WGMMA_CASE(240, RT_WGMMA_R120, RT_WGMMA_D120, 120, 121, 122, 123, 124);
RT_WGMMA_CASE(256, RT_WGMMA_R128, RT_WGMMA_D128, 128, 129, 130, 131, 132);

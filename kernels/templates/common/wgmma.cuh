// Warpgroup matrix multiply (sm_90a): D[64, N] += A[64, 16]·B[16, N], fp16 or bf16 operands in shared memory, fp32
// sums in registers. Reads RT_DTYPE.
//
// Thread t of the warpgroup holds, for every eight columns j, sums j·4 … j·4 + 3: row 16·(t / 32) + (t % 32) / 4,
// columns 8·j + 2·(t % 4) and the next; then the same eight rows below.
#pragma once
#include "common/types.cuh"

#if RT_DTYPE == RT_BF16
#define RT_WGMMA_TYPES ".f32.bf16.bf16"
#else
#define RT_WGMMA_TYPES ".f32.f16.f16"
#endif

// Upper half of the descriptor of an operand with 128-byte swizzle: eight rows of 128 bytes are 1024 apart.
constexpr rt_u32 kRtOperandHigh = (1u << 30) | (1024 >> 4);
// Lower half: address (16-byte units), and bytes between slabs of 64 elements where the operand is not along k. In a
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
__device__ __forceinline__ void rt_wgmma_pin(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }

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
#define RT_WGMMA_D4 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define RT_WGMMA_R8 RT_WGMMA_R4 ", %4, %5, %6, %7"
#define RT_WGMMA_D8 RT_WGMMA_D4, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define RT_WGMMA_R12 RT_WGMMA_R8 ", %8, %9, %10, %11"
#define RT_WGMMA_D12 RT_WGMMA_D8, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define RT_WGMMA_R16 RT_WGMMA_R12 ", %12, %13, %14, %15"
#define RT_WGMMA_D16 RT_WGMMA_D12, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define RT_WGMMA_R20 RT_WGMMA_R16 ", %16, %17, %18, %19"
#define RT_WGMMA_D20 RT_WGMMA_D16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define RT_WGMMA_R24 RT_WGMMA_R20 ", %20, %21, %22, %23"
#define RT_WGMMA_D24 RT_WGMMA_D20, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define RT_WGMMA_R32 RT_WGMMA_R24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define RT_WGMMA_D32 \
  RT_WGMMA_D24, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define RT_WGMMA_R40 RT_WGMMA_R32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define RT_WGMMA_D40 \
  RT_WGMMA_D32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define RT_WGMMA_R48 RT_WGMMA_R40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define RT_WGMMA_D48 \
  RT_WGMMA_D40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define RT_WGMMA_R56 RT_WGMMA_R48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define RT_WGMMA_D56 \
  RT_WGMMA_D48, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define RT_WGMMA_R64 RT_WGMMA_R56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define RT_WGMMA_D64 \
  RT_WGMMA_D56, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define RT_WGMMA_R80 RT_WGMMA_R64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define RT_WGMMA_D80                                                                                          \
  RT_WGMMA_D64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]),    \
      "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), \
      "+f"(d[79])
#define RT_WGMMA_R96 RT_WGMMA_R80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define RT_WGMMA_D96                                                                                          \
  RT_WGMMA_D80, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]),    \
      "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), \
      "+f"(d[95])
#define RT_WGMMA_R112 \
  RT_WGMMA_R96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define RT_WGMMA_D112                                                                                                 \
  RT_WGMMA_D96, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]),         \
      "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), \
      "+f"(d[111])
#define RT_WGMMA_R128 \
  RT_WGMMA_R112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define RT_WGMMA_D128                                                                                                 \
  RT_WGMMA_D112, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]),    \
      "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), \
      "+f"(d[127])

#define RT_WGMMA_CASE(N, REGISTERS, SUMS, A, B, ACCUMULATE, TA, TB)                                              \
  template <int TRANS_A, int TRANS_B>                                                                            \
  struct RtWgmma<N, TRANS_A, TRANS_B> {                                                                          \
    static __device__ __forceinline__ void multiply(float* d, rt_u64 a, rt_u64 b, int accumulate) {              \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #ACCUMULATE                                                 \
                   ", 0;\n"                                                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16" RT_WGMMA_TYPES " {" REGISTERS "}, %" #A ", %" #B \
                   ", p, 1, 1, %" #TA ", %" #TB ";}"                                                             \
                   : SUMS                                                                                        \
                   : "l"(a), "l"(b), "r"(accumulate), "n"(TRANS_A), "n"(TRANS_B));                               \
    }                                                                                                            \
  }
RT_WGMMA_CASE(8, RT_WGMMA_R4, RT_WGMMA_D4, 4, 5, 6, 7, 8);
RT_WGMMA_CASE(16, RT_WGMMA_R8, RT_WGMMA_D8, 8, 9, 10, 11, 12);
RT_WGMMA_CASE(24, RT_WGMMA_R12, RT_WGMMA_D12, 12, 13, 14, 15, 16);
RT_WGMMA_CASE(32, RT_WGMMA_R16, RT_WGMMA_D16, 16, 17, 18, 19, 20);
RT_WGMMA_CASE(40, RT_WGMMA_R20, RT_WGMMA_D20, 20, 21, 22, 23, 24);
RT_WGMMA_CASE(48, RT_WGMMA_R24, RT_WGMMA_D24, 24, 25, 26, 27, 28);
RT_WGMMA_CASE(64, RT_WGMMA_R32, RT_WGMMA_D32, 32, 33, 34, 35, 36);
RT_WGMMA_CASE(80, RT_WGMMA_R40, RT_WGMMA_D40, 40, 41, 42, 43, 44);
RT_WGMMA_CASE(96, RT_WGMMA_R48, RT_WGMMA_D48, 48, 49, 50, 51, 52);
RT_WGMMA_CASE(112, RT_WGMMA_R56, RT_WGMMA_D56, 56, 57, 58, 59, 60);
RT_WGMMA_CASE(128, RT_WGMMA_R64, RT_WGMMA_D64, 64, 65, 66, 67, 68);
RT_WGMMA_CASE(160, RT_WGMMA_R80, RT_WGMMA_D80, 80, 81, 82, 83, 84);
RT_WGMMA_CASE(192, RT_WGMMA_R96, RT_WGMMA_D96, 96, 97, 98, 99, 100);
RT_WGMMA_CASE(224, RT_WGMMA_R112, RT_WGMMA_D112, 112, 113, 114, 115, 116);
RT_WGMMA_CASE(256, RT_WGMMA_R128, RT_WGMMA_D128, 128, 129, 130, 131, 132);

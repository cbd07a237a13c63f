// Copies of a thread to shared memory that need no registers (sm_80 and later).
#pragma once
#include "common/types.cuh"

// Copies BYTES to shared memory, or zeroes them where `valid` is false (nothing is read then).
template <int BYTES>
__device__ __forceinline__ void copy_async(rt_u32 to, const void* from, bool valid) {
  if constexpr (BYTES == 16) {
    // .cg: operands are reused through L2 and shared memory, not L1. The 128-byte prefetch is the sector
    // group that neighbouring threads ask for anyway.
    asm volatile(
        "{.reg .pred p; setp.eq.u32 p, %2, 0; cp.async.cg.shared.global.L2::128B [%0], [%1], 16, p;}" ::"r"(to),
        "l"(from), "r"(static_cast<rt_u32>(valid))
        : "memory");
  } else if constexpr (BYTES >= 4) {
    asm volatile("{.reg .pred p; setp.eq.u32 p, %2, 0; cp.async.ca.shared.global [%0], [%1], %3, p;}" ::"r"(to),
                 "l"(from), "r"(static_cast<rt_u32>(valid)), "n"(BYTES)
                 : "memory");
  } else {
    // cp.async has no 2-byte form: through a register, visible to the others after the next barriers.
    rt_u16 v = 0;
    if (valid) v = __ldg(static_cast<const rt_u16*>(from));
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(v) : "memory");
  }
}

__device__ __forceinline__ void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// What the blocks of a grid tell one another through global memory. All of them are on the GPU at a time: the launch is
// cooperative.
#pragma once
#include "common/types.cuh"

// Two floats with the number they are for. Each of the two words holds a float and the number, so that neither needs a
// flag that would have to be ordered behind it.
struct alignas(16) RtNumbered {
  rt_u64 a = 0;
  rt_u64 b = 0;

  __device__ __forceinline__ bool is_for(rt_u32 number) const {
    return static_cast<rt_u32>(a >> 32) == number && static_cast<rt_u32>(b >> 32) == number;
  }
  __device__ __forceinline__ float first() const { return __uint_as_float(static_cast<rt_u32>(a)); }
  __device__ __forceinline__ float second() const { return __uint_as_float(static_cast<rt_u32>(b)); }
};
__device__ __forceinline__ void rt_tell(RtNumbered* to, float first, float second, rt_u32 number) {
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(to),
               "l"(static_cast<rt_u64>(number) << 32 | __float_as_uint(first)),
               "l"(static_cast<rt_u64>(number) << 32 | __float_as_uint(second))
               : "memory");
}
// Reads anew what is not for this number yet; the load is one instruction with a predicate, so that several are under
// way at a time. What others have told early costs nobody a read again.
__device__ __forceinline__ void rt_ask(const RtNumbered* from, rt_u32 number, RtNumbered* v) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, %3, 0; @p ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];}"
               : "+l"(v->a), "+l"(v->b)
               : "l"(from), "r"(static_cast<rt_u32>(v->is_for(number)))
               : "memory");
}

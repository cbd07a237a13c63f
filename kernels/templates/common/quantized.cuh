// Vectors of V elements of an 8-bit type that are made from floats and written once. FP8 conversions need sm_89.
#pragma once

#include "common/types.cuh"

// Largest magnitude that a row's largest element is scaled to. For INT8 the range is symmetric: −128 is not used.
template <int D>
constexpr float rt_quantized_max() {
  return D == RT_FP8_E4M3 ? 448.0f : 127.0f;
}

// Two floats to two bytes, `lo` in the lower one: round to nearest even, clamp to the range.
template <int D>
__device__ __forceinline__ rt_u32 rt_quantize2(float lo, float hi) {
  if constexpr (D == RT_FP8_E4M3) {
    rt_u16 r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
    return r;
  } else {
    static_assert(D == RT_INT8, "an 8-bit type with a conversion");
    rt_u32 r;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(r) : "r"(__float2int_rn(hi)), "r"(__float2int_rn(lo)));
    return r;
  }
}

template <int D, int V>
struct RtQuantized {
  static constexpr int kWords = V < 4 ? 1 : V / 4;
  rt_u32 word[kWords];

  __device__ __forceinline__ void set(const float (&v)[V]) {
    if constexpr (V == 1) {
      word[0] = rt_quantize2<D>(v[0], 0.0f);
    } else if constexpr (V == 2) {
      word[0] = rt_quantize2<D>(v[0], v[1]);
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        word[i] = rt_quantize2<D>(v[4 * i], v[4 * i + 1]) | rt_quantize2<D>(v[4 * i + 2], v[4 * i + 3]) << 16;
      }
    }
  }

  __device__ __forceinline__ void store_stream(void* p) const {
    if constexpr (V == 1) {
      asm volatile("st.global.cs.u8 [%0], %1;" ::"l"(p), "r"(word[0]) : "memory");
    } else if constexpr (V == 2) {
      asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(p), "h"(static_cast<rt_u16>(word[0])) : "memory");
    } else if constexpr (V == 4) {
      asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(word[0]) : "memory");
    } else {
      static_assert(V == 8, "a vector has 1, 2, 4 or 8 elements");
      asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(word[0]), "r"(word[1]) : "memory");
    }
  }
};

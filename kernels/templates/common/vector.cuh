// Vectors of V elements of one dtype, kept in their storage bits: loads, stores, conversion to float and back.
// Addresses are aligned to the vector's size or to 16 bytes, whichever is less.
#pragma once

#include "common/types.cuh"

// BYTES (1, 2, 4, 8, 16 or 32) between global memory and 32-bit words. No cache hints, also for what is used once: on an
// H200, loads with L1::no_allocate (or .cs) cost a streaming kernel 5 % (rms norm of 16384x8192 139 against 132 us, SwiGLU of
// 16384x14336 341 against 321), and stores with .cs gain nothing. volatile keeps loads before the stores that follow
// them, so in-place use is right.
template <int BYTES>
__device__ __forceinline__ void rt_load(const void* p, rt_u32* w) {
  if constexpr (BYTES == 1) {
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(w[0]) : "l"(p));
  } else if constexpr (BYTES == 2) {
    rt_u16 h;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(h) : "l"(p));
    w[0] = h;
  } else if constexpr (BYTES == 4) {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(w[0]) : "l"(p));
  } else if constexpr (BYTES == 8) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(p));
  } else if constexpr (BYTES == 16) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "l"(p));
  } else {
    static_assert(BYTES == 32, "a vector has 2, 4, 8, 16 or 32 bytes");
    rt_load<16>(p, w);
    rt_load<16>(static_cast<const rt_u8*>(p) + 16, w + 4);
  }
}

template <int BYTES>
__device__ __forceinline__ void rt_store(void* p, const rt_u32* w) {
  if constexpr (BYTES == 1) {
    asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"(w[0]) : "memory");
  } else if constexpr (BYTES == 2) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"(static_cast<rt_u16>(w[0])) : "memory");
  } else if constexpr (BYTES == 4) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(w[0]) : "memory");
  } else if constexpr (BYTES == 8) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(w[0]), "r"(w[1]) : "memory");
  } else if constexpr (BYTES == 16) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                 : "memory");
  } else {
    static_assert(BYTES == 32, "a vector has 2, 4, 8, 16 or 32 bytes");
    rt_store<16>(p, w);
    rt_store<16>(static_cast<rt_u8*>(p) + 16, w + 4);
  }
}

// Loads before it are under way when it is passed. ptxas moves loads to where their results are used, even behind the
// wait for loads that stood after them, but not past an event for profilers, which nobody counts.
__device__ __forceinline__ void rt_issue_loads() { asm volatile("pmevent 0;" ::: "memory"); }

// Four words of four bytes, transposed: out[c] gets byte c of each.
__device__ __forceinline__ void rt_transpose_bytes(const rt_u32 (&in)[4], rt_u32 (&out)[4]) {
  const rt_u32 ab_low = __byte_perm(in[0], in[1], 0x5140), cd_low = __byte_perm(in[2], in[3], 0x5140);
  const rt_u32 ab_high = __byte_perm(in[0], in[1], 0x7362), cd_high = __byte_perm(in[2], in[3], 0x7362);
  out[0] = __byte_perm(ab_low, cd_low, 0x5410);
  out[1] = __byte_perm(ab_low, cd_low, 0x7632);
  out[2] = __byte_perm(ab_high, cd_high, 0x5410);
  out[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

template <int D, int V>
struct RtVector {
  typedef typename RtType<D>::Store Store;
  static constexpr int kBytes = V * static_cast<int>(sizeof(Store));
  static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
  rt_u32 word[kWords];

  __device__ __forceinline__ void load(const void* p) { rt_load<kBytes>(p, word); }
  __device__ __forceinline__ void store(void* p) const { rt_store<kBytes>(p, word); }

  // Element i as float; i must be a compile-time constant after unrolling.
  __device__ __forceinline__ float get(int i) const {
    if constexpr (D == RT_FP32) {
      return __uint_as_float(word[i]);
    } else if constexpr (D == RT_BF16) {
      return __uint_as_float(i % 2 == 0 ? word[i / 2] << 16 : word[i / 2] & 0xFFFF0000u);
    } else {
      return RtType<D>::load(static_cast<rt_u16>(i % 2 == 0 ? word[i / 2] : word[i / 2] >> 16));
    }
  }

  __device__ __forceinline__ void set(const float (&v)[V]) {
    if constexpr (D == RT_FP32) {
#pragma unroll
      for (int i = 0; i < V; ++i) word[i] = __float_as_uint(v[i]);
    } else if constexpr (V == 1) {
      word[0] = RtType<D>::store(v[0]);
    } else {
#pragma unroll
      for (int i = 0; i < V / 2; ++i) word[i] = rt_pack2<D>(v[2 * i], v[2 * i + 1]);
    }
  }

  // `zero` is 0 by a value the compiler does not know, so that what it derived from the words before is worth
  // nothing to it: the words stay in registers, not the floats, which are twice as many.
  __device__ __forceinline__ void keep(rt_u32 zero) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] ^= zero;
  }

  // Every element = the storage bits given (16 bits repeated, or 32).
  __device__ __forceinline__ void fill(rt_u32 bits) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] = D == RT_FP32 || V == 1 ? bits : bits * 0x10001u;
  }

  // Storage bits of element i.
  __device__ __forceinline__ Store bits(int i) const {
    if constexpr (D == RT_FP32) {
      return __uint_as_float(word[i]);
    } else {
      return static_cast<Store>(i % 2 == 0 ? word[i / 2] : word[i / 2] >> 16);
    }
  }

  // Element i = these storage bits; elements are set in ascending order.
  __device__ __forceinline__ void set_bits(int i, Store bits) {
    if constexpr (D == RT_FP32) {
      word[i] = __float_as_uint(bits);
    } else {
      constexpr int kPerWord = 4 / static_cast<int>(sizeof(Store));
      const rt_u32 part = sizeof(Store) == 1 ? static_cast<rt_u8>(bits) : static_cast<rt_u16>(bits);
      const int shift = i % kPerWord * (32 / kPerWord);
      word[i / kPerWord] = i % kPerWord == 0 ? part : word[i / kPerWord] | part << shift;
    }
  }

  // Elements before `end` = the storage bits given.
  __device__ __forceinline__ void fill_before(int end, rt_u32 bits) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (i >= end) continue;
      if constexpr (D == RT_FP32 || V == 1) {
        word[i] = bits;
      } else {
        word[i / 2] = i % 2 == 0 ? (word[i / 2] & 0xFFFF0000u) | bits : (word[i / 2] & 0xFFFFu) | bits << 16;
      }
    }
  }

  // Elements `first` (may be negative) and up = the storage bits given.
  __device__ __forceinline__ void fill_from(int first, rt_u32 bits) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (i < first) continue;
      if constexpr (D == RT_FP32 || V == 1) {
        word[i] = bits;
      } else {
        word[i / 2] = i % 2 == 0 ? (word[i / 2] & 0xFFFF0000u) | bits : (word[i / 2] & 0xFFFFu) | bits << 16;
      }
    }
  }
};

// Storage bits of −∞.
template <int D>
constexpr rt_u32 rt_minus_infinity() {
  return D == RT_FP32 ? 0xFF800000u : D == RT_FP16 ? 0xFC00u : 0xFF80u;
}

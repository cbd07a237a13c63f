// Vectors of V elements of a quantised type (8 or 4 bits) that are made from floats and written once, or read once and
// made floats; scales. FP8 stores need sm_89.
#pragma once

#include "common/types.cuh"
#include "common/vector.cuh"

// Largest magnitude that the largest element of a row or group is scaled to. For integers the range is symmetric: −128
// and −8 come from scales that were given alone.
template <int D>
constexpr float rt_quantized_max() {
  return D == RT_FP8_E4M3 ? 448.0f : D == RT_FP8_E5M2 ? 57344.0f : D == RT_INT8 ? 127.0f : 7.0f;
}

// Two floats to two bytes, `lo` in the lower one: round to nearest even, clamp to the range.
template <int D>
__device__ __forceinline__ rt_u32 rt_quantize2(float lo, float hi) {
  if constexpr (D == RT_FP8_E4M3) {
    rt_u16 r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
    return r;
  } else if constexpr (D == RT_FP8_E5M2) {
    rt_u16 r;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
    return r;
  } else {
    static_assert(D == RT_INT8, "an 8-bit type with a conversion");
    rt_u32 r;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(r) : "r"(__float2int_rn(hi)), "r"(__float2int_rn(lo)));
    return r;
  }
}

// Four floats that `inverse` brings into the range to four bytes. Rounded once, by adding 1.5·2^23: the low bits of the sum
// are the integer. Conversions share a unit with exponentials and reciprocals, sums do not.
__device__ __forceinline__ rt_u32 rt_quantize_int8_within(const float* v, float inverse) {
  rt_u32 bits[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) bits[i] = __float_as_uint(__fmaf_rn(v[i], inverse, 12582912.0f));
  return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
}

// V floats (2, 4 or 8) that `inverse` brings into the range to 4 bits each, the first in the lowest bits. As above, but
// 8 more, so that no integer is negative and all of them can be added up with the constants; ^ 8 takes that away again.
template <int V>
__device__ __forceinline__ rt_u32 rt_quantize_int4_within(const float* v, float inverse) {
  constexpr rt_u32 kConstant = 0x4B400000u, kOnes = 0x11111111u >> 4 * (8 - V);
  rt_u32 r = 0;
#pragma unroll
  for (int i = V - 1; i >= 0; --i) r = r * 16 + __float_as_uint(__fmaf_rn(v[i], inverse, 12582920.0f));
  return (r - kConstant * kOnes) ^ kOnes * 8;
}

// Eight floats, or as many as there are (2 or 4), to 4 bits each, the first in the lowest bits.
template <int V>
__device__ __forceinline__ rt_u32 rt_quantize_int4(const float* v) {
  rt_u32 r = 0;
#pragma unroll
  for (int i = V - 2; i >= 0; i -= 2) {
    asm("cvt.pack.sat.s4.s32.b32 %0, %1, %2, %0;"
        : "+r"(r)
        : "r"(__float2int_rn(v[i + 1])), "r"(__float2int_rn(v[i])));
  }
  return r;
}

template <int D, int V>
struct RtQuantized {
  static constexpr int kBits = V * (D == RT_INT4 ? 4 : 8);
  static_assert(kBits % 8 == 0, "a vector is a whole number of bytes");
  static constexpr int kWords = kBits < 32 ? 1 : kBits / 32;
  static constexpr int kStep = V < 8 ? V : 8;  // elements of a word, where they are INT4
  rt_u32 word[kWords];

  __device__ __forceinline__ void set(const float (&v)[V]) {
    if constexpr (D == RT_INT4) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) word[i] = rt_quantize_int4<kStep>(v + 8 * i);
    } else if constexpr (V == 1) {
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

  // Of elements times `inverse`. WITHIN: none of them is beyond the range of the type, nor a NaN if it is an integer.
  template <bool WITHIN>
  __device__ __forceinline__ void set_scaled(const float (&v)[V], float inverse) {
    if constexpr (WITHIN && D == RT_INT8 && V % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) word[i] = rt_quantize_int8_within(v + 4 * i, inverse);
    } else if constexpr (WITHIN && D == RT_INT4) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) word[i] = rt_quantize_int4_within<kStep>(v + 8 * i, inverse);
    } else {
      float scaled[V];
#pragma unroll
      for (int i = 0; i < V; ++i) scaled[i] = v[i] * inverse;
      set(scaled);
    }
  }

  __device__ __forceinline__ void store(void* p) const {
    if constexpr (kBits == 8) {
      asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"(word[0]) : "memory");
    } else {
      rt_store<kBits / 8>(p, word);
    }
  }

  __device__ __forceinline__ void load(const void* p) {
    if constexpr (kBits == 8) {
      asm volatile("ld.global.u8 %0, [%1];" : "=r"(word[0]) : "l"(p));
    } else {
      rt_load<kBits / 8>(p, word);
    }
  }

  // All elements as floats, exactly.
  __device__ __forceinline__ void get(float (&v)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (D == RT_INT4) {
        // As the low bits of 2^23 + 8 + element: no conversion, of which an SM does few.
        const rt_u32 biased = word[i / 8] >> 4 * (i % 8) & 15 ^ 8;
        v[i] = __uint_as_float(0x4B000000u | biased) - 8388616.0f;
      } else if constexpr (D == RT_INT8) {
        const rt_u32 biased = __byte_perm(word[i / 4] ^ 0x80808080u, 0x4B000000u, 0x7650u + i % 4);
        v[i] = __uint_as_float(biased) - 8388736.0f;
      } else {
        v[i] = rt_fp8_pair(i / 2, i % 2);
      }
    }
  }

 private:
  // Element 2·pair + half of an FP8 type.
  __device__ __forceinline__ float rt_fp8_pair(int pair, int half) const {
    const rt_u32 bytes = word[pair / 2] >> 16 * (pair % 2);
    if constexpr (D == RT_FP8_E5M2) {
      return RtType<RT_FP16>::load(static_cast<rt_u16>(half == 0 ? bytes << 8 : bytes & 0xFF00u));
    } else {
#if __CUDA_ARCH__ >= 890
      rt_u32 two;
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"(static_cast<rt_u16>(bytes)));
      return RtType<RT_FP16>::load(static_cast<rt_u16>(half == 0 ? two : two >> 16));
#else
      return RtType<RT_FP8_E4M3>::load(static_cast<rt_u8>(bytes >> 8 * half));
#endif
    }
  }
};

// A scale and what its elements are multiplied with.
struct RtScale {
  float scale;
  float inverse;
};

// Scale of elements of which the largest has magnitude `largest`; with POW2 the smallest power of two that is no less
// than the exact one, by comparing exponents and mantissas: no rounding. Zeros alone have scale 0 (POW2: 2^−126).
template <int D, bool POW2>
__device__ __forceinline__ RtScale rt_scale_of(float largest) {
  constexpr float kMax = rt_quantized_max<D>();
  if constexpr (POW2) {
    // Exponent and mantissa of the limits: 1.75·2^8, 1.75·2^15, 127/64·2^6, 1.75·2^2.
    constexpr int kExponent = D == RT_FP8_E4M3 ? 8 : D == RT_FP8_E5M2 ? 15 : D == RT_INT8 ? 6 : 2;
    constexpr rt_u32 kMantissa = D == RT_INT8 ? 0x7E0000u : 0x600000u;
    const rt_u32 bits = __float_as_uint(largest);
    const int exponent = static_cast<int>(bits >> 23) - kExponent + ((bits & 0x7FFFFFu) > kMantissa ? 1 : 0);
    const rt_u32 biased = static_cast<rt_u32>(max(exponent, 1));
    return {__uint_as_float(biased << 23), __uint_as_float((254u - biased) << 23)};
  } else {
    // Each is within two units of the last place; two divisions a group would cost more than the rest of its arithmetic.
    const float scale = largest * (1.0f / kMax);
    float inverse;
    asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(scale));
    // No infinity: zeros stay zeros.
    return {scale, fminf(inverse, 3.4028235e38f)};
  }
}

// Largest magnitude; a NaN is none.
template <int V>
__device__ __forceinline__ float rt_largest(const float (&v)[V], float largest) {
#pragma unroll
  for (int i = 0; i < V; ++i) largest = fmaxf(largest, fabsf(v[i]));
  return largest;
}

// Largest magnitude of each vector. True if rt_store_quantized<D, true> may have them: as integers a NaN becomes 0, as
// does an infinity, whose scale is infinite, and to ask at each element would cost more than its conversion.
template <int N, int V>
__device__ __forceinline__ bool rt_largest_within(const float (&v)[N][V], float (&largest)[N]) {
  float all = 0.0f;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    // A NaN stays.
    largest[k] = 0.0f;
#pragma unroll
    for (int i = 0; i < V; ++i) asm("max.NaN.f32 %0, %0, %1;" : "+f"(largest[k]) : "f"(fabsf(v[k][i])));
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(all) : "f"(largest[k]));
  }
  if (all < __uint_as_float(0x7F800000u)) return true;
#pragma unroll
  for (int k = 0; k < N; ++k) largest[k] = rt_largest(v[k], 0.0f);
  return false;
}

// V elements times `inverse` to `to`, quantised. WITHIN: the scale is that of these elements, and rt_largest_within() true.
template <int D, bool WITHIN = false, int V>
__device__ __forceinline__ void rt_store_quantized(const float (&v)[V], float inverse, void* to) {
  RtQuantized<D, V> out;
  out.template set_scaled<WITHIN>(v, inverse);
  out.store(to);
}

// Element types for kernels compiled by NVRTC without CUDA's headers: those cost 10–30 ms a compile
// and hide conversions behind classes. Codes are rooftune.v1.DType.
#pragma once

#define RT_FP32 1
#define RT_FP16 2
#define RT_BF16 3
#define RT_FP64 4
#define RT_FP8_E4M3 5
#define RT_FP8_E5M2 6
#define RT_INT8 7
#define RT_INT32 8
#define RT_INT4 9
#define RT_INT64 10

typedef unsigned char rt_u8;
typedef unsigned short rt_u16;
typedef unsigned int rt_u32;
typedef unsigned long long rt_u64;
typedef long long rt_i64;

// Storage type of a dtype and its conversions to and from float. Stores round to nearest even.
template <int D>
struct RtType;

template <>
struct RtType<RT_FP32> {
  typedef float Store;
  static __device__ __forceinline__ float load(float v) { return v; }
  static __device__ __forceinline__ float store(float v) { return v; }
};

template <>
struct RtType<RT_FP16> {
  typedef rt_u16 Store;
  static __device__ __forceinline__ float load(rt_u16 v) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v));
    return f;
  }
  static __device__ __forceinline__ rt_u16 store(float v) {
    rt_u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
  }
};

template <>
struct RtType<RT_BF16> {
  typedef rt_u16 Store;
  static __device__ __forceinline__ float load(rt_u16 v) { return __uint_as_float(static_cast<rt_u32>(v) << 16); }
  static __device__ __forceinline__ rt_u16 store(float v) {
    rt_u16 h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
  }
};

// A float to an 8-bit one of `MANTISSA` bits whose smallest normal number is 2^`MIN_EXPONENT`: rounded to nearest even,
// clamped to `max`, the sign in bit 7. In integer arithmetic, for any architecture; common/quantized.cuh has the fast way.
template <int MANTISSA, int MIN_EXPONENT>
__device__ __forceinline__ rt_u8 rt_store_fp8(float v, float max) {
  if (v != v) return 0x7F;
  const rt_u32 sign = __float_as_uint(v) >> 24 & 0x80;
  const float size = fminf(fabsf(v), max);
  constexpr int kShift = 23 - MANTISSA;
  const float smallest = __uint_as_float((127 + MIN_EXPONENT) << 23);
  if (size < smallest) {
    const float units = size * __uint_as_float((127 + MANTISSA - MIN_EXPONENT) << 23);
    return static_cast<rt_u8>(sign | static_cast<rt_u32>(__float2int_rn(units)));
  }
  rt_u32 bits = __float_as_uint(size);
  bits += (1u << (kShift - 1)) - 1 + (bits >> kShift & 1);
  // The exponent's bias is 127 there and 1 − MIN_EXPONENT here.
  return static_cast<rt_u8>(sign | ((bits >> kShift) - ((126 + MIN_EXPONENT) << MANTISSA)));
}

template <>
struct RtType<RT_FP8_E4M3> {
  typedef rt_u8 Store;
  // Moved into an fp16's fields the exponent is 8 too small; the only NaN has all of these bits set.
  static __device__ __forceinline__ float load(rt_u8 v) {
    if ((v & 0x7F) == 0x7F) return __uint_as_float(0x7FC00000u);
    return 256.0f * RtType<RT_FP16>::load(static_cast<rt_u16>((v & 0x80) << 8 | (v & 0x7F) << 7));
  }
  static __device__ __forceinline__ rt_u8 store(float v) { return rt_store_fp8<3, -6>(v, 448.0f); }
};

template <>
struct RtType<RT_FP8_E5M2> {
  typedef rt_u8 Store;
  // The upper byte of an fp16.
  static __device__ __forceinline__ float load(rt_u8 v) { return RtType<RT_FP16>::load(static_cast<rt_u16>(v << 8)); }
  static __device__ __forceinline__ rt_u8 store(float v) { return rt_store_fp8<2, -14>(v, 57344.0f); }
};

template <>
struct RtType<RT_INT8> {
  typedef signed char Store;
  static __device__ __forceinline__ float load(signed char v) { return static_cast<float>(v); }
};

// Two a byte; the element of the even index is in the lower half.
template <>
struct RtType<RT_INT4> {
  typedef rt_u8 Store;
  static __device__ __forceinline__ float load(rt_u8 byte, int i) {
    return static_cast<float>(static_cast<signed char>(i % 2 == 0 ? byte << 4 : byte & 0xF0) >> 4);
  }
};

// Two floats to one packed 32-bit pair, `lo` in the lower half.
template <int D>
__device__ __forceinline__ rt_u32 rt_pack2(float lo, float hi);
template <>
__device__ __forceinline__ rt_u32 rt_pack2<RT_FP16>(float lo, float hi) {
  rt_u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
template <>
__device__ __forceinline__ rt_u32 rt_pack2<RT_BF16>(float lo, float hi) {
  rt_u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

// 2^x and e^x by the special-function unit (ex2.approx: relative error 2^-22).
__device__ __forceinline__ float rt_exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float rt_exp(float x) { return rt_exp2(x * 1.4426950408889634f); }

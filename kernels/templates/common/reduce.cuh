// What a reduction keeps while it runs, by RT_KIND: 0 sum, 1 max, 2 mean, 3 argmax, 4 mean and variance.
#pragma once

#include "common/row.cuh"
#include "common/types.cuh"

#define RT_KIND_SUM 0
#define RT_KIND_MAX 1
#define RT_KIND_MEAN 2
#define RT_KIND_ARGMAX 3
#define RT_KIND_VAR 4

// Index of no element.
constexpr int kRtNoIndex = 0x7FFFFFFF;

// a: the sum (variance: of x − shift) or the largest element. b: variance the sum of (x − shift)², argmax the bits of
// the index. The shift, one of the elements, keeps the digits that mean² and mean(x²) would have in common.
struct alignas(8) RtReduction {
  float a;
  float b;

  static __device__ __forceinline__ RtReduction none() {
    if constexpr (RT_KIND == RT_KIND_ARGMAX) return {-rt_infinity(), __int_as_float(kRtNoIndex)};
    return {RT_KIND == RT_KIND_MAX ? -rt_infinity() : 0.0f, 0.0f};
  }

  // Elements of one thread come in ascending order. A NaN is larger than any number, and the first one stays.
  __device__ __forceinline__ void add(float x, int index, float shift) {
    if constexpr (RT_KIND == RT_KIND_MAX) {
      a = max_or_nan(a, x);
    } else if constexpr (RT_KIND == RT_KIND_ARGMAX) {
      const bool take = !(x <= a) && a == a;
      a = take ? x : a;
      b = take ? __int_as_float(index) : b;
    } else if constexpr (RT_KIND == RT_KIND_VAR) {
      const float d = x - shift;
      a += d;
      b = fmaf(d, d, b);
    } else {
      a += x;
    }
  }

  __device__ __forceinline__ void merge(const RtReduction& other) {
    if constexpr (RT_KIND == RT_KIND_MAX) {
      a = max_or_nan(a, other.a);
    } else if constexpr (RT_KIND == RT_KIND_ARGMAX) {
      const bool nan = a != a, other_nan = other.a != other.a;
      const bool earlier = __float_as_int(other.b) < __float_as_int(b);
      const bool take = other_nan ? !nan || earlier : !nan && (other.a > a || (other.a == a && earlier));
      a = take ? other.a : a;
      b = take ? other.b : b;
    } else {
      a += other.a;
      if constexpr (RT_KIND == RT_KIND_VAR) b += other.b;
    }
  }

  // Over N neighbouring lanes, N a power of two; all get the result.
  template <int N>
  __device__ __forceinline__ void merge_lanes() {
#pragma unroll
    for (int offset = N / 2; offset > 0; offset /= 2) {
      RtReduction other = {__shfl_xor_sync(0xFFFFFFFFu, a, offset), 0.0f};
      if constexpr (RT_KIND >= RT_KIND_ARGMAX) other.b = __shfl_xor_sync(0xFFFFFFFFu, b, offset);
      merge(other);
    }
  }

 private:
  static __device__ __forceinline__ float max_or_nan(float x, float y) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
  }
};

#if RT_KIND == RT_KIND_ARGMAX
typedef int RtReduced;
#else
typedef float RtReduced;
#endif

// Results: `value` is the sum, the largest, the mean or the index.
struct RtReducedTo {
  RtReduced* value;
  float* variance;

  __device__ __forceinline__ void store(rt_i64 at, const RtReduction& r, rt_i64 terms, float shift) const {
    const float scale = 1.0f / static_cast<float>(terms);
    if constexpr (RT_KIND == RT_KIND_ARGMAX) {
      // All elements −∞: none was larger than the start.
      const int index = __float_as_int(r.b);
      value[at] = index == kRtNoIndex ? 0 : index;
    } else if constexpr (RT_KIND == RT_KIND_MEAN) {
      value[at] = r.a * scale;
    } else if constexpr (RT_KIND == RT_KIND_VAR) {
      const float mean = r.a * scale;
      value[at] = shift + mean;
      variance[at] = fmaxf(fmaf(-mean, mean, r.b * scale), 0.0f);
    } else {
      value[at] = r.a;
    }
  }
};

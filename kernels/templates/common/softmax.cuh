// What softmax is made of, whatever brings the row: t from the elements that were read, a running maximum and sum, and
// the results. The kernel's file lists the defines.
#pragma once

#include "common/row.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;

__device__ __forceinline__ float exp_biased(float t, float bias) { return rt_exp2(fmaf(t, kRtLog2E, bias)); }

// What a row is made from. Without RT_SCALED the factors are constants and cost nothing.
struct Source {
  const Vector::Store* x;
  const Vector::Store* mask;
  int attended;  // columns before this one count; the rest of the row is −∞
  int length;    // columns
  int head;      // elements of the first vector that are before the row
  float scale = 1.0f;
  float scale_log2 = kRtLog2E;  // scale·log2(e)

  __device__ __forceinline__ void scale_by(float factor) {
    scale = factor;
    scale_log2 = factor * kRtLog2E;
  }

  // Bits that become t = −∞.
  __device__ __forceinline__ rt_u32 nothing() const {
    constexpr rt_u32 kSign = RT_DTYPE == RT_FP32 ? 0x80000000u : 0x8000u;
    return RT_SCALED && scale < 0.0f ? rt_minus_infinity<RT_DTYPE>() ^ kSign : rt_minus_infinity<RT_DTYPE>();
  }
  // Turns the elements of the vector that starts at `first` and are past the attended columns into nothing.
  __device__ __forceinline__ void limit(int first, Vector* v) const {
#if RT_CAUSAL || RT_RAGGED
    if (first + RT_VEC > attended) v->fill_from(attended - first, nothing());
#endif
#if RT_RAGGED
    if (first < 0) v->fill_before(-first, nothing());
#endif
  }
};

// What turns t into y once the row is known: exp(t − max)·scale, or t − (max + ln Σ) for the logarithm.
struct Finish {
  float bias;
  float scale;

  explicit __device__ __forceinline__ Finish(RtMaxSum state) {
#if RT_LOG
    float log2_sum;
    asm("lg2.approx.f32 %0, %1;" : "=f"(log2_sum) : "f"(state.sum));
    bias = -fmaf(log2_sum, 0.6931471805599453f, state.max);
    scale = 1.0f;
#else
    bias = rt_exp_bias(state.max);
    scale = 1.0f / state.sum;
#endif
  }
};

#if RT_MASK
// t as floats, in place of the packed elements: a sum of two of them does not fit their type.
struct Elements {
  float t[RT_VEC];
  __device__ __forceinline__ float get(int i) const { return t[i]; }
  __device__ __forceinline__ void keep(rt_u32) {}
  __device__ __forceinline__ void fill(rt_u32) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) t[i] = -rt_infinity();
  }
  __device__ __forceinline__ void set(const Vector& x, const Vector& mask, int first, const Source& in) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) {
      t[i] = fmaf(x.get(i), in.scale, mask.get(i));
      if ((RT_CAUSAL || RT_RAGGED) && first + i >= in.attended) t[i] = -rt_infinity();
      if (RT_RAGGED && first + i < 0) t[i] = -rt_infinity();
    }
  }
};
#else
typedef Vector Elements;
#endif

// t of an element that was read, and its exponential relative to a maximum. With a mask t is already there.
__device__ __forceinline__ float element(float v, const Source& in) { return RT_MASK ? v : v * in.scale; }
__device__ __forceinline__ float exponential(float v, const Source& in, float bias) {
  return rt_exp2(fmaf(v, RT_MASK ? kRtLog2E : in.scale_log2, bias));
}

// Adds vectors to the running state. They stay packed: without the `keep` after each use the compiler holds all of
// them as floats, twice the registers.
__device__ __forceinline__ void accumulate(Elements (&v)[RT_ITEMS], const Source& in, rt_u32 zero, RtMaxSum* state) {
  float max = state->max;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) max = fmaxf(max, element(v[k].get(i), in));
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) v[k].keep(zero);
  const float bias = rt_exp_bias(max);
  float sum = state->sum * exp_biased(state->max, bias);
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) sum += exponential(v[k].get(i), in, bias);
  }
  *state = {max, sum};
}

__device__ __forceinline__ Vector normalize(const Elements& v, const Source& in, const Finish& finish) {
  float y[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) {
    y[i] = RT_LOG ? fmaf(v.get(i), RT_MASK ? 1.0f : in.scale, finish.bias)
                  : exponential(v.get(i), in, finish.bias) * finish.scale;
  }
  Vector out;
  out.set(y);
  return out;
}

}  // namespace

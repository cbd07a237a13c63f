// What RMS norm and LayerNorm are made of, whatever brings the row: the elements of h before the norm, sums, results
// and their conversion. common/norm.cuh says what is computed; the defines are RT_DTYPE, RT_QUANT, RT_CENTER, RT_BIAS,
// RT_PRE, RT_ACT and RT_VEC.
#pragma once

#include "common/glu.cuh"
#include "common/quantized.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

typedef RtVector<RT_DTYPE, RT_VEC> RtNormVector;
typedef RtNormVector::Store RtNormStore;
#if RT_QUANT
typedef RtQuantized<RT_QUANT == 1 ? RT_FP8_E4M3 : RT_INT8, RT_VEC> RtNormResult;
typedef rt_u8 RtNormOut;
#else
typedef RtNormVector RtNormResult;
typedef RtNormStore RtNormOut;
#endif

// Where a thread's elements of a row start, in weight and bias as well (scale: the tensor); null for tensors that the
// instance does not have.
struct RtNormPointers {
  const RtNormStore* x;
  const RtNormStore* residual;
  const RtNormStore* weight;
  const RtNormStore* bias;
  RtNormOut* y;
  RtNormStore* residual_out;
  float* scale;
};

struct RtNormMoments {
  float mean;    // 0 for RMS norm
  float factor;  // 1 / √(variance + eps)
};

// Of what is no denormal number: without eps, rows smaller than 1e-19 have no norm.
__device__ __forceinline__ float rt_norm_rsqrt(float x) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// KIND: 0 none, 1 relu, 2 gelu, 3 silu. A NaN stays one.
template <int KIND>
__device__ __forceinline__ float rt_norm_activate(float y) {
  if constexpr (KIND == 1) {
    asm("max.NaN.f32 %0, %0, 0f00000000;" : "+f"(y));
  } else if constexpr (KIND > 1) {
    y = rt_glu_activate<KIND>(y);
  }
  return y;
}

// Whether vectors of packed elements are before RT_PRE, whose results may not fit their type: it is applied at each use.
// Relu's results do, so that it is applied once.
constexpr bool kRtNormLate = RT_PRE > 1;

// Element i of what is normalised.
__device__ __forceinline__ float rt_norm_element(const RtNormVector& v, int i) {
  return rt_norm_activate<kRtNormLate ? RT_PRE : 0>(v.get(i));
}

// Elements as floats, where instructions are scarcer than registers: of packed ones the compiler makes floats again at
// each use, and computes RT_PRE again.
struct RtNormFloats {
  float value[RT_VEC];

  __device__ __forceinline__ void set(const RtNormVector& v) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) {
      value[i] = rt_norm_element(v, i);
      asm volatile("" : "+f"(value[i]));
    }
  }
};

__device__ __forceinline__ float rt_norm_element(const RtNormFloats& v, int i) { return v.value[i]; }

template <typename V>
__device__ __forceinline__ float rt_norm_square_sum(const V& v, float mean, float sum) {
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) {
    const float d = RT_CENTER ? rt_norm_element(v, i) - mean : rt_norm_element(v, i);
    sum = fmaf(d, d, sum);
  }
  return sum;
}

template <typename V>
__device__ __forceinline__ float rt_norm_sum(const V& v, float sum) {
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) sum += rt_norm_element(v, i);
  return sum;
}


template <typename V>
__device__ __forceinline__ void rt_norm_apply(const V& h, const RtNormVector& weight,
                                              const RtNormVector& bias, RtNormMoments m, float (&y)[RT_VEC]) {
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) {
    const float s = rt_norm_element(h, i);
    y[i] = RT_CENTER ? fmaf(s, m.factor, -m.mean * m.factor) : s * m.factor;
    y[i] = rt_norm_activate<RT_ACT>(RT_BIAS ? fmaf(y[i], weight.get(i), bias.get(i)) : y[i] * weight.get(i));
  }
}

// `inverse` is 1 / scale of the row.
__device__ __forceinline__ void rt_norm_store(float (&y)[RT_VEC], float inverse, RtNormOut* to) {
#if RT_QUANT
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) y[i] *= inverse;
#endif
  RtNormResult out;
  out.set(y);
  out.store(to);
}

#if RT_QUANT
__device__ __forceinline__ float rt_norm_largest(const float (&y)[RT_VEC], float largest) {
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) largest = fmaxf(largest, fabsf(y[i]));
  return largest;
}
#endif

// h of elements that were read without a residual.
__device__ __forceinline__ void rt_norm_prepare(RtNormVector* v) {
  if constexpr (RT_PRE == 1) {
    float h[RT_VEC];
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) h[i] = rt_norm_activate<RT_PRE>(v->get(i));
    v->set(h);
  }
}

// h of elements of x and the residual.
__device__ __forceinline__ RtNormVector rt_norm_total(const RtNormVector& x, const RtNormVector& residual) {
  float sum[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) sum[i] = rt_norm_activate<kRtNormLate ? 0 : RT_PRE>(x.get(i) + residual.get(i));
  RtNormVector h;
  h.set(sum);
  return h;
}

// Writes elements of what is normalised.
__device__ __forceinline__ void rt_norm_write_residual(const RtNormVector& h, RtNormStore* to) {
  if constexpr (kRtNormLate) {
    float s[RT_VEC];
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) s[i] = rt_norm_element(h, i);
    RtNormVector out;
    out.set(s);
    out.store(to);
  } else {
    h.store(to);
  }
}

__device__ __forceinline__ void rt_norm_load_parameters(const RtNormPointers& p, int step, RtNormVector* weight,
                                                        RtNormVector* bias) {
  weight->load(p.weight + step);
#if RT_BIAS
  bias->load(p.bias + step);
#else
  bias->fill(0);
#endif
}

// What happens to a product before it is stored, the same for every GEMM template:
// d = act(alpha·scale·ab + beta·c + bias), computed in fp32, rounded once; d of 8 bits is that times the one number
// scale_d, clamped to the range of its type (FP8 needs sm_89).
//
// Reads RT_DTYPE, RT_OUT, RT_BIAS, RT_ACT, RT_BETA, RT_VEC_D (elements a store: it divides n). Optional: RT_SCALE (none
// 0, one number each for a and b 1, one a row of a and one a column of d 2, blocks of 128, which are in the products 3)
// and RT_BIAS_DTYPE (RT_DTYPE by default).
#pragma once
#include "common/quantized.cuh"
#include "common/types.cuh"

#ifndef RT_SCALE
#define RT_SCALE 0
#endif
#define RT_SCALE_TENSOR 1
#define RT_SCALE_ROW 2
#define RT_SCALE_BLOCK 3
#ifndef RT_BIAS_DTYPE
#define RT_BIAS_DTYPE RT_DTYPE
#endif

#define RT_QUANTIZED (RT_OUT == RT_FP8_E4M3 || RT_OUT == RT_FP8_E5M2 || RT_OUT == RT_INT8)

#define RT_ACT_NONE 0
#define RT_ACT_RELU 1
#define RT_ACT_GELU 2
#define RT_ACT_SILU 3

typedef RtType<RT_DTYPE>::Store RtIn;
typedef RtType<RT_BIAS_DTYPE>::Store RtBias;
typedef RtType<RT_OUT>::Store RtOut;

// Parts of a list that are there only with a feature.
#if RT_BETA
#define RT_IF_BETA(...) __VA_ARGS__
#else
#define RT_IF_BETA(...)
#endif
#if RT_SCALE
#define RT_IF_SCALE(...) __VA_ARGS__
#else
#define RT_IF_SCALE(...)
#endif
#if RT_QUANTIZED
#define RT_IF_QUANTIZED(...) __VA_ARGS__
#else
#define RT_IF_QUANTIZED(...)
#endif
#if RT_BIAS
#define RT_IF_BIAS(...) __VA_ARGS__
#else
#define RT_IF_BIAS(...)
#endif

// What a kernel's signature has for its epilogue, in the order of a launch's arguments:
//   RT_EPILOGUE_INPUTS RtOut* __restrict__ d, RT_EPILOGUE_FACTORS
#define RT_SCALE_INPUTS RT_IF_SCALE(const float* __restrict__ scale_a, const float* __restrict__ scale_b, )
#define RT_EPILOGUE_INPUTS                             \
  RT_IF_BETA(const RtOut* __restrict__ c, )            \
  RT_SCALE_INPUTS                                      \
  RT_IF_QUANTIZED(const float* __restrict__ scale_d, ) \
  RT_IF_BIAS(const RtBias* __restrict__ bias, )
#define RT_EPILOGUE_FACTORS float alpha, RT_IF_BETA(float beta, )
// RtEpilogueArgs of parameters with these names; d is set beside it.
#define RT_EPILOGUE_ARGS                                                                                         \
  rt_epilogue_args(RT_IF_BETA(c, ) RT_IF_SCALE(scale_a, scale_b, ) RT_IF_QUANTIZED(scale_d, ) RT_IF_BIAS(bias, ) \
                       RT_IF_BETA(beta, ) alpha)

struct RtEpilogueArgs {
  RT_IF_BETA(const RtOut* c; float beta;)
#if RT_SCALE == RT_SCALE_ROW
  const float* scale_a;
  const float* scale_b;
#endif
  RT_IF_QUANTIZED(const float* scale_d;)
  RT_IF_BIAS(const RtBias* bias;)
  RtOut* d;
  float alpha;  // times the scales of whole tensors
};

__device__ __forceinline__ RtEpilogueArgs rt_epilogue_args(RT_EPILOGUE_INPUTS RT_IF_BETA(float beta, ) float alpha) {
  RtEpilogueArgs args;
  RT_IF_BETA(args.c = c; args.beta = beta;)
#if RT_SCALE == RT_SCALE_ROW
  args.scale_a = scale_a;
  args.scale_b = scale_b;
#elif RT_SCALE == RT_SCALE_TENSOR
  alpha *= __ldg(scale_a) * __ldg(scale_b);
#endif
  RT_IF_QUANTIZED(args.scale_d = scale_d;)
  RT_IF_BIAS(args.bias = bias;)
  args.alpha = alpha;
  return args;
}

__device__ __forceinline__ float rt_sigmoid(float x) { return __fdividef(1.0f, 1.0f + rt_exp(-x)); }

__device__ __forceinline__ float rt_activate(float x) {
#if RT_ACT == RT_ACT_RELU
  // Not fmaxf, which would turn a NaN into zero and hide it.
  return x < 0.0f ? 0.0f : x;
#elif RT_ACT == RT_ACT_GELU
  // 0.5·x·(1 + tanh(u)) = x·sigmoid(2u), u = sqrt(2/pi)·(x + 0.044715·x³).
  return x * rt_sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
#elif RT_ACT == RT_ACT_SILU
  return x * rt_sigmoid(x);
#else
  return x;
#endif
}

// An aligned group of V values of a storage type, moved in words as wide as the group allows (16 bytes).
template <typename T, int V>
union RtPack {
  static constexpr int kBytes = V * sizeof(T);
  T value[V];
  rt_u16 u16[(kBytes + 1) / 2];
  rt_u32 u32[(kBytes + 3) / 4];
  uint2 u64[(kBytes + 7) / 8];
  uint4 u128[(kBytes + 15) / 16];

  __device__ __forceinline__ void load(const T* p) {
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i) u128[i] = __ldg(reinterpret_cast<const uint4*>(p) + i);
    } else if constexpr (kBytes == 8) {
      u64[0] = __ldg(reinterpret_cast<const uint2*>(p));
    } else if constexpr (kBytes == 4) {
      u32[0] = __ldg(reinterpret_cast<const rt_u32*>(p));
    } else {
      u16[0] = __ldg(reinterpret_cast<const rt_u16*>(p));
    }
  }
  __device__ __forceinline__ void store(T* p) const {
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i) reinterpret_cast<uint4*>(p)[i] = u128[i];
    } else if constexpr (kBytes == 8) {
      *reinterpret_cast<uint2*>(p) = u64[0];
    } else if constexpr (kBytes == 4) {
      *reinterpret_cast<rt_u32*>(p) = u32[0];
    } else {
      *reinterpret_cast<rt_u16*>(p) = u16[0];
    }
  }
};

// V floats from shared memory, aligned to 16 bytes where V is a multiple of 4.
template <int V>
__device__ __forceinline__ void rt_read_shared(float* to, const float* from) {
  if constexpr (V % 4 == 0) {
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      const float4 f = *reinterpret_cast<const float4*>(from + i);
      to[i] = f.x, to[i + 1] = f.y, to[i + 2] = f.z, to[i + 3] = f.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) to[i] = from[i];
  }
}

// Finishes V neighbouring products of one row and stores them; `row` matters with scales of rows. `column` is a
// multiple of V; `index` is the position of the first in d (and c).
template <int V>
__device__ __forceinline__ void rt_finish(const float* product, const RtEpilogueArgs& args, size_t index, int column,
                                          [[maybe_unused]] int row = 0) {
#if RT_SCALE == RT_SCALE_ROW
  const float scale_a = __ldg(args.scale_a + row);
#endif
#if RT_BETA
  RtPack<RtOut, V> c;
  c.load(args.c + index);
#endif
#if RT_BIAS
  RtPack<RtBias, V> bias;
  bias.load(args.bias + column);
#endif
  float result[V];
#pragma unroll
  for (int i = 0; i < V; ++i) {
    float v = args.alpha * product[i];
#if RT_SCALE == RT_SCALE_ROW
    v *= scale_a * __ldg(args.scale_b + column + i);
#endif
#if RT_BETA
    v += args.beta * RtType<RT_OUT>::load(c.value[i]);
#endif
#if RT_BIAS
    v += RtType<RT_BIAS_DTYPE>::load(bias.value[i]);
#endif
    result[i] = rt_activate(v);
#if RT_QUANTIZED
    result[i] *= __ldg(args.scale_d);
#endif
  }
#if RT_QUANTIZED
  RtQuantized<RT_OUT, V> out;
  out.set(result);
#else
  RtPack<RtOut, V> out;
#pragma unroll
  for (int i = 0; i < V; ++i) out.value[i] = RtType<RT_OUT>::store(result[i]);
#endif
  out.store(args.d + index);
}

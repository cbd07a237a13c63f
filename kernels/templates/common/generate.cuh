// Counter-based inputs on the device: the twin of kernels/generate.h, bit for bit.
//
// Element i of tensor t: Philox4x32-10 with key (seed low, seed high) and counter (i low, i high, t, 0) gives four
// words; g = sum of (word >> 8) − 2·(2^24 − 1), an exact integer of zero mean and variance 4·(2^48 − 1)/12. The
// element is round_to_dtype(mean + scale · float(g)): g to float, one multiply, one add, each rounded to nearest,
// never contracted to a fused multiply-add. scale = rt_generate_scale(stddev), computed in double and rounded to
// float once.
#pragma once

#include "common/types.cuh"

// The four words of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
struct RtPhilox {
  rt_u32 word[4];
};

__device__ __forceinline__ RtPhilox rt_philox(rt_u64 seed, rt_u64 index, rt_u32 tensor) {
  rt_u32 key0 = static_cast<rt_u32>(seed);
  rt_u32 key1 = static_cast<rt_u32>(seed >> 32);
  rt_u32 c0 = static_cast<rt_u32>(index);
  rt_u32 c1 = static_cast<rt_u32>(index >> 32);
  rt_u32 c2 = tensor;
  rt_u32 c3 = 0;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const rt_u64 p0 = static_cast<rt_u64>(0xD2511F53u) * c0;
    const rt_u64 p1 = static_cast<rt_u64>(0xCD9E8D57u) * c2;
    const rt_u32 n0 = static_cast<rt_u32>(p1 >> 32) ^ c1 ^ key0;
    const rt_u32 n2 = static_cast<rt_u32>(p0 >> 32) ^ c3 ^ key1;
    c0 = n0;
    c1 = static_cast<rt_u32>(p1);
    c2 = n2;
    c3 = static_cast<rt_u32>(p0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Element of a tensor of indices, uniform in [0, range).
__device__ __forceinline__ int rt_generate_index(rt_u64 seed, rt_u32 tensor, rt_u64 index, rt_u64 range) {
  const RtPhilox r = rt_philox(seed, index, tensor);
  return static_cast<int>((static_cast<rt_u64>(r.word[0]) << 32 | r.word[1]) % range);
}

// Finalizer of splitmix64: every bit of the result depends on every bit of `z`.
__device__ __forceinline__ rt_u64 rt_mix(rt_u64 z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Element of a permutation of 0 … range − 1; kernels/generate.h says how.
__device__ __forceinline__ rt_i64 rt_generate_distinct(rt_u64 seed, rt_u32 tensor, rt_u64 index, rt_u64 range) {
  int half = 1;
  while (1ull << 2 * half < range) ++half;
  const rt_u64 mask = (1ull << half) - 1;
  rt_u64 x = index;
  do {
    for (rt_u64 round = 0; round < 4; ++round) {
      const rt_u64 left = x >> half, right = x & mask;
      const rt_u64 mixed = rt_mix(seed + (static_cast<rt_u64>(tensor) << 32) * 0x9E3779B9u + (round << 40) + right);
      x = right << half | (left ^ (mixed & mask));
    }
  } while (x >= range);
  return static_cast<rt_i64>(x);
}

// Element of a tensor of indices: distinct or not, −1 for about one in `skip` (0: none).
__device__ __forceinline__ rt_i64 rt_generate_place(rt_u64 seed, rt_u32 tensor, rt_u64 index, rt_u64 range,
                                                    int distinct, rt_i64 skip) {
  if (skip > 0 && rt_philox(seed, index, tensor).word[2] % static_cast<rt_u64>(skip) == 0) return -1;
  return distinct != 0 ? rt_generate_distinct(seed, tensor, index, range)
                       : rt_generate_index(seed, tensor, index, range);
}

// Rows of the first `group` of `groups` ragged groups; kernels/generate.h says how they are cut.
__device__ __forceinline__ rt_i64 rt_generate_group_start(rt_u64 seed, rt_u32 tensor, rt_i64 group, rt_i64 groups,
                                                          rt_i64 total) {
  const rt_i64 empty = groups > 1 ? groups / 2 : groups;
  rt_i64 before = 0, all = 0;
  for (rt_i64 i = 0; i < groups; ++i) {
    if (i == empty) continue;
    const rt_i64 weight = 65536 + (rt_philox(seed, static_cast<rt_u64>(i), tensor).word[0] >> 15);
    all += weight;
    if (i < group) before += weight;
  }
  const rt_i64 filled = groups > 1 ? groups - 1 : 1;
  const rt_i64 ones = total < filled ? total : filled;
  const rt_i64 filled_before = group - (group > empty ? 1 : 0);
  return filled_before * ones / filled + (total - ones) * before / all;
}

// stddev · √3 · 2^-24, rounded to float once.
__device__ __forceinline__ float rt_generate_scale(float stddev) {
  return static_cast<float>(static_cast<double>(stddev) * (1.7320508075688772 / 16777216.0));
}

// The element before it is rounded to the tensor's dtype.
__device__ __forceinline__ float rt_generate(rt_u64 seed, rt_u32 tensor, rt_u64 index, float mean, float scale) {
  const RtPhilox r = rt_philox(seed, index, tensor);
  const int g =
      static_cast<int>((r.word[0] >> 8) + (r.word[1] >> 8) + (r.word[2] >> 8) + (r.word[3] >> 8)) - 2 * ((1 << 24) - 1);
  return __fadd_rn(mean, __fmul_rn(__int2float_rn(g), scale));
}

// A float to element i of a tensor.
__device__ __forceinline__ void rt_put(void* out, rt_i64 i, int dtype, float v) {
  if (dtype == RT_FP32) {
    static_cast<float*>(out)[i] = v;
  } else if (dtype == RT_FP16) {
    static_cast<rt_u16*>(out)[i] = RtType<RT_FP16>::store(v);
  } else if (dtype == RT_BF16) {
    static_cast<rt_u16*>(out)[i] = RtType<RT_BF16>::store(v);
  } else if (dtype == RT_FP64) {
    static_cast<double*>(out)[i] = v;
  } else if (dtype == RT_FP8_E4M3) {
    static_cast<rt_u8*>(out)[i] = RtType<RT_FP8_E4M3>::store(v);
  } else if (dtype == RT_FP8_E5M2) {
    static_cast<rt_u8*>(out)[i] = RtType<RT_FP8_E5M2>::store(v);
  } else if (dtype == RT_INT8) {
    static_cast<signed char*>(out)[i] = static_cast<signed char>(max(-128, min(127, __float2int_rn(v))));
  } else if (dtype == RT_INT32) {
    static_cast<int*>(out)[i] = __float2int_rn(v);
  }
}

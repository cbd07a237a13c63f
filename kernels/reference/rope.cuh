// Reference of rotary position embedding, by its definition, in double; with RT_CACHE also of the paged cache: its row
// slots[token] is the token's rotated k, rounded nowhere, and its v; all other rows stay as they are.
// Defines: RT_DTYPE, RT_STYLE (0 half, 1 interleaved), RT_CACHE, RT_SLOT (type of the slots).
// Launch: 256 threads; one thread a pair of q and k, then (RT_CACHE) one block a row of the cache.
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;
typedef Type::Store Store;
#if RT_SLOT == RT_INT64
typedef rt_i64 Slot;
#else
typedef int Slot;
#endif

struct Pair {
  double a, b;
  float a_magnitude, b_magnitude;
};
__device__ Pair rotated(double a, double b, double c, double s) {
  return {a * c - b * s, b * c + a * s, static_cast<float>(fabs(a * c) + fabs(b * s)),
          static_cast<float>(fabs(b * c) + fabs(a * s))};
}

struct Angles {
  const float* cos;
  const float* sin;
};

// Pair number `pair` of the head that starts at `in`, to the head that starts at `value` and `magnitude`.
__device__ void rotate(const Store* in, double* value, float* magnitude, rt_i64 pair, rt_i64 half, Angles of_token) {
  const rt_i64 a = RT_STYLE == 1 ? 2 * pair : pair;
  const rt_i64 b = RT_STYLE == 1 ? a + 1 : a + half;
  const Pair p = rotated(Type::load(in[a]), Type::load(in[b]), of_token.cos[pair], of_token.sin[pair]);
  value[a] = p.a;
  value[b] = p.b;
  magnitude[a] = p.a_magnitude;
  magnitude[b] = p.b_magnitude;
}

// The token that is written to row `row` of the cache; -1 if none is. All threads of the block get it.
__device__ rt_i64 token_of(const Slot* slots, rt_i64 tokens, rt_i64 row) {
  __shared__ rt_i64 found;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  for (rt_i64 token = threadIdx.x; token < tokens; token += blockDim.x) {
    if (slots[token] == row) found = token;
  }
  __syncthreads();
  return found;
}

__device__ void keep(const Store* in, double* value, float* magnitude, rt_i64 i) {
  value[i] = Type::load(*in);
  magnitude[i] = fabsf(Type::load(*in));
}

extern "C" __global__ void __launch_bounds__(256)
    rt_reference(const Store* q, const Store* k,
#if RT_CACHE
                 const Store* v,
#endif
                 const float* cos, const float* sin,
#if RT_CACHE
                 const Slot* slots, const Store* k_cache, const Store* v_cache,
#endif
                 double* q_value, float* q_magnitude, double* k_value, float* k_magnitude,
#if RT_CACHE
                 double* k_cache_value, float* k_cache_magnitude, double* v_cache_value, float* v_cache_magnitude,
#endif
                 rt_i64 tokens, rt_i64 heads_q, rt_i64 heads_kv, rt_i64 head_dim) {
  const rt_i64 half = head_dim / 2, heads = heads_q + heads_kv;
  const rt_i64 id = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x;
#if RT_CACHE
  const rt_i64 pair_blocks = (tokens * heads * half + blockDim.x - 1) / blockDim.x;
  if (blockIdx.x >= pair_blocks) {
    const rt_i64 row = blockIdx.x - pair_blocks, width = heads_kv * head_dim;
    const rt_i64 token = token_of(slots, tokens, row);
    for (rt_i64 i = threadIdx.x; i < width; i += blockDim.x) {
      const rt_i64 at = row * width + i;
      keep(token < 0 ? v_cache + at : v + token * width + i, v_cache_value, v_cache_magnitude, at);
      if (token < 0) keep(k_cache + at, k_cache_value, k_cache_magnitude, at);
    }
    for (rt_i64 i = threadIdx.x; token >= 0 && i < heads_kv * half; i += blockDim.x) {
      const rt_i64 head = i / half * head_dim, at = row * width + head;
      rotate(k + token * width + head, k_cache_value + at, k_cache_magnitude + at, i % half, half,
             {cos + token * half, sin + token * half});
    }
    return;
  }
#endif
  if (id >= tokens * heads * half) return;
  const rt_i64 pair = id % half, head = id / half % heads, token = id / (half * heads);
  const bool is_k = head >= heads_q;
  const rt_i64 first = (is_k ? token * heads_kv + head - heads_q : token * heads_q + head) * head_dim;
  rotate((is_k ? k : q) + first, (is_k ? k_value : q_value) + first, (is_k ? k_magnitude : q_magnitude) + first, pair,
         half, {cos + token * half, sin + token * half});
}

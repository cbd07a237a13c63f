// Rotary position embedding of q and k in one launch.
//
// Defines: RT_DTYPE; RT_STYLE (0 half, 1 interleaved); RT_PAIRS pairs of a head (head_dim / 2); RT_VEC pairs a thread
// turns at once, a divisor of RT_PAIRS; RT_HEADS heads and RT_TOKENS tokens that a block works on side by side;
// RT_ITEMS heads whose loads a thread has in flight; RT_SPLIT blocks that share the heads of a token.
//
// A thread keeps its pairs' cosines and sines in registers and walks over heads: they are read once a token.
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

constexpr int kLanes = RT_PAIRS / RT_VEC;  // of one head
constexpr int kHeadDim = 2 * RT_PAIRS;

typedef RtType<RT_DTYPE>::Store Store;

// RT_VEC pairs: two vectors half a head apart, or one of twice the length.
struct Pairs {
#if RT_STYLE == 0
  RtVector<RT_DTYPE, RT_VEC> first, second;
  __device__ __forceinline__ void load(const Store* head, int lane) {
    first.load_stream(head + lane * RT_VEC);
    second.load_stream(head + lane * RT_VEC + RT_PAIRS);
  }
  __device__ __forceinline__ void store(Store* head, int lane) const {
    first.store_stream(head + lane * RT_VEC);
    second.store_stream(head + lane * RT_VEC + RT_PAIRS);
  }
  __device__ __forceinline__ float a(int i) const { return first.get(i); }
  __device__ __forceinline__ float b(int i) const { return second.get(i); }
  __device__ __forceinline__ void set(const float (&a)[RT_VEC], const float (&b)[RT_VEC]) {
    first.set(a);
    second.set(b);
  }
#else
  RtVector<RT_DTYPE, 2 * RT_VEC> both;
  __device__ __forceinline__ void load(const Store* head, int lane) { both.load_stream(head + lane * 2 * RT_VEC); }
  __device__ __forceinline__ void store(Store* head, int lane) const { both.store_stream(head + lane * 2 * RT_VEC); }
  __device__ __forceinline__ float a(int i) const { return both.get(2 * i); }
  __device__ __forceinline__ float b(int i) const { return both.get(2 * i + 1); }
  __device__ __forceinline__ void set(const float (&a)[RT_VEC], const float (&b)[RT_VEC]) {
    float v[2 * RT_VEC];
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) v[2 * i] = a[i], v[2 * i + 1] = b[i];
    both.set(v);
  }
#endif
};

struct Angles {
  RtVector<RT_FP32, RT_VEC> cos, sin;
};

__device__ __forceinline__ Pairs rotate(const Pairs& p, const Angles& angles) {
  float a[RT_VEC], b[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) {
    const float c = angles.cos.get(i), s = angles.sin.get(i);
    a[i] = fmaf(p.a(i), c, -(p.b(i) * s));
    b[i] = fmaf(p.b(i), c, p.a(i) * s);
  }
  Pairs out;
  out.set(a, b);
  return out;
}

// Heads `first`, `first` + RT_HEADS, … below `end` of one token.
__device__ __forceinline__ void rotate_heads(const Store* in, Store* out, const Angles& angles, int first, int end,
                                             int lane) {
  for (int head = first; head < end; head += RT_HEADS * RT_ITEMS) {
    Pairs p[RT_ITEMS];
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      const int at = head + k * RT_HEADS;
      if (at < end) p[k].load(in + static_cast<rt_i64>(at) * kHeadDim, lane);
    }
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      const int at = head + k * RT_HEADS;
      if (at < end) rotate(p[k], angles).store(out + static_cast<rt_i64>(at) * kHeadDim, lane);
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kLanes* RT_HEADS* RT_TOKENS)
    rt_rope(const Store* q, const Store* k, const float* cos, const float* sin, Store* q_out, Store* k_out,
            rt_i64 tokens, int heads_q, int heads_kv) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int slot = static_cast<int>(threadIdx.x) / kLanes;
  const rt_i64 token = static_cast<rt_i64>(blockIdx.x / RT_SPLIT) * RT_TOKENS + slot / RT_HEADS;
  if (token >= tokens) return;
  // This block's part of the heads, q's first, then k's.
  const int part = static_cast<int>(blockIdx.x % RT_SPLIT), heads = heads_q + heads_kv;
  const int share = (heads + RT_SPLIT - 1) / RT_SPLIT;
  const int begin = part * share + slot % RT_HEADS, end = min(heads, (part + 1) * share);

  Angles angles;
  angles.cos.load_cached(cos + token * RT_PAIRS + lane * RT_VEC);
  angles.sin.load_cached(sin + token * RT_PAIRS + lane * RT_VEC);
  const rt_i64 at_q = token * heads_q * kHeadDim, at_k = token * heads_kv * kHeadDim;
  rotate_heads(q + at_q, q_out + at_q, angles, begin, min(end, heads_q), lane);
  // The thread's first head that is one of k's.
  const int behind = begin >= heads_q ? begin : begin + (heads_q - begin + RT_HEADS - 1) / RT_HEADS * RT_HEADS;
  rotate_heads(k + at_k, k_out + at_k, angles, behind - heads_q, end - heads_q, lane);
}

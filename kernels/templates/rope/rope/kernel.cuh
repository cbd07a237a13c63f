// Rotary position embedding of q and k in one launch, in place or not; with RT_CACHE the rotated k and v also go to row
// slots[token] of a paged cache, unless that is negative.
//
// Defines: RT_DTYPE; RT_STYLE (0 half, 1 interleaved); RT_PAIRS pairs of a head (head_dim / 2); RT_VEC pairs a thread
// turns at once, a divisor of RT_PAIRS; RT_HEADS heads and RT_TOKENS tokens that a block works on side by side;
// RT_ITEMS heads whose loads a thread has in flight; RT_SPLIT blocks that share the heads of a token; RT_INPLACE and
// RT_CACHE (0 or 1); RT_SLOT the type of the slots.
//
// A thread keeps its pairs' cosines and sines in registers and walks over heads: they are read once a token.
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

constexpr int kLanes = RT_PAIRS / RT_VEC;  // of one head
constexpr int kHeadDim = 2 * RT_PAIRS;

typedef RtType<RT_DTYPE>::Store Store;
#if RT_SLOT == RT_INT64
typedef rt_i64 Slot;
#else
typedef int Slot;
#endif

// RT_VEC pairs: two vectors half a head apart, or one of twice the length.
struct Pairs {
#if RT_STYLE == 0
  RtVector<RT_DTYPE, RT_VEC> first, second;
  __device__ __forceinline__ void load(const Store* head, int lane) {
    first.load(head + lane * RT_VEC);
    second.load(head + lane * RT_VEC + RT_PAIRS);
  }
  __device__ __forceinline__ void store(Store* head, int lane) const {
    first.store(head + lane * RT_VEC);
    second.store(head + lane * RT_VEC + RT_PAIRS);
  }
  __device__ __forceinline__ float a(int i) const { return first.get(i); }
  __device__ __forceinline__ float b(int i) const { return second.get(i); }
  __device__ __forceinline__ void set(const float (&a)[RT_VEC], const float (&b)[RT_VEC]) {
    first.set(a);
    second.set(b);
  }
#else
  RtVector<RT_DTYPE, 2 * RT_VEC> both;
  __device__ __forceinline__ void load(const Store* head, int lane) { both.load(head + lane * 2 * RT_VEC); }
  __device__ __forceinline__ void store(Store* head, int lane) const { both.store(head + lane * 2 * RT_VEC); }
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

// Heads `first`, `first` + RT_HEADS, … below `end` of one token, from `in` to `out`, and to `copy` if there is one.
template <bool ROTATE>
__device__ __forceinline__ void move_heads(const Store* in, Store* out, Store* copy, const Angles& angles, int first,
                                           int end, int lane) {
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
      if (at >= end) continue;
      const Pairs moved = ROTATE ? rotate(p[k], angles) : p[k];
      moved.store(out + static_cast<rt_i64>(at) * kHeadDim, lane);
      if (copy != nullptr) moved.store(copy + static_cast<rt_i64>(at) * kHeadDim, lane);
    }
  }
}

// First of a thread's heads `first`, `first` + RT_HEADS, … that is not below `from`.
__device__ __forceinline__ int head_behind(int first, int from) {
  return first >= from ? first : first + (from - first + RT_HEADS - 1) / RT_HEADS * RT_HEADS;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kLanes* RT_HEADS* RT_TOKENS) rt_rope(
#if RT_INPLACE
    Store* q, Store* k,
#else
    const Store* q, const Store* k,
#endif
#if RT_CACHE
    const Store* v,
#endif
    const float* cos, const float* sin,
#if RT_CACHE
    const Slot* slots,
#endif
#if !RT_INPLACE
    Store* q_out, Store* k_out,
#endif
#if RT_CACHE
    Store* k_cache, Store* v_cache,
#endif
    rt_i64 tokens, int heads_q, int heads_kv) {
#if RT_INPLACE
  Store *const q_out = q, *const k_out = k;
#endif
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int slot = static_cast<int>(threadIdx.x) / kLanes;
  const rt_i64 token = static_cast<rt_i64>(blockIdx.x / RT_SPLIT) * RT_TOKENS + slot / RT_HEADS;
  if (token >= tokens) return;
  // This block's part of the heads: q's first, then k's, then v's.
  const int part = static_cast<int>(blockIdx.x % RT_SPLIT), heads = heads_q + heads_kv * (1 + RT_CACHE);
  const int share = (heads + RT_SPLIT - 1) / RT_SPLIT;
  const int begin = part * share + slot % RT_HEADS, end = min(heads, (part + 1) * share);

  Angles angles;
  angles.cos.load(cos + token * RT_PAIRS + lane * RT_VEC);
  angles.sin.load(sin + token * RT_PAIRS + lane * RT_VEC);
  const rt_i64 at_q = token * heads_q * kHeadDim, at_k = token * heads_kv * kHeadDim;
  Store* to_k = nullptr;
#if RT_CACHE
  const rt_i64 row = slots[token];
  if (row >= 0) to_k = k_cache + row * heads_kv * kHeadDim;
#endif
  move_heads<true>(q + at_q, q_out + at_q, nullptr, angles, begin, min(end, heads_q), lane);
  const int end_k = heads_q + heads_kv;
  move_heads<true>(k + at_k, k_out + at_k, to_k, angles, head_behind(begin, heads_q) - heads_q,
                   min(end, end_k) - heads_q, lane);
#if RT_CACHE
  if (row >= 0) {
    move_heads<false>(v + at_k, v_cache + row * heads_kv * kHeadDim, nullptr, angles,
                      head_behind(begin, end_k) - end_k, end - end_k, lane);
  }
#endif
}

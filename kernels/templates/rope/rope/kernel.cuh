// Rotary position embedding of q and k in one launch, in place or not; with RT_CACHE the rotated k and v also go to row
// slots[token] of a paged cache, unless that is negative.
//
// Defines: RT_DTYPE; RT_STYLE (0 half, 1 interleaved); RT_PAIRS pairs of a head (head_dim / 2); RT_VEC pairs a thread
// turns at once, a divisor of RT_PAIRS; RT_HEADS heads and RT_TOKENS tokens that a block works on side by side;
// RT_ITEMS heads a thread has, all in flight; RT_FULL (1: blocks have all of their heads and
// tokens, of fewer than 2^32 elements, and none along z); RT_INPLACE and
// RT_CACHE (0 or 1); RT_SLOT the type of the slots.
//
// A token's heads are numbered q's first, then k's, then v's.
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

// Of elements; where there is little to do, the arithmetic of 64 bits is a part of it.
#if RT_FULL
typedef rt_u32 Index;
#else
typedef rt_i64 Index;
#endif

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
  const Index block = RT_FULL ? blockIdx.y : static_cast<Index>(blockIdx.z) * gridDim.y + blockIdx.y;
  const Index token = block * RT_TOKENS + slot / RT_HEADS;
  if (!RT_FULL && token >= tokens) return;
  const int first = static_cast<int>(blockIdx.x) * (RT_HEADS * RT_ITEMS) + slot % RT_HEADS;
  const int end_q = heads_q, end_k = heads_q + heads_kv, end = end_k + RT_CACHE * heads_kv;
  // Head number `head` of the token, in one of these tensors.
  const auto head_of = [&](auto* of_q, auto* of_k, auto* of_v, int head) {
    const bool is_q = head < end_q, is_v = RT_CACHE && head >= end_k;
    const Index before = token * (is_q ? heads_q : heads_kv) + (head - (is_q ? 0 : is_v ? end_k : end_q));
    return (is_q ? of_q : is_v ? of_v : of_k) + before * kHeadDim;
  };
#if RT_CACHE
  const rt_i64 row = slots[token];
#else
  const Store* const v = nullptr;
#endif
  Pairs p[RT_ITEMS];
#pragma unroll
  for (int i = 0; i < RT_ITEMS; ++i) {
    const int head = first + i * RT_HEADS;
    if (RT_FULL || head < end) p[i].load(head_of(static_cast<const Store*>(q), static_cast<const Store*>(k), v, head), lane);
  }
  Angles angles;
  angles.cos.load(cos + (token * RT_PAIRS + lane * RT_VEC));
  angles.sin.load(sin + (token * RT_PAIRS + lane * RT_VEC));
  rt_issue_loads();
#pragma unroll
  for (int i = 0; i < RT_ITEMS; ++i) {
    const int head = first + i * RT_HEADS;
    if (!RT_FULL && head >= end) continue;
    const Pairs turned = rotate(p[i], angles);
    if (!RT_CACHE || head < end_k) turned.store(head_of(q_out, k_out, k_out, head), lane);
#if RT_CACHE
    if (row < 0 || head < end_q) continue;
    Store* const cached = head < end_k ? k_cache - end_q * kHeadDim : v_cache - end_k * kHeadDim;
    (head < end_k ? turned : p[i]).store(cached + (row * heads_kv + head) * kHeadDim, lane);
#endif
  }
}

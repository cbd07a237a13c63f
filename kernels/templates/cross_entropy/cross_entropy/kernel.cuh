// Cross entropy along rows: loss = log Σ exp(x) − x[target], and with RT_GRAD the logits replaced by their gradient
// (softmax(x) − onehot(target)) · scale.
//
// Defines: RT_DTYPE; RT_GRAD (0 or 1); RT_VARIANT (0 the row in registers in its storage type; 1 in chunks, any length:
// one pass, and with RT_GRAD a second); RT_BLOCK threads a block; RT_ROWS rows a block (variant 0); RT_VEC elements a
// vector, a divisor of vocab; RT_ITEMS vectors a thread holds (0) or loads at once (1); RT_CLUSTER blocks that share a
// row (sm_90 and newer); RT_RESIDENT blocks an SM must have registers for.
//
// The running sum is rescaled once for RT_ITEMS vectors. A target outside of the vocabulary is ignored: zeros.
#include "common/row.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
constexpr int kThreads = RT_BLOCK / RT_ROWS;  // of one row in this block
typedef RtRow<kThreads, RT_ROWS, RT_CLUSTER> Row;

#if RT_GRAD
typedef Store Logit;
#else
typedef const Store Logit;
#endif

__device__ __forceinline__ int rank_in_cluster() {
  return RT_CLUSTER > 1 ? static_cast<int>(blockIdx.x % RT_CLUSTER) : 0;
}

// First element of the thread's vector number k; consecutive threads have consecutive vectors, consecutive blocks of
// the cluster consecutive chunks.
__device__ __forceinline__ int column(int k) {
  return ((k * RT_CLUSTER + rank_in_cluster()) * kThreads + static_cast<int>(threadIdx.x % kThreads)) * RT_VEC;
}

// Whether the vector that holds `target` is this thread's. Only the owner reads x[target] and only the owner
// overwrites it, so that no barrier is needed between the two.
__device__ __forceinline__ bool owns(int target) {
  const int vector = target / RT_VEC;
  return vector % kThreads == static_cast<int>(threadIdx.x % kThreads) &&
         vector / kThreads % RT_CLUSTER == rank_in_cluster();
}

__device__ __forceinline__ float exp_biased(float x, float bias) { return rt_exp2(fmaf(x, kRtLog2E, bias)); }

__device__ __forceinline__ void load_chunk(Logit* x, int vocab, int base, Vector (&v)[RT_ITEMS]) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    v[k].fill(rt_minus_infinity<RT_DTYPE>());
    if (column(base + k) < vocab) v[k].load(x + column(base + k));
  }
}

// Adds vectors to the running state. They stay packed: without the `keep` after their use the compiler holds all of
// them as floats, twice the registers.
__device__ __forceinline__ void accumulate(Vector (&v)[RT_ITEMS], rt_u32 zero, RtMaxSum* state) {
  float max = state->max;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) max = fmaxf(max, v[k].get(i));
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) v[k].keep(zero);
  const float bias = rt_exp_bias(max);
  float sum = state->sum * exp_biased(state->max, bias);
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) sum += exp_biased(v[k].get(i), bias);
  }
  *state = {max, sum};
}

#if RT_GRAD
// Gradient of the vector whose first element is `first`; `hot` is `scale`, or 0 for a row that is ignored.
__device__ __forceinline__ void store_gradient(const Vector& v, Store* x, int first, int target, float bias,
                                               float factor, float hot) {
  float g[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) {
    g[i] = exp_biased(v.get(i), bias) * factor;
    if (first + i == target) g[i] -= hot;
  }
  Vector out;
  out.set(g);
  out.store(x + first);
}
#endif

struct Pointers {
  Logit* x;
  float* loss;
  int target;
  float scale;
};

// `vocab` is 0 for a row past the end, which takes part in the barriers alone.
__device__ __forceinline__ void row_loss(const Pointers& p, int vocab, rt_u32 zero, Row::Shared* shared) {
  const bool counts = p.target >= 0 && p.target < vocab;
  const bool owner = counts ? owns(p.target) : vocab > 0 && owns(0);
  float at_target = 0.0f;
  if (owner && counts) at_target = RtType<RT_DTYPE>::load(*static_cast<const volatile Store*>(p.x + p.target));

  RtMaxSum state = {-rt_infinity(), 0.0f};
  Vector v[RT_ITEMS];
#if RT_VARIANT == 0
  load_chunk(p.x, vocab, 0, v);
  accumulate(v, zero, &state);
#else
  int base = 0;
  for (; column(base) < vocab; base += RT_ITEMS) {
    load_chunk(p.x, vocab, base, v);
    accumulate(v, zero, &state);
  }
#endif
  state = Row::max_sum(state, shared);
  if (owner) {
    float log2_sum;
    asm("lg2.approx.f32 %0, %1;" : "=f"(log2_sum) : "f"(state.sum));
    *p.loss = counts ? fmaf(log2_sum, 0.6931471805599453f, state.max - at_target) : 0.0f;
  }
#if RT_GRAD
  const float bias = rt_exp_bias(state.max);
  const float hot = counts ? p.scale : 0.0f;
  const float factor = hot / state.sum;
#if RT_VARIANT == 0
  const rt_u32 never = state.sum < 0.0f;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    v[k].keep(never);
    if (column(k) < vocab) store_gradient(v[k], p.x, column(k), p.target, bias, factor, hot);
  }
#else
  // Backwards: what was read last is still in a cache.
  for (base -= RT_ITEMS; base >= 0; base -= RT_ITEMS) {
    load_chunk(p.x, vocab, base, v);
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (column(base + k) < vocab) store_gradient(v[k], p.x, column(base + k), p.target, bias, factor, hot);
    }
  }
#endif
#endif
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK, RT_RESIDENT) rt_cross_entropy(Logit* logits, const int* targets,
                                                                                     float* loss,
#if RT_GRAD
                                                                                     float grad_scale,
#endif
                                                                                     rt_i64 rows, rt_i64 vocab) {
#if !RT_GRAD
  constexpr float grad_scale = 0.0f;
#endif
  __shared__ Row::Shared shared;
  const rt_i64 row = static_cast<rt_i64>(blockIdx.x / RT_CLUSTER) * RT_ROWS + threadIdx.x / kThreads;
  const Pointers p = {logits + row * vocab, loss + row, row < rows ? targets[row] : -1, grad_scale};
  row_loss(p, row < rows ? static_cast<int>(vocab) : 0, static_cast<rt_u32>(rows >> 63), &shared);
  Row::finish();
}

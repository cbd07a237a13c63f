// Reductions along rows; a full reduction is one row of all elements.
//
// Defines: RT_DTYPE; RT_KIND (common/reduce.cuh); RT_BLOCK threads a block; RT_ROWS rows a block; RT_VEC elements a
// vector, a divisor of the row; RT_ITEMS vectors loaded at once; RT_FULL (1: just as many as a row has, and blocks have
// all of their rows); RT_SPLIT blocks that share a row (with RT_ROWS 1):
// their results go to the workspace and are merged by a second launch, RT_LANES threads a row.
//
// Every sum has a fixed order: equal inputs give equal bits.
#include "common/reduce.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
constexpr int kThreads = RT_BLOCK / RT_ROWS;  // of one row

__device__ __forceinline__ float shift_of(const Store* row) {
  return RT_KIND == RT_KIND_VAR ? RtType<RT_DTYPE>::load(*row) : 0.0f;
}

// Vectors [begin, end) of a row; with RT_FULL there are no others.
__device__ __forceinline__ RtReduction reduce_part(const Store* x, rt_i64 begin, rt_i64 end, float shift) {
  RtReduction state[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) state[k] = RtReduction::none();
  const rt_i64 first = begin + threadIdx.x % kThreads;
  for (rt_i64 base = first; RT_FULL ? base == first : base < end; base += RT_ITEMS * kThreads) {
    Vector v[RT_ITEMS];
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (RT_FULL || base + k * kThreads < end) v[k].load(x + (base + k * kThreads) * RT_VEC);
    }
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (!RT_FULL && base + k * kThreads >= end) continue;
      const int index = static_cast<int>((base + k * kThreads) * RT_VEC);
#pragma unroll
      for (int i = 0; i < RT_VEC; ++i) state[k].add(v[k].get(i), index + i, shift);
    }
  }
#pragma unroll
  for (int k = 1; k < RT_ITEMS; ++k) state[0].merge(state[k]);
  return state[0];
}

// Over groups of THREADS neighbouring threads, a power of two. Once a kernel.
template <int THREADS>
__device__ __forceinline__ RtReduction merge_threads(RtReduction state, RtReduction* shared) {
  if constexpr (THREADS <= 32) {
    state.merge_lanes<THREADS>();
  } else {
    constexpr int kWarps = THREADS / 32;
    state.merge_lanes<32>();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = state;
    __syncthreads();
    state = shared[threadIdx.x / THREADS * kWarps + threadIdx.x % kWarps];
    state.merge_lanes<kWarps>();
  }
  return state;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_reduce_row(const Store* x,
#if RT_SPLIT > 1
                                                                     RtReduction* partial,
#else
                                                                     RtReduced* value,
#if RT_KIND == RT_KIND_VAR
                                                                     float* variance,
#endif
#endif
                                                                     rt_i64 outputs, rt_i64 terms) {
  __shared__ RtReduction shared[RT_BLOCK / 32];
  const rt_i64 row = static_cast<rt_i64>(blockIdx.x / RT_SPLIT) * RT_ROWS + threadIdx.x / kThreads;
  const rt_i64 vectors = terms / RT_VEC, share = (vectors + RT_SPLIT - 1) / RT_SPLIT;
  const rt_i64 begin = static_cast<rt_i64>(blockIdx.x % RT_SPLIT) * share;
  const rt_i64 end = begin + share < vectors ? begin + share : vectors;
  // A row past the end takes part in the barrier alone.
  const bool exists = RT_FULL || row < outputs;
  const float shift = exists ? shift_of(x + row * terms) : 0.0f;
  const RtReduction state =
      merge_threads<kThreads>(exists ? reduce_part(x + row * terms, begin, end, shift) : RtReduction::none(), shared);
  if (!exists || threadIdx.x % kThreads != 0) return;
#if RT_SPLIT > 1
  partial[blockIdx.x] = state;
#else
#if RT_KIND != RT_KIND_VAR
  float* const variance = nullptr;
#endif
  RtReducedTo{value, variance}.store(row, state, terms, shift);
#endif
}

#if RT_SPLIT > 1
extern "C" __global__ void __launch_bounds__(256)
    rt_reduce_row_final(const Store* x, const RtReduction* partial, RtReduced* value,
#if RT_KIND == RT_KIND_VAR
                        float* variance,
#endif
                        rt_i64 outputs, rt_i64 terms) {
#if RT_KIND != RT_KIND_VAR
  float* const variance = nullptr;
#endif
  __shared__ RtReduction shared[256 / 32];
  const rt_i64 row = (static_cast<rt_i64>(blockIdx.x) * 256 + threadIdx.x) / RT_LANES;
  const int lane = static_cast<int>(threadIdx.x) % RT_LANES;
  RtReduction state = RtReduction::none();
  if (row < outputs) {
#pragma unroll 8
    for (int part = lane; part < RT_SPLIT; part += RT_LANES) state.merge(partial[row * RT_SPLIT + part]);
  }
  state = merge_threads<RT_LANES>(state, shared);
  if (row < outputs && lane == 0) RtReducedTo{value, variance}.store(row, state, terms, shift_of(x + row * terms));
}
#endif

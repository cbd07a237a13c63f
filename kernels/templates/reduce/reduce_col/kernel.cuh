// Reductions along columns: a block has RT_LANES_X vectors of columns side by side and walks down the rows with
// RT_BLOCK / RT_LANES_X rows at a time.
//
// Defines: RT_DTYPE; RT_KIND (common/reduce.cuh); RT_BLOCK threads a block; RT_LANES_X; RT_VEC elements a vector, a
// divisor of cols; RT_ITEMS rows that a thread loads at once; RT_SPLIT blocks that share the rows; RT_CLUSTER: 1, and
// their results go to the workspace and are merged by a second launch, or RT_SPLIT, and they are one cluster, which merges
// them in shared memory (sm_90 and newer).
//
// Every sum has a fixed order: equal inputs give equal bits.
#include "common/pairs.cuh"
#include "common/reduce.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
constexpr int kLanesY = RT_BLOCK / RT_LANES_X;
constexpr int kColumns = RT_LANES_X * RT_VEC;  // of a block
constexpr int kOwnColumns = (kColumns + RT_CLUSTER - 1) / RT_CLUSTER;  // that a block of a cluster writes

__device__ __forceinline__ float shift_of(const Store* column) {
  return RT_KIND == RT_KIND_VAR ? RtType<RT_DTYPE>::load(*column) : 0.0f;
}

// Rows [begin, end) of the thread's columns.
__device__ __forceinline__ void reduce_rows(const Store* x, rt_i64 cols, rt_i64 begin, rt_i64 end,
                                            RtReduction (&state)[RT_VEC]) {
  float shift[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) {
    shift[i] = shift_of(x + i);
    state[i] = RtReduction::none();
  }
  for (rt_i64 row = begin + threadIdx.x / RT_LANES_X; row < end; row += RT_ITEMS * kLanesY) {
    Vector v[RT_ITEMS];
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (row + k * kLanesY < end) v[k].load(x + (row + k * kLanesY) * cols);
    }
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (row + k * kLanesY >= end) continue;
#pragma unroll
      for (int i = 0; i < RT_VEC; ++i) state[i].add(v[k].get(i), static_cast<int>(row + k * kLanesY), shift[i]);
    }
  }
}

// Largest elements of 16-bit types are looked for two at a time, in their own format: two instructions an element.
constexpr bool kPairs = RT_KIND == RT_KIND_ARGMAX && RT_VEC > 1 &&
#if __CUDA_ARCH__ >= 900
                        RT_DTYPE != RT_FP32;
#else
                        RT_DTYPE == RT_FP16;
#endif

// RT_ITEMS rows of the thread from `row` on, those before `end`.
__device__ __forceinline__ void load_rows(const Store* x, rt_i64 cols, rt_i64 row, rt_i64 end, Vector (&v)[RT_ITEMS]) {
  if (row + (RT_ITEMS - 1) * kLanesY < end) {
    const Store* from = x + row * cols;
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k, from += kLanesY * cols) v[k].load(from);
  } else {
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (row + k * kLanesY < end) v[k].load(x + (row + k * kLanesY) * cols);
    }
  }
}

struct LargestPairs {
  Vector value;
  int index[RT_VEC];

  __device__ __forceinline__ void take(const Vector& v, int row) {
#pragma unroll
    for (int w = 0; w < Vector::kWords; ++w) {
      rt_take_larger<RT_DTYPE>(v.word[w], row, &value.word[w], &index[2 * w], &index[2 * w + 1]);
    }
  }
  __device__ __forceinline__ void take_rows(const Vector (&v)[RT_ITEMS], rt_i64 row, rt_i64 end) {
    if (row + (RT_ITEMS - 1) * kLanesY < end) {
#pragma unroll
      for (int k = 0; k < RT_ITEMS; ++k) take(v[k], static_cast<int>(row) + k * kLanesY);
    } else {
#pragma unroll
      for (int k = 0; k < RT_ITEMS; ++k) {
        if (row + k * kLanesY < end) take(v[k], static_cast<int>(row) + k * kLanesY);
      }
    }
  }
};

// What reduce_rows does. The index of a NaN is not known after all rows: then they are read again.
__device__ __forceinline__ void find_largest(const Store* x, rt_i64 cols, rt_i64 begin, rt_i64 end,
                                             RtReduction (&state)[RT_VEC]) {
  LargestPairs largest;
  largest.value.fill(rt_minus_infinity<RT_DTYPE>());
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) largest.index[i] = kRtNoIndex;
  for (rt_i64 row = begin + threadIdx.x / RT_LANES_X; row < end; row += RT_ITEMS * kLanesY) {
    Vector v[RT_ITEMS];
    load_rows(x, cols, row, end, v);
    largest.take_rows(v, row, end);
  }
  bool known = true;
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) {
    state[i] = {largest.value.get(i), __int_as_float(largest.index[i])};
    known = known && state[i].a == state[i].a;
  }
  if (known) return;
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) state[i] = RtReduction::none();
  for (rt_i64 row = begin + threadIdx.x / RT_LANES_X; row < end; row += kLanesY) {
    Vector v;
    v.load(x + row * cols);
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) state[i].add(v.get(i), static_cast<int>(row), 0.0f);
  }
}

#if RT_CLUSTER > 1
// What block `rank` of the cluster has there.
__device__ __forceinline__ RtReduction reduction_of(const RtReduction* place, int rank) {
  const float2 words = rt_load_remote(rt_shared_address(place), rank);
  return {words.x, words.y};
}
#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_reduce_col(const Store* x,
#if RT_SPLIT > RT_CLUSTER
                                                                     RtReduction* partial,
#else
                                                                     RtReduced* value,
#if RT_KIND == RT_KIND_VAR
                                                                     float* variance,
#endif
#endif
                                                                     rt_i64 rows, rt_i64 cols) {
  __shared__ RtReduction shared[kLanesY][kColumns];
  const int lane_x = static_cast<int>(threadIdx.x) % RT_LANES_X, lane_y = static_cast<int>(threadIdx.x) / RT_LANES_X;
  const rt_i64 block = blockIdx.x / RT_SPLIT, part = blockIdx.x % RT_SPLIT;
  const rt_i64 first = block * kColumns, share = (rows + RT_SPLIT - 1) / RT_SPLIT;
  const rt_i64 begin = part * share, end = begin + share < rows ? begin + share : rows;
#if RT_SPLIT <= RT_CLUSTER
#if RT_KIND != RT_KIND_VAR
  float* const variance = nullptr;
#endif
  const RtReducedTo result{value, variance};
#endif
  if (first + lane_x * RT_VEC < cols) {
    RtReduction state[RT_VEC];
    if constexpr (kPairs) {
      find_largest(x + first + lane_x * RT_VEC, cols, begin, end, state);
    } else {
      reduce_rows(x + first + lane_x * RT_VEC, cols, begin, end, state);
    }
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) shared[lane_y][lane_x * RT_VEC + i] = state[i];
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < kColumns && first + c < cols; c += RT_BLOCK) {
    RtReduction state = shared[0][c];
    for (int y = 1; y < kLanesY; ++y) state.merge(shared[y][c]);
#if RT_SPLIT > RT_CLUSTER
    partial[part * cols + first + c] = state;
#elif RT_CLUSTER > 1
    shared[0][c] = state;
#else
    result.store(first + c, state, rows, shift_of(x + first + c));
#endif
  }
#if RT_CLUSTER > 1
  rt_cluster_barrier();
  const int rank = rt_cluster_rank(), last = min((rank + 1) * kOwnColumns, kColumns);
  for (int c = rank * kOwnColumns + static_cast<int>(threadIdx.x); c < last && first + c < cols; c += RT_BLOCK) {
    RtReduction of[RT_CLUSTER];
#pragma unroll
    for (int r = 0; r < RT_CLUSTER; ++r) of[r] = reduction_of(&shared[0][c], r);
#pragma unroll
    for (int r = 1; r < RT_CLUSTER; ++r) of[0].merge(of[r]);
    result.store(first + c, of[0], rows, shift_of(x + first + c));
  }
  // No block leaves while others read its results.
  rt_cluster_meet();
#endif
}

#if RT_SPLIT > RT_CLUSTER
// 32 columns a block, with this many threads each.
constexpr int kFinalLanes = 8;

extern "C" __global__ void __launch_bounds__(32 * kFinalLanes)
    rt_reduce_col_final(const Store* x, const RtReduction* partial, RtReduced* value,
#if RT_KIND == RT_KIND_VAR
                        float* variance,
#endif
                        rt_i64 rows, rt_i64 cols) {
#if RT_KIND != RT_KIND_VAR
  float* const variance = nullptr;
#endif
  __shared__ RtReduction shared[kFinalLanes][32];
  const int lane = static_cast<int>(threadIdx.x) / 32;
  const rt_i64 column = static_cast<rt_i64>(blockIdx.x) * 32 + threadIdx.x % 32;
  RtReduction state = RtReduction::none();
  if (column < cols) {
#pragma unroll 8
    for (int part = lane; part < RT_SPLIT; part += kFinalLanes) state.merge(partial[part * cols + column]);
  }
  shared[lane][threadIdx.x % 32] = state;
  __syncthreads();
  if (lane != 0 || column >= cols) return;
  for (int y = 1; y < kFinalLanes; ++y) state.merge(shared[y][threadIdx.x % 32]);
  RtReducedTo{value, variance}.store(column, state, rows, shift_of(x + column));
}
#endif

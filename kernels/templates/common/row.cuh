// Reductions along rows. A row belongs to `THREADS` consecutive threads of each of `CTAS` thread blocks of a cluster;
// a block holds `ROWS` rows. Every thread of a row gets the result, with the same bits in every thread. With APART the
// block has threads beside these, which take no part.
#pragma once

#include "common/tma.cuh"
#include "common/types.cuh"

__device__ __forceinline__ float rt_infinity() { return __uint_as_float(0x7F800000u); }
constexpr float kRtLog2E = 1.4426950408889634f;

// Running softmax state: largest element and Σ exp(x − max).
struct RtMaxSum {
  float max;
  float sum;
};

// Σ x and Σ (x − mean)² of some elements.
struct RtMoments {
  float sum;
  float squares;
};

// −max·log2(e), so that exp(x − max) = 2^(x·log2(e) + this); 0 for a max of −∞, where x − max would be NaN but
// every exp must be 0.
__device__ __forceinline__ float rt_exp_bias(float max) { return max == -rt_infinity() ? 0.0f : -max * kRtLog2E; }

// To the last bit or the one before; a division takes longer than all of a small row's arithmetic.
__device__ __forceinline__ float rt_reciprocal(float x) {
  float r;
  asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

template <int THREADS, int ROWS, int CTAS, bool APART = false>
class RtRow {
 public:
  static_assert((THREADS & (THREADS - 1)) == 0, "threads of a row are a power of two");
  static constexpr int kLanes = THREADS < 32 ? THREADS : 32;
  static constexpr int kWarps = THREADS < 32 ? 1 : THREADS / 32;
  struct Shared {
    // A reduction uses one of them.
    union {
      alignas(16) RtMaxSum warp[ROWS][kWarps];
      alignas(16) RtMoments moments[ROWS][kWarps];
      alignas(16) float sum[ROWS][kWarps];
    };
    float2 block;
  };

  // Combines the partial states of all threads of the row. Once a kernel: `shared` is not free afterwards.
  static __device__ __forceinline__ RtMaxSum max_sum(RtMaxSum v, Shared* shared) {
    v = lanes_max_sum<kLanes, kLanes == 32>(v);
    if constexpr (kWarps > 1) {
      const int row = row_inside();
      const int lane = threadIdx.x % 32;
      put(v.max, v.sum, &shared->warp[row][warp_of_row()]);
      barrier();
      v = kWarps <= 4 ? few_max_sum(shared->warp[row]) : lanes_max_sum<kWarps, true>(shared->warp[row][lane % kWarps]);
    }
    if constexpr (CTAS > 1) {
      const float2 other = exchange({v.max, v.sum}, shared);
      v = lanes_max_sum<CTAS, true>({other.x, other.y});
    }
    return v;
  }

  static __device__ __forceinline__ float sum(float v, Shared* shared) {
    v = lanes_sum<kLanes>(v);
    if constexpr (kWarps > 1) {
      const int row = row_inside();
      const int lane = threadIdx.x % 32;
      put(v, &shared->sum[row][warp_of_row()]);
      barrier();
      v = kWarps <= 8 ? few_sum(shared->sum[row]) : lanes_sum<kWarps>(shared->sum[row][lane % kWarps]);
    }
    if constexpr (CTAS > 1) v = lanes_sum<CTAS>(exchange({0, v}, shared).y);
    return v;
  }

  // Of a row of which every thread brings COUNT elements: one reduction for mean and variance, which does not cancel.
  template <int COUNT>
  static __device__ __forceinline__ RtMoments moments(RtMoments v, Shared* shared) {
    v = lanes_moments<kLanes, COUNT>(v);
    if constexpr (kWarps > 1) {
      const int row = row_inside();
      const int lane = threadIdx.x % 32;
      put(v.sum, v.squares, &shared->moments[row][warp_of_row()]);
      barrier();
      v = kWarps <= 8 ? few_moments<32 * COUNT>(shared->moments[row])
                      : lanes_moments<kWarps, 32 * COUNT>(shared->moments[row][lane % kWarps]);
    }
    if constexpr (CTAS > 1) {
      const float2 other = exchange({v.sum, v.squares}, shared);
      v = lanes_moments<CTAS, THREADS * COUNT>({other.x, other.y});
    }
    return v;
  }

  // Largest of magnitudes, none of them a NaN.
  static __device__ __forceinline__ float max(float v, Shared* shared) {
    v = kLanes == 32 ? warp_largest(v) : lanes_max<kLanes>(v);
    if constexpr (kWarps > 1) {
      const int row = row_inside();
      const int lane = threadIdx.x % 32;
      put(v, &shared->sum[row][warp_of_row()]);
      barrier();
      v = lanes_max<kWarps>(shared->sum[row][lane % kWarps]);
    }
    if constexpr (CTAS > 1) v = lanes_max<CTAS>(exchange({v, 0}, shared).x);
    return v;
  }

  // Last thing of a kernel: no block of a cluster may end while others read its shared memory.
  static __device__ __forceinline__ void finish() {
    if constexpr (CTAS > 1) asm volatile("barrier.cluster.wait;" ::: "memory");
  }

  // Over N neighbouring lanes, N a power of two.
  template <int N>
  static __device__ __forceinline__ float lanes_sum(float v) {
#pragma unroll
    for (int offset = N / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, offset);
    return v;
  }
  template <int N>
  static __device__ __forceinline__ float lanes_max(float v) {
#pragma unroll
    for (int offset = N / 2; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, offset));
    return v;
  }
  // Each lane brings COUNT elements. Of two parts with sums s and t of n elements each, the squares around the common mean
  // are those around their own ones and (s − t)² / 2n.
  template <int N, int COUNT>
  static __device__ __forceinline__ RtMoments lanes_moments(RtMoments v) {
#pragma unroll
    for (int step = 1; step < N; step *= 2) {
      const float sum = __shfl_xor_sync(0xFFFFFFFFu, v.sum, step);
      const float squares = __shfl_xor_sync(0xFFFFFFFFu, v.squares, step);
      const float difference = v.sum - sum;
      v.squares = fmaf(difference * (0.5f / (COUNT * step)), difference, v.squares) + squares;
      v.sum += sum;
    }
    return v;
  }
  // Over few warps, in every thread by itself: sooner than exchanges between lanes are done, in what small rows take.
  static __device__ __forceinline__ float few_sum(const float* warp) {
    float v[kWarps];
    get_all(warp, v);
    float sum = v[0] + v[1];
#pragma unroll
    for (int i = 2; i < kWarps; i += 2) sum += v[i] + v[i + 1];
    return sum;
  }
  template <int COUNT>
  static __device__ __forceinline__ RtMoments few_moments(const RtMoments* warp) {
    float v[2 * kWarps];  // sums and squares in turn
    get_all(&warp->sum, v);
    float sum = v[0] + v[2], squares = v[1] + v[3];
#pragma unroll
    for (int i = 4; i < 2 * kWarps; i += 4) {
      sum += v[i] + v[i + 2];
      squares += v[i + 1] + v[i + 3];
    }
    float around[2] = {};
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      const float off = fmaf(v[2 * i], 1.0f / COUNT, sum * (-1.0f / (COUNT * kWarps)));
      around[i % 2] = fmaf(off, off, around[i % 2]);
    }
    return {sum, fmaf(around[0] + around[1], COUNT, squares)};
  }
  static __device__ __forceinline__ RtMaxSum few_max_sum(const RtMaxSum* warp) {
    float max = warp[0].max;
#pragma unroll
    for (int i = 1; i < kWarps; ++i) max = fmaxf(max, warp[i].max);
    const float bias = rt_exp_bias(max);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum = fmaf(warp[i].sum, rt_exp2(fmaf(warp[i].max, kRtLog2E, bias)), sum);
    return {max, sum};
  }
  // Over the whole warp in one instruction, on integers that are ordered as the floats are. −0 is below +0, and a NaN
  // is beyond an infinity of its sign: a row with one is NaN by its sum.
  static __device__ __forceinline__ float warp_max(float v) {
    const int bits = __float_as_int(v);
    const int ordered = bits ^ (bits >> 31 & 0x7FFFFFFF);
    int max;
    asm volatile("redux.sync.max.s32 %0, %1, 0xFFFFFFFF;" : "=r"(max) : "r"(ordered));
    return __int_as_float(max ^ (max >> 31 & 0x7FFFFFFF));
  }
  // The same of magnitudes, whose bits are ordered.
  static __device__ __forceinline__ float warp_largest(float v) {
    rt_u32 max;
    asm volatile("redux.sync.max.u32 %0, %1, 0xFFFFFFFF;" : "=r"(max) : "r"(__float_as_uint(v)));
    return __uint_as_float(max);
  }
  // The maximum first, then the rescaled sums: one exponential a thread, and a sum whose bits do not depend on the
  // lane.
  // WHOLE: the warp holds one row, every N lanes the same.
  template <int N, bool WHOLE>
  static __device__ __forceinline__ RtMaxSum lanes_max_sum(RtMaxSum v) {
    const float max = WHOLE ? warp_max(v.max) : lanes_max<N>(v.max);
    return {max, lanes_sum<N>(v.sum * rt_exp2(fmaf(v.max, kRtLog2E, rt_exp_bias(max))))};
  }

 private:
  // Of the block's rows the thread's, and of that row's warps the thread's.
  static __device__ __forceinline__ int row_inside() { return ROWS > 1 ? static_cast<int>(threadIdx.x) / THREADS : 0; }
  static __device__ __forceinline__ int warp_of_row() {
    return (ROWS > 1 ? static_cast<int>(threadIdx.x) % THREADS : static_cast<int>(threadIdx.x)) / 32;
  }
  // By the first lane of each warp. After a branch the address would be computed when the value is there, not before.
  static __device__ __forceinline__ void put(float v, void* slot) {
    asm volatile(
        "{\n\t"
        ".reg .pred first;\n\t"
        "setp.eq.u32 first, %0, 0;\n\t"
        "@first st.shared.f32 [%1], %2;\n\t"
        "}" ::"r"(threadIdx.x % 32),
        "r"(static_cast<rt_u32>(__cvta_generic_to_shared(slot))), "f"(v)
        : "memory");
  }
  static __device__ __forceinline__ void put(float a, float b, void* slot) {
    asm volatile(
        "{\n\t"
        ".reg .pred first;\n\t"
        "setp.eq.u32 first, %0, 0;\n\t"
        "@first st.shared.v2.f32 [%1], {%2, %3};\n\t"
        "}" ::"r"(threadIdx.x % 32),
        "r"(static_cast<rt_u32>(__cvta_generic_to_shared(slot))), "f"(a), "f"(b)
        : "memory");
  }
  // N words that are aligned to 16 bytes, if they are that many.
  template <int N>
  static __device__ __forceinline__ void get_all(const float* from, float (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      if constexpr (N % 4 == 0) {
        const float4 four = *reinterpret_cast<const float4*>(from + i);
        v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
      } else {
        v[0] = from[0], v[1] = from[1];
      }
    }
  }
  static __device__ __forceinline__ void barrier() {
    if constexpr (APART) {
      asm volatile("bar.sync 1, %0;" ::"n"(THREADS * ROWS) : "memory");
    } else {
      __syncthreads();
    }
  }
  // Lane l gets what block l % CTAS of the cluster has. Ends with an arrival that finish() waits for.
  static __device__ __forceinline__ float2 exchange(float2 v, Shared* shared) {
    if (threadIdx.x == 0) shared->block = v;
    asm volatile(
        "barrier.cluster.arrive.aligned;\n\t"
        "barrier.cluster.wait.aligned;" ::
            : "memory");
    const float2 other = rt_load_remote(rt_shared_address(&shared->block), static_cast<int>(threadIdx.x) % CTAS);
    asm volatile("barrier.cluster.arrive;" ::: "memory");
    return other;
  }
};

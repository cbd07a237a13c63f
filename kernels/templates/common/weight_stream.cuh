// y = x · Wᵀ for up to 8 rows of x: the weights, [n, k] of 16 bits, go from memory to registers to mma.sync and are
// touched once, 16 bytes a lane; that is all the time such a product takes.
//
// Rows of W are the 16 rows of mma.m16n8k16, so that a single row of x wastes products but no loads. A product does not
// mind in which order k is summed as long as both operands agree: the four lanes that share a row of W each take 16
// neighbouring bytes of it (a chunk is 64 bytes of a row), and the same k of x, so that neither operand passes through
// shared memory. Each warp has RT_ROWS blocks of 16 rows and every RT_WARPS_K-th chunk of its block's share of k;
// RT_UNROLL chunks are under way in registers. Sums of the warps, and of the RT_SPLIT_K blocks of a cluster, meet in
// shared memory in a fixed order.
//
// Defines: RT_DTYPE RT_OUT RT_BIAS RT_ACT RT_BETA, RT_ROWS RT_WARPS_N RT_WARPS_K RT_SPLIT_K RT_UNROLL, RT_X_AHEAD: when
// x is asked for, 0 when the weights have come, 1 a chunk earlier (RT_UNROLL is even then), 2 with the weights.
#pragma once
#define RT_VEC_D 1
#include "common/gemm_epilogue.cuh"
#include "common/mma.cuh"
#include "common/types.cuh"

namespace weight_stream {

constexpr int kThreads = 32 * RT_WARPS_N * RT_WARPS_K;
constexpr int kBlockN = 16 * RT_ROWS * RT_WARPS_N;  // rows of W a block
constexpr int kBlockM = 8;                          // rows of x a block
constexpr int kLane = 8;                            // k of a lane's 16 bytes
constexpr int kChunk = 4 * kLane;                   // k of a warp's step
constexpr int kSteps = 2;                           // products a chunk
constexpr int kStorage = kBlockN * kBlockM;

// Row g of x, for one chunk.
typedef rt_u32 Activations[kLane / 2];

// What one chunk needs of global memory.
struct Chunk {
  rt_u32 w[RT_ROWS][2][4];  // rows g and g + 8 of each block of 16
  Activations x;            // RT_X_AHEAD 2
};

__device__ __forceinline__ void load_stream(rt_u32* w, const void* p) {
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "l"(p));
}

// Addresses of one lane.
struct Source {
  const char* w[RT_ROWS][2];
  const RtIn* x;
  int k, t;

  __device__ __forceinline__ void load(Chunk& to, int chunk) const {
    if ((chunk + 1) * kChunk <= k) {
      load_weights<true>(to, chunk);
    } else {
      load_weights<false>(to, chunk);
    }
    if (RT_X_AHEAD == 2) load_activations(to.x, chunk);
  }

  template <bool WHOLE>
  __device__ __forceinline__ void load_weights(Chunk& to, int chunk) const {
    const size_t byte = static_cast<size_t>(chunk) * 64 + t * 16;
#pragma unroll
    for (int r = 0; r < RT_ROWS; ++r)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (!WHOLE) to.w[r][h][0] = to.w[r][h][1] = to.w[r][h][2] = to.w[r][h][3] = 0;
        if (WHOLE || chunk * kChunk + t * kLane < k) load_stream(to.w[r][h], w[r][h] + byte);
      }
  }

  __device__ __forceinline__ void load_activations(Activations& to, int chunk) const {
    if ((chunk + 1) * kChunk <= k) {
      load_x<true>(to, x, chunk * kChunk);
    } else {
      load_x<false>(to, x, chunk * kChunk);
    }
  }

  template <bool WHOLE>
  __device__ __forceinline__ void load_x(rt_u32* v, const RtIn* from, int first) const {
    const int at = first + t * kLane;
    if (!WHOLE) v[0] = v[1] = v[2] = v[3] = 0;
    if (WHOLE || at < k) {
      const uint4 u = __ldg(reinterpret_cast<const uint4*>(from + at));
      v[0] = u.x, v[1] = u.y, v[2] = u.z, v[3] = u.w;
    }
  }
};

// Adds the products of a chunk.
__device__ __forceinline__ void consume(const Chunk& c, const Activations& x, float (&sum)[RT_ROWS][4]) {
#pragma unroll
  for (int r = 0; r < RT_ROWS; ++r)
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const rt_u32 a[4] = {c.w[r][0][2 * s], c.w[r][1][2 * s], c.w[r][0][2 * s + 1], c.w[r][1][2 * s + 1]};
      multiply(sum[r], a, x + 2 * s);
    }
}

#if RT_SPLIT_K > 1
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

__device__ __forceinline__ float read_remote(rt_u32 local, int rank) {
  rt_u32 remote;
  float f;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(f) : "r"(remote));
  return f;
}
#endif

// Puts the warp's sums at [warp along k][row of W][row of x].
__device__ __forceinline__ void put(const float (&sum)[RT_ROWS][4], float* all, int warp_n, int warp_k, int lane) {
  float* const mine = all + warp_k * kStorage + warp_n * 16 * RT_ROWS * kBlockM;
#pragma unroll
  for (int r = 0; r < RT_ROWS; ++r) {
    float* p = mine + (r * 16 + (lane >> 2)) * kBlockM + (lane & 3) * 2;
    *reinterpret_cast<float2*>(p) = make_float2(sum[r][0], sum[r][1]);
    *reinterpret_cast<float2*>(p + 8 * kBlockM) = make_float2(sum[r][2], sum[r][3]);
  }
}

// The block's part of the product; `finish(value, row of x, row of W)` gets every element once.
template <typename FINISH>
__device__ __forceinline__ void run(Source source, int first_n, int first_m, int m, int n, float* memory,
                                    FINISH finish) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int warp_n = warp % RT_WARPS_N, warp_k = warp / RT_WARPS_N;
#if RT_SPLIT_K > 1
  const int rank = blockIdx.x % RT_SPLIT_K;
#else
  const int rank = 0;
#endif
  constexpr int kStride = RT_WARPS_K * RT_SPLIT_K;
  const int chunks = (source.k + kChunk - 1) / kChunk, first = rank * RT_WARPS_K + warp_k;
  const int count = first < chunks ? (chunks - first + kStride - 1) / kStride : 0;

  Chunk ring[RT_UNROLL];
#pragma unroll
  for (int u = 0; u < RT_UNROLL; ++u) {
    if (u < count) source.load(ring[u], first + u * kStride);
  }
  // A chunk ahead (of even number at [0]), or this one's.
  Activations near[2];
  if (RT_X_AHEAD == 1 && count > 0) source.load_activations(near[0], first);
  float sum[RT_ROWS][4] = {};
  // Chunk number `done` + u of the warp, which lies at ring[u]; `more` = there is another one.
  const auto step = [&](int done, int u, bool more) {
    const int chunk = first + (done + u) * kStride;
    if (RT_X_AHEAD == 1 && more) source.load_activations(near[(u + 1) & 1], chunk + kStride);
    if (RT_X_AHEAD == 0) source.load_activations(near[0], chunk);
    consume(ring[u], RT_X_AHEAD == 2 ? ring[u].x : near[RT_X_AHEAD == 1 ? u & 1 : 0], sum);
  };
  int done = 0;
#pragma unroll 1
  for (; done + 2 * RT_UNROLL <= count; done += RT_UNROLL) {
#pragma unroll
    for (int u = 0; u < RT_UNROLL; ++u) {
      step(done, u, true);
      source.load(ring[u], first + (done + u + RT_UNROLL) * kStride);
    }
  }
#pragma unroll 1
  for (; done < count; done += RT_UNROLL) {
#pragma unroll
    for (int u = 0; u < RT_UNROLL; ++u) {
      if (done + u >= count) break;
      step(done, u, done + u + 1 < count);
      if (done + u + RT_UNROLL < count) source.load(ring[u], first + (done + u + RT_UNROLL) * kStride);
    }
  }

  put(sum, memory, warp_n, warp_k, lane);
#if RT_SPLIT_K > 1
  cluster_barrier();
#else
  __syncthreads();
#endif
  // Neighbouring threads have neighbouring rows of W, which lie together in y.
  for (int id = rank * kThreads + threadIdx.x; id < kStorage; id += RT_SPLIT_K * kThreads) {
    const int row_x = id / kBlockN, row_w = id % kBlockN;
    if (first_m + row_x >= m || first_n + row_w >= n) continue;
    const int place = row_w * kBlockM + row_x;
    float total = 0.0f;
#pragma unroll
    for (int s = 0; s < RT_SPLIT_K; ++s)
#pragma unroll
      for (int w = 0; w < RT_WARPS_K; ++w) {
#if RT_SPLIT_K > 1
        total += read_remote(static_cast<rt_u32>(__cvta_generic_to_shared(memory + w * kStorage + place)), s);
#else
        total += memory[w * kStorage + place];
#endif
      }
    finish(total, first_m + row_x, first_n + row_w);
  }
#if RT_SPLIT_K > 1
  // Nobody's shared memory goes away while others read it.
  cluster_barrier();
#endif
}

}  // namespace weight_stream

// y = x · Wᵀ for up to 8 rows of x: the weights, [n, k] of 16, 8 or 4 bits, go from memory to registers to mma.sync and
// are touched once, 16 bytes a lane; that is all the time such a product takes.
//
// Rows of W are the 16 rows of mma.m16n8k16, so that a single row of x wastes products but no loads. A product does not
// mind in which order k is summed as long as both operands agree: the four lanes that share a row of W each take 16
// neighbouring bytes of it (a chunk is 64 bytes of a row), and the same k of x, so that neither operand passes through
// shared memory. Each warp has RT_ROWS blocks of 16 rows and every RT_WARPS_K-th chunk of its block's share of k;
// RT_UNROLL chunks are under way in registers. Sums of the warps, and of the RT_SPLIT_K blocks of a cluster, meet in
// shared memory in a fixed order.
//
// Codes of 4 and 8 bits are exact integers in the product; the fp32 sum of a group is scaled. Where a lane's 16 bytes
// reach into several groups, the four lanes turn their words so that each step of the product is within one.
//
// Defines: RT_DTYPE RT_OUT RT_BIAS RT_ACT RT_BETA, RT_WEIGHT (bits) RT_GROUP RT_ZERO, RT_ROWS RT_WARPS_N RT_WARPS_K
// RT_SPLIT_K RT_UNROLL, RT_TURN (1: the four lanes turn their words), RT_X_AHEAD: when x is asked for, 0 when the
// weights have come, 1 a chunk earlier (RT_UNROLL is even then), 2 with the weights.
#pragma once
#define RT_VEC_D 1
#include "common/dequantize.cuh"
#include "common/gemm_epilogue.cuh"
#include "common/types.cuh"

namespace weight_stream {

constexpr int kThreads = 32 * RT_WARPS_N * RT_WARPS_K;
constexpr int kBlockN = 16 * RT_ROWS * RT_WARPS_N;  // rows of W a block
constexpr int kBlockM = 8;                          // rows of x a block
constexpr int kLane = 128 / RT_WEIGHT;              // k of a lane's 16 bytes
constexpr int kChunk = 4 * kLane;                   // k of a warp's step
// Groups of a chunk; one scale a row is applied at the end.
constexpr bool kScaled = RT_WEIGHT != 16 && RT_GROUP > 0;
constexpr int kParts = kScaled && RT_GROUP < kChunk ? kChunk / (RT_GROUP > 0 ? RT_GROUP : 1) : 1;
// With or without groups, it makes the four lanes' loads of x neighbours.
constexpr bool kTurned = RT_TURN;
static_assert(RT_TURN || kParts == 1, "a product would mix groups");
constexpr int kSteps = kLane / 4;  // products a chunk
constexpr int kStorage = kBlockN * kBlockM;

// Row g of x, for one chunk.
typedef rt_u32 Activations[kLane / 2];

// What one chunk needs of global memory.
struct Chunk {
  rt_u32 w[RT_ROWS][2][4];  // rows g and g + 8 of each block of 16
  Activations x;            // RT_X_AHEAD 2
  rt_u16 scale[RT_ROWS][2][kParts];
  int zero[RT_ROWS][2][kParts];
};

__device__ __forceinline__ void load_stream(rt_u32* w, const void* p) {
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "l"(p));
}

#if RT_DTYPE == RT_BF16
#define RT_MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
#else
#define RT_MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
#endif

// c += a · b, or c = a · b where it is `fresh`: the hardware has a zero to add to, registers would have to be set.
__device__ __forceinline__ void multiply(float* c, const rt_u32* a, const rt_u32* b, bool fresh) {
  if (fresh) {
    asm(RT_MMA "{%10,%10,%10,%10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
  } else {
    asm(RT_MMA "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

// Turns the 4 × 4 words that four neighbouring lanes hold: word j of lane t becomes word t of lane j.
__device__ __forceinline__ void turn(rt_u32* w, int t) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (t & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const rt_u32 sent = upper ? w[i] : w[i + bit];
      const rt_u32 got = __shfl_xor_sync(0xFFFFFFFFu, sent, bit);
      (upper ? w[i] : w[i + bit]) = got;
    }
  }
}

// Addresses of one lane.
struct Source {
  const char* w[RT_ROWS][2];
  const RtIn* x;
  const RtIn* scales[RT_ROWS][2];
  const signed char* zeros[RT_ROWS][2];
  int k, t;

  // A chunk that k ends within is rare and takes the branch that masks: setting registers to zero before masked loads
  // is a twentieth of all instructions of int4.
  __device__ __forceinline__ void load(Chunk& to, int chunk) const {
    if ((chunk + 1) * kChunk <= k) {
      load_weights<true>(to, chunk);
    } else {
      load_weights<false>(to, chunk);
    }
    load_scales(to, chunk * kChunk);
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

  __device__ __forceinline__ void load_scales(Chunk& to, int first) const {
#pragma unroll
    for (int r = 0; r < RT_ROWS; ++r)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
          // A group past the end has no x.
          const int group = kScaled ? min(first + p * RT_GROUP, k - 1) / (RT_GROUP > 0 ? RT_GROUP : 1) : 0;
          if (kScaled) to.scale[r][h][p] = __ldg(scales[r][h] + group);
          if (RT_ZERO) to.zero[r][h][p] = __ldg(zeros[r][h] + group);
        }
  }

  __device__ __forceinline__ void load_activations(Activations& to, int chunk) const {
    if ((chunk + 1) * kChunk <= k) {
      load_x<true>(to, x, chunk * kChunk);
    } else {
      load_x<false>(to, x, chunk * kChunk);
    }
  }

  // k in the order of the lane's codes: as they lie, or a quarter of the lane's k from each quarter of the chunk.
  template <bool WHOLE>
  __device__ __forceinline__ void load_x(rt_u32* to, const RtIn* from, int first) const {
    constexpr int kRun = kTurned ? kLane / 4 : kLane;  // neighbouring k
    constexpr int kWords = kRun < 8 ? kRun / 2 : 4;    // a load
#pragma unroll
    for (int i = 0; i < kLane / 2 / kWords; ++i) {
      const int at = kTurned ? first + i * kLane + t * kRun : first + t * kLane + i * 2 * kWords;
      rt_u32* const v = to + i * kWords;
      if (!WHOLE) {
#pragma unroll
        for (int j = 0; j < kWords; ++j) v[j] = 0;
      }
      if (WHOLE || at < k) {
        if constexpr (kWords == 4) {
          const uint4 u = __ldg(reinterpret_cast<const uint4*>(from + at));
          v[0] = u.x, v[1] = u.y, v[2] = u.z, v[3] = u.w;
        } else {
          const uint2 u = __ldg(reinterpret_cast<const uint2*>(from + at));
          v[0] = u.x, v[1] = u.y;
        }
      }
    }
  }
};

// Adds the products of a chunk.
__device__ __forceinline__ void consume(const Source& source, Chunk& c, Activations& x, float (&sum)[RT_ROWS][4]) {
  if constexpr (RT_WEIGHT == 4) {
#pragma unroll
    for (int j = 0; j < kLane / 8; ++j) rt_interleave(x + 4 * j);
  }
#pragma unroll
  for (int r = 0; r < RT_ROWS; ++r) {
    if constexpr (RT_WEIGHT == 16) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const rt_u32 a[4] = {c.w[r][0][2 * s], c.w[r][1][2 * s], c.w[r][0][2 * s + 1], c.w[r][1][2 * s + 1]};
        multiply(sum[r], a, x + 2 * s, false);
      }
    } else {
      typedef RtCodes<RT_DTYPE, RT_WEIGHT> Codes;
      if constexpr (kTurned) {
        turn(c.w[r][0], source.t);
        turn(c.w[r][1], source.t);
      }
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        rt_u32 offset[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) offset[h] = Codes::offset(RT_ZERO ? c.zero[r][h][p] : Codes::kMiddle);
        float part[4];
#pragma unroll
        for (int j = p * 4 / kParts; j < (p + 1) * 4 / kParts; ++j) {
          constexpr int kPairs = 16 / RT_WEIGHT;  // a word
          rt_u32 pair[2][kPairs];
#pragma unroll
          for (int h = 0; h < 2; ++h) Codes::unpack(c.w[r][h][j], offset[h], pair[h]);
#pragma unroll
          for (int s = 0; s < kPairs / 2; ++s) {
            const rt_u32 a[4] = {pair[0][2 * s], pair[1][2 * s], pair[0][2 * s + 1], pair[1][2 * s + 1]};
            multiply(kScaled ? part : sum[r], a, x + j * kPairs + 2 * s, kScaled && j == p * 4 / kParts && s == 0);
          }
        }
        if constexpr (kScaled) {
          const float upper = RtType<RT_DTYPE>::load(c.scale[r][0][p]) * Codes::kUnits,
                      lower = RtType<RT_DTYPE>::load(c.scale[r][1][p]) * Codes::kUnits;
          sum[r][0] += upper * part[0], sum[r][1] += upper * part[1];
          sum[r][2] += lower * part[2], sum[r][3] += lower * part[3];
        }
      }
    }
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
    consume(source, ring[u], RT_X_AHEAD == 2 ? ring[u].x : near[RT_X_AHEAD == 1 ? u & 1 : 0], sum);
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

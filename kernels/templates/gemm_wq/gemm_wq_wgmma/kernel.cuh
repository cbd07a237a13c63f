// 16-bit activations times int4 or int8 weights for Hopper (sm_90a): codes become fragments of wgmma in registers.
//
// Rows of w are wgmma's 64-row side (x of common/gemm_wgmma_tile.cuh), whose operand may lie in registers; rows of x
// are its N side in shared memory. A first kernel arranges x in the workspace: tile after tile as it is to lie in
// shared memory, k in the order in which codes leave a word (below). One thread brings tiles of codes by TMA and those
// of x by bulk copies, some warps the scales. RT_GROUPS_X warpgroups of 64 rows of w each turn codes into fragments and
// multiply. Blocks are persistent, split-K and results are those of gemm_wgmma.
//
// Codes are exact integers in the product; the fp32 sum of a group (or of a tile, where that is less) is scaled, so
// that weights are never rounded. A product does not mind in which order k is summed: thread t of the four that share a
// row of w takes word t of every 16 bytes of that row, and x is laid out to match.
//
// Defines: RT_DTYPE RT_OUT RT_BIAS RT_ACT RT_BETA, RT_WEIGHT (bits) RT_GROUP RT_ZERO, RT_BM RT_BN RT_BK RT_GROUPS_X
// RT_STAGES RT_STORE_BUFFERS RT_SPLIT_K RT_CLUSTER RT_RASTER RT_REALLOCATE, RT_KEEP_W (what L2 keeps of w, RtKeep).
// Fixed: RT_LAYOUT 1, RT_SWAP 1, RT_GROUPS_Y RT_CLUSTER_M RT_CLUSTER_N 1, RT_PINGPONG 0.
#define RT_VEC_D 8
#include "common/dequantize.cuh"
#include "common/gemm_reduce.cuh"
#include "common/gemm_wgmma_epilogue.cuh"
#include "common/gemm_wgmma_tile.cuh"
#include "common/tma.cuh"
#include "common/wgmma_registers.cuh"

namespace {

typedef RtCodes<RT_DTYPE, RT_WEIGHT> Codes;
constexpr int kLoaders = 3;  // warps that bring scales
constexpr int kBlockThreads = kConsumers + 128;
// Of a thread after RT_REALLOCATE; together what a block of 384 has at its launch.
constexpr int kMultiplierRegisters = 208, kLoaderRegisters = 88;
static_assert(!RT_REALLOCATE || kGroups == 2, "registers to lend");
constexpr int kPitch = RT_BK * RT_WEIGHT / 8;  // bytes of a row of a tile of codes: one slab
constexpr int kBytesW = RT_BN * kPitch;
constexpr int kSlabX = RT_BM * 128, kBytesX = RT_BK / 64 * kSlabX;
constexpr bool kScaled = RT_GROUP > 0;
constexpr int kGroup = kScaled ? RT_GROUP : RT_BK;
constexpr int kParts = kGroup < RT_BK ? RT_BK / kGroup : 1;  // of a tile, each within a group
constexpr int kPartSteps = kSteps / kParts;
// Products whose fragments are made together while those before are under way: at least two batches a tile.
constexpr int kBatch = kPartSteps < 4 ? kPartSteps : kSteps < 8 ? kSteps / 2 : 4;
// Scale and, behind all of them, zero point of every row and part.
constexpr int kScaleBytes = kScaled ? kParts * RT_BN * 4 * (1 + RT_ZERO) : 0;
static_assert(kPitch == 64 || kPitch == 128, "a row of codes fills a slab");
static_assert(kSwap && RT_LAYOUT == 1 && kSharers == 1 && kBlocksX == 1, "geometry");

constexpr int kStagingOffset = RT_STAGES * (kBytesW + kBytesX);
constexpr int kStagingEnd = kStagingOffset + (RT_STORE_TMA ? kGroups * RT_STORE_BUFFERS * kStoreBytes : 0);
constexpr int kScaleOffset = kStagingEnd + kPartsBytes;
constexpr int kBarrierOffset = kScaleOffset + RT_STAGES * kScaleBytes;

// Position in the ring of stages.
struct Ring {
  int stage = 0;
  rt_u32 parity = 0;

  __device__ __forceinline__ void next() {
    if (++stage == RT_STAGES) stage = 0, parity ^= 1;
  }
};

struct Shared {
  rt_u32 memory;

  __device__ __forceinline__ rt_u32 w(int i) const { return memory + i * kBytesW; }
  __device__ __forceinline__ rt_u32 x(int i) const { return memory + RT_STAGES * kBytesW + i * kBytesX; }
  __device__ __forceinline__ rt_u32 scales(int i) const { return memory + kScaleOffset + i * kScaleBytes; }
  __device__ __forceinline__ rt_u32 full(int i) const { return memory + kBarrierOffset + i * 8; }
  __device__ __forceinline__ rt_u32 empty(int i) const { return full(RT_STAGES + i); }
#if RT_CLUSTER
  __device__ __forceinline__ Parts parts() const { return {memory + kStagingEnd, full(2 * RT_STAGES)}; }
#endif
};

__device__ __forceinline__ rt_u32 read_word(rt_u32 address) {
  rt_u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void write_word(rt_u32 address, rt_u32 v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

__device__ __forceinline__ void init_barriers(const Shared& shared) {
  for (int i = 0; i < RT_STAGES; ++i) {
    // The thread that brings w and x, and the warp that brings scales.
    rt_barrier_init(shared.full(i), 1 + (kScaled ? kRtWarpArrivals : 0));
    rt_barrier_init(shared.empty(i), kGroups * 4 * kRtWarpArrivals);
  }
  rt_barrier_init_fence();
}

// `each(work, k, ring)` for every tile of operands that this block takes. Blocks begin at different k and go round:
// they share x, and would all ask for the same of it at once.
template <typename EACH>
__device__ __forceinline__ void for_each_tile(const Extents& e, int rank, EACH each) {
  Ring ring;
  const int count = work_count(e);
#pragma unroll 1
  for (int id = blockIdx.x / kClusterBlocks; id < count; id += gridDim.x / kClusterBlocks) {
    const Work work = work_at(id, e, rank);
    int at = id % work.range.tiles;
#pragma unroll 1
    for (int t = 0; t < work.range.tiles; ++t, ring.next()) {
      each(work, (work.range.first_tile + at) * RT_BK, ring);
      if (++at == work.range.tiles) at = 0;
    }
  }
}

// One thread.
__device__ __forceinline__ void produce(const Shared& shared, const RtTensorMap& map_w, const unsigned char* arranged,
                                        const Extents& e, int rank) {
  const rt_u64 policy = rt_keep_policy<RT_KEEP_W>();
  const int k_tiles = (e.k + RT_BK - 1) / RT_BK;
  for_each_tile(e, rank, [&](const Work& work, int k, const Ring& ring) {
    const rt_u32 full = shared.full(ring.stage);
    rt_barrier_wait(shared.empty(ring.stage), ring.parity ^ 1);
    rt_barrier_expect(full, kBytesW + kBytesX);
    rt_tensor_load<RT_KEEP_W>(shared.w(ring.stage), map_w, full, k / 8 * RT_WEIGHT, work.x, 0, policy);
    const size_t tile = static_cast<size_t>(work.y / RT_BM) * k_tiles + k / RT_BK;
    rt_bulk_load(shared.x(ring.stage), arranged + tile * kBytesX, kBytesX, full);
  });
}

// Scales and zero points of a tile of w, by a warp.
struct Scales {
  static constexpr int kRows = RT_BN / 32;  // a lane
  RtIn scale[kParts][kRows];
  signed char zero[kParts][kRows];

  __device__ __forceinline__ void load(const RtIn* scales, const signed char* zeros, const Extents& e, int n0, int k0,
                                       int lane) {
    const int groups = e.k / kGroup;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      // Past the end of k there is no x.
      const int group = min(k0 + p * kGroup, e.k - 1) / kGroup;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        // Rows past n repeat the last one and are thrown away.
        const size_t at = static_cast<size_t>(min(n0 + i * 32 + lane, e.n - 1)) * groups + group;
        scale[p][i] = __ldg(scales + at);
        if (RT_ZERO) zero[p][i] = __ldg(zeros + at);
      }
    }
  }
  // In units of the codes; zero points as unpack takes them.
  __device__ __forceinline__ void store(rt_u32 to, int lane) const {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int row = p * RT_BN + i * 32 + lane;
        write_word(to + row * 4, __float_as_uint(RtType<RT_DTYPE>::load(scale[p][i]) * Codes::kUnits));
        if (RT_ZERO) write_word(to + (kParts * RT_BN + row) * 4, Codes::offset(zero[p][i]));
      }
  }
};

// One warp of several, which take stages in turn. It asks for a stage's scales before the stage is free.
__device__ __forceinline__ void bring(const Shared& shared, const RtIn* scales, const signed char* zeros,
                                      const Extents& e, int rank, int loader, int lane) {
  int turn = 0;
  for_each_tile(e, rank, [&](const Work& work, int k, const Ring& ring) {
    const bool mine = turn == loader;
    if (++turn == kLoaders) turn = 0;
    if (!mine) return;
    Scales all;
    all.load(scales, zeros, e, work.x, k, lane);
    rt_barrier_wait(shared.empty(ring.stage), ring.parity ^ 1);
    all.store(shared.scales(ring.stage), lane);
    rt_barrier_arrive_warp(shared.full(ring.stage), lane);
  });
}

// What a thread of a consumer warpgroup works with: rows g and g + 8 of the 16 of its warp.
struct Consumer {
  Shared shared;
  int row;      // g within the tile of w
  int t, lane;  // t of four
  Sums sums, part;
  float scale[kParts][2];
  rt_u32 offset[kParts][2];
  rt_u32 a[2][kBatch][4];

  // Codes of a stage as they are stored: words of 32 (int4) or 16 (int8) of k.
  static constexpr int kChunks = kPitch / 16;

  __device__ __forceinline__ void read_codes(rt_u32 (&word)[2][kChunks], int stage) const {
    // Word t of chunk 0 as the swizzle has it, eight rows further alike; chunk c differs in these bits.
    const rt_u32 first = shared.w(stage) + row * kPitch + (kPitch == 128 ? row & 7 : row >> 1 & 3) * 16 + t * 4;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int h = 0; h < 2; ++h) word[h][c] = read_word((first ^ c << 4) + h * 8 * kPitch);
  }
  __device__ __forceinline__ void read_scales(int stage) {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        scale[p][h] = __uint_as_float(read_word(shared.scales(stage) + (p * RT_BN + row + h * 8) * 4));
        if (RT_ZERO) offset[p][h] = read_word(shared.scales(stage) + ((kParts + p) * RT_BN + row + h * 8) * 4);
      }
  }
  // Fragments of a batch.
  __device__ __forceinline__ void unpack(const rt_u32 (&word)[2][kChunks], int batch) {
    constexpr int kWordSteps = kSteps / kChunks;  // products a word
#pragma unroll
    for (int j = 0; j < kBatch / kWordSteps; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int c = batch * (kBatch / kWordSteps) + j;
        rt_u32 pair[kWordSteps * 2];
        Codes::unpack(word[h][c], offset[c * kParts / kChunks][h], pair);
#pragma unroll
        for (int s = 0; s < kWordSteps; ++s) {
          a[batch & 1][j * kWordSteps + s][h] = pair[2 * s];
          a[batch & 1][j * kWordSteps + s][h + 2] = pair[2 * s + 1];
        }
      }
      // Not after the wait for the products under way.
#pragma unroll
    for (int s = 0; s < kBatch; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[batch & 1][s][i])::"memory");
  }
  __device__ __forceinline__ void issue(Sums& to, int stage, int batch, bool accumulate) {
    const rt_u32 x = rt_operand_low(shared.x(stage), 16);
    rt_wgmma_fence();
#pragma unroll
    for (int s = 0; s < kBatch; ++s) {
      const int step = batch * kBatch + s;
      RtWgmmaRegisters<kGroupY>::multiply(
          to[0], a[batch & 1][s], rt_operand(x + ((step / 4 * kSlabX + step % 4 * 32) >> 4)), accumulate || s > 0);
    }
    rt_wgmma_commit();
  }
  __device__ __forceinline__ void add_part(const float (&by)[2]) {
#pragma unroll
    for (int j = 0; j < kSums; ++j) rt_wgmma_pin(part[0][j]);
#pragma unroll
    for (int j = 0; j < kSums; ++j) sums[0][j] += by[j / 2 % 2] * part[0][j];
  }
  // Codes and scales are read by every lane, not by the tensor cores alone.
  __device__ __forceinline__ void release(int stage) const {
    rt_barrier_arrive_warp(shared.empty(stage), lane);
  }

  // The products of `tiles` stages. A batch's fragments are made while the products of the one before are under way;
  // their registers are those of the batch before that, which is done.
  __device__ __forceinline__ void multiply(Ring& ring, int tiles) {
#pragma unroll
    for (int j = 0; j < kSums; ++j) sums[0][j] = 0;
    int before = 0;
    float last[2] = {};  // scales of the part under way where it is of the stage before
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) {
      rt_u32 word[2][kChunks];
      rt_barrier_wait(shared.full(ring.stage), ring.parity);
      read_codes(word, ring.stage);
      if constexpr (kScaled) read_scales(ring.stage);
#pragma unroll
      for (int b = 0; b < kSteps / kBatch; ++b) {
        unpack(word, b);
        const bool first = b * kBatch % kPartSteps == 0;  // of its part
        if (kScaled && first && (b > 0 || i > 0)) {
          rt_wgmma_wait<0>();
          add_part(b > 0 ? scale[b * kBatch / kPartSteps - 1] : last);
          if (b == 0) release(before);
        }
        issue(kScaled ? part : sums, ring.stage, b, kScaled ? !first : true);
        if (!kScaled || !first) rt_wgmma_wait<1>();
        if (!kScaled && b == 0 && i > 0) release(before);
      }
      last[0] = scale[kParts - 1][0], last[1] = scale[kParts - 1][1];
      before = ring.stage;
      ring.next();
    }
    rt_wgmma_wait<0>();
    if constexpr (kScaled) {
      add_part(last);
    } else {
#pragma unroll
      for (int j = 0; j < kSums; ++j) rt_wgmma_pin(sums[0][j]);
    }
    release(before);
  }
};

}  // namespace

// x to whole tiles as shared memory has them: one thread brings 32 of k of a row of x, or of the zeros around it, into
// the order of the codes. `blocks` is how many of these a row of tiles has.
extern "C" __global__ void __launch_bounds__(128)
    rt_arrange_x(const RtIn* __restrict__ x, unsigned char* __restrict__ arranged, int m, int k, int blocks) {
  const int id = blockIdx.x * 128 + threadIdx.x;
  // Neighbouring threads have neighbouring blocks.
  const int block = id % blocks, row = id / blocks;
  if (row >= (m + RT_BM - 1) / RT_BM * RT_BM) return;
  rt_u32 v[4][4], w[4][4];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    uint4 u = make_uint4(0, 0, 0, 0);
    if (row < m && block * 32 < k) {
      u = __ldg(reinterpret_cast<const uint4*>(x + static_cast<size_t>(row) * k + block * 32) + t);
    }
    v[t][0] = u.x, v[t][1] = u.y, v[t][2] = u.z, v[t][3] = u.w;
  }
  // 16 bytes that a product takes: two k of each of four lanes.
  if constexpr (RT_WEIGHT == 4) {
#pragma unroll
    for (int t = 0; t < 4; ++t) rt_interleave(v[t]);
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int t = 0; t < 4; ++t) w[j][t] = v[t][j];
  } else {
    // Lane t has k 4·t to 4·t + 3 of 16: half of what lies in v[t / 2].
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int t = 0; t < 4; ++t) w[j][t] = v[j / 2 * 2 + t / 2][t % 2 * 2 + j % 2];
  }
  const int first = block % (RT_BK / 32);  // within the tile
  unsigned char* const tile =
      arranged + (static_cast<size_t>(row / RT_BM) * (blocks / (RT_BK / 32)) + block / (RT_BK / 32)) * kBytesX;
  unsigned char* const to = tile + first / 2 * kSlabX + row % RT_BM * 128;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int chunk = (first % 2 * 4 + j) ^ (row & 7);
    *reinterpret_cast<uint4*>(to + chunk * 16) = make_uint4(w[j][0], w[j][1], w[j][2], w[j][3]);
  }
}

extern "C" __global__ void __launch_bounds__(kBlockThreads, 1)
    rt_gemm_wq_wgmma(const unsigned char* __restrict__ arranged, const __grid_constant__ RtTensorMap map_w,
                     const RtIn* __restrict__ scales,
#if RT_ZERO
                     const signed char* __restrict__ zeros,
#endif
#if RT_PARTIAL
                     float* __restrict__ partial,
#elif RT_STORE_TMA
                     const __grid_constant__ RtTensorMap map_d,
#endif
#if !RT_PARTIAL
#if RT_BIAS
                     const RtBias* __restrict__ bias,
#endif
#if !RT_STORE_TMA
                     RtOut* __restrict__ d,
#endif
#endif
                     int m, int n, int k) {
  // The swizzle repeats every 1024 bytes.
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{rt_shared_address(memory)};
  const Extents e{m, n, k, 1};
  const int lane = threadIdx.x & 31;
  // The same for all lanes, and known to be.
  const int warp = __shfl_sync(0xffffffff, threadIdx.x >> 5, 0), group = warp >> 2;
  const int rank = kClusterBlocks > 1 ? rt_cluster_rank() : 0;

  if (threadIdx.x == 0) {
    init_barriers(shared);
#if RT_CLUSTER
    shared.parts().begin(rank);
#endif
  }
  if (threadIdx.x == kConsumers) {
    rt_tensor_prefetch(map_w);
#if RT_STORE_TMA
    rt_tensor_prefetch(map_d);
#endif
  }
  __syncthreads();
  // Waited for only before sums are sent.
  if constexpr (RT_CLUSTER) rt_cluster_arrive();

  if (group == kGroups) {
    if constexpr (RT_REALLOCATE) rt_registers_lower<kLoaderRegisters>();
    if (warp == kGroups * 4) {
      if (rt_elect()) produce(shared, map_w, arranged, e, rank);
    } else if (kScaled) {
#if !RT_ZERO
      const signed char* const zeros = nullptr;
#endif
      bring(shared, scales, zeros, e, rank, warp - kGroups * 4 - 1, lane);
    }
    __syncwarp();
#if RT_CLUSTER
    rt_cluster_wait();
#endif
  } else {
    if constexpr (RT_REALLOCATE) rt_registers_raise<kMultiplierRegisters>();
    const int group_x = group * kGroupX;
#if !RT_PARTIAL
    RtEpilogueArgs args;
    args.alpha = 1.0f;
#if RT_BIAS
    args.bias = bias;
#endif
#if !RT_STORE_TMA
    args.d = d;
#endif
#endif
    Consumer consumer;
    consumer.shared = shared;
    consumer.row = group_x + (warp & 3) * 16 + (lane >> 2);
    consumer.t = lane & 3;
    consumer.lane = lane;
#pragma unroll
    for (int p = 0; p < kParts; ++p) consumer.offset[p][0] = consumer.offset[p][1] = Codes::offset(Codes::kMiddle);
    Ring ring;
    [[maybe_unused]] int at = 0;
    const int count = work_count(e);
#pragma unroll 1
    for (int id = blockIdx.x / kClusterBlocks; id < count; id += gridDim.x / kClusterBlocks) {
      const Work work = work_at(id, e, rank);
      if constexpr (!kScaled) {
        // Rows past n repeat the last one and are thrown away.
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = min(work.x + consumer.row + h * 8, n - 1);
          consumer.scale[0][h] = RtType<RT_DTYPE>::load(__ldg(scales + row)) * Codes::kUnits;
#if RT_ZERO
          consumer.offset[0][h] = Codes::offset(__ldg(zeros + row));
#endif
        }
      }
      consumer.multiply(ring, work.range.tiles);
      Sums& sums = consumer.sums;
      if constexpr (!kScaled) {
#pragma unroll
        for (int j = 0; j < kSums; ++j) sums[0][j] *= consumer.scale[0][j / 2 % 2];
      }
#if RT_STORE_TMA
      store_tile(sums, args, e, map_d, shared.memory + kStagingOffset + group * (RT_STORE_BUFFERS * kStoreBytes), at, 0,
                 work.x + group_x, work.y, group);
#elif RT_CLUSTER
      rt_cluster_wait();
      reduce_tile(sums, shared.parts(), args, e, work, work.x + group_x, work.y);
#else
      float* const matrix = partial + static_cast<size_t>(work.share) * m * n;
#pragma unroll
      for (int j = 0; j < kSums; j += 4) {
        store_block(sums[0] + j, matrix, e, work.x + consumer.row, work.y + j * 2 + (lane & 3) * 2);
      }
#endif
    }
#if RT_STORE_TMA
    // Shared memory stays until TMA has read it.
    if ((threadIdx.x & 127) == 0) rt_store_wait_read<0>();
#endif
  }
}

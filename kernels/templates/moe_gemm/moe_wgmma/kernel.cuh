// Grouped GEMM of ragged groups of rows for Hopper (sm_90a): y[t, :] = x[row of t, :] · w[group of t]ᵀ.
//
// Blocks are persistent and deal the tiles of all groups round robin; every block works the tiles' places out itself
// (common/row_groups.cuh), so that neither group sizes nor tile counts have to be known on the host. The pipeline is
// that of gemm_wgmma: TMA brings w, whose third coordinate is the group, and x, of which a tile's last rows may be
// another group's: their results are not stored. With RT_GATHER x is copied row by row by a producer warpgroup
// (cp.async, which arrives at the same barriers).
//
// As rows past a group's end belong to others, results don't leave by TMA: every warp turns its part of a box through
// shared memory and stores whole 16-byte words of the rows that are the group's.
//
// The 64-row side of wgmma is called x, its N side y. x is rows and y is n, or, with RT_SWAP, x is n and y is rows.
// Blocks of a cluster have neighbouring row tiles of one group (RT_CLUSTER_M) or neighbouring tiles of the same rows
// (RT_CLUSTER_N); each loads a part of w, or of x, for all.
//
// Defines: RT_DTYPE RT_OUT RT_MASKED RT_GATHER RT_SCATTER RT_WEIGHTED RT_SCALE (none 0, of blocks of 128 3), RT_BM
// RT_BN RT_BK RT_SWAP RT_GROUPS_X RT_PINGPONG RT_STAGES RT_CLUSTER_M RT_CLUSTER_N RT_RASTER RT_REALLOCATE. RT_TWO_PARTS: gemm_wgmma_blocks.cuh.
#define RT_LAYOUT 1
#define RT_BIAS 0
#define RT_ACT 0
#define RT_BETA 0
#define RT_VEC_D 8
#define RT_SPLIT_K 1
#define RT_CLUSTER 0
#define RT_GROUPS_Y 1
#define RT_STORE_ROWS 1
#define RT_STORE_BUFFERS 1
#include "common/async_copy.cuh"
#include "common/gemm_wgmma_blocks.cuh"
#include "common/gemm_wgmma_epilogue.cuh"
#include "common/gemm_wgmma_stages.cuh"
#include "common/gemm_wgmma_tile.cuh"
#include "common/row_groups.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"
#include "common/wgmma.cuh"

namespace {

constexpr int kTableOffset = kBarrierOffset + RT_STAGES * 16;
using OperandRows = Operand<RT_BM, true, RT_CLUSTER_N, 0>;
using OperandW = Operand<RT_BN, true, RT_CLUSTER_M, 0>;
static_assert(RT_CLUSTER_M == 1 || RT_CLUSTER_N == 1, "a cluster shares w or x");
static_assert(RT_CLUSTER_N == 1 || !RT_GATHER, "rows that threads copy are for one block");

struct Problem {
  int n, k, groups, rows_max, tiles_n, k_tiles, rank;  // tiles_n of clusters

  __device__ __forceinline__ int tiles(const RtRowGroups& table) const { return table.first_tile[groups] * tiles_n; }
  // Of tiles that belong together, this block's.
  __device__ __forceinline__ RtGroupTile tile(int id, const RtRowGroups& table) const {
    RtGroupTile tile = rt_group_tile(id, table, groups, rows_max, tiles_n);
    (RT_CLUSTER_M > 1 ? tile.row : tile.column) += rank * (RT_CLUSTER_M > 1 ? RT_BM : RT_BN);
    return tile;
  }
  // What this block loads of the operand that its cluster shares; of the other it loads its own tile.
  __device__ __forceinline__ int part_rows() const { return RT_CLUSTER_N > 1 ? rank : 0; }
  __device__ __forceinline__ int part_w() const { return RT_CLUSTER_M > 1 ? rank : 0; }
};

// The barrier's phase has one arrival more when all copies of this thread so far have landed.
__device__ __forceinline__ void arrive_when_copied(rt_u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

#if RT_GATHER
// A thread's share of the rows of x of a tile: chunk `thread % 8` of every 16th row.
constexpr int kRowStep = kProducers / 8, kRowsEach = (RT_BM + kRowStep - 1) / kRowStep;
constexpr int kSlabsK = RT_BK / kSlab;

struct GatheredRows {
  int row[kRowsEach];  // of x

  // Rows past the group's end are its last one again: nothing of them is stored.
  __device__ __forceinline__ void take(const RtRowSlots& slots, const RtGroupTile& tile, int thread) {
#pragma unroll
    for (int i = 0; i < kRowsEach; ++i) {
      row[i] = slots.source(min(tile.row + i * kRowStep + thread / 8, tile.end - 1));
    }
  }
  __device__ __forceinline__ void copy(rt_u32 to, const RtIn* __restrict__ x, int k0, int k, int thread) const {
#pragma unroll
    for (int slab = 0; slab < kSlabsK; ++slab)
#pragma unroll
      for (int i = 0; i < kRowsEach; ++i) {
        const int r = i * kRowStep + thread / 8;
        const int column = k0 + slab * kSlab + thread % 8 * (16 / kElementBytes);
        if (RT_BM % kRowStep != 0 && r >= RT_BM) break;
        copy_async<16>(to + slab * OperandRows::kSlabBytes + r * 128 + ((thread % 8 ^ (r & 7)) << 4),
                   x + static_cast<size_t>(row[i]) * k + (column < k ? column : 0), column < k);
      }
  }
};
#endif

// One thread, or with RT_GATHER a warpgroup, of which `leader` is one.
__device__ __forceinline__ void produce(const Shared& shared, const RtRowGroups& table,
#if RT_GATHER
                                        const RtIn* __restrict__ x, const RtRowSlots& slots,
#else
                                        const RtTensorMap& map_x,
#endif
                                        const RtTensorMap& map_w, const Problem& p, [[maybe_unused]] int thread,
                                        [[maybe_unused]] bool leader) {
  constexpr rt_u32 kAllBlocks = (1u << kSharers) - 1;
  Ring ring;
  const int count = p.tiles(table), step = gridDim.x / kSharers;
#pragma unroll 1
  for (int id = blockIdx.x / kSharers; id < count; id += step) {
    const RtGroupTile tile = p.tile(id, table);
#if RT_GATHER
    GatheredRows rows;
    rows.take(slots, tile, thread);
#endif
#pragma unroll 1
    for (int t = 0, k = 0; t < p.k_tiles; ++t, k += RT_BK, ring.next()) {
      rt_barrier_wait(shared.empty(ring.stage), ring.parity ^ 1);
      const rt_u32 full = shared.full(ring.stage), first = shared.stage(ring.stage), second = first + OperandX::kBytes;
      const rt_u32 to_rows = kSwap ? second : first, to_w = kSwap ? first : second;
#if RT_GATHER
      if (leader) {
        rt_barrier_expect(full, OperandW::kBytes);
        OperandW::load(to_w, map_w, full, tile.column, k, tile.group, t, p.part_w(), kAllBlocks, 0);
      }
      rows.copy(to_rows, x, k, p.k, thread);
      arrive_when_copied(full);
#else
      rt_barrier_expect(full, kStageBytes);
      OperandRows::load(to_rows, map_x, full, tile.row, k, 0, t, p.part_rows(), kAllBlocks, 0);
      OperandW::load(to_w, map_w, full, tile.column, k, tile.group, t, p.part_w(), kAllBlocks, 0);
#endif
    }
  }
}

// Stores a warpgroup's part of a tile, box by box: a warp reads back only what it has put itself. (x, y) is the part's
// corner in rows and columns, `end` the group's.
__device__ __forceinline__ void store_rows(const Sums& sums, const RtRowSlots& slots, RtOut* __restrict__ out,
                                           rt_u32 buffer, int x, int y, int end, int n) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
#pragma unroll
  for (int box = 0; box < kBlocksX * kStoresY; ++box) {
    const int i = box / kStoresY, part = box % kStoresY * kStoreY, x0 = x + i * 64, y0 = y + part;
    // Factors of the rows of this thread's sums, where they are the same for all of a box.
    float factor[2] = {1.0f, 1.0f};
    if constexpr (RT_WEIGHTED && !kSwap) {
#pragma unroll
      for (int h = 0; h < 2; ++h) factor[h] = slots.factor(min(x0 + warp * 16 + (lane >> 2) + h * 8, end - 1));
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kStoreY / 8; j += 2) {
      const bool four = j + 1 < kStoreY / 8;
      rt_u32 packed[4];
#pragma unroll
      for (int h = 0; h < (four ? 2 : 1); ++h) {
        const RtSum* const v = &sums[i][part / 2 + (j + h) * 4];
        if constexpr (RT_WEIGHTED && kSwap) {
#pragma unroll
          for (int s = 0; s < 2; ++s) factor[s] = slots.factor(min(y0 + (j + h) * 8 + (lane & 3) * 2 + s, end - 1));
          packed[h * 2] = rt_pack2<RT_OUT>(v[0] * factor[0], v[1] * factor[1]);
          packed[h * 2 + 1] = rt_pack2<RT_OUT>(v[2] * factor[0], v[3] * factor[1]);
        } else {
          packed[h * 2] = rt_pack2<RT_OUT>(v[0] * factor[0], v[1] * factor[0]);
          packed[h * 2 + 1] = rt_pack2<RT_OUT>(v[2] * factor[1], v[3] * factor[1]);
        }
      }
      store_matrices<kSwap>(buffer + store_offset(warp, four ? lane : lane & 15, j), packed, four);
    }
    __syncwarp();
    constexpr int kChunks = kSwap ? 2 : kStoreColumns / 8, kWords = (kSwap ? kStoreY : 16) * kChunks;
#pragma unroll
    for (int c = 0; c < (kWords + 31) / 32; ++c) {
      const int id = c * 32 + lane;
      const int r = (kSwap ? 0 : warp * 16) + id / kChunks, chunk = (kSwap ? warp * 2 : 0) + id % kChunks;
      const int row = (kSwap ? y0 : x0) + r, column = (kSwap ? x0 : y0) + chunk * 8;
      if ((kWords % 32 != 0 && id >= kWords) || row >= end || column >= n) continue;
      uint4 v;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "r"(buffer + r * kStoreRow + ((chunk ^ store_swizzle(r)) << 4))
                   : "memory");
      *reinterpret_cast<uint4*>(out + static_cast<size_t>(slots.target(row)) * n + column) = v;
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    rt_moe_wgmma(
#if RT_GATHER
        const RtIn* __restrict__ x,
#else
        const __grid_constant__ RtTensorMap map_x,
#endif
        const __grid_constant__ RtTensorMap map_w,
#if RT_SCALE
        const float* __restrict__ scale_x, const float* __restrict__ scale_w,
#endif
        const int* __restrict__ given,
        RT_SLOT_INPUTS RtOut* __restrict__ out, int n, int k, int groups, int rows_max, [[maybe_unused]] int shares) {
  // The swizzle repeats every 1024 bytes.
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{rt_shared_address(memory)};
  RtRowGroups& table = *reinterpret_cast<RtRowGroups*>(memory + kTableOffset);
  const int rank = kSharers > 1 ? rt_cluster_rank() : 0;
  const Problem p{n, k, groups, rows_max, (n + kRtTileColumns - 1) / kRtTileColumns, (k + RT_BK - 1) / RT_BK, rank};
  const RtRowSlots slots = RT_ROW_SLOTS;
  const int lane = threadIdx.x & 31;
  // The same for all lanes, and known to be.
  const int warp = __shfl_sync(0xffffffff, threadIdx.x >> 5, 0), group = warp >> 2;

  if (threadIdx.x == 0) init_barriers(shared);
  if (threadIdx.x == kConsumers) {
#if !RT_GATHER
    rt_tensor_prefetch(map_x);
#endif
    rt_tensor_prefetch(map_w);
  }
  // Its barriers also publish those above within the block.
  table.fill(given, groups);
  if constexpr (kSharers > 1) rt_cluster_meet();

  if (group == kGroups) {
    if constexpr (RT_REALLOCATE) rt_registers_lower<kProducerRegisters>();
#if RT_GATHER
    produce(shared, table, x, slots, map_w, p, threadIdx.x - kConsumers, threadIdx.x == kConsumers);
#else
    if (warp == kGroups * 4 && rt_elect()) produce(shared, table, map_x, map_w, p, 0, true);
#endif
    __syncwarp();
  } else {
    if constexpr (RT_REALLOCATE) rt_registers_raise<kConsumerRegisters>();
    const int group_x = RT_PINGPONG ? 0 : group % RT_GROUPS_X * kGroupX;
    Sums sums;
    Ring ring;
    [[maybe_unused]] int turn = 0;
    const int count = p.tiles(table), step = gridDim.x / kSharers;
#pragma unroll 1
    for (int id = blockIdx.x / kSharers; id < count; id += step) {
      if constexpr (RT_PINGPONG) {
        const bool mine = turn == group;
        turn ^= 1;
        if (!mine) {
          ring.skip(p.k_tiles);
          continue;
        }
      }
      const RtGroupTile tile = p.tile(id, table);
      const int x0 = (kSwap ? tile.column : tile.row) + group_x, y0 = kSwap ? tile.row : tile.column;
      // All of this warpgroup's rows are past the group's end.
      if (!kSwap && RT_GROUPS_X * RT_CLUSTER_M > 1 && !RT_PINGPONG && x0 >= tile.end) {
        pass_over(shared, ring, p.k_tiles, lane);
        continue;
      }
#if RT_SCALE == RT_SCALE_BLOCK
      if (RT_PINGPONG && id >= step) rt_named_barrier(kTurnBarrier + group, kConsumers);
      const int blocks_k = (k + 127) / 128;
      BlockScales scales{scale_x, scale_w + static_cast<size_t>(tile.group) * ((n + 127) / 128) * blocks_k, blocks_k};
#if RT_GATHER
      scales.slots = slots;
#endif
      multiply_blocks<OperandX, OperandY>(sums, shared, ring, p.k_tiles, group_x * 8, 0, scales,
                                          Extents{tile.end, n, k, 1}, x0 + (warp & 3) * 16 + (lane >> 2),
                                          y0 + (lane & 3) * 2, 0, [&](int stage) { release(shared, stage, lane); });
      if (RT_PINGPONG && id + step < count) rt_named_barrier_arrive(kTurnBarrier + (group ^ 1), kConsumers);
#else
      multiply(sums, shared, ring, p.k_tiles, group_x * 8, 0, lane, group, id < step, id + step >= count);
#endif
      store_rows(sums, slots, out, shared.stages + kStagingOffset + group * kStoreBytes, x0, y0, tile.end, n);
    }
  }
  // No block leaves while others of the cluster arrive at its barriers or write to its memory.
  if constexpr (kSharers > 1) rt_cluster_meet();
}

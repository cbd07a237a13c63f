// Stages of the Hopper GEMM: how tiles of the operands lie in shared memory, the ring of buffers with its barriers, and
// the products of what has arrived. Reads the defines that kernel.cuh of gemm_wgmma lists.
#pragma once
#include "common/gemm_wgmma_epilogue.cuh"
#include "common/gemm_wgmma_tile.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"
#include "common/wgmma.cuh"

#ifndef RT_KEEP_A
#define RT_KEEP_A 0
#endif
#ifndef RT_KEEP_B
#define RT_KEEP_B 0
#endif

// One operand's tile: slabs of 128 bytes a row, swizzled by TMA. ALONG_K: rows are x or y and slabs follow k;
// otherwise rows are k. SHARERS blocks of a cluster bring a part of the rows each.
template <int EXTENT, bool ALONG_K, int SHARERS, int KEEP>
struct Operand {
  static constexpr int kSlabs = ALONG_K ? RT_BK / kSlab : (EXTENT + 63) / 64;
  static constexpr int kRows = ALONG_K ? EXTENT : RT_BK;
  static constexpr int kSlabBytes = kRows * 128;
  static constexpr int kBytes = kSlabs * kSlabBytes;
  // Parts of fewer than 8 rows would cut the swizzle's pattern: then the sharers bring whole tiles in turn.
  static constexpr bool kInTurn = kRows % (8 * SHARERS) != 0;
  static constexpr int kPart = kInTurn ? kRows : kRows / SHARERS;
  static constexpr int kBoxes = (kPart + 255) / 256;  // a box has at most 256 rows
  static constexpr int kBoxRows = kPart / kBoxes;
  static_assert(kBoxRows * kBoxes == kPart && kBoxRows % 8 == 0, "boxes");

  // `corner` is the tile's in x or y, `turn` its number along k; `part` is this block's among the sharers, `blocks`
  // all of them as a mask.
  static __device__ __forceinline__ void load(rt_u32 to, const RtTensorMap& map, rt_u32 barrier, int corner, int k,
                                              int batch, int turn, int part, rt_u32 blocks, rt_u64 policy) {
    if (kInTurn) {
      if (turn % SHARERS != part) return;
      part = 0;
    }
#pragma unroll
    for (int i = 0; i < kSlabs * kBoxes; ++i) {
      const int slab = i / kBoxes, row = part * kPart + i % kBoxes * kBoxRows;
      const int c0 = (ALONG_K ? k : corner) + slab * kSlab, c1 = (ALONG_K ? corner : k) + row;
      const rt_u32 box = to + slab * kSlabBytes + row * 128;
      if constexpr (SHARERS > 1) {
        rt_tensor_multicast<KEEP>(box, map, barrier, c0, c1, batch, blocks, policy);
      } else {
        rt_tensor_load<KEEP>(box, map, barrier, c0, c1, batch, policy);
      }
    }
  }
  // Descriptor of the tile at `address`, lower half, and what to add for row `row` of x or y and 16 of k.
  static __device__ __forceinline__ rt_u32 low(rt_u32 address) {
    return rt_operand_low(address, ALONG_K ? 16 : kSlabBytes);
  }
  static constexpr rt_u32 offset(int row, int step) {
    return (ALONG_K ? step / 4 * kSlabBytes + row * 128 + step % 4 * 32 : row / 64 * kSlabBytes + step * 2048) >> 4;
  }
};

constexpr int kKeepX = kSwap ? RT_KEEP_B : RT_KEEP_A, kKeepY = kSwap ? RT_KEEP_A : RT_KEEP_B;
using OperandX = Operand<kBlockX, kXAlongK, kClusterY, kKeepX>;
using OperandY = Operand<kBlockY, kYAlongK, kClusterX, kKeepY>;
constexpr int kStageBytes = OperandX::kBytes + OperandY::kBytes;

constexpr int kStagingOffset = RT_STAGES * kStageBytes;
constexpr bool kStaged = RT_STORE_TMA || RT_STORE_ROWS;
constexpr int kStagingEnd = kStagingOffset + (kStaged ? kGroups * RT_STORE_BUFFERS * kStoreBytes : 0);
constexpr int kBarrierOffset = kStagingEnd + kPartsBytes;

// Position in the ring of stages.
struct Ring {
  int stage = 0;
  rt_u32 parity = 0;

  __device__ __forceinline__ void next() {
    if (++stage == RT_STAGES) stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void skip(int count) {
    const int sum = stage + count;
    parity ^= sum / RT_STAGES & 1;
    stage = sum % RT_STAGES;
  }
};

struct Shared {
  rt_u32 stages;

  __device__ __forceinline__ rt_u32 stage(int i) const { return stages + i * kStageBytes; }
  __device__ __forceinline__ rt_u32 full(int i) const { return stages + kBarrierOffset + i * 8; }
  __device__ __forceinline__ rt_u32 empty(int i) const { return full(RT_STAGES + i); }
#if RT_CLUSTER
  __device__ __forceinline__ Parts parts() const { return {stages + kStagingEnd, full(2 * RT_STAGES)}; }
#endif
};

__device__ __forceinline__ void init_barriers(const Shared& shared) {
  for (int i = 0; i < RT_STAGES; ++i) {
    // One thread that announces the bytes, and those that copy some themselves.
    rt_barrier_init(shared.full(i), 1 + (RT_GATHER ? kProducers : 0));
    // Every warp that reads the stage, in every block that it may be refilled for.
    rt_barrier_init(shared.empty(i), (RT_PINGPONG ? 1 : kGroups) * 4 * kSharers);
  }
  rt_barrier_init_fence();
}

// This warp has read the stage.
__device__ __forceinline__ void release(const Shared& shared, int stage, int lane) {
  if constexpr (kSharers > 1) {
    if (lane < kSharers) rt_barrier_arrive_at(shared.empty(stage), lane);
  } else {
    if (lane == 0) rt_barrier_arrive(shared.empty(stage));
  }
}

// Takes `tiles` stages and multiplies nothing.
__device__ __forceinline__ void pass_over(const Shared& shared, Ring& ring, int tiles, int lane) {
#pragma unroll 1
  for (int t = 0; t < tiles; ++t, ring.next()) {
    rt_barrier_wait(shared.full(ring.stage), ring.parity);
    release(shared, ring.stage, lane);
  }
}

// The products of `tiles` stages; `x0` and `y0` are this warpgroup's corner within the tile. Taking turns, a warpgroup
// starts once the other has waited for all stages of the tile before (`first`: there is none): a barrier's parity
// tells a phase only from the next.
__device__ __forceinline__ void multiply(Sums& sums, const Shared& shared, Ring& ring, int tiles, rt_u32 x0, rt_u32 y0,
                                         int lane, int group, bool first, bool last) {
  int before = 0;
  if (RT_PINGPONG && !first) rt_named_barrier(kTurnBarrier + group, kConsumers);
#pragma unroll 1
  for (int t = 0; t < tiles; ++t) {
    rt_barrier_wait(shared.full(ring.stage), ring.parity);
    // What threads have copied is not yet ordered before what the tensor cores read.
    if constexpr (RT_GATHER) rt_async_fence();
    const rt_u32 stage = shared.stage(ring.stage);
    const rt_u32 x = OperandX::low(stage) + x0, y = OperandY::low(stage + OperandX::kBytes) + y0;
    rt_wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < kBlocksX; ++i) {
        RtWgmma<kGroupY, !kXAlongK, !kYAlongK>::multiply(sums[i], rt_operand(x + OperandX::offset(i * 64, step)),
                                                         rt_operand(y + OperandY::offset(0, step)), step > 0 || t > 0);
      }
    rt_wgmma_commit();
    // All but the products just issued are done, so that the stage before is free.
    rt_wgmma_wait<1>();
    if (t > 0) release(shared, before, lane);
    before = ring.stage;
    ring.next();
  }
  if (RT_PINGPONG && !last) rt_named_barrier_arrive(kTurnBarrier + (group ^ 1), kConsumers);
  rt_wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < kBlocksX; ++i)
#pragma unroll
    for (int j = 0; j < kSums; ++j) rt_wgmma_pin(sums[i][j]);
  release(shared, before, lane);
}

// GEMM for Hopper (sm_90a): TMA brings operand tiles, wgmma multiplies them from shared memory (fp16, bf16 and 8-bit
// floats with fp32 sums, int8 with int32 ones).
//
// One warp produces: it fills RT_STAGES buffers of RT_BK of k, each with a `full` barrier (bytes arrived) and an
// `empty` one (consumers done). Consumer warpgroups share a tile of d (RT_GROUPS_X × RT_GROUPS_Y of them), or, with
// RT_PINGPONG, two of them take tiles in turn, so that the epilogue of one overlaps the products of the other. Blocks
// are persistent: tiles are dealt round robin to whatever grid is launched, and the producer runs ahead into the next.
//
// The 64-row side of wgmma is called x, its N side y. x is m and y is n, or, with RT_SWAP, x is n and y is m: few rows
// of m then cost a narrow N instead of most of a 64-row block.
//
// Blocks of a cluster of RT_CLUSTER_M × RT_CLUSTER_N neighbouring tiles load parts of the operand that they share and
// multicast them. Split-K as in gemm_mma: partial sums to the workspace and a second kernel, or (RT_CLUSTER) added by
// a cluster of the shares through distributed shared memory; both in a fixed order.
//
// Needs 16-byte multiples of the contiguous extents of a, b and d, which TMA demands.
//
// Defines: RT_DTYPE RT_OUT RT_LAYOUT RT_BIAS RT_ACT RT_BETA, RT_BM RT_BN RT_BK RT_SWAP RT_GROUPS_X RT_GROUPS_Y
// RT_PINGPONG RT_STAGES RT_STORE_BUFFERS RT_SPLIT_K RT_CLUSTER RT_CLUSTER_M RT_CLUSTER_N RT_RASTER RT_REALLOCATE.
// RT_SCALE RT_BIAS_DTYPE: see gemm_epilogue.cuh; RT_STORE_TMA: gemm_wgmma_tile.cuh; RT_TWO_PARTS: gemm_wgmma_blocks.cuh.
// Optional, what L2 keeps of a and of b (RtKeep; 0 by default): RT_KEEP_A RT_KEEP_B.
#define RT_VEC_D 8
#include "common/gemm_reduce.cuh"
#include "common/gemm_wgmma_blocks.cuh"
#include "common/gemm_wgmma_epilogue.cuh"
#include "common/gemm_wgmma_stages.cuh"
#include "common/gemm_wgmma_tile.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"
#include "common/wgmma.cuh"

namespace {

// One thread.
__device__ __forceinline__ void produce(const Shared& shared, const RtTensorMap& map_x, const RtTensorMap& map_y,
                                        const Extents& e, int rank) {
  const int rank_x = rank % kClusterX, rank_y = rank / kClusterX;
  rt_u32 sharers_x = 0;
#pragma unroll
  for (int i = 0; i < kClusterY; ++i) sharers_x |= 1u << (i * kClusterX);
  sharers_x <<= rank_x;
  const rt_u32 sharers_y = ((1u << kClusterX) - 1) << (rank_y * kClusterX);
  const rt_u64 policy_x = rt_keep_policy<kKeepX>(), policy_y = rt_keep_policy<kKeepY>();
  Ring ring;
  const int count = work_count(e);
#pragma unroll 1
  for (int id = blockIdx.x / kClusterBlocks; id < count; id += gridDim.x / kClusterBlocks) {
    const Work work = work_at(id, e, rank);
    int k = work.range.first_tile * RT_BK;
#pragma unroll 1
    for (int t = 0; t < work.range.tiles; ++t, k += RT_BK, ring.next()) {
      rt_barrier_wait(shared.empty(ring.stage), ring.parity ^ 1);
      const rt_u32 full = shared.full(ring.stage), to = shared.stage(ring.stage);
      rt_barrier_expect(full, kStageBytes);
      OperandX::load(to, map_x, full, work.x, k, work.batch, t, kSharers > 1 ? rank_y : 0, sharers_x, policy_x);
      OperandY::load(to + OperandX::kBytes, map_y, full, work.y, k, work.batch, t, kSharers > 1 ? rank_x : 0, sharers_y,
                     policy_y);
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    rt_gemm_wgmma(const __grid_constant__ RtTensorMap map_a, const __grid_constant__ RtTensorMap map_b,
#if RT_PARTIAL
                  float* __restrict__ partial, RT_SCALE_INPUTS
#elif RT_STORE_TMA
                  const __grid_constant__ RtTensorMap map_d, RT_EPILOGUE_INPUTS RT_EPILOGUE_FACTORS
#else
                  RT_EPILOGUE_INPUTS RtOut* __restrict__ d, RT_EPILOGUE_FACTORS
#endif
                  int m, int n, int k, int batch) {
  // The swizzle repeats every 1024 bytes.
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{rt_shared_address(memory)};
  const Extents e{m, n, k, batch};
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
    rt_tensor_prefetch(map_a);
    rt_tensor_prefetch(map_b);
#if RT_STORE_TMA
    rt_tensor_prefetch(map_d);
#endif
  }
  if constexpr (kSharers > 1) {
    rt_cluster_meet();
  } else {
    __syncthreads();
    // Waited for only before sums are sent.
    if constexpr (RT_CLUSTER) rt_cluster_arrive();
  }

  if (group == kGroups) {
    if constexpr (RT_REALLOCATE) rt_registers_lower<kProducerRegisters>();
    if (warp == kGroups * 4 && rt_elect()) produce(shared, kSwap ? map_b : map_a, kSwap ? map_a : map_b, e, rank);
    __syncwarp();
#if RT_CLUSTER
    rt_cluster_wait();
#endif
  } else {
    if constexpr (RT_REALLOCATE) rt_registers_raise<kConsumerRegisters>();
    const int group_x = RT_PINGPONG ? 0 : group % RT_GROUPS_X * kGroupX;
    const int group_y = RT_PINGPONG ? 0 : group / RT_GROUPS_X * kGroupY;
    // Rows of x and y of this warpgroup, as descriptors count.
    const rt_u32 x0 = kXAlongK ? group_x * 8 : group_x / 64 * (OperandX::kSlabBytes / 16);
    const rt_u32 y0 = kYAlongK ? group_y * 8 : group_y / 64 * (OperandY::kSlabBytes / 16);
#if !RT_PARTIAL
    RtEpilogueArgs args = RT_EPILOGUE_ARGS;
#if !RT_STORE_TMA
    args.d = d;
#endif
#endif
    Sums sums;
    Ring ring;
    [[maybe_unused]] int turn = 0, at = 0;
    const int count = work_count(e);
#pragma unroll 1
    for (int id = blockIdx.x / kClusterBlocks; id < count; id += gridDim.x / kClusterBlocks) {
      const Work work = work_at(id, e, rank);
      if constexpr (RT_PINGPONG) {
        const bool mine = turn == group;
        turn ^= 1;
        if (!mine) {
          ring.skip(work.range.tiles);
          continue;
        }
      }
      const int step = gridDim.x / kClusterBlocks;
#if RT_SCALE == RT_SCALE_BLOCK
      if (RT_PINGPONG && id >= step) rt_named_barrier(kTurnBarrier + group, kConsumers);
      multiply_blocks<OperandX, OperandY>(
          sums, shared, ring, work.range.tiles, x0, y0, BlockScales{scale_a, scale_b, (k + 127) / 128}, e,
          work.x + group_x + (warp & 3) * 16 + (lane >> 2), work.y + group_y + (lane & 3) * 2, work.range.first_tile,
          [&](int stage) { release(shared, stage, lane); });
      if (RT_PINGPONG && id + step < count) rt_named_barrier_arrive(kTurnBarrier + (group ^ 1), kConsumers);
#else
      multiply(sums, shared, ring, work.range.tiles, x0, y0, lane, group, id < step, id + step >= count);
#endif
#if RT_STORE_TMA
      store_tile(sums, args, e, map_d, shared.stages + kStagingOffset + group * (RT_STORE_BUFFERS * kStoreBytes), at,
                 work.batch, work.x + group_x, work.y + group_y, group);
#elif RT_CLUSTER
      rt_cluster_wait();
      reduce_tile(sums, shared.parts(), args, e, work, work.x + group_x, work.y + group_y);
#else
#if RT_PARTIAL
      float* const matrix = partial + (static_cast<size_t>(work.share) * batch + work.batch) * m * n;
#else
      RtOut* const matrix = d + static_cast<size_t>(work.batch) * m * n;
#endif
#pragma unroll
      for (int i = 0; i < kBlocksX; ++i)
#pragma unroll
        for (int j = 0; j < kSums; j += 4) {
          int x = work.x + group_x + i * 64 + (warp & 3) * 16 + (lane >> 2);
          int y = work.y + group_y + j * 2 + (lane & 3) * 2;
          // Addresses of all blocks at once would not fit the registers, and with the scale of 8-bit results (read anew for
          // each block) not even those of all rows.
          if constexpr (RT_QUANTIZED) asm volatile("" : "+r"(x));
          asm volatile("" : "+r"(y));
          float v[4];
#pragma unroll
          for (int s = 0; s < 4; ++s) v[s] = static_cast<float>(sums[i][j + s]);
#if !RT_PARTIAL
          Addends addends;
          addends.load(args, e, work.batch, x, y);
          finish_block(v, args, addends, scale_of_results(args));
#endif
          store_block(v, matrix, e, x, y);
        }
#endif
    }
#if RT_STORE_TMA
    // Shared memory stays until TMA has read it.
    if ((threadIdx.x & 127) == 0) rt_store_wait_read<0>();
#endif
  }
  // No block leaves while others of the cluster arrive at its barriers. Where they send sums, it has waited for all.
  if constexpr (kSharers > 1) rt_cluster_meet();
}

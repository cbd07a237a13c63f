// Products of the Hopper GEMM whose operands have a scale each 128 of k: a of every row, [m, ⌈k/128⌉], b of every 128
// of n, [⌈n/128⌉, ⌈k/128⌉]. The tensor cores sum up one k-tile of 128; its sums, times both scales, are added in fp32
// registers of their own, which also spares them the tensor cores' short sums.
#pragma once
#include "common/gemm_wgmma_tile.cuh"
#if RT_GATHER
#include "common/row_groups.cuh"
#endif
#include "common/tma.cuh"
#include "common/wgmma.cuh"

// Optional: there are registers for the sums of two k-tiles beside their total, so that one tile's are added while the
// other is multiplied.
#ifndef RT_TWO_PARTS
#define RT_TWO_PARTS 0
#endif

#if RT_SCALE == RT_SCALE_BLOCK
static_assert(RT_BK == 128, "a k-tile has one scale");
static_assert(kSwap ? 128 % 64 == 0 : 128 % kGroupY == 0, "a warpgroup's columns of b, 64 or kGroupY, share a scale");

struct BlockScales {
  const float* a;
  const float* b;
  int blocks_k;  // ⌈k/128⌉
#if RT_GATHER
  RtRowSlots slots;
#endif
};

// The scales of a k-tile for one thread's sums. (x, y) is the place of its first sum; rows past m take the last one's:
// nothing of them is stored.
struct Factors {
  static constexpr int kRows = kSwap ? kSums / 2 : 2 * kBlocksX;  // of d that the thread's sums are in
  float x[kBlocksX][kSwap ? 1 : 2], y[kSwap ? kSums / 2 : 1];
#if RT_GATHER
  int source[kRows];  // their rows of a
#endif

  static __device__ __forceinline__ int row(const Extents& e, int x0, int y0, int i) {
    return min(kSwap ? y0 + i / 2 * 8 + i % 2 : x0 + i / 2 * 64 + i % 2 * 8, e.m - 1);
  }
  // Once a tile.
  __device__ __forceinline__ void begin([[maybe_unused]] const BlockScales& scales, [[maybe_unused]] const Extents& e,
                                        [[maybe_unused]] int x0, [[maybe_unused]] int y0) {
#if RT_GATHER
#pragma unroll
    for (int i = 0; i < kRows; ++i) source[i] = scales.slots.source(row(e, x0, y0, i));
#endif
  }
  __device__ __forceinline__ float scale_of_row(const BlockScales& scales, const Extents& e, int x0, int y0, int block,
                                                int i) const {
#if RT_GATHER
    const int from = source[i];
#else
    const int from = row(e, x0, y0, i);
#endif
    return __ldg(scales.a + block + static_cast<size_t>(from) * scales.blocks_k);
  }

  __device__ __forceinline__ void load(const BlockScales& scales, const Extents& e, int x0, int y0, int block) {
    const float* const b = scales.b + block;
#pragma unroll
    for (int i = 0; i < kBlocksX; ++i) {
      if constexpr (kSwap) {
        x[i][0] = __ldg(b + min(x0 + i * 64, e.n - 1) / 128 * scales.blocks_k);
      } else {
        x[i][0] = scale_of_row(scales, e, x0, y0, block, 2 * i);
        x[i][1] = scale_of_row(scales, e, x0, y0, block, 2 * i + 1);
      }
    }
    if constexpr (kSwap) {
#pragma unroll
      for (int j = 0; j < kSums / 2; ++j) {
        y[j] = scale_of_row(scales, e, x0, y0, block, j);
      }
    } else {
      y[0] = __ldg(b + min(y0, e.n - 1) / 128 * scales.blocks_k);
    }
  }
  __device__ __forceinline__ float of(int i, int j) const {
    return kSwap ? x[i][0] * y[j / 4 * 2 + j % 2] : x[i][j / 2 % 2] * y[0];
  }
};

// As multiply() of kernel.cuh. (x, y) is the place of the thread's first sum in d, `block` the first k-tile's number,
// `release(stage)` tells that a stage has been read.
template <typename OperandX, typename OperandY, typename Shared, typename Ring, typename Release>
__device__ __forceinline__ void multiply_blocks(Sums& sums, const Shared& shared, Ring& ring, int tiles, rt_u32 x0,
                                                rt_u32 y0, const BlockScales& scales, const Extents& e, int x, int y,
                                                int block, Release release) {
#pragma unroll
  for (int i = 0; i < kBlocksX; ++i)
#pragma unroll
    for (int j = 0; j < kSums; ++j) sums[i][j] = 0.0f;
  struct Part {
    Sums sums;
    Factors factors;
    int stage;
  };
  // Products of the next k-tile.
  const auto begin = [&](Part& part) {
    part.factors.load(scales, e, x, y, block++);
    rt_barrier_wait(shared.full(ring.stage), ring.parity);
    if constexpr (RT_GATHER) rt_async_fence();
    part.stage = ring.stage;
    const rt_u32 stage = shared.stage(ring.stage);
    const rt_u32 low_x = OperandX::low(stage) + x0, low_y = OperandY::low(stage + OperandX::kBytes) + y0;
    rt_wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < kBlocksX; ++i) {
        RtWgmma<kGroupY, 0, 0>::multiply(part.sums[i], rt_operand(low_x + OperandX::offset(i * 64, step)),
                                         rt_operand(low_y + OperandY::offset(0, step)), step > 0);
      }
    rt_wgmma_commit();
    ring.next();
  };
  const auto add = [&](Part& part) {
#pragma unroll
    for (int i = 0; i < kBlocksX; ++i)
#pragma unroll
      for (int j = 0; j < kSums; ++j) rt_wgmma_pin(part.sums[i][j]);
    release(part.stage);
#pragma unroll
    for (int i = 0; i < kBlocksX; ++i)
#pragma unroll
      for (int j = 0; j < kSums; ++j) sums[i][j] += part.factors.of(i, j) * part.sums[i][j];
  };
  Part one;
  one.factors.begin(scales, e, x, y);
  if constexpr (!RT_TWO_PARTS) {
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
      begin(one);
      rt_wgmma_wait<0>();
      add(one);
    }
  } else {
    Part other;
    other.factors.begin(scales, e, x, y);
    begin(one);
    int left = tiles - 1;
#pragma unroll 1
    for (; left >= 2; left -= 2) {
      begin(other);
      rt_wgmma_wait<1>();
      add(one);
      begin(one);
      rt_wgmma_wait<1>();
      add(other);
    }
    if (left == 1) {
      begin(other);
      rt_wgmma_wait<1>();
      add(one);
      rt_wgmma_wait<0>();
      add(other);
    } else {
      rt_wgmma_wait<0>();
      add(one);
    }
  }
}
#endif

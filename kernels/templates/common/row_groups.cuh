// Ragged groups of rows, one an expert: where each lies, and which tile of which group a block gets.
//
// Groups are offsets (RT_MASKED 0: group e is rows offset[e] … offset[e + 1] − 1) or counts (RT_MASKED 1: group e
// begins at row e·rows_max and has count[e] rows). Every group is cut into tiles of RT_BM rows by RT_BN columns, or into
// RT_CLUSTER_M by RT_CLUSTER_N of them that belong together; a group without rows has none. Reads RT_BM RT_BN RT_RASTER
// RT_MASKED RT_GATHER RT_SCATTER RT_WEIGHTED, optional RT_CLUSTER_M RT_CLUSTER_N.
#pragma once
#include "common/gemm_grid.cuh"
#include "common/types.cuh"

#ifndef RT_CLUSTER_M
#define RT_CLUSTER_M 1
#endif
#ifndef RT_CLUSTER_N
#define RT_CLUSTER_N 1
#endif
constexpr int kRtMostGroups = 512;
constexpr int kRtTileRows = RT_BM * RT_CLUSTER_M, kRtTileColumns = RT_BN * RT_CLUSTER_N;

// Shared memory, filled by all threads of a block.
struct RtRowGroups {
  int first_row[kRtMostGroups + 1];   // with RT_MASKED the number of rows
  int first_tile[kRtMostGroups + 1];  // row tiles of all groups before

  __device__ __forceinline__ int begin(int group, int rows_max) const {
    return RT_MASKED ? group * rows_max : first_row[group];
  }
  __device__ __forceinline__ int rows(int group) const {
    return RT_MASKED ? first_row[group] : first_row[group + 1] - first_row[group];
  }

  // `given` are the offsets or counts.
  __device__ __forceinline__ void fill(const int* __restrict__ given, int groups) {
    for (int i = threadIdx.x; i < groups + (RT_MASKED ? 0 : 1); i += blockDim.x) first_row[i] = __ldg(given + i);
    __syncthreads();
    // Each lane of a warp has a run of neighbouring groups.
    if (threadIdx.x < 32) {
      const int run = (groups + 31) / 32;
      const int from = min(static_cast<int>(threadIdx.x) * run, groups), to = min(from + run, groups);
      int tiles = 0;
      for (int i = from; i < to; ++i) tiles += (rows(i) + kRtTileRows - 1) / kRtTileRows;
      int before = tiles;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(0xffffffff, before, distance);
        if (static_cast<int>(threadIdx.x) >= distance) before += other;
      }
      before -= tiles;
      for (int i = from; i < to; ++i) {
        first_tile[i] = before;
        before += (rows(i) + kRtTileRows - 1) / kRtTileRows;
      }
      if (threadIdx.x == 31) first_tile[groups] = before;
    }
    __syncthreads();
  }
};

// A tile of y: rows `row` up to the group's `end`, columns from `column`. Of tiles that belong together, the first.
struct RtGroupTile {
  int group, row, end, column;
};

// Tile number `id` of first_tile[groups] · tiles_n. Within a group tiles follow raster(), so that blocks that run
// together share its weights in L2.
__device__ __forceinline__ RtGroupTile rt_group_tile(int id, const RtRowGroups& table, int groups, int rows_max,
                                                     int tiles_n) {
  const int row_tile = id / tiles_n;
  // The last group that begins at or before the tile; groups without tiles begin where the next one does.
  RtGroupTile tile;
  tile.group = 0;
#pragma unroll
  for (int step = kRtMostGroups / 2; step > 0; step /= 2) {
    const int probe = tile.group + step;
    if (probe < groups && table.first_tile[probe] <= row_tile) tile.group = probe;
  }
  const int first = table.first_tile[tile.group];
  const TilePosition at = raster(id - first * tiles_n, table.first_tile[tile.group + 1] - first, tiles_n);
  const int begin = table.begin(tile.group, rows_max);
  tile.row = begin + at.m * kRtTileRows;
  tile.end = begin + table.rows(tile.group);
  tile.column = at.n * kRtTileColumns;
  return tile;
}

// What rows of y stand for: row t of the sorted rows belongs to slot slots[t] of tokens × shares, so that its row of x
// is the token's, slots[t] / shares (RT_GATHER), its place in y the slot itself (RT_SCATTER), and its factor that of
// the slot (RT_WEIGHTED).
struct RtRowSlots {
#if RT_GATHER || RT_SCATTER
  const int* slots;
  int shares;
  const float* weights;
#endif
  __device__ __forceinline__ int source(int row) const {
#if RT_GATHER
    return __ldg(slots + row) / shares;
#else
    return row;
#endif
  }
  __device__ __forceinline__ int target(int row) const {
#if RT_SCATTER
    return __ldg(slots + row);
#else
    return row;
#endif
  }
  __device__ __forceinline__ float factor([[maybe_unused]] int row) const {
#if RT_WEIGHTED
    return __ldg(weights + __ldg(slots + row));
#else
    return 1.0f;
#endif
  }
};

// What a kernel's signature has for them, and the object made of parameters with these names and of `shares`.
#if RT_WEIGHTED
#define RT_SLOT_INPUTS const int* __restrict__ slot_of_row, const float* __restrict__ weights,
#define RT_ROW_SLOTS RtRowSlots{slot_of_row, shares, weights}
#elif RT_GATHER || RT_SCATTER
#define RT_SLOT_INPUTS const int* __restrict__ slot_of_row,
#define RT_ROW_SLOTS RtRowSlots{slot_of_row, shares, nullptr}
#else
#define RT_SLOT_INPUTS
#define RT_ROW_SLOTS RtRowSlots{}
#endif

// Geometry of the Hopper GEMM: which part of d a block, a warpgroup and a thread compute, and which work a cluster
// gets. Reads the defines that kernel.cuh of gemm_wgmma lists.
#pragma once
#include "common/gemm_epilogue.cuh"
#include "common/gemm_grid.cuh"
#include "common/types.cuh"
#include "common/wgmma.cuh"

// Where RT_PARTIAL holds, the result goes to `partial`, [share][batch][m][n], and the second kernel has the epilogue.
#define RT_PARTIAL (RT_SPLIT_K > 1 && !RT_CLUSTER)
// Optional: results leave through shared memory row by row, because the rows of a tile are not one box of d.
#ifndef RT_STORE_ROWS
#define RT_STORE_ROWS 0
#endif
// Optional: threads copy an operand's rows (cp.async), because they are not one box of it.
#ifndef RT_GATHER
#define RT_GATHER 0
#endif
// Optional: results leave through shared memory and TMA, as those of 8 and 16 bits do that are whole; fp32 ones go straight
// from registers, whose layout fills sectors.
#ifndef RT_STORE_TMA
#define RT_STORE_TMA (!RT_PARTIAL && !RT_CLUSTER && !RT_STORE_ROWS && (RT_OUT == RT_FP16 || RT_OUT == RT_BF16))
#endif

constexpr bool kSwap = RT_SWAP;
constexpr int kBlockX = kSwap ? RT_BN : RT_BM, kBlockY = kSwap ? RT_BM : RT_BN;
constexpr int kClusterX = kSwap ? RT_CLUSTER_N : RT_CLUSTER_M, kClusterY = kSwap ? RT_CLUSTER_M : RT_CLUSTER_N;
constexpr int kSharers = kClusterX * kClusterY;  // blocks of a multicast cluster
constexpr int kClusterBlocks = RT_CLUSTER ? RT_SPLIT_K : kSharers;
constexpr int kGroups = RT_PINGPONG ? 2 : RT_GROUPS_X * RT_GROUPS_Y;  // consumer warpgroups
constexpr int kGroupX = kBlockX / RT_GROUPS_X, kGroupY = kBlockY / RT_GROUPS_Y;
constexpr int kBlocksX = kGroupX / 64;  // wgmma blocks of a warpgroup
constexpr int kSums = kGroupY / 2;      // a thread and wgmma block
constexpr int kElementBytes = sizeof(RtType<RT_DTYPE>::Store);
constexpr int kSlab = 128 / kElementBytes;          // elements a row of a slab
constexpr int kSteps = RT_BK * kElementBytes / 32;  // wgmma takes 32 bytes of k
constexpr int kConsumers = kGroups * 128;
// Sums beyond what an even share of the registers holds: a whole warpgroup produces and lends its registers. It takes
// as many threads to gather rows.
constexpr int kProducers = RT_REALLOCATE || RT_GATHER ? 128 : 32;
constexpr int kThreads = kConsumers + kProducers;
constexpr int kConsumerRegisters = kGroups == 3 ? 152 : RT_GATHER ? 216 : 232;
constexpr int kProducerRegisters = kGroups == 3 ? 56 : RT_GATHER ? 72 : 40;

// Layout codes: nn 0, nt 1, tn 2, tt 3.
constexpr bool kAAlongK = RT_LAYOUT < 2;         // a is [m, k]: k is contiguous
constexpr bool kBAlongK = (RT_LAYOUT & 1) == 1;  // b is [n, k]
constexpr bool kXAlongK = kSwap ? kBAlongK : kAAlongK, kYAlongK = kSwap ? kAAlongK : kBAlongK;

static_assert(kGroupX % 64 == 0 && kGroupY % 8 == 0 && kGroupY <= 256 && RT_BK % kSlab == 0, "tile");
static_assert(kElementBytes == 2 || (RT_LAYOUT == 1), "8-bit operands lie along k");
static_assert(kYAlongK || RT_GROUPS_Y == 1 || kGroupY % 64 == 0, "slabs of y belong to one warpgroup");
static_assert(!RT_PINGPONG || (RT_GROUPS_X * RT_GROUPS_Y == 1 && !RT_CLUSTER), "taking turns");
static_assert(!RT_CLUSTER || kSharers == 1, "a cluster shares operands or k");
static_assert(RT_STORE_BUFFERS >= (RT_STORE_ROWS ? 1 : 2), "buffers of the epilogue");

// A box of the epilogue: 64 of x and kStoreY of y, rows of d. Its rows are kStoreColumns wide, 128 bytes at most.
constexpr int largest_divisor(int value, int most) { return value % most == 0 ? most : largest_divisor(value, most / 2); }
constexpr int kOutBytes = sizeof(RtOut);
constexpr int kStoreY = kSwap && kGroupY < 64 ? kGroupY : largest_divisor(kGroupY, kSwap ? 64 : 128 / kOutBytes);
constexpr int kStoreColumns = kSwap ? 64 : kStoreY;
constexpr int kStoreRow = kStoreColumns * kOutBytes;  // bytes
constexpr int kStoreBytes = 64 * kStoreY * kOutBytes;
static_assert(!RT_STORE_TMA || kStoreRow % 16 == 0, "TMA moves multiples of 16 bytes");
constexpr int kStoresY = kGroupY / kStoreY;  // boxes of a warpgroup
// A thread's sums, four at a time. Where a cluster adds them, every share finishes some of each thread's, and has room
// for what the others send of these.
constexpr int kQuads = kBlocksX * kSums / 4, kShareQuads = (kQuads + RT_SPLIT_K - 1) / RT_SPLIT_K;
constexpr int kPartsBytes = RT_CLUSTER ? (RT_SPLIT_K - 1) * kShareQuads * kConsumers * 16 : 0;

// What a thread sums up.
typedef RtSum Sums[kBlocksX][kSums];

// Named barriers, one a warpgroup: its own threads; its turn.
constexpr int kGroupBarrier = 1, kTurnBarrier = kGroupBarrier + kGroups;

struct Extents {
  int m, n, k, batch;
};

// One tile of d and a share of k.
struct Work {
  int x, y;  // corner
  int batch, share;
  KRange range;
};

__device__ __forceinline__ int work_count(const Extents& e) {
  const int tiles_m = (e.m + RT_BM * RT_CLUSTER_M - 1) / (RT_BM * RT_CLUSTER_M);
  const int tiles_n = (e.n + RT_BN * RT_CLUSTER_N - 1) / (RT_BN * RT_CLUSTER_N);
  return tiles_m * tiles_n * e.batch * (RT_PARTIAL ? RT_SPLIT_K : 1);
}

// Work number `id` of a cluster, as seen by its block `rank`.
__device__ __forceinline__ Work work_at(int id, const Extents& e, int rank) {
  const int tiles_m = (e.m + RT_BM * RT_CLUSTER_M - 1) / (RT_BM * RT_CLUSTER_M);
  const int tiles_n = (e.n + RT_BN * RT_CLUSTER_N - 1) / (RT_BN * RT_CLUSTER_N);
  Work work;
  work.share = RT_CLUSTER ? rank : 0;
  if (RT_PARTIAL) {
    work.share = id % RT_SPLIT_K;
    id /= RT_SPLIT_K;
  }
  work.batch = id / (tiles_m * tiles_n);
  const TilePosition tile = raster(id - work.batch * tiles_m * tiles_n, tiles_m, tiles_n);
  const int rank_x = kSharers > 1 ? rank % kClusterX : 0, rank_y = kSharers > 1 ? rank / kClusterX : 0;
  work.x = ((kSwap ? tile.n : tile.m) * kClusterX + rank_x) * kBlockX;
  work.y = ((kSwap ? tile.m : tile.n) * kClusterY + rank_y) * kBlockY;
  work.range = k_range(e.k, work.share);
  return work;
}

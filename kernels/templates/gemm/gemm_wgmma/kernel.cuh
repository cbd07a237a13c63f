// GEMM for Hopper (sm_90a): TMA brings operand tiles, wgmma multiplies them from shared memory (fp16 or bf16 operands,
// fp32 sums).
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
#define RT_VEC_D 8
#include "common/gemm_epilogue.cuh"
#include "common/gemm_grid.cuh"
#include "common/gemm_reduce.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"
#include "common/wgmma.cuh"

// Where RT_PARTIAL holds, the result goes to `partial`, [share][batch][m][n], and the second kernel has the epilogue.
#define RT_PARTIAL (RT_SPLIT_K > 1 && !RT_CLUSTER)
// 16-bit results leave through shared memory and TMA; fp32 ones straight from registers, whose layout fills sectors.
#define RT_STORE_TMA (!RT_PARTIAL && !RT_CLUSTER && RT_OUT != RT_FP32)

namespace {

constexpr bool kSwap = RT_SWAP;
constexpr int kBlockX = kSwap ? RT_BN : RT_BM, kBlockY = kSwap ? RT_BM : RT_BN;
constexpr int kClusterX = kSwap ? RT_CLUSTER_N : RT_CLUSTER_M, kClusterY = kSwap ? RT_CLUSTER_M : RT_CLUSTER_N;
constexpr int kSharers = kClusterX * kClusterY;  // blocks of a multicast cluster
constexpr int kClusterBlocks = RT_CLUSTER ? RT_SPLIT_K : kSharers;
constexpr int kGroups = RT_PINGPONG ? 2 : RT_GROUPS_X * RT_GROUPS_Y;  // consumer warpgroups
constexpr int kGroupX = kBlockX / RT_GROUPS_X, kGroupY = kBlockY / RT_GROUPS_Y;
constexpr int kBlocksX = kGroupX / 64;  // wgmma blocks of a warpgroup
constexpr int kSums = kGroupY / 2;      // a thread and wgmma block
constexpr int kSteps = RT_BK / 16;
constexpr int kConsumers = kGroups * 128;
// Sums beyond what an even share of the registers holds: a whole warpgroup produces and lends its registers.
constexpr int kThreads = kConsumers + (RT_REALLOCATE ? 128 : 32);
constexpr int kConsumerRegisters = kGroups == 3 ? 152 : 232, kProducerRegisters = kGroups == 3 ? 56 : 40;

// Layout codes: nn 0, nt 1, tn 2, tt 3.
constexpr bool kAAlongK = RT_LAYOUT < 2;         // a is [m, k]: k is contiguous
constexpr bool kBAlongK = (RT_LAYOUT & 1) == 1;  // b is [n, k]
constexpr bool kXAlongK = kSwap ? kBAlongK : kAAlongK, kYAlongK = kSwap ? kAAlongK : kBAlongK;

static_assert(kGroupX % 64 == 0 && kGroupY % 8 == 0 && kGroupY <= 256 && RT_BK % 64 == 0, "tile");
static_assert(kYAlongK || RT_GROUPS_Y == 1 || kGroupY % 64 == 0, "slabs of y belong to one warpgroup");
static_assert(!RT_PINGPONG || (RT_GROUPS_X * RT_GROUPS_Y == 1 && !RT_CLUSTER), "taking turns");
static_assert(!RT_CLUSTER || kSharers == 1, "a cluster shares operands or k");
static_assert(RT_STORE_BUFFERS >= 2, "buffers of the epilogue");

// One operand's tile: slabs of 128 bytes a row, swizzled by TMA. ALONG_K: rows are x or y and slabs follow k;
// otherwise rows are k. SHARERS blocks of a cluster bring a part of the rows each.
template <int EXTENT, bool ALONG_K, int SHARERS>
struct Operand {
  static constexpr int kSlabs = ALONG_K ? RT_BK / 64 : (EXTENT + 63) / 64;
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
                                              int batch, int turn, int part, rt_u32 blocks) {
    if (kInTurn) {
      if (turn % SHARERS != part) return;
      part = 0;
    }
#pragma unroll
    for (int i = 0; i < kSlabs * kBoxes; ++i) {
      const int slab = i / kBoxes, row = part * kPart + i % kBoxes * kBoxRows;
      const int c0 = (ALONG_K ? k : corner) + slab * 64, c1 = (ALONG_K ? corner : k) + row;
      const rt_u32 box = to + slab * kSlabBytes + row * 128;
      if constexpr (SHARERS > 1) {
        rt_tensor_multicast(box, map, barrier, c0, c1, batch, blocks);
      } else {
        rt_tensor_load(box, map, barrier, c0, c1, batch);
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

using OperandX = Operand<kBlockX, kXAlongK, kClusterY>;
using OperandY = Operand<kBlockY, kYAlongK, kClusterX>;
constexpr int kStageBytes = OperandX::kBytes + OperandY::kBytes;

// A box of the epilogue: 64 of x and kStoreY of y, rows of d. Its rows are kStoreColumns wide.
constexpr int largest_divisor(int value) {
  return value % 64 == 0 ? 64 : value % 32 == 0 ? 32 : value % 16 == 0 ? 16 : 8;
}
constexpr int kStoreY = kSwap && kGroupY < 64 ? kGroupY : largest_divisor(kGroupY);
constexpr int kStoreColumns = kSwap ? 64 : kStoreY;
constexpr int kStoreBytes = 64 * kStoreY * 2;
constexpr int kStoresY = kGroupY / kStoreY;  // boxes of a warpgroup
constexpr int kStagingOffset = RT_STAGES * kStageBytes;
constexpr int kStagingEnd = kStagingOffset + (RT_STORE_TMA ? kGroups * RT_STORE_BUFFERS * kStoreBytes : 0);
// Sums of the whole tile, where a cluster adds them, take the place of the stages. The pitch spreads a warp's writes
// over the banks.
constexpr int kSumPitch = RT_BN + (kSwap ? 4 : 8);
constexpr int kSumBytes = RT_CLUSTER ? RT_BM * kSumPitch * 4 : 0;
constexpr int kBarrierOffset = kStagingEnd > kSumBytes ? kStagingEnd : kSumBytes;

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
};

__device__ __forceinline__ void init_barriers(const Shared& shared) {
  for (int i = 0; i < RT_STAGES; ++i) {
    rt_barrier_init(shared.full(i), 1);
    // Every warp that reads the stage, in every block that it may be refilled for.
    rt_barrier_init(shared.empty(i), (RT_PINGPONG ? 1 : kGroups) * 4 * kSharers);
  }
  rt_barrier_init_fence();
}

// One thread.
__device__ __forceinline__ void produce(const Shared& shared, const RtTensorMap& map_x, const RtTensorMap& map_y,
                                        const Extents& e, int rank) {
  const int rank_x = rank % kClusterX, rank_y = rank / kClusterX;
  rt_u32 sharers_x = 0;
#pragma unroll
  for (int i = 0; i < kClusterY; ++i) sharers_x |= 1u << (i * kClusterX);
  sharers_x <<= rank_x;
  const rt_u32 sharers_y = ((1u << kClusterX) - 1) << (rank_y * kClusterX);
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
      OperandX::load(to, map_x, full, work.x, k, work.batch, t, kSharers > 1 ? rank_y : 0, sharers_x);
      OperandY::load(to + OperandX::kBytes, map_y, full, work.y, k, work.batch, t, kSharers > 1 ? rank_x : 0,
                     sharers_y);
    }
  }
}

typedef float Sums[kBlocksX][kSums];

// This warp has read the stage.
__device__ __forceinline__ void release(const Shared& shared, int stage, int lane) {
  if constexpr (kSharers > 1) {
    if (lane < kSharers) rt_barrier_arrive_at(shared.empty(stage), lane);
  } else {
    if (lane == 0) rt_barrier_arrive(shared.empty(stage));
  }
}

// The products of `tiles` stages; `x0` and `y0` are this warpgroup's corner within the tile.
__device__ __forceinline__ void multiply(Sums& sums, const Shared& shared, Ring& ring, int tiles, rt_u32 x0, rt_u32 y0,
                                         int lane) {
  int before = 0;
#pragma unroll 1
  for (int t = 0; t < tiles; ++t) {
    rt_barrier_wait(shared.full(ring.stage), ring.parity);
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
  rt_wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < kBlocksX; ++i)
#pragma unroll
    for (int j = 0; j < kSums; ++j) rt_wgmma_pin(sums[i][j]);
  release(shared, before, lane);
}

#if !RT_PARTIAL && !RT_CLUSTER
// Two neighbours (aligned to both) or one of a storage type; zero where `valid` is false, without a branch. Volatile:
// the compiler would hoist more of these loads out of the epilogue's loops than there are registers for.
#define RT_LOAD_IF "{.reg .pred p; setp.ne.u32 p, %"
__device__ __forceinline__ void load_two(float* v, const float* p, bool valid) {
  v[0] = v[1] = 0;
  asm volatile(RT_LOAD_IF "3, 0; @p ld.global.nc.v2.f32 {%0, %1}, [%2];}"
               : "+f"(v[0]), "+f"(v[1])
               : "l"(p), "r"(static_cast<rt_u32>(valid)));
}
__device__ __forceinline__ void load_two(rt_u16* v, const rt_u16* p, bool valid) {
  v[0] = v[1] = 0;
  asm volatile(RT_LOAD_IF "3, 0; @p ld.global.nc.v2.u16 {%0, %1}, [%2];}"
               : "+h"(v[0]), "+h"(v[1])
               : "l"(p), "r"(static_cast<rt_u32>(valid)));
}
__device__ __forceinline__ void load_one(float& v, const float* p, bool valid) {
  v = 0;
  asm volatile(RT_LOAD_IF "2, 0; @p ld.global.nc.f32 %0, [%1];}" : "+f"(v) : "l"(p), "r"(static_cast<rt_u32>(valid)));
}
__device__ __forceinline__ void load_one(rt_u16& v, const rt_u16* p, bool valid) {
  v = 0;
  asm volatile(RT_LOAD_IF "2, 0; @p ld.global.nc.u16 %0, [%1];}" : "+h"(v) : "l"(p), "r"(static_cast<rt_u32>(valid)));
}

// What the epilogue adds to the four sums of a block: [0] and [1] at (x, y) and (x, y + 1), [2] and [3] eight further
// in x. Zero outside d.
struct Addends {
#if RT_BETA
  RtOut c[4];
#endif
#if RT_BIAS
  RtIn bias[2];  // of y and y + 1, or, with RT_SWAP, of x and x + 8
#endif

  __device__ __forceinline__ void load(const RtEpilogueArgs& args, const Extents& e, int batch, int x, int y) {
#if RT_BETA
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int xi = x + i * 4;
      const size_t matrix = static_cast<size_t>(batch) * e.m;
      if constexpr (kSwap) {
        const RtOut* const from = args.c + (matrix + y) * e.n + xi;
        load_one(c[i], from, xi < e.n && y < e.m);
        load_one(c[i + 1], from + e.n, xi < e.n && y + 1 < e.m);
      } else {
        load_two(c + i, args.c + (matrix + xi) * e.n + y, xi < e.m && y < e.n);  // n is even
      }
    }
#endif
#if RT_BIAS
    if constexpr (kSwap) {
      load_one(bias[0], args.bias + x, x < e.n);
      load_one(bias[1], args.bias + x + 8, x + 8 < e.n);
    } else {
      load_two(bias, args.bias + y, y < e.n);
    }
#endif
  }
};

__device__ __forceinline__ void finish_block(float* v, const RtEpilogueArgs& args, const Addends& addends) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] *= args.alpha;
#if RT_BETA
    v[i] += args.beta * RtType<RT_OUT>::load(addends.c[i]);
#endif
#if RT_BIAS
    v[i] += RtType<RT_DTYPE>::load(addends.bias[kSwap ? i / 2 : i % 2]);
#endif
    v[i] = rt_activate(v[i]);
  }
}
#endif

#if !RT_STORE_TMA && !RT_CLUSTER
// Straight from registers: a warp writes whole sectors of fp32, 8 rows × 8 columns an instruction or two.
__device__ __forceinline__ void store_block(const float* v, float* d, const Extents& e, int x, int y) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int xi = x + i / 2 * 8, yi = y + i % 2;
    const int row = kSwap ? yi : xi, column = kSwap ? xi : yi;
    float* const p = d + static_cast<size_t>(row) * e.n + column;
    if (row >= e.m || column >= e.n) continue;
    if constexpr (kSwap) {
      *p = v[i];
    } else if (i % 2 == 0) {
      *reinterpret_cast<float2*>(p) = make_float2(v[i], v[i + 1]);  // n is even
    }
  }
}
#endif

#if RT_STORE_TMA
template <bool TRANS>
__device__ __forceinline__ void store_matrices(rt_u32 to, const rt_u32* r, bool four) {
  if (four) {
    if constexpr (TRANS) {
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]),
                   "r"(r[1]), "r"(r[2]), "r"(r[3])
                   : "memory");
    } else {
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]), "r"(r[1]),
                   "r"(r[2]), "r"(r[3])
                   : "memory");
    }
  } else if constexpr (TRANS) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(r[0]), "r"(r[1])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(r[0]), "r"(r[1]) : "memory");
  }
}

// XOR of the 16-byte chunk of a row, as TMA's swizzle of 128, 64, 32 or no bytes has it.
__device__ __forceinline__ int store_swizzle(int row) {
  if (kStoreColumns == 64) return row & 7;
  if (kStoreColumns == 32) return row >> 1 & 3;
  if (kStoreColumns == 16) return row >> 2 & 1;
  return 0;
}

// Where this lane's row of the matrices that start at block `j` (8 of y) goes within a box. The four matrices are
// (x 0, y 0) (x 8, y 0) (x 0, y 8) (x 8, y 8).
__device__ __forceinline__ rt_u32 store_offset(int warp, int lane, int j) {
  const int x_half = lane >> 3 & 1, y_block = j + (lane >> 4);
  const int row = kSwap ? y_block * 8 + (lane & 7) : warp * 16 + x_half * 8 + (lane & 7);
  const int chunk = kSwap ? warp * 2 + x_half : y_block;
  return row * kStoreColumns * 2 + ((chunk ^ store_swizzle(row)) << 4);
}

// Writes a warpgroup's part of the tile, box by box, through a ring of buffers: while TMA reads one, the next is
// written. `at` is the ring's position, kept from tile to tile. (x, y) is the part's corner in d.
__device__ __forceinline__ void store_tile(Sums& sums, const RtEpilogueArgs& args, const Extents& e,
                                           const RtTensorMap& map_d, rt_u32 buffers, int& at, int batch, int x, int y,
                                           int group) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
#pragma unroll
  for (int box = 0; box < kBlocksX * kStoresY; ++box) {
    const int i = box / kStoresY, y0 = box % kStoresY * kStoreY;
    const rt_u32 buffer = buffers + at * kStoreBytes;
    if (++at == RT_STORE_BUFFERS) at = 0;
    const int x_lane = x + i * 64 + warp * 16 + (lane >> 2), y_lane = y + y0 + (lane & 3) * 2;
    constexpr int kAhead = 4;  // blocks whose addends are loaded together: more take registers, fewer take time
    Addends addends[kAhead];
#pragma unroll
    for (int j = 0; j < kStoreY / 8; j += 2) {
#pragma unroll
      for (int h = 0; h < kAhead && j % kAhead == 0 && j + h < kStoreY / 8; ++h) {
        addends[h].load(args, e, batch, x_lane, y_lane + (j + h) * 8);
      }
      const bool four = j + 1 < kStoreY / 8;
      rt_u32 packed[4];
#pragma unroll
      for (int h = 0; h < (four ? 2 : 1); ++h) {
        float v[4];
#pragma unroll
        for (int s = 0; s < 4; ++s) v[s] = sums[i][(y0 / 8 + j + h) * 4 + s];
        finish_block(v, args, addends[(j + h) % kAhead]);
        packed[h * 2] = rt_pack2<RT_OUT>(v[0], v[1]);
        packed[h * 2 + 1] = rt_pack2<RT_OUT>(v[2], v[3]);
      }
      store_matrices<kSwap>(buffer + store_offset(warp, four ? lane : lane & 15, j), packed, four);
    }
    rt_async_fence();
    const bool leader = (threadIdx.x & 127) == 0;
    // The buffer written next is free once all but the last RT_STORE_BUFFERS - 2 stores have been read; the barrier
    // tells the others.
    if (leader) rt_store_wait_read<RT_STORE_BUFFERS - 2>();
    rt_named_barrier(1 + group, 128);
    if (leader) {
      const int bx = x + i * 64, by = y + y0;
      rt_tensor_store(map_d, buffer, kSwap ? bx : by, kSwap ? by : bx, batch);
      rt_store_commit();
    }
  }
}
#endif

#if RT_CLUSTER
// Lays a warpgroup's sums out as rows of d. (x, y) is the corner of its part within the tile.
__device__ __forceinline__ void spread_sums(const Sums& sums, float* tile, int x, int y) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
#pragma unroll
  for (int i = 0; i < kBlocksX; ++i)
#pragma unroll
    for (int j = 0; j < kSums; j += 2) {
      const int xi = x + i * 64 + warp * 16 + (lane >> 2) + (j & 2) * 4, yi = y + j / 4 * 8 + (lane & 3) * 2;
      if constexpr (kSwap) {
        tile[yi * kSumPitch + xi] = sums[i][j];
        tile[(yi + 1) * kSumPitch + xi] = sums[i][j + 1];
      } else {
        *reinterpret_cast<float2*>(tile + xi * kSumPitch + yi) = make_float2(sums[i][j], sums[i][j + 1]);
      }
    }
}

// Finishes this block's part of the tile from the sums of all blocks of the cluster, added in the order of the shares.
__device__ __forceinline__ void reduce_tile(rt_u32 tile, const RtEpilogueArgs& args, const Extents& e,
                                            const Work& work) {
  constexpr int kQuads = RT_BM * RT_BN / 4 / RT_SPLIT_K;  // a block
  const int m0 = kSwap ? work.y : work.x, n0 = kSwap ? work.x : work.y;
#pragma unroll 1
  for (int id = threadIdx.x; id < kQuads; id += kConsumers) {
    const int element = (work.share * kQuads + id) * 4;
    const int row = element / RT_BN, column = element % RT_BN;
    if (m0 + row >= e.m || n0 + column >= e.n) continue;
    float v[4] = {};
#pragma unroll
    for (int s = 0; s < RT_SPLIT_K; ++s) {
      rt_u32 remote;
      float4 f;
      asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(tile + (row * kSumPitch + column) * 4), "r"(s));
      asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                   : "=f"(f.x), "=f"(f.y), "=f"(f.z), "=f"(f.w)
                   : "r"(remote)
                   : "memory");
      v[0] += f.x, v[1] += f.y, v[2] += f.z, v[3] += f.w;
    }
    rt_finish<4>(v, args, (static_cast<size_t>(work.batch) * e.m + m0 + row) * e.n + n0 + column, n0 + column);
  }
}
#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    rt_gemm_wgmma(const __grid_constant__ RtTensorMap map_a, const __grid_constant__ RtTensorMap map_b,
#if RT_PARTIAL
                  float* __restrict__ partial,
#else
#if RT_STORE_TMA
                  const __grid_constant__ RtTensorMap map_d,
#endif
#if RT_BETA
                  const RtOut* __restrict__ c,
#endif
#if RT_BIAS
                  const RtIn* __restrict__ bias,
#endif
#if !RT_STORE_TMA
                  RtOut* __restrict__ d,
#endif
                  float alpha,
#if RT_BETA
                  float beta,
#endif
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

  if (threadIdx.x == 0) init_barriers(shared);
  if (threadIdx.x == kConsumers) {
    rt_tensor_prefetch(map_a);
    rt_tensor_prefetch(map_b);
#if RT_STORE_TMA
    rt_tensor_prefetch(map_d);
#endif
  }
  if constexpr (kSharers > 1) {
    rt_cluster_barrier();
  } else {
    __syncthreads();
  }

  if (group == kGroups) {
    if constexpr (RT_REALLOCATE) rt_registers_lower<kProducerRegisters>();
    if (threadIdx.x == kConsumers) produce(shared, kSwap ? map_b : map_a, kSwap ? map_a : map_b, e, rank);
    __syncwarp();
#if RT_CLUSTER
    rt_cluster_barrier();
#endif
  } else {
    if constexpr (RT_REALLOCATE) rt_registers_raise<kConsumerRegisters>();
    const int group_x = RT_PINGPONG ? 0 : group % RT_GROUPS_X * kGroupX;
    const int group_y = RT_PINGPONG ? 0 : group / RT_GROUPS_X * kGroupY;
    // Rows of x and y of this warpgroup, as descriptors count.
    const rt_u32 x0 = kXAlongK ? group_x * 8 : group_x / 64 * (OperandX::kSlabBytes / 16);
    const rt_u32 y0 = kYAlongK ? group_y * 8 : group_y / 64 * (OperandY::kSlabBytes / 16);
#if !RT_PARTIAL
    RtEpilogueArgs args;
    args.alpha = alpha;
#if RT_BETA
    args.c = c;
    args.beta = beta;
#endif
#if RT_BIAS
    args.bias = bias;
#endif
#if !RT_STORE_TMA
    args.d = d;
#endif
#endif
    Sums sums;
    Ring ring;
    int turn = 0, at = 0;
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
      multiply(sums, shared, ring, work.range.tiles, x0, y0, lane);
#if RT_STORE_TMA
      store_tile(sums, args, e, map_d, shared.stages + kStagingOffset + group * (RT_STORE_BUFFERS * kStoreBytes), at,
                 work.batch, work.x + group_x, work.y + group_y, group);
#elif RT_CLUSTER
      // Nobody reads the stages any more.
      rt_named_barrier(1, kConsumers);
      spread_sums(sums, reinterpret_cast<float*>(memory), group_x, group_y);
      rt_cluster_barrier();
      reduce_tile(shared.stages, args, e, work);
#else
#if RT_PARTIAL
      float* const matrix = partial + (static_cast<size_t>(work.share) * batch + work.batch) * m * n;
#else
      float* const matrix = d + static_cast<size_t>(work.batch) * m * n;
#endif
#pragma unroll
      for (int i = 0; i < kBlocksX; ++i)
#pragma unroll
        for (int j = 0; j < kSums; j += 4) {
          const int x = work.x + group_x + i * 64 + (warp & 3) * 16 + (lane >> 2);
          const int y = work.y + group_y + j * 2 + (lane & 3) * 2;
#if !RT_PARTIAL
          Addends addends;
          addends.load(args, e, work.batch, x, y);
          finish_block(&sums[i][j], args, addends);
#endif
          store_block(&sums[i][j], matrix, e, x, y);
        }
#endif
    }
#if RT_STORE_TMA
    // Shared memory stays until TMA has read it.
    if ((threadIdx.x & 127) == 0) rt_store_wait_read<0>();
#endif
  }
  // No block leaves while others of the cluster arrive at its barriers or read its memory.
  if constexpr (kClusterBlocks > 1) rt_cluster_barrier();
}

// Grouped GEMM of ragged groups of rows by mma.sync.m16n8k16 (fp16 or bf16 operands, fp32 sums), for sm_80 and later:
// y[t, :] = x[row of t, :] · w[group of t]ᵀ.
//
// Tiles are those of gemm_mma (common/gemm_mma_tile.cuh). Blocks deal the tiles of all groups round robin; every block
// works the tiles' places out itself (common/row_groups.cuh), so that group sizes need not be known on the host.
//
// Defines: RT_DTYPE RT_OUT RT_MASKED RT_GATHER RT_SCATTER RT_WEIGHTED, RT_BM RT_BN RT_BK RT_WARPS_M RT_WARPS_N
// RT_STAGES RT_RASTER, RT_VEC_K (elements a load; it divides k) RT_VEC_D (a store; it divides n).
#define RT_LAYOUT 1
#define RT_BIAS 0
#define RT_ACT 0
#define RT_BETA 0
#define RT_SPLIT_K 1
#define RT_VEC_A RT_VEC_K
#define RT_VEC_B RT_VEC_K
#include "common/async_copy.cuh"
#include "common/gemm_epilogue.cuh"
#include "common/gemm_mma_tile.cuh"
#include "common/row_groups.cuh"
#include "common/types.cuh"

namespace {

constexpr int kSlabBytes = RT_WARPS_M * RT_WARPS_N * 16 * kSlabPitch * 4;
constexpr int kTableOffset = RT_STAGES * kStageBytes > kSlabBytes ? RT_STAGES* kStageBytes : kSlabBytes;

// Rows of x of a tile, each wherever it lies; zeroes past the group's end.
struct GatheredRows : OperandA {
  const char* base;
  int from[kRowCopies];  // rows of x
  size_t pitch;

  __device__ __forceinline__ void init(const RtIn* x, const RtRowSlots& slots, const RtGroupTile& tile, int k) {
    OperandA::init(x, 0, tile.end - tile.row, 0, k, k);
    base = reinterpret_cast<const char*>(x + column);
    pitch = static_cast<size_t>(k) * 2;
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i) from[i] = slots.source(min(tile.row + row + i * kRowStep, tile.end - 1));
  }
  __device__ __forceinline__ void advance() {
    base += tile_step;
    k_left -= RT_BK;
  }
  __device__ __forceinline__ void copy(rt_u32 tile, int i) const {
    copy_from(tile, i, base + from[i / kColumns] * pitch);
  }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    rt_moe_mma(const RtIn* __restrict__ x, const RtIn* __restrict__ w, const int* __restrict__ given,
               RT_SLOT_INPUTS RtOut* __restrict__ out, int n, int k, int groups, int rows_max,
               [[maybe_unused]] int shares) {
  extern __shared__ __align__(128) unsigned char memory[];
  const rt_u32 stages = shared_address(memory);
  RtRowGroups& table = *reinterpret_cast<RtRowGroups*>(memory + kTableOffset);
  const RtRowSlots slots = RT_ROW_SLOTS;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int warp_m = (warp % RT_WARPS_M) * kWarpM, warp_n = (warp / RT_WARPS_M) * kWarpN;
  float* const slab = reinterpret_cast<float*>(memory) + warp * 16 * kSlabPitch;

  table.fill(given, groups);
  const int tiles_n = (n + RT_BN - 1) / RT_BN, count = table.first_tile[groups] * tiles_n;
#pragma unroll 1
  for (int id = blockIdx.x; id < count; id += gridDim.x) {
    const RtGroupTile tile = rt_group_tile(id, table, groups, rows_max, tiles_n);
#if RT_GATHER
    GatheredRows copy_x;
    copy_x.init(x, slots, tile, k);
#else
    OperandA copy_x;
    copy_x.init(x, tile.row, tile.end, 0, k, k);
#endif
    OperandB copy_w;
    copy_w.init(w + static_cast<size_t>(tile.group) * n * k, tile.column, n, 0, k, k);
    RtSum sum[kMmaM][kMmaN][4];
    multiply_tiles(sum, copy_x, copy_w, (k + RT_BK - 1) / RT_BK, stages, warp_m, warp_n, lane);
    for_each_output(sum, slab, lane, [&](const float* v, int r, int c) {
      const int row = tile.row + warp_m + r, column = tile.column + warp_n + c;
      if (row >= tile.end || column >= n) return;
      const float factor = slots.factor(row);
      RtPack<RtOut, RT_VEC_D> pack;
#pragma unroll
      for (int i = 0; i < RT_VEC_D; ++i) pack.value[i] = RtType<RT_OUT>::store(factor * v[i]);
      pack.store(out + static_cast<size_t>(slots.target(row)) * n + column);
    });
    // The sums lie where the next tile's operands go.
    __syncthreads();
  }
}

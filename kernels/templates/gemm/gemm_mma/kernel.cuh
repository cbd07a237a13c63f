// GEMM on tensor cores with mma.sync (fp16 or bf16 operands, int8 and, from sm_89 on, 8-bit floats): one source for
// sm_80 and later.
//
// A block computes RT_BM × RT_BN of d over one share of k. Tiles of RT_BK travel by cp.async through RT_STAGES
// buffers of shared memory; ldmatrix feeds fragments that are double-buffered in registers, and one
// __syncthreads a k-tile both publishes the next tile and frees the buffer that is refilled next.
//
// With RT_SPLIT_K > 1 the shares of k are fp32 sums that are added in a fixed order: through the workspace by a
// second kernel (rt_gemm_reduce), or, with RT_CLUSTER (sm_90 and later), by the blocks of one cluster that read
// each other's shared memory, which saves the workspace traffic and a launch.
//
// Defines: RT_DTYPE RT_OUT RT_LAYOUT RT_BIAS RT_ACT RT_BETA, RT_BM RT_BN RT_BK RT_WARPS_M RT_WARPS_N RT_STAGES
// RT_SPLIT_K RT_CLUSTER RT_RASTER, RT_VEC_A RT_VEC_B (units an access) RT_VEC_D (elements); each divides its contiguous
// extent. RT_BK and units: see common/gemm_mma_tile.cuh; RT_SCALE RT_BIAS_DTYPE: see common/gemm_epilogue.cuh.
#include "common/gemm_epilogue.cuh"
#include "common/gemm_grid.cuh"
#include "common/gemm_mma_tile.cuh"
#include "common/gemm_reduce.cuh"
#include "common/types.cuh"

namespace {

#if RT_CLUSTER
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

// Adds what block `rank` of the cluster has at `local`, an address in this block's shared memory.
template <int V>
__device__ __forceinline__ void add_remote(float* v, rt_u32 local, int rank) {
  rt_u32 remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
  if constexpr (V == 4) {
    float4 f;
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(f.x), "=f"(f.y), "=f"(f.z), "=f"(f.w)
                 : "r"(remote));
    v[0] += f.x, v[1] += f.y, v[2] += f.z, v[3] += f.w;
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      float f;
      asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(f) : "r"(remote + i * 4));
      v[i] += f;
    }
  }
}
#endif

}  // namespace

// Where RT_PARTIAL holds, the result goes to `partial`, [share][batch][m][n], and the second kernel has the epilogue.
#define RT_PARTIAL (RT_SPLIT_K > 1 && !RT_CLUSTER)
extern "C" __global__ void __launch_bounds__(kThreads)
    rt_gemm_mma(const rt_u16* __restrict__ a, const rt_u16* __restrict__ b,
#if RT_PARTIAL
                float* __restrict__ partial,
#else
                RT_EPILOGUE_INPUTS RtOut* __restrict__ d, RT_EPILOGUE_FACTORS
#endif
                int m, int n, int k, int lda, int ldb) {
  extern __shared__ __align__(128) unsigned char memory[];
  const rt_u32 stages = shared_address(memory);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int warp_m = (warp % RT_WARPS_M) * kWarpM, warp_n = (warp / RT_WARPS_M) * kWarpN;
#if RT_CLUSTER
  // A cluster is the shares of one tile.
  const TilePosition tile = tile_position(blockIdx.x / RT_SPLIT_K, m, n);
  const int share = blockIdx.x % RT_SPLIT_K;
#else
  const TilePosition tile = tile_position(blockIdx.x, m, n);
  const int share = blockIdx.z;
#endif
  const int batch = blockIdx.y;

  constexpr int kUnit = 2 / sizeof(RtIn);
  k /= kUnit;
  const size_t pitch_a = lda / kUnit, pitch_b = ldb / kUnit;
  const KRange range = k_range(k, share);
  const int tiles = range.tiles;
  OperandA copy_a;
  OperandB copy_b;
  copy_a.init(a + static_cast<size_t>(batch) * (kAAlongK ? m : k) * pitch_a, tile.m, m, range.first_tile * RT_BK, k,
              pitch_a);
  copy_b.init(b + static_cast<size_t>(batch) * (kBAlongK ? n : k) * pitch_b, tile.n, n, range.first_tile * RT_BK, k,
              pitch_b);

  RtSum sum[kMmaM][kMmaN][4];
  multiply_tiles(sum, copy_a, copy_b, tiles, stages, warp_m, warp_n, lane);

#if !RT_CLUSTER
  float* slab = reinterpret_cast<float*>(memory) + warp * 16 * kSlabPitch;
  const int row0 = tile.m + warp_m, column0 = tile.n + warp_n;
#endif
#if RT_PARTIAL
  float* out = partial + (static_cast<size_t>(share) * gridDim.y + batch) * m * n;
  for_each_output(sum, slab, lane, [&](const float* v, int row, int column) {
    if (row0 + row >= m || column0 + column >= n) return;
    RtPack<float, RT_VEC_D> pack;
#pragma unroll
    for (int i = 0; i < RT_VEC_D; ++i) pack.value[i] = v[i];
    pack.store(out + static_cast<size_t>(row0 + row) * n + column0 + column);
  });
#else
  RtEpilogueArgs args = RT_EPILOGUE_ARGS;
  args.d = d;
  const size_t matrix = static_cast<size_t>(batch) * m * n;
#if RT_CLUSTER
  // Every block lays its sums out; then each finishes its part of the tile, adding the shares in order.
  constexpr int kPitch = RT_BN + 8, kVec = RT_VEC_D < 4 ? RT_VEC_D : 4;
  float* const whole = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int mi = 0; mi < kMmaM; ++mi) {
    put_block(sum[mi], whole + (warp_m + mi * 16) * kPitch + warp_n, kPitch, lane);
  }
  cluster_barrier();
  constexpr int kGroups = RT_BM * RT_BN / kVec / RT_SPLIT_K;  // a block
#pragma unroll 1
  for (int id = threadIdx.x; id < kGroups; id += kThreads) {
    const int element = (share * kGroups + id) * kVec;
    const int row = element / RT_BN, column = element % RT_BN;
    if (tile.m + row >= m || tile.n + column >= n) continue;
    float v[kVec] = {};
#pragma unroll
    for (int s = 0; s < RT_SPLIT_K; ++s) add_remote<kVec>(v, stages + (row * kPitch + column) * 4, s);
    rt_finish<kVec>(v, args, matrix + static_cast<size_t>(tile.m + row) * n + tile.n + column, tile.n + column,
                    tile.m + row);
  }
  // Nobody's shared memory goes away while others read it.
  cluster_barrier();
#else
  for_each_output(sum, slab, lane, [&](const float* v, int row, int column) {
    if (row0 + row >= m || column0 + column >= n) return;
    rt_finish<RT_VEC_D>(v, args, matrix + static_cast<size_t>(row0 + row) * n + column0 + column, column0 + column,
                        row0 + row);
  });
#endif
#endif
}

// GEMM on tensor cores with mma.sync.m16n8k16 (fp16 or bf16 operands, fp32 sums): one source for sm_80 and later.
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
// RT_SPLIT_K RT_CLUSTER RT_RASTER, RT_VEC_A RT_VEC_B RT_VEC_D (elements an access; each divides its contiguous extent).
#include "common/gemm_epilogue.cuh"
#include "common/gemm_grid.cuh"
#include "common/gemm_reduce.cuh"
#include "common/types.cuh"

namespace {

constexpr int kThreads = RT_WARPS_M * RT_WARPS_N * 32;
constexpr int kWarpM = RT_BM / RT_WARPS_M;
constexpr int kWarpN = RT_BN / RT_WARPS_N;
constexpr int kMmaM = kWarpM / 16;  // m16 blocks a warp
constexpr int kMmaN = kWarpN / 8;   // n8 blocks a warp
constexpr int kSteps = RT_BK / 16;  // k16 steps a tile
// Layout codes: nn 0, nt 1, tn 2, tt 3.
constexpr bool kAAlongK = RT_LAYOUT < 2;         // a is [m, k]: k is contiguous
constexpr bool kBAlongK = (RT_LAYOUT & 1) == 1;  // b is [n, k]
static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && kSteps >= 2 && RT_STAGES >= 2, "tile");

__device__ __forceinline__ rt_u32 shared_address(const void* p) {
  return static_cast<rt_u32>(__cvta_generic_to_shared(p));
}

// Copies BYTES to shared memory, or zeroes them where `valid` is false (nothing is read then).
template <int BYTES>
__device__ __forceinline__ void copy_async(rt_u32 to, const void* from, bool valid) {
  if constexpr (BYTES == 16) {
    // .cg: operands are reused through L2 and shared memory, not L1. The 128-byte prefetch is the sector
    // group that neighbouring threads ask for anyway.
    asm volatile(
        "{.reg .pred p; setp.eq.u32 p, %2, 0; cp.async.cg.shared.global.L2::128B [%0], [%1], 16, p;}" ::"r"(to),
        "l"(from), "r"(static_cast<rt_u32>(valid))
        : "memory");
  } else if constexpr (BYTES >= 4) {
    asm volatile("{.reg .pred p; setp.eq.u32 p, %2, 0; cp.async.ca.shared.global [%0], [%1], %3, p;}" ::"r"(to),
                 "l"(from), "r"(static_cast<rt_u32>(valid)), "n"(BYTES)
                 : "memory");
  } else {
    // cp.async has no 2-byte form: through a register, visible to the others after the next barriers.
    rt_u16 v = 0;
    if (valid) v = __ldg(static_cast<const rt_u16*>(from));
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(v) : "memory");
  }
}

__device__ __forceinline__ void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// XOR that spreads the 16-byte chunks of a row of COLS elements, so that the eight rows of an ldmatrix at one
// chunk lie in eight different bank groups. Rows shorter than 128 bytes share a line with their neighbours.
template <int COLS>
__device__ __forceinline__ int swizzle(int row) {
  constexpr int kChunks = COLS / 8;
  if constexpr (kChunks >= 8) return row & 7;
  if constexpr (kChunks == 4) return (row >> 1) & 3;
  if constexpr (kChunks == 2) return (row >> 2) & 1;
  return 0;
}

// One operand's tile in shared memory: ROWS × COLS with COLS the contiguous direction. ALONG_K: rows are m or
// n and columns are k; otherwise rows are k. Thread t copies units of VEC elements, always in the same
// column(s), kRowStep rows apart.
template <int ROWS, int COLS, int VEC, bool ALONG_K>
struct Operand {
  static constexpr int kUnits = COLS / VEC;  // a row
  static constexpr int kRowStep = kThreads > kUnits ? kThreads / kUnits : 1;
  static constexpr int kColumns = kUnits > kThreads ? kUnits / kThreads : 1;  // a thread
  static constexpr int kRowCopies = ROWS > kRowStep ? ROWS / kRowStep : 1;
  static constexpr int kCopies = kRowCopies * kColumns;
  static constexpr int kPitch = COLS * 2;  // bytes
  static constexpr int kBytes = ROWS * kPitch;

  const char* source;  // this thread's first unit in the tile that is copied next
  size_t row_step;     // bytes
  size_t tile_step;    // bytes
  int row, column;     // of the first unit, within the tile
  int fixed_left;      // rows (ALONG_K) or columns of the operand from the tile's corner
  int k_left;          // of k from the tile's corner

  // `corner` is the first element of the tile in m or n, `extent` that dimension; k goes from k_begin to k.
  __device__ __forceinline__ void init(const RtIn* base, int corner, int extent, int k_begin, int k) {
    const int unit = threadIdx.x;
    row = unit / kUnits;
    column = (unit % kUnits) * VEC;
    fixed_left = extent - corner;
    k_left = k - k_begin;
    const size_t pitch = static_cast<size_t>(ALONG_K ? k : extent);
    const int first_row = (ALONG_K ? corner : k_begin) + row;
    const int first_column = (ALONG_K ? k_begin : corner) + column;
    source = reinterpret_cast<const char*>(base + first_row * pitch + first_column);
    row_step = kRowStep * pitch * 2;
    tile_step = (ALONG_K ? static_cast<size_t>(RT_BK) : RT_BK * pitch) * 2;
  }
  __device__ __forceinline__ void advance() {
    source += tile_step;
    k_left -= RT_BK;
  }
  // Copy number I of this thread; the compiler folds I.
  __device__ __forceinline__ void copy(rt_u32 tile, int i) const {
    const int row_copy = i / kColumns;
    const int col = column + (i % kColumns) * kThreads * VEC;
    const int r = row + row_copy * kRowStep;
    if (kRowStep > ROWS && row >= ROWS) return;
    const int rows_left = ALONG_K ? fixed_left : k_left;
    const int columns_left = ALONG_K ? k_left : fixed_left;
    const int chunk = (col >> 3) ^ swizzle<COLS>(r);
    const rt_u32 to = tile + r * kPitch + chunk * 16 + (col & 7) * 2;
    copy_async<VEC * 2>(to, source + row_copy * row_step + (i % kColumns) * kThreads * VEC * 2,
                        r < rows_left && col < columns_left);
  }
};

using OperandA = Operand<kAAlongK ? RT_BM : RT_BK, kAAlongK ? RT_BK : RT_BM, RT_VEC_A, kAAlongK>;
using OperandB = Operand<kBAlongK ? RT_BN : RT_BK, kBAlongK ? RT_BK : RT_BN, RT_VEC_B, kBAlongK>;
constexpr int kStageBytes = OperandA::kBytes + OperandB::kBytes;

template <bool TRANS>
__device__ __forceinline__ void load_matrices(rt_u32* r, rt_u32 address) {
  if constexpr (TRANS) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
}

__device__ __forceinline__ void multiply(float* c, const rt_u32* a, const rt_u32* b) {
#if RT_DTYPE == RT_BF16
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Where this lane's ldmatrix rows are, as byte offsets within a stage. ALONG_K: the row is m or n and the
// chunk moves with k. Otherwise the row is k and the chunk moves with m or n; .trans turns it.
// The four 8×8 matrices are ordered (m0 k0)(m8 k0)(m0 k8)(m8 k8) for a and (n0 k0)(n0 k8)(n8 k0)(n8 k8) for b.
template <typename OP, bool ALONG_K, int COLS, bool IS_A>
struct FragmentSource {
  int base;

  __device__ __forceinline__ void init(int corner, int lane) {
    const int low = (lane & 7) + ((lane >> 3) & 1) * 8, high = lane >> 4;          // second matrix: +8 rows
    const int low_alt = (lane & 7) + (lane >> 4) * 8, high_alt = (lane >> 3) & 1;  // second matrix: next chunk
    const bool rows_first = ALONG_K == IS_A;
    const int r = rows_first ? low : low_alt;
    const int c = rows_first ? high : high_alt;
    if constexpr (ALONG_K) {
      base = (corner + r) * OP::kPitch + ((c ^ swizzle<COLS>(r)) * 16);
    } else {
      base = r * OP::kPitch + ((((corner >> 3) + c) ^ swizzle<COLS>(r)) * 16);
    }
  }
  // Block of 16 in m or n, step of 16 in k.
  __device__ __forceinline__ void load(rt_u32* r, rt_u32 tile, int block, int step) const {
    if constexpr (ALONG_K) {
      load_matrices<false>(r, tile + (base ^ (step * 32)) + block * 16 * OP::kPitch);
    } else {
      load_matrices<true>(r, tile + (base ^ (block * 32)) + step * 16 * OP::kPitch);
    }
  }
};

struct Fragments {
  rt_u32 a[kMmaM][4];
  rt_u32 b[kMmaN / 2][4];
};

// Sums go through shared memory: the mma layout gives a thread two neighbouring columns, so direct stores would
// touch half a 32-byte sector a thread group; from shared memory a warp writes (and reads c) whole rows in
// 16-byte words.
__device__ __forceinline__ void put_block(const float (&sum)[kMmaN][4], float* corner, int pitch, int lane) {
#pragma unroll
  for (int ni = 0; ni < kMmaN; ++ni) {
    float* p = corner + (lane >> 2) * pitch + ni * 8 + (lane & 3) * 2;
    *reinterpret_cast<float2*>(p) = make_float2(sum[ni][0], sum[ni][1]);
    *reinterpret_cast<float2*>(p + 8 * pitch) = make_float2(sum[ni][2], sum[ni][3]);
  }
}

// Every warp on its own, 16 rows at a time, so that only the warp itself is waited for.
constexpr int kSlabPitch = kWarpN + 8;  // floats; 8 spreads the rows over the banks

template <typename STORE>
__device__ __forceinline__ void for_each_output(const float (&sum)[kMmaM][kMmaN][4], float* slab, int lane,
                                                STORE store) {
#pragma unroll
  for (int mi = 0; mi < kMmaM; ++mi) {
    __syncwarp();
    put_block(sum[mi], slab, kSlabPitch, lane);
    __syncwarp();
    constexpr int kGroups = kWarpN / RT_VEC_D;  // a row
#pragma unroll
    for (int i = 0; i < 16 * kGroups / 32; ++i) {
      const int id = i * 32 + lane;
      const int row = id / kGroups, column = (id % kGroups) * RT_VEC_D;
      float v[RT_VEC_D];
      rt_read_shared<RT_VEC_D>(v, slab + row * kSlabPitch + column);
      store(v, mi * 16 + row, column);
    }
  }
}

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
    rt_gemm_mma(const RtIn* __restrict__ a, const RtIn* __restrict__ b,
#if RT_PARTIAL
                float* __restrict__ partial,
#else
#if RT_BETA
                const RtOut* __restrict__ c,
#endif
#if RT_BIAS
                const RtIn* __restrict__ bias,
#endif
                RtOut* __restrict__ d, float alpha,
#if RT_BETA
                float beta,
#endif
#endif
                int m, int n, int k) {
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

  const KRange range = k_range(k, share);
  const int tiles = range.tiles;
  OperandA copy_a;
  OperandB copy_b;
  copy_a.init(a + static_cast<size_t>(batch) * m * k, tile.m, m, range.first_tile * RT_BK, k);
  copy_b.init(b + static_cast<size_t>(batch) * n * k, tile.n, n, range.first_tile * RT_BK, k);

#pragma unroll
  for (int s = 0; s < RT_STAGES - 1; ++s) {
    if (s < tiles) {
      const rt_u32 to = stages + s * kStageBytes;
#pragma unroll
      for (int i = 0; i < OperandA::kCopies; ++i) copy_a.copy(to, i);
#pragma unroll
      for (int i = 0; i < OperandB::kCopies; ++i) copy_b.copy(to + OperandA::kBytes, i);
      copy_a.advance();
      copy_b.advance();
    }
    commit_async();
  }

  FragmentSource<OperandA, kAAlongK, kAAlongK ? RT_BK : RT_BM, true> from_a;
  FragmentSource<OperandB, kBAlongK, kBAlongK ? RT_BK : RT_BN, false> from_b;
  from_a.init(warp_m, lane);
  from_b.init(warp_n, lane);

  float sum[kMmaM][kMmaN][4];
#pragma unroll
  for (int mi = 0; mi < kMmaM; ++mi)
#pragma unroll
    for (int ni = 0; ni < kMmaN; ++ni)
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[mi][ni][j] = 0.0f;

  Fragments fragments[2];
  auto load_fragments = [&](Fragments& f, rt_u32 stage, int step) {
#pragma unroll
    for (int mi = 0; mi < kMmaM; ++mi) from_a.load(f.a[mi], stage, mi, step);
#pragma unroll
    for (int ni = 0; ni < kMmaN / 2; ++ni) from_b.load(f.b[ni], stage + OperandA::kBytes, ni, step);
  };

  wait_async<RT_STAGES - 2>();
  __syncthreads();
  rt_u32 read = stages, write = stages + (RT_STAGES - 1) * kStageBytes;
  const rt_u32 stages_end = stages + RT_STAGES * kStageBytes;
  load_fragments(fragments[0], read, 0);

#pragma unroll 1
  for (int t = 0; t < tiles; ++t) {
    const bool more = t + RT_STAGES - 1 < tiles;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps - 1) {
        // The next tile has arrived for everyone, and everyone has read this one into registers.
        wait_async<RT_STAGES - 2>();
        __syncthreads();
        read += kStageBytes;
        if (read == stages_end) read = stages;
      }
      load_fragments(fragments[(step + 1) & 1], read, (step + 1) % kSteps);
      if (step < kSteps - 1) {
        // Copies of a later tile are spread over the steps, so that they do not queue before ldmatrix.
        constexpr int kSpread = kSteps - 1;
        if (more) {
#pragma unroll
          for (int i = 0; i < OperandA::kCopies; ++i)
            if (i * kSpread / OperandA::kCopies == step) copy_a.copy(write, i);
#pragma unroll
          for (int i = 0; i < OperandB::kCopies; ++i)
            if (i * kSpread / OperandB::kCopies == step) copy_b.copy(write + OperandA::kBytes, i);
        }
        if (step == kSteps - 2) {
          commit_async();
          copy_a.advance();
          copy_b.advance();
          write += kStageBytes;
          if (write == stages_end) write = stages;
        }
      }
      const Fragments& f = fragments[step & 1];
#pragma unroll
      for (int mi = 0; mi < kMmaM; ++mi)
#pragma unroll
        for (int nj = 0; nj < kMmaN; ++nj) {
          // Back and forth, so that neighbours in time share a fragment.
          const int ni = mi & 1 ? kMmaN - 1 - nj : nj;
          multiply(sum[mi][ni], f.a[mi], &f.b[ni / 2][(ni & 1) * 2]);
        }
    }
  }
  wait_async<0>();
  __syncthreads();

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
  RtEpilogueArgs args;
#if RT_BETA
  args.c = c;
  args.beta = beta;
#endif
#if RT_BIAS
  args.bias = bias;
#endif
  args.d = d;
  args.alpha = alpha;
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
    rt_finish<kVec>(v, args, matrix + static_cast<size_t>(tile.m + row) * n + tile.n + column, tile.n + column);
  }
  // Nobody's shared memory goes away while others read it.
  cluster_barrier();
#else
  for_each_output(sum, slab, lane, [&](const float* v, int row, int column) {
    if (row0 + row >= m || column0 + column >= n) return;
    rt_finish<RT_VEC_D>(v, args, matrix + static_cast<size_t>(row0 + row) * n + column0 + column, column0 + column);
  });
#endif
#endif
}

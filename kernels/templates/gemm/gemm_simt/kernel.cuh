// GEMM on the fp32 pipe: d = act(alpha·a·b + beta·c + bias) with fp32 operands and no tensor core rounding.
//
// A block computes RT_BM × RT_BN over one share of k; a thread RT_TM × RT_TN of it. Both operands lie in shared
// memory with k as the row, so that a thread reads its rows and columns in 16-byte words; two buffers, filled
// through registers while the other is used. With RT_SPLIT_K > 1 the shares are partials, summed by
// rt_gemm_reduce.
//
// Defines: RT_DTYPE RT_OUT RT_LAYOUT RT_BIAS RT_ACT RT_BETA, RT_BM RT_BN RT_BK RT_TM RT_TN RT_SPLIT_K RT_RASTER,
// RT_VEC_A RT_VEC_B RT_VEC_D (elements an access; each divides its contiguous extent).
#include "common/gemm_epilogue.cuh"
#include "common/gemm_grid.cuh"
#include "common/gemm_reduce.cuh"
#include "common/types.cuh"

namespace {

constexpr int kThreadsM = RT_BM / RT_TM;
constexpr int kThreadsN = RT_BN / RT_TN;
constexpr int kThreads = kThreadsM * kThreadsN;
// Layout codes: nn 0, nt 1, tn 2, tt 3.
constexpr bool kAAlongK = RT_LAYOUT < 2;         // a is [m, k]: k is contiguous
constexpr bool kBAlongK = (RT_LAYOUT & 1) == 1;  // b is [n, k]
// A thread's rows (columns) come in groups of this many neighbours, a block's share of threads apart.
constexpr int kGroupM = RT_TM < 4 ? RT_TM : 4;
constexpr int kGroupN = RT_TN < 4 ? RT_TN : 4;
// Lanes of a warp across n: 8 × 4 lanes read the fewest distinct words of both operands.
constexpr int kLanesN = kThreadsN < 8 ? kThreadsN : 8;
constexpr int kLanesM = 32 / kLanesN;
static_assert(RT_DTYPE == RT_FP32 && kThreads % 32 == 0 && kThreadsM % kLanesM == 0, "tile");

// One operand's tile: FIXED elements of m or n by RT_BK of k.
template <int FIXED, int VEC, bool ALONG_K>
struct Operand {
  static constexpr int kColumns = ALONG_K ? RT_BK : FIXED;  // contiguous in global memory
  static constexpr int kUnits = kColumns / VEC;             // a row of global memory
  static constexpr int kTotal = RT_BK * FIXED / VEC;
  static constexpr int kCopies = (kTotal + kThreads - 1) / kThreads;
  // Turning the tile writes down a column: 4 floats of padding halve the conflicts and keep 16-byte alignment.
  static constexpr int kPitch = FIXED + (ALONG_K ? 4 : 0);
  static constexpr int kFloats = RT_BK * kPitch;

  const float* tile;  // its corner
  size_t pitch;       // of the operand, elements
  int fixed_left, k_left;
  RtPack<float, VEC> held[kCopies];

  __device__ __forceinline__ void init(const float* base, int corner, int extent, int k_begin, int k, size_t row) {
    pitch = row;
    tile = base + (ALONG_K ? corner : k_begin) * pitch + (ALONG_K ? k_begin : corner);
    fixed_left = extent - corner;
    k_left = k - k_begin;
  }
  __device__ __forceinline__ void advance() {
    tile += ALONG_K ? RT_BK : RT_BK * pitch;
    k_left -= RT_BK;
  }
  // Global memory to registers; zeros outside the operand.
  __device__ __forceinline__ void fetch() {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int unit = i * kThreads + threadIdx.x;
      const int row = unit / kUnits, column = (unit % kUnits) * VEC;
      const bool inside = (ALONG_K ? row < fixed_left && column < k_left : row < k_left && column < fixed_left) &&
                          (kTotal % kThreads == 0 || unit < kTotal);
      if (inside) {
        held[i].load(tile + row * pitch + column);
      } else {
#pragma unroll
        for (int j = 0; j < VEC; ++j) held[i].value[j] = 0.0f;
      }
    }
  }
  // Registers to shared memory, k as the row.
  __device__ __forceinline__ void put(float* shared) const {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int unit = i * kThreads + threadIdx.x;
      if (kTotal % kThreads != 0 && unit >= kTotal) break;
      const int row = unit / kUnits, column = (unit % kUnits) * VEC;
      if constexpr (ALONG_K) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) shared[(column + j) * kPitch + row] = held[i].value[j];
      } else {
        held[i].store(shared + row * kPitch + column);
      }
    }
  }
};

using OperandA = Operand<RT_BM, RT_VEC_A, kAAlongK>;
using OperandB = Operand<RT_BN, RT_VEC_B, kBAlongK>;

// COUNT values in groups of GROUP neighbours that lie STRIDE apart.
template <int COUNT, int GROUP, int STRIDE>
__device__ __forceinline__ void read_groups(float* to, const float* from) {
#pragma unroll
  for (int g = 0; g < COUNT / GROUP; ++g) {
    if constexpr (GROUP == 4) {
      const float4 f = *reinterpret_cast<const float4*>(from + g * STRIDE);
      to[g * 4] = f.x, to[g * 4 + 1] = f.y, to[g * 4 + 2] = f.z, to[g * 4 + 3] = f.w;
    } else if constexpr (GROUP == 2) {
      const float2 f = *reinterpret_cast<const float2*>(from + g * STRIDE);
      to[g * 2] = f.x, to[g * 2 + 1] = f.y;
    } else {
      to[g] = from[g * STRIDE];
    }
  }
}

}  // namespace

// With RT_SPLIT_K > 1 the result goes to `partial`, [share][batch][m][n], and needs no epilogue.
extern "C" __global__ void __launch_bounds__(kThreads)
    rt_gemm_simt(const float* __restrict__ a, const float* __restrict__ b,
#if RT_SPLIT_K > 1
                 float* __restrict__ partial,
#else
                 RT_EPILOGUE_INPUTS RtOut* __restrict__ d, RT_EPILOGUE_FACTORS
#endif
                 int m, int n, int k, int lda, int ldb) {
  __shared__ __align__(16) float shared_a[2][OperandA::kFloats];
  __shared__ __align__(16) float shared_b[2][OperandB::kFloats];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  constexpr int kWarpsN = kThreadsN / kLanesN;
  const int tn = (warp % kWarpsN) * kLanesN + lane % kLanesN;
  const int tm = (warp / kWarpsN) * kLanesM + lane / kLanesN;
  const TilePosition tile = tile_position(blockIdx.x, m, n);
  const int batch = blockIdx.y, share = blockIdx.z;
  const KRange range = k_range(k, share);

  OperandA from_a;
  OperandB from_b;
  const size_t pitch_a = lda, pitch_b = ldb;
  from_a.init(a + static_cast<size_t>(batch) * (kAAlongK ? m : k) * pitch_a, tile.m, m, range.first_tile * RT_BK, k,
              pitch_a);
  from_b.init(b + static_cast<size_t>(batch) * (kBAlongK ? n : k) * pitch_b, tile.n, n, range.first_tile * RT_BK, k,
              pitch_b);
  from_a.fetch();
  from_b.fetch();
  from_a.put(shared_a[0]);
  from_b.put(shared_b[0]);
  __syncthreads();

  float sum[RT_TM][RT_TN];
#pragma unroll
  for (int i = 0; i < RT_TM; ++i)
#pragma unroll
    for (int j = 0; j < RT_TN; ++j) sum[i][j] = 0.0f;

#pragma unroll 1
  for (int t = 0; t < range.tiles; ++t) {
    const bool more = t + 1 < range.tiles;
    if (more) {
      from_a.advance();
      from_b.advance();
      from_a.fetch();
      from_b.fetch();
    }
    const float* row_a = shared_a[t & 1] + tm * kGroupM;
    const float* row_b = shared_b[t & 1] + tn * kGroupN;
#pragma unroll
    for (int kk = 0; kk < RT_BK; ++kk) {
      float x[RT_TM], y[RT_TN];
      read_groups<RT_TM, kGroupM, kThreadsM * kGroupM>(x, row_a + kk * OperandA::kPitch);
      read_groups<RT_TN, kGroupN, kThreadsN * kGroupN>(y, row_b + kk * OperandB::kPitch);
#pragma unroll
      for (int i = 0; i < RT_TM; ++i)
#pragma unroll
        for (int j = 0; j < RT_TN; ++j) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
    }
    if (more) {
      // The other buffer: its readers passed the barrier of the tile before.
      from_a.put(shared_a[(t + 1) & 1]);
      from_b.put(shared_b[(t + 1) & 1]);
      __syncthreads();
    }
  }

#if RT_SPLIT_K > 1
  float* out = partial + (static_cast<size_t>(share) * gridDim.y + batch) * m * n;
#else
  RtEpilogueArgs args = RT_EPILOGUE_ARGS;
  args.d = d;
  const size_t matrix = static_cast<size_t>(batch) * m * n;
#endif
  // Groups of columns are whole words and neighbouring lanes hold neighbouring groups: direct stores coalesce.
  constexpr int kVec = RT_VEC_D < kGroupN ? RT_VEC_D : kGroupN;
#pragma unroll
  for (int i = 0; i < RT_TM; ++i) {
    const int row = tile.m + (i / kGroupM) * (kThreadsM * kGroupM) + tm * kGroupM + i % kGroupM;
#pragma unroll
    for (int j = 0; j < RT_TN; j += kVec) {
      const int column = tile.n + (j / kGroupN) * (kThreadsN * kGroupN) + tn * kGroupN + j % kGroupN;
      if (row < m && column < n) {
#if RT_SPLIT_K > 1
        RtPack<float, kVec> pack;
#pragma unroll
        for (int v = 0; v < kVec; ++v) pack.value[v] = sum[i][j + v];
        pack.store(out + static_cast<size_t>(row) * n + column);
#else
        rt_finish<kVec>(&sum[i][j], args, matrix + static_cast<size_t>(row) * n + column, column);
#endif
      }
    }
  }
}

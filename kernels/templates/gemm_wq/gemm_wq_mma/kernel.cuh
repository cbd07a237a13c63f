// 16-bit activations times int4 or int8 weights on tensor cores with mma.sync.m16n8k16, for sm_80 and later.
//
// A block computes RT_BM × RT_BN of y over one share of k. Tiles of RT_BK travel by cp.async through RT_STAGES buffers,
// the weights as they are stored; a warp reads words of codes, which it turns into fragments in registers. Rows of w
// are the 16 rows of a product and rows of x its 8 columns, so that few rows of m waste little.
//
// Codes are exact integers in the product; the fp32 sum of a group (or of a tile, where that is less) is scaled, so
// that weights are never rounded. Lane t of the four that share a row takes the same k of both operands: 8 of every 32
// (int4) or 4 of every 16 (int8).
//
// Defines: RT_DTYPE RT_OUT RT_BIAS RT_ACT RT_BETA RT_VEC_D (common/gemm_epilogue.cuh), RT_WEIGHT (bits) RT_GROUP
// RT_ZERO, RT_BM RT_BN RT_BK RT_WARPS_M RT_WARPS_N RT_STAGES RT_SPLIT_K RT_CLUSTER (0) RT_RASTER.
#include "common/async_copy.cuh"
#include "common/dequantize.cuh"
#include "common/gemm_epilogue.cuh"
#include "common/gemm_grid.cuh"
#include "common/gemm_reduce.cuh"
#include "common/mma.cuh"

namespace {

constexpr int kThreads = 32 * RT_WARPS_M * RT_WARPS_N;
constexpr int kWarpM = RT_BM / RT_WARPS_M, kWarpN = RT_BN / RT_WARPS_N;
constexpr int kRows = kWarpN / 16;                                   // blocks of 16 rows of w a warp
constexpr int kColumns = kWarpM / 8;                                 // blocks of 8 rows of x a warp
constexpr int kPitchW = RT_BK * RT_WEIGHT / 8, kPitchX = RT_BK * 2;  // bytes of a row of a tile
constexpr int kBytesW = RT_BN * kPitchW, kBytesX = RT_BM * kPitchX, kStageBytes = kBytesW + kBytesX;
constexpr bool kScaled = RT_GROUP > 0;
constexpr int kGroup = RT_GROUP > 0 ? RT_GROUP : RT_BK;
constexpr int kParts = kGroup < RT_BK ? RT_BK / kGroup : 1;  // of a tile, each within a group
constexpr int kBlocks = RT_BK / 32 / kParts;                 // of 32 in k, a part
static_assert(kRows >= 1 && kColumns >= 1 && RT_BK % 64 == 0 && RT_STAGES >= 2, "tile");
typedef RtCodes<RT_DTYPE, RT_WEIGHT> Codes;

// Where 16-byte chunk `chunk` of a row lies, in bytes from the tile. Lanes read one chunk of eight rows of w at a time:
// these lie in eight different bank groups.
__device__ __forceinline__ int place_w(int row, int chunk) {
  constexpr int kChunks = kPitchW / 16;
  const int turned = kChunks >= 8 ? row & 7 : kChunks == 4 ? (row >> 1) & 3 : (row >> 2) & 1;
  return row * kPitchW + (chunk ^ turned) * 16;
}
// Of x lanes read four chunks of two rows at a time (int4), or two of four (int8): the low bits of the row, reversed,
// send these apart.
__device__ __forceinline__ int place_x(int row, int chunk) {
  return row * kPitchX + (chunk ^ ((row & 1) * 4 + (row & 2) + ((row >> 2) & 1))) * 16;
}

// A tile's rows × PITCH bytes, copied by all threads.
template <int ROWS, int PITCH, bool IS_W>
__device__ __forceinline__ void copy_tile(rt_u32 to, const char* from, size_t pitch, int rows_left, rt_i64 bytes_left) {
  constexpr int kChunks = PITCH / 16, kTotal = ROWS * kChunks;
#pragma unroll
  for (int i = 0; i < (kTotal + kThreads - 1) / kThreads; ++i) {
    const int id = i * kThreads + threadIdx.x;
    if (kTotal % kThreads != 0 && id >= kTotal) break;
    const int row = id / kChunks, chunk = id % kChunks;
    copy_async<16>(to + (IS_W ? place_w(row, chunk) : place_x(row, chunk)), from + row * pitch + chunk * 16,
               row < rows_left && chunk * 16 < bytes_left);
  }
}

__device__ __forceinline__ rt_u32 read_word(rt_u32 address) {
  rt_u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

// A lane's 8 k of 32 of one row of x, in the order of the codes.
__device__ __forceinline__ void read_x(rt_u32* v, rt_u32 tile, int row, int block, int t) {
  if constexpr (RT_WEIGHT == 4) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(tile + place_x(row, block * 4 + t))
                 : "memory");
    rt_interleave(v);
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(v[2 * i]), "=r"(v[2 * i + 1])
                   : "r"(tile + place_x(row, block * 4 + i * 2 + (t >> 1)) + (t & 1) * 8)
                   : "memory");
    }
  }
}

// A lane's 8 codes of 32 of one row of w as 4 pairs.
__device__ __forceinline__ void read_w(rt_u32* pair, rt_u32 tile, int row, int block, int t, rt_u32 offset) {
  if constexpr (RT_WEIGHT == 4) {
    Codes::unpack(read_word(tile + place_w(row, block) + t * 4), offset, pair);
  } else {
    Codes::unpack(read_word(tile + place_w(row, block * 2) + t * 4), offset, pair);
    Codes::unpack(read_word(tile + place_w(row, block * 2 + 1) + t * 4), offset, pair + 2);
  }
}

// Scales and zero points of a lane's rows of w for one tile.
struct Scales {
  rt_u16 scale[kParts][kRows][2];
  int zero[kParts][kRows][2];
};

// Rows of scales that a lane needs. `first` is the k of a tile; past the end there is no x.
struct ScaleSource {
  const RtIn* scales[kRows][2];
#if RT_ZERO
  const signed char* zeros[kRows][2];
#endif
  int k;

  __device__ __forceinline__ void load(Scales& to, int first) const {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const int group = kScaled ? min(first + p * kGroup, k - 1) / kGroup : 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (kScaled) to.scale[p][r][h] = __ldg(scales[r][h] + group);
#if RT_ZERO
          to.zero[p][r][h] = __ldg(zeros[r][h] + group);
#endif
        }
    }
  }
};

typedef float Sums[kRows][kColumns][4];

// Adds the products of one part of a tile.
__device__ __forceinline__ void add_part(Sums& sum, rt_u32 tile_w, rt_u32 tile_x, int row_w, int row_x, int t, int part,
                                         const Scales& scales) {
  rt_u32 offset[kRows][2];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int h = 0; h < 2; ++h) offset[r][h] = Codes::offset(RT_ZERO ? scales.zero[part][r][h] : Codes::kMiddle);
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int block = part * kBlocks + b;
    rt_u32 x[kColumns][4];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) read_x(x[c], tile_x, row_x + c * 8, block, t);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rt_u32 pair[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) read_w(pair[h], tile_w, row_w + r * 16 + h * 8, block, t, offset[r][h]);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const rt_u32 a[4] = {pair[0][2 * s], pair[1][2 * s], pair[0][2 * s + 1], pair[1][2 * s + 1]};
#pragma unroll
        for (int c = 0; c < kColumns; ++c) multiply(sum[r][c], a, x[c] + 2 * s);
      }
    }
  }
}

__device__ __forceinline__ void add_tile(Sums& sum, rt_u32 tile, int row_w, int row_x, int t, const Scales& scales) {
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    if constexpr (!kScaled) {
      add_part(sum, tile, tile + kBytesW, row_w, row_x, t, p, scales);
    } else {
      Sums part = {};
      add_part(part, tile, tile + kBytesW, row_w, row_x, t, p, scales);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float scale = RtType<RT_DTYPE>::load(scales.scale[p][r][h]) * Codes::kUnits;
#pragma unroll
          for (int c = 0; c < kColumns; ++c)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; ++i) sum[r][c][i] += scale * part[r][c][i];
        }
    }
  }
}

// Rows of w lie together in y, but a product gives a lane neighbouring rows of x: sums turn in shared memory, eight
// rows of x at a time. A pitch of 4 more than a multiple of 16 sends the lanes of a store to different banks.
constexpr int kSlabPitch = kWarpN + 4;  // floats

template <typename STORE>
__device__ __forceinline__ void for_each_output(const Sums& sum, float* slab, int lane, STORE store) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        slab[((lane & 3) * 2 + (i & 1)) * kSlabPitch + r * 16 + (i >> 1) * 8 + (lane >> 2)] = sum[r][c][i];
      }
    __syncwarp();
    constexpr int kGroups = kWarpN / RT_VEC_D;  // a row
#pragma unroll
    for (int i = 0; i < (8 * kGroups + 31) / 32; ++i) {
      const int id = i * 32 + lane;
      if (8 * kGroups < 32 && id >= 8 * kGroups) break;
      const int row = id / kGroups, column = id % kGroups * RT_VEC_D;
      float v[RT_VEC_D];
      rt_read_shared<RT_VEC_D>(v, slab + row * kSlabPitch + column);
      store(v, c * 8 + row, column);
    }
  }
}

}  // namespace

// With RT_SPLIT_K > 1 the sums go to `partial`, [share][m][n], and the second kernel has the epilogue.
extern "C" __global__ void __launch_bounds__(kThreads)
    rt_gemm_wq_mma(const RtIn* __restrict__ x, const char* __restrict__ w, const RtIn* __restrict__ scales,
#if RT_ZERO
                   const signed char* __restrict__ zeros,
#endif
#if RT_SPLIT_K > 1
                   float* __restrict__ partial,
#else
#if RT_BIAS
                   const RtIn* __restrict__ bias,
#endif
                   RtOut* __restrict__ y,
#endif
                   int m, int n, int k) {
  extern __shared__ __align__(128) unsigned char memory[];
  const rt_u32 stages = static_cast<rt_u32>(__cvta_generic_to_shared(memory));
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, t = lane & 3;
  const int warp_m = warp % RT_WARPS_M * kWarpM, warp_n = warp / RT_WARPS_M * kWarpN;
  const TilePosition tile = tile_position(blockIdx.x, m, n);
  const int share = blockIdx.z;
  const KRange range = k_range(k, share);
  const int groups = kScaled ? k / kGroup : 1;

  const size_t pitch_w = static_cast<size_t>(k) * RT_WEIGHT / 8, pitch_x = static_cast<size_t>(k) * 2;
  const char* const from_w = w + tile.n * pitch_w;
  const char* const from_x = reinterpret_cast<const char*>(x) + tile.m * pitch_x;
  const auto copy = [&](int number, int stage) {
    const size_t first_w = static_cast<size_t>(number) * kPitchW, first_x = static_cast<size_t>(number) * kPitchX;
    const rt_u32 to = stages + stage * kStageBytes;
    copy_tile<RT_BN, kPitchW, true>(to, from_w + first_w, pitch_w, n - tile.n, static_cast<rt_i64>(pitch_w - first_w));
    copy_tile<RT_BM, kPitchX, false>(to + kBytesW, from_x + first_x, pitch_x, m - tile.m,
                                     static_cast<rt_i64>(pitch_x - first_x));
  };
#pragma unroll
  for (int s = 0; s < RT_STAGES - 1; ++s) {
    if (s < range.tiles) copy(range.first_tile + s, s);
    commit_async();
  }

  ScaleSource source;
  source.k = k;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Rows past n repeat the last one and are thrown away.
      const size_t row = min(tile.n + warp_n + r * 16 + h * 8 + (lane >> 2), n - 1);
      source.scales[r][h] = scales + row * groups;
#if RT_ZERO
      source.zeros[r][h] = zeros + row * groups;
#endif
    }
  Sums sum = {};
  Scales current, next;
  source.load(next, range.first_tile * RT_BK);
  int read = 0, write = RT_STAGES - 1;
#pragma unroll 1
  for (int i = 0; i < range.tiles; ++i) {
    current = next;
    if (i + 1 < range.tiles) source.load(next, (range.first_tile + i + 1) * RT_BK);
    // This tile has arrived for everyone, and everyone is done with the one before, whose buffer is refilled.
    wait_async<RT_STAGES - 2>();
    __syncthreads();
    if (i + RT_STAGES - 1 < range.tiles) copy(range.first_tile + i + RT_STAGES - 1, write);
    commit_async();
    add_tile(sum, stages + read * kStageBytes, warp_n + (lane >> 2), warp_m + (lane >> 2), t, current);
    read = read + 1 == RT_STAGES ? 0 : read + 1;
    write = write + 1 == RT_STAGES ? 0 : write + 1;
  }
  wait_async<0>();
  __syncthreads();

  if constexpr (!kScaled) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float scale = RtType<RT_DTYPE>::load(__ldg(source.scales[r][i >> 1])) * Codes::kUnits;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) sum[r][c][i] *= scale;
      }
  }
  float* const slab = reinterpret_cast<float*>(memory) + warp * 8 * kSlabPitch;
  const int row0 = tile.m + warp_m, column0 = tile.n + warp_n;
#if RT_SPLIT_K > 1
  float* const out = partial + static_cast<size_t>(share) * m * n;
  for_each_output(sum, slab, lane, [&](const float* v, int row, int column) {
    if (row0 + row >= m || column0 + column >= n) return;
    RtPack<float, RT_VEC_D> pack;
#pragma unroll
    for (int i = 0; i < RT_VEC_D; ++i) pack.value[i] = v[i];
    pack.store(out + static_cast<size_t>(row0 + row) * n + column0 + column);
  });
#else
  RtEpilogueArgs args;
#if RT_BIAS
  args.bias = bias;
#endif
  args.d = y;
  args.alpha = 1.0f;
  for_each_output(sum, slab, lane, [&](const float* v, int row, int column) {
    if (row0 + row >= m || column0 + column >= n) return;
    rt_finish<RT_VEC_D>(v, args, static_cast<size_t>(row0 + row) * n + column0 + column, column0 + column);
  });
#endif
}

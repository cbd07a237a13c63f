// Few rows of 16-bit activations times int4 or int8 weights, which are read once: for products whose time is that of
// the weights' way from memory. mma.sync, for sm_80 and later.
//
// Tiles of codes, x and scales travel by cp.async through RT_STAGES buffers, as they are stored; a tile is wide in k,
// since memory wants neighbouring bytes. Rows of w are the 16 rows of a product and rows of x its 8 columns. A product
// does not mind in which order k is summed: the four lanes that share a row of w each take the next 4, 8 or 16 bytes of
// it, as many as keep all four within a group, and the same k of x, which a warp holds in registers for all of its
// RT_ROWS blocks of 16 rows.
//
// Codes are exact integers in the product; the fp32 sum of a group is scaled. Warps share the rows of w, and k within
// every tile; their sums, and those of the RT_SPLIT_K blocks of a cluster, meet in shared memory in a fixed order.
//
// Defines: RT_DTYPE RT_OUT RT_BIAS RT_ACT RT_BETA RT_VEC_D (common/gemm_epilogue.cuh), RT_WEIGHT (bits) RT_GROUP
// RT_ZERO, RT_BM RT_ROWS RT_WARPS_N RT_WARPS_K RT_BK RT_STAGES RT_SPLIT_K, RT_BLOCKS (that run on an SM at
// once, in whose registers a block's must fit).
#include "common/async_copy.cuh"
#include "common/dequantize.cuh"
#include "common/gemm_epilogue.cuh"
#include "common/mma.cuh"

namespace {

typedef RtCodes<RT_DTYPE, RT_WEIGHT> Codes;
constexpr int kThreads = 32 * RT_WARPS_N * RT_WARPS_K;
constexpr int kBlockN = 16 * RT_ROWS * RT_WARPS_N;  // rows of w a block
constexpr int kColumns = RT_BM / 8;
constexpr bool kScaled = RT_GROUP > 0;
// Words that a lane takes of a row at once, k of the four lanes together, and 16 bytes of x that go with a lane's.
constexpr int kWords = kScaled && RT_GROUP * RT_WEIGHT < 512 ? RT_GROUP * RT_WEIGHT / 128 : 4;
constexpr int kStep = kWords * 128 / RT_WEIGHT;
constexpr int kUnits = kStep / 32;
constexpr int kShare = RT_BK / RT_WARPS_K;  // k of a tile that a warp takes
constexpr int kGroup = kScaled ? RT_GROUP : RT_BK;
constexpr int kGroups = RT_BK / kGroup;  // of a tile
// A part of a share is within a group; x of it is held in registers.
constexpr int kPart = kShare < (kScaled ? kGroup : 128) ? kShare : kScaled ? kGroup : 128;
constexpr int kSteps = kPart / kStep;
static_assert(kPart % kStep == 0 && kShare % kPart == 0 && RT_BK % kGroup == 0, "tile");

// A stage: codes, x, and of every row of w words in which the scales and zero points of a tile lie.
constexpr int kPitchW = RT_BK * RT_WEIGHT / 8;
constexpr int kPitchX = RT_BK * 2;
constexpr int kPitchScales = kScaled ? (kGroups * 2 + 5) / 4 * 4 : 0;
constexpr int kPitchZeros = kScaled && RT_ZERO ? (kGroups + 6) / 4 * 4 : 0;
constexpr int kOffsetX = kBlockN * kPitchW, kOffsetScales = kOffsetX + RT_BM * kPitchX;
constexpr int kOffsetZeros = kOffsetScales + kBlockN * kPitchScales;
constexpr int kStageBytes = (kOffsetZeros + kBlockN * kPitchZeros + 127) / 128 * 128;
static_assert(kPitchW % 128 == 0, "rows of codes");

// What lanes read at once lies in different banks. Copies are slow unless what they bring of 128 bytes stays together:
// 16 bytes change places within these.
__device__ __forceinline__ int turned(int row) { return (row & (8 / kWords - 1)) * kWords * 16; }
__device__ __forceinline__ int turned_x(int row, int line) {
  return (kUnits == 4 ? (line & 1) ^ (row & 1) * 2 : kUnits == 2 ? row & 1 : (row & 1) * 4) * 16;
}

// `each(id)` for TOTAL things, shared by the threads.
template <int TOTAL, typename EACH>
__device__ __forceinline__ void for_each_shared(EACH each) {
#pragma unroll
  for (int i = 0; i < (TOTAL + kThreads - 1) / kThreads; ++i) {
    const int id = i * kThreads + threadIdx.x;
    if (TOTAL % kThreads != 0 && id >= TOTAL) break;
    each(id);
  }
}

// What brings a block's tiles to shared memory. Rows past n are thrown away in the end; x is zero outside of it.
struct Source {
  const char* x;
  const char* w;
  const char* scales;
  const char* zeros;
  int rows_x, rows_w;  // of this block
  int k, groups;       // of a row of w
  rt_i64 first_group;  // of the block's first row

  // The words in which the next PITCH bytes at most, of `left` in a row, lie from byte `first` on.
  template <int PITCH>
  static __device__ __forceinline__ void copy_words(rt_u32 to, const char* from, rt_i64 first, int left) {
    const int before = first & 3;
#pragma unroll
    for (int i = 0; i < PITCH; i += 4) copy_async<4>(to + i, from + (first - before) + i, i < left + before);
  }

  __device__ __forceinline__ void copy(rt_u32 to, int tile) const {
    const int k_left = k - tile * RT_BK;
    constexpr int kChunks = kPitchW / 16;
    const char* const tile_w = w + static_cast<size_t>(tile) * kPitchW;
    for_each_shared<kBlockN * kChunks>([&](int id) {
      const int row = id / kChunks, chunk = id % kChunks;
      copy_async<16>(to + row * kPitchW + (chunk * 16 ^ turned(row)),
                     tile_w + (static_cast<rt_u32>(row) * (k / 8 * RT_WEIGHT) + chunk * 16),
                     row < rows_w && chunk * (128 / RT_WEIGHT) < k_left);
    });
    constexpr int kRow = RT_BK / 8;
    const char* const tile_x = x + static_cast<size_t>(tile) * (RT_BK * 2);
    for_each_shared<RT_BM * kRow>([&](int id) {
      const int row = id / kRow, chunk = id % kRow;
      copy_async<16>(to + kOffsetX + row * kPitchX + (chunk * 16 ^ turned_x(row, chunk / 8)),
                     tile_x + (static_cast<rt_u32>(row) * k + chunk * 8) * 2, row < rows_x && chunk * 8 < k_left);
    });
    if constexpr (kScaled) {
      for_each_shared<kBlockN>([&](int row) {
        const rt_i64 first = first_group + tile * kGroups + static_cast<rt_u32>(min(row, rows_w - 1)) * groups;
        const int left = groups - tile * kGroups;
        copy_words<kPitchScales>(to + kOffsetScales + row * kPitchScales, scales, first * 2, left * 2);
        if constexpr (RT_ZERO) copy_words<kPitchZeros>(to + kOffsetZeros + row * kPitchZeros, zeros, first, left);
      });
    }
  }
};

typedef float Sums[RT_ROWS][kColumns][4];

// The words of a lane.
struct alignas(kWords * 4) Words {
  rt_u32 v[kWords];
};

// What a lane reads of a stage: its corners of the codes and of x, and of the scales of row g.
struct Lane {
  const unsigned char* codes;
  const unsigned char* x;
  const unsigned char* scales;
  const unsigned char* zeros;
  int turn, turn_x;

  // Pairs of codes of unit `u`.
  static __device__ __forceinline__ void unpack(const Words& words, int u, rt_u32 offset, rt_u32* pair) {
    if constexpr (RT_WEIGHT == 4) {
      Codes::unpack(words.v[u], offset, pair);
    } else {
      Codes::unpack(words.v[2 * u], offset, pair);
      Codes::unpack(words.v[2 * u + 1], offset, pair + 2);
    }
  }

  // x of one part.
  typedef rt_u32 Activations[kSteps * kUnits][kColumns][4];
  __device__ __forceinline__ void read_x(Activations& b, int part) const {
#pragma unroll
    for (int u = 0; u < kSteps * kUnits; ++u)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        // A lane's units lie together, up to two of four lanes' in 128 bytes.
        const int byte = (part * kSteps + u / kUnits) * kUnits * 64 + u % kUnits * 16;
        const uint4 v = *reinterpret_cast<const uint4*>(x + c * 8 * kPitchX + (byte & ~127) + (turn_x ^ (byte & 127)));
        b[u][c][0] = v.x, b[u][c][1] = v.y, b[u][c][2] = v.z, b[u][c][3] = v.w;
        if constexpr (RT_WEIGHT == 4) rt_interleave(b[u][c]);
      }
  }

  // The products of one part and 16 rows to `sum`, which they begin where groups are scaled.
  __device__ __forceinline__ void multiply_rows(float (&sum)[kColumns][4], const Activations& b, int part, int r,
                                                const rt_u32 (&offset)[2]) const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int byte = (part * kSteps + s) * kWords * 16;
      Words words[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        words[h] =
            *reinterpret_cast<const Words*>(codes + (r * 16 + h * 8) * kPitchW + (byte & ~127) + (turn ^ (byte & 127)));
      }
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        rt_u32 pair[2][4];
#pragma unroll
        for (int h = 0; h < 2; ++h) unpack(words[h], u, offset[h], pair[h]);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const rt_u32 a[4] = {pair[0][2 * j], pair[1][2 * j], pair[0][2 * j + 1], pair[1][2 * j + 1]};
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            if (kScaled && s == 0 && u == 0 && j == 0) {
              multiply_fresh(sum[c], a, b[0][c]);
            } else {
              multiply(sum[c], a, b[s * kUnits + u][c] + 2 * j);
            }
          }
        }
      }
    }
  }

  // Adds the products of a tile. `last` is the last part that has a group: past the end of k there is no x.
  __device__ __forceinline__ void multiply_tile(Sums& sum, rt_u32 (&offset)[RT_ROWS][2], int last) const {
#pragma unroll
    for (int p = 0; p < kShare / kPart; ++p) {
      Activations b;
      read_x(b, p);
      const int group = min(p, last);
#pragma unroll
      for (int r = 0; r < RT_ROWS; ++r) {
        if constexpr (!kScaled) {
          multiply_rows(sum[r], b, p, r, offset[r]);
        } else {
          float scale[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int row = r * 16 + h * 8;
            scale[h] =
                RtType<RT_DTYPE>::load(*reinterpret_cast<const rt_u16*>(scales + row * kPitchScales + group * 2));
            if (RT_ZERO) {
              offset[r][h] = Codes::offset(*reinterpret_cast<const signed char*>(zeros + row * kPitchZeros + group));
            }
          }
          float part[kColumns][4];
          multiply_rows(part, b, p, r, offset[r]);
#pragma unroll
          for (int c = 0; c < kColumns; ++c)
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[r][c][i] += scale[i >> 1] * part[c][i];
        }
      }
    }
  }
};

// Sums in shared memory: [warp along k][row of x][row of w]. The pitch sends lanes of a store to different banks.
constexpr int kSlabPitch = kBlockN + 4, kSlab = RT_BM * kSlabPitch;  // floats

__device__ __forceinline__ void put(const Sums& sum, float* slab, int lane) {
#pragma unroll
  for (int r = 0; r < RT_ROWS; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        slab[(c * 8 + (lane & 3) * 2 + (i & 1)) * kSlabPitch + r * 16 + (i >> 1) * 8 + (lane >> 2)] = sum[r][c][i];
      }
}

#if RT_SPLIT_K > 1
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

// V floats of block `rank`; aligned to 16 bytes where V is a multiple of 4.
template <int V>
__device__ __forceinline__ void read_remote(float* to, const float* local, int rank) {
  rt_u32 remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(remote)
      : "r"(static_cast<rt_u32>(__cvta_generic_to_shared(local))), "r"(rank));
#pragma unroll
  for (int i = 0; i < V; i += V % 4 == 0 ? 4 : 1) {
    if constexpr (V % 4 == 0) {
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(to[i]), "=f"(to[i + 1]), "=f"(to[i + 2]), "=f"(to[i + 3])
                   : "r"(remote + i * 4));
    } else {
      asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(to[i]) : "r"(remote + i * 4));
    }
  }
}
#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, RT_BLOCKS)
    rt_gemm_wq_stream(const RtIn* __restrict__ x, const char* __restrict__ w, const RtIn* __restrict__ scales,
#if RT_ZERO
                      const signed char* __restrict__ zeros,
#endif
#if RT_BIAS
                      const RtIn* __restrict__ bias,
#endif
                      RtOut* __restrict__ y, int m, int n, int k) {
  extern __shared__ __align__(128) unsigned char memory[];
  const rt_u32 stages = static_cast<rt_u32>(__cvta_generic_to_shared(memory));
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x >> 5, 0), warp_n = warp % RT_WARPS_N,
            warp_k = warp / RT_WARPS_N;
  const int rank = blockIdx.x % RT_SPLIT_K;
  const int first_n = static_cast<int>(blockIdx.x) / RT_SPLIT_K * kBlockN, first_m = blockIdx.y * RT_BM;
  const rt_i64 k_tiles = (k + RT_BK - 1) / RT_BK;
  const int first_tile = static_cast<int>(k_tiles * rank / RT_SPLIT_K);
  const int tiles = static_cast<int>(k_tiles * (rank + 1) / RT_SPLIT_K) - first_tile;

  Source source;
  source.x = reinterpret_cast<const char*>(x + static_cast<size_t>(first_m) * k);
  source.w = w + first_n * (static_cast<size_t>(k) * RT_WEIGHT / 8);
  source.scales = reinterpret_cast<const char*>(scales);
#if RT_ZERO
  source.zeros = reinterpret_cast<const char*>(zeros);
#endif
  source.rows_x = m - first_m;
  source.rows_w = n - first_n;
  source.k = k;
  source.groups = kScaled ? k / kGroup : 1;
  source.first_group = static_cast<rt_i64>(first_n) * source.groups;
  // Blocks begin at different tiles and go round: they share x, and would all ask for the same of it at once.
  const int turn = static_cast<int>(blockIdx.x) / RT_SPLIT_K % tiles;
  const auto tile_at = [&](int i) { return first_tile + (i + turn < tiles ? i + turn : i + turn - tiles); };
#pragma unroll
  for (int s = 0; s < RT_STAGES - 1; ++s) {
    if (s < tiles) source.copy(stages + s * kStageBytes, tile_at(s));
    commit_async();
  }

  const int row_w = warp_n * 16 * RT_ROWS + g, share = warp_k * kShare * RT_WEIGHT / 8,
            first_group = warp_k * kShare / kGroup;
  rt_u32 offset[RT_ROWS][2];
#pragma unroll
  for (int r = 0; r < RT_ROWS; ++r)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int zero = Codes::kMiddle;
#if RT_ZERO
      if (!kScaled) zero = __ldg(zeros + min(first_n + row_w + r * 16 + h * 8, n - 1));
#endif
      offset[r][h] = Codes::offset(zero);
    }
  // Rows of a lane are multiples of 8 apart, so that their scales lie alike within words.
  const rt_u32 row_group = static_cast<rt_u32>(source.first_group) + static_cast<rt_u32>(row_w) * source.groups;
  Sums sum = {};
  int read = 0, write = RT_STAGES - 1;
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    // This tile has arrived for everyone, and everyone is done with the one before, whose buffer is refilled.
    wait_async<RT_STAGES - 2>();
    __syncthreads();
    if (i + RT_STAGES - 1 < tiles) source.copy(stages + write * kStageBytes, tile_at(i + RT_STAGES - 1));
    commit_async();
    const unsigned char* const stage = memory + read * kStageBytes;
    const rt_u32 tile_group = tile_at(i) * kGroups, at = row_group + tile_group;
    Lane reader;
    reader.codes = stage + row_w * kPitchW + t * kWords * 4 + (share & ~127);
    reader.turn = turned(row_w) ^ (share & 127);
    const int byte_x = warp_k * kShare * 2 + t * kUnits * 16;
    reader.x = stage + kOffsetX + g * kPitchX + (byte_x & ~127);
    reader.turn_x = (byte_x & 127) ^ turned_x(g, byte_x / 128);
    reader.scales = stage + kOffsetScales + row_w * kPitchScales + (at & 1) * 2 + first_group * 2;
    reader.zeros = stage + kOffsetZeros + row_w * kPitchZeros + (at & 3) + first_group;
    reader.multiply_tile(sum, offset, source.groups - 1 - static_cast<int>(tile_group) - first_group);
    read = read + 1 == RT_STAGES ? 0 : read + 1;
    write = write + 1 == RT_STAGES ? 0 : write + 1;
  }
  wait_async<0>();
  __syncthreads();

  float* const slabs = reinterpret_cast<float*>(memory);
  put(sum, slabs + warp_k * kSlab + warp_n * 16 * RT_ROWS, lane);
#if RT_SPLIT_K > 1
  cluster_barrier();
#else
  __syncthreads();
#endif
  RtEpilogueArgs args;
#if RT_BIAS
  args.bias = bias;
#endif
  args.d = y;
  args.alpha = Codes::kUnits;
  constexpr int kRow = kBlockN / RT_VEC_D, kTotal = RT_BM * kRow;  // stores
#pragma unroll 1
  for (int id = rank * kThreads + threadIdx.x; id < kTotal; id += RT_SPLIT_K * kThreads) {
    const int row = id / kRow, column = id % kRow * RT_VEC_D;
    if (first_m + row >= m || first_n + column >= n) continue;
    float v[RT_VEC_D] = {};
#pragma unroll
    for (int s = 0; s < RT_SPLIT_K; ++s)
#pragma unroll
      for (int j = 0; j < RT_WARPS_K; ++j) {
        float part[RT_VEC_D];
        const float* const from = slabs + j * kSlab + row * kSlabPitch + column;
#if RT_SPLIT_K > 1
        read_remote<RT_VEC_D>(part, from, s);
#else
        rt_read_shared<RT_VEC_D>(part, from);
#endif
#pragma unroll
        for (int i = 0; i < RT_VEC_D; ++i) v[i] += part[i];
      }
    if constexpr (!kScaled) {
#pragma unroll
      for (int i = 0; i < RT_VEC_D; ++i) {
        v[i] *= RtType<RT_DTYPE>::load(__ldg(scales + first_n + column + i));
      }
    }
    rt_finish<RT_VEC_D>(v, args, static_cast<size_t>(first_m + row) * n + first_n + column, first_n + column);
  }
#if RT_SPLIT_K > 1
  // Nobody's shared memory goes away while others read it.
  cluster_barrier();
#endif
}

// Tile of a GEMM by mma.sync: operands' tiles in shared memory, copied by cp.async through RT_STAGES buffers, their
// products in registers, and the way of the sums to rows. Elements of the operands, RT_BK, RT_VEC_A, RT_VEC_B and k
// count units of two bytes (common/mma.cuh). Reads RT_DTYPE RT_LAYOUT RT_BM RT_BN RT_BK RT_WARPS_M RT_WARPS_N RT_STAGES
// RT_VEC_A RT_VEC_B RT_VEC_D.
#pragma once
#include "common/async_copy.cuh"
#include "common/gemm_epilogue.cuh"
#include "common/mma.cuh"
#include "common/types.cuh"

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

  // `corner` is the first element of the tile in m or n, `extent` that dimension; k goes from k_begin to k; rows of the
  // operand in memory are `pitch` apart.
  __device__ __forceinline__ void init(const rt_u16* base, int corner, int extent, int k_begin, int k, size_t pitch) {
    const int unit = threadIdx.x;
    row = unit / kUnits;
    column = (unit % kUnits) * VEC;
    fixed_left = extent - corner;
    k_left = k - k_begin;
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
    copy_from(tile, i, source + i / kColumns * row_step);
  }
  // The same; `at` is where its row begins.
  __device__ __forceinline__ void copy_from(rt_u32 tile, int i, const char* at) const {
    const int further = (i % kColumns) * kThreads * VEC;
    const int col = column + further;
    const int r = row + i / kColumns * kRowStep;
    if (kRowStep > ROWS && row >= ROWS) return;
    const int rows_left = ALONG_K ? fixed_left : k_left;
    const int columns_left = ALONG_K ? k_left : fixed_left;
    const int chunk = (col >> 3) ^ swizzle<COLS>(r);
    const rt_u32 to = tile + r * kPitch + chunk * 16 + (col & 7) * 2;
    copy_async<VEC * 2>(to, at + further * 2, r < rows_left && col < columns_left);
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
__device__ __forceinline__ void put_block(const RtSum (&sum)[kMmaN][4], float* corner, int pitch, int lane) {
#pragma unroll
  for (int ni = 0; ni < kMmaN; ++ni) {
    float* p = corner + (lane >> 2) * pitch + ni * 8 + (lane & 3) * 2;
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = static_cast<float>(sum[ni][i]);
    *reinterpret_cast<float2*>(p) = make_float2(v[0], v[1]);
    *reinterpret_cast<float2*>(p + 8 * pitch) = make_float2(v[2], v[3]);
  }
}

// Every warp on its own, 16 rows at a time, so that only the warp itself is waited for.
constexpr int kSlabPitch = kWarpN + 8;  // floats; 8 spreads the rows over the banks

template <typename STORE>
__device__ __forceinline__ void for_each_output(const RtSum (&sum)[kMmaM][kMmaN][4], float* slab, int lane,
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

// The products of `tiles` k-tiles, which the operands bring one after the other. `stages` is the shared memory of
// RT_STAGES times kStageBytes, (warp_m, warp_n) this warp's corner; nobody uses it any more when this returns.
template <typename A, typename B>
__device__ __forceinline__ void multiply_tiles(RtSum (&sum)[kMmaM][kMmaN][4], A& copy_a, B& copy_b, int tiles,
                                               rt_u32 stages, int warp_m, int warp_n, int lane) {
#pragma unroll
  for (int s = 0; s < RT_STAGES - 1; ++s) {
    if (s < tiles) {
      const rt_u32 to = stages + s * kStageBytes;
#pragma unroll
      for (int i = 0; i < A::kCopies; ++i) copy_a.copy(to, i);
#pragma unroll
      for (int i = 0; i < B::kCopies; ++i) copy_b.copy(to + A::kBytes, i);
      copy_a.advance();
      copy_b.advance();
    }
    commit_async();
  }

  FragmentSource<A, kAAlongK, kAAlongK ? RT_BK : RT_BM, true> from_a;
  FragmentSource<B, kBAlongK, kBAlongK ? RT_BK : RT_BN, false> from_b;
  from_a.init(warp_m, lane);
  from_b.init(warp_n, lane);

#pragma unroll
  for (int mi = 0; mi < kMmaM; ++mi)
#pragma unroll
    for (int ni = 0; ni < kMmaN; ++ni)
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[mi][ni][j] = 0;

  Fragments fragments[2];
  auto load_fragments = [&](Fragments& f, rt_u32 stage, int step) {
#pragma unroll
    for (int mi = 0; mi < kMmaM; ++mi) from_a.load(f.a[mi], stage, mi, step);
#pragma unroll
    for (int ni = 0; ni < kMmaN / 2; ++ni) from_b.load(f.b[ni], stage + A::kBytes, ni, step);
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
          for (int i = 0; i < A::kCopies; ++i)
            if (i * kSpread / A::kCopies == step) copy_a.copy(write, i);
#pragma unroll
          for (int i = 0; i < B::kCopies; ++i)
            if (i * kSpread / B::kCopies == step) copy_b.copy(write + A::kBytes, i);
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
}

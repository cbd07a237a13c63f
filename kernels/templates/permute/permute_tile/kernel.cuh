// Permutation whose innermost axis changes: tiles of X (innermost in the source) by Y (innermost in the output),
// transposed in registers, RT_VEC × RT_VEC elements a thread, so that loads and stores are vectors of RT_VEC.
//
// Defines: RT_DTYPE; RT_PERM, RT_RANK (common/permute.cuh); RT_BLOCK threads a block; RT_VEC, a divisor of both
// innermost extents; RT_LANES_X threads side by side along X; RT_ITEMS squares a thread holds, along Y; RT_STAGED (1
// the tile goes through shared memory, so that a warp stores whole rows of it; 0 each thread stores its own); RT_ORDER
// (0 neighbouring blocks along X, 1 along Y). At most 2^31 tiles.
#include "common/permute.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
// A vector in shared memory, moved by one instruction.
struct alignas(4 * Vector::kWords) Slot {
  Vector v;
};

constexpr int kX = kRtGroups.count - 1;
constexpr int kY = kRtGroups.source[kRtGroups.count - 1];
static_assert(kX != kY, "the innermost axis changes");
constexpr int kLanesY = RT_BLOCK / RT_LANES_X;
constexpr int kTileX = RT_LANES_X * RT_VEC;
constexpr int kVectorsY = kLanesY * RT_ITEMS;  // of a row of the tile along Y
constexpr int kTileY = kVectorsY * RT_VEC;

// out[i] = element i of every vector of `in`.
__device__ __forceinline__ void transpose(const Vector (&in)[RT_VEC], Vector (&out)[RT_VEC]) {
  if constexpr (RT_DTYPE == RT_FP32 || RT_VEC == 1) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) {
#pragma unroll
      for (int r = 0; r < RT_VEC; ++r) out[i].word[r] = in[r].word[i];
    }
  } else if constexpr (sizeof(Store) == 1) {
#pragma unroll
    for (int i = 0; i < RT_VEC; i += 4) {
#pragma unroll
      for (int r = 0; r < RT_VEC; r += 4) {
        const rt_u32 rows[4] = {in[r].word[i / 4], in[r + 1].word[i / 4], in[r + 2].word[i / 4], in[r + 3].word[i / 4]};
        rt_u32 columns[4];
        rt_transpose_bytes(rows, columns);
#pragma unroll
        for (int c = 0; c < 4; ++c) out[i + c].word[r / 4] = columns[c];
      }
    }
  } else {
    // Two by two: the lower and the upper halves of a pair of words.
#pragma unroll
    for (int i = 0; i < RT_VEC; i += 2) {
#pragma unroll
      for (int r = 0; r < RT_VEC; r += 2) {
        out[i].word[r / 2] = __byte_perm(in[r].word[i / 2], in[r + 1].word[i / 2], 0x5410);
        out[i + 1].word[r / 2] = __byte_perm(in[r].word[i / 2], in[r + 1].word[i / 2], 0x7632);
      }
    }
  }
}

struct Tile {
  RtOffsets at;
  // Elements that are left from its corner.
  rt_i64 x, y;
};

__device__ __forceinline__ Tile tile_at(const RtLayout& layout, rt_u32 index) {
  const rt_u32 tiles_x = static_cast<rt_u32>((layout.extent[kX] + kTileX - 1) / kTileX);
  const rt_u32 tiles_y = static_cast<rt_u32>((layout.extent[kY] + kTileY - 1) / kTileY);
  const rt_u32 inner = RT_ORDER == 0 ? tiles_x : tiles_y, outer = RT_ORDER == 0 ? tiles_y : tiles_x;
  const rt_u32 rest = index / inner, batch = rest / outer;
  const rt_u32 i = index - rest * inner, o = rest - batch * outer;
  const rt_i64 x = static_cast<rt_i64>(RT_ORDER == 0 ? i : o) * kTileX;
  const rt_i64 y = static_cast<rt_i64>(RT_ORDER == 0 ? o : i) * kTileY;
  RtOffsets at = rt_offsets<kX, kY>(layout, batch);
  at.from += x + y * layout.from[kY];
  at.to += x * layout.to[kX] + y;
  return {at, layout.extent[kX] - x, layout.extent[kY] - y};
}

__device__ __forceinline__ void move_tile(const Store* from, Store* to, const Tile& tile, const RtLayout& layout,
                                          Slot* shared) {
  const int lane_x = static_cast<int>(threadIdx.x) % RT_LANES_X, lane_y = static_cast<int>(threadIdx.x) / RT_LANES_X;
  const int x = lane_x * RT_VEC;
  Vector in[RT_ITEMS][RT_VEC];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    const int y = (k * kLanesY + lane_y) * RT_VEC;
    if (x >= tile.x || y >= tile.y) continue;
#pragma unroll
    for (int r = 0; r < RT_VEC; ++r) in[k][r].load(from + (y + r) * layout.from[kY] + x);
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    const int column = k * kLanesY + lane_y;
    Vector out[RT_VEC];
    transpose(in[k], out);
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) {
#if RT_STAGED
      // Columns are exchanged by lane_x, so that lanes along X, whose rows lie a multiple of all banks apart, meet
      // different banks.
      shared[(x + i) * kVectorsY + (column ^ lane_x % kVectorsY)].v = out[i];
#else
      if (x < tile.x && column * RT_VEC < tile.y) out[i].store(to + (x + i) * layout.to[kX] + column * RT_VEC);
#endif
    }
  }
#if RT_STAGED
  __syncthreads();
#pragma unroll
  for (int k = 0; k < RT_ITEMS * RT_VEC; ++k) {
    const int at = k * RT_BLOCK + static_cast<int>(threadIdx.x);
    const int row = at / kVectorsY, column = at % kVectorsY;
    if (row >= tile.x || column * RT_VEC >= tile.y) continue;
    const Slot slot = shared[row * kVectorsY + (column ^ row / RT_VEC % kVectorsY)];
    slot.v.store(to + row * layout.to[kX] + column * RT_VEC);
  }
  __syncthreads();
#endif
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK)
    rt_permute_tile(const Store* x, Store* y, rt_i64 d0, rt_i64 d1, rt_i64 d2, rt_i64 d3, rt_i64 d4,
                    rt_i64 d5, rt_i64 d6, rt_i64 d7) {
#if RT_STAGED
  __shared__ Slot shared[kTileX * kVectorsY];
#else
  Slot* const shared = nullptr;
#endif
  const rt_i64 extent[kRtMaxAxes] = {d0, d1, d2, d3, d4, d5, d6, d7};
  const RtLayout layout = rt_layout(extent);
  const rt_i64 tiles = d0 * d1 * d2 * d3 * d4 * d5 * d6 * d7 / (layout.extent[kX] * layout.extent[kY]) *
                       ((layout.extent[kX] + kTileX - 1) / kTileX) * ((layout.extent[kY] + kTileY - 1) / kTileY);
  // The grid is an estimate: axes that merge make fewer tiles, ragged ones more.
  for (rt_i64 index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = tile_at(layout, static_cast<rt_u32>(index));
    move_tile(x + tile.at.from, y + tile.at.to, tile, layout, shared);
  }
}

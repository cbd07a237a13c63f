// Boxes of a tensor that change their order on the way through shared memory. X is a run of axes in one piece in the
// source, Y a run of axes in one piece in the output, each taken as one long axis of units, however short the single
// axes are. A box of RT_TILE_X by RT_TILE_Y units is read along X in wide asynchronous copies, gathered along Y unit by
// unit from shared memory, and stored along Y in wide vectors. What hides the latency is that an SM holds many blocks,
// each with one box: blocks with a pipeline of boxes, which need more memory and barriers, took 5 % longer on an H200.
//
// Defines: RT_DTYPE; RT_UNIT elements that are neighbours in both tensors; RT_BLOCK threads a block; RT_RESIDENT blocks
// an SM must have registers for; RT_TILE_X and RT_TILE_Y units of a box; RT_ORDER (0 neighbouring blocks along X, 1
// along Y). At most 2^31 boxes and 2^32 units.
#pragma once

#include "common/layout.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

// Axes, the innermost first.
struct RtAxes {
  int count;
  int axis[kRtMaxAxes];
};
// What is an axis for; the unit's own axis has no role.
struct RtRoles {
  RtAxes x, y, rest;
};

// The largest power of two that divides n, at most 16.
constexpr int rt_even_part(rt_i64 n) {
  int even = 1;
  while (even < 16 && n % (2 * even) == 0) even *= 2;
  return even;
}
constexpr int rt_least(int a, int b) { return a < b ? a : b; }

// View::kRoles says what the axes are for, layout() where they are, with extents in units. View::kEvenX and kEvenY,
// powers of two, divide the distances, in elements, between runs of X in the source and of Y in the output.
template <typename View>
class RtBoxes {
 public:
  typedef typename RtType<RT_DTYPE>::Store Store;

 private:
  static constexpr int kElementBytes = static_cast<int>(sizeof(Store));
  static constexpr int kUnitBytes = RT_UNIT * kElementBytes;
  static constexpr int kRowBytes = RT_TILE_X * kUnitBytes;

  // A store takes several units, where those are a power of two of bytes, or part of one.
  static constexpr int kPart = (kUnitBytes & (kUnitBytes - 1)) == 0 ? 16 : rt_even_part(kUnitBytes);
  static constexpr int kEvenY = rt_even_part(static_cast<rt_i64>(View::kEvenY) * kElementBytes);
  static constexpr int kStore = rt_least(kPart, rt_least(kEvenY, rt_even_part(RT_TILE_Y * kUnitBytes)));
  static constexpr int kUnits = kUnitBytes < kStore ? kStore / kUnitBytes : 1;
  static constexpr int kParts = kUnitBytes < kStore ? 1 : kUnitBytes / kStore;
  static constexpr int kPieceBytes = rt_least(kUnitBytes, kStore);
  // Pieces of less than a word are gathered word by word, for as many columns at once.
  static constexpr int kColumns = kPieceBytes < 4 && kStore >= 4 ? 4 / kPieceBytes : 1;
  // The rows of one store lie together, and those of the next as much further as a store is wide: neighbours along Y
  // meet different banks.
  static constexpr int kPad = kUnits * kUnitBytes < 4 ? 4 : kUnits * kUnitBytes;
  static constexpr int kBoxBytes = (RT_TILE_Y * kRowBytes + RT_TILE_Y / kUnits * kPad + 15) / 16 * 16;
  static constexpr int kEvenX = rt_even_part(static_cast<rt_i64>(View::kEvenX) * kElementBytes);
  static constexpr int kLoad = rt_least(kEvenX, rt_least(rt_even_part(kRowBytes), rt_even_part(kPad)));

  // A warp stores 128 bytes along Y, if there are as many, of as many columns as that takes.
  static constexpr int kStoresY = RT_TILE_Y * kUnitBytes / kStore;
  static constexpr int kLanesY = rt_least(kStoresY & -kStoresY, rt_least(32, 128 / kStore));
  static constexpr int kLanesX = 32 / kLanesY;
  static constexpr int kGathers = RT_TILE_X / kColumns * kStoresY;
  static constexpr int kLoadsX = kRowBytes / kLoad;
  static constexpr int kLoads = (RT_TILE_Y * kLoadsX + RT_BLOCK - 1) / RT_BLOCK;
  static_assert(RT_TILE_X % (kLanesX * kColumns) == 0, "a warp stores whole columns");

  // Where the rows of a box begin in the source and its columns in the output, in elements; −1 past the end.
  struct Table {
    rt_i64 from[RT_TILE_Y];  // in the order of loading
    rt_i64 to[RT_TILE_X];
    int row[RT_TILE_Y];  // of the box, what `from` is for
    int width, height;  // of the box, in units; less at the end
  };
  struct Shared {
    alignas(16) rt_u8 box[kBoxBytes];
    Table table;
  };
  // Where a row of a box is in shared memory.
  static __device__ __forceinline__ int row_at(int y) { return y * kRowBytes + y / kUnits * kPad; }

  enum Role { kX, kY, kRest };
  template <Role ROLE>
  static constexpr RtAxes kAxes = ROLE == kX ? View::kRoles.x : ROLE == kY ? View::kRoles.y : View::kRoles.rest;

  template <Role ROLE>
  static __device__ __forceinline__ rt_u32 extent_of(const RtLayout& s) {
    rt_u32 extent = 1;
#pragma unroll
    for (int i = 0; i < kAxes<ROLE>.count; ++i) extent *= static_cast<rt_u32>(s.extent[kAxes<ROLE>.axis[i]]);
    return extent;
  }

  template <Role ROLE>
  static __device__ __forceinline__ void add_offsets(const RtLayout& s, rt_u32 index, rt_i64* from, rt_i64* to) {
#pragma unroll
    for (int i = 0; i < kAxes<ROLE>.count; ++i) {
      const int axis = kAxes<ROLE>.axis[i];
      const rt_u32 extent = static_cast<rt_u32>(s.extent[axis]);
      const rt_u32 next = i + 1 < kAxes<ROLE>.count ? index / extent : 0;
      const rt_i64 coordinate = index - next * extent;
      *from += coordinate * s.from[axis];
      *to += coordinate * s.to[axis];
      index = next;
    }
  }

  // Rows are loaded in the order of the source, as far as Y's two innermost axes tell, if a box holds the first of them
  // whole.
  static __device__ __forceinline__ rt_u32 row_to_load(const RtLayout& s, rt_u32 i) {
    if constexpr (kAxes<kY>.count > 1) {
      constexpr int kInner = kAxes<kY>.axis[0], kOuter = kAxes<kY>.axis[1];
      if (s.from[kOuter] > s.from[kInner]) return i;
      const rt_u32 inner = static_cast<rt_u32>(s.extent[kInner]), outer = RT_TILE_Y / inner;
      if (outer * inner == RT_TILE_Y) return i % outer * inner + i / outer;
    }
    return i;
  }

  // False past the last box.
  static __device__ __forceinline__ bool fill_table(const RtLayout& s, rt_u32 index, Table* table) {
    const rt_u32 extent_x = extent_of<kX>(s), extent_y = extent_of<kY>(s);
    const rt_u32 boxes_x = (extent_x + RT_TILE_X - 1) / RT_TILE_X, boxes_y = (extent_y + RT_TILE_Y - 1) / RT_TILE_Y;
    if (index >= boxes_x * boxes_y * extent_of<kRest>(s)) return false;
    const rt_u32 inner = RT_ORDER == 0 ? boxes_x : boxes_y, outer = RT_ORDER == 0 ? boxes_y : boxes_x;
    const rt_u32 line = index / inner, rest = line / outer;
    const rt_u32 first_i = index - line * inner, first_o = line - rest * outer;
    const rt_u32 first_x = (RT_ORDER == 0 ? first_i : first_o) * RT_TILE_X;
    const rt_u32 first_y = (RT_ORDER == 0 ? first_o : first_i) * RT_TILE_Y;
    rt_i64 box_from = static_cast<rt_i64>(first_x) * RT_UNIT, box_to = static_cast<rt_i64>(first_y) * RT_UNIT;
    add_offsets<kRest>(s, rest, &box_from, &box_to);
#pragma unroll 1
    for (rt_u32 i = threadIdx.x; i < RT_TILE_X + RT_TILE_Y; i += RT_BLOCK) {
      rt_i64 from = box_from, to = box_to;
      if (i < RT_TILE_Y) {
        const rt_u32 row = row_to_load(s, i);
        const rt_u32 y = first_y + row;
        add_offsets<kY>(s, y, &from, &to);
        table->from[i] = y < extent_y ? from : -1;
        table->row[i] = static_cast<int>(row);
      } else {
        const rt_u32 x = first_x + i - RT_TILE_Y;
        add_offsets<kX>(s, x, &from, &to);
        table->to[i - RT_TILE_Y] = x < extent_x ? to : -1;
      }
    }
    if (threadIdx.x == 0) {
      table->width = static_cast<int>(extent_x - first_x < RT_TILE_X ? extent_x - first_x : RT_TILE_X);
      table->height = static_cast<int>(extent_y - first_y < RT_TILE_Y ? extent_y - first_y : RT_TILE_Y);
    }
    return true;
  }

  static __device__ __forceinline__ void copy_async(rt_u8* to, const rt_u8* from) {
    const rt_u32 shared = static_cast<rt_u32>(__cvta_generic_to_shared(to));
    if constexpr (kLoad == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
    } else if constexpr (kLoad >= 4) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(kLoad) : "memory");
    } else {
      // There is no asynchronous copy of less than a word.
      rt_u32 word;
      rt_load<kLoad>(from, &word);
      if constexpr (kLoad == 2) {
        *reinterpret_cast<rt_u16*>(to) = static_cast<rt_u16>(word);
      } else {
        *to = static_cast<rt_u8>(word);
      }
    }
  }

  static __device__ __forceinline__ void load_box(const Store* x, const Table& table, rt_u8* box) {
    const int width = table.width * kUnitBytes;
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const int i = k * RT_BLOCK + static_cast<int>(threadIdx.x), number = i / kLoadsX, at = i % kLoadsX * kLoad;
      if (RT_TILE_Y * kLoadsX % RT_BLOCK != 0 && number >= RT_TILE_Y) continue;
      const rt_i64 from = table.from[number];
      if (from < 0 || at >= width) continue;
      copy_async(box + row_at(table.row[number]) + at, reinterpret_cast<const rt_u8*>(x + from) + at);
    }
  }

  // BYTES at `p`, in words.
  template <int BYTES>
  static __device__ __forceinline__ void get(const rt_u8* p, rt_u32* word) {
    if constexpr (BYTES == 1) *word = *p;
    if constexpr (BYTES == 2) *word = *reinterpret_cast<const rt_u16*>(p);
    if constexpr (BYTES == 4) *word = *reinterpret_cast<const rt_u32*>(p);
    if constexpr (BYTES == 8) {
      const uint2 v = *reinterpret_cast<const uint2*>(p);
      word[0] = v.x, word[1] = v.y;
    }
    if constexpr (BYTES == 16) {
      const uint4 v = *reinterpret_cast<const uint4*>(p);
      word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
    }
  }

  // What the stores of kColumns neighbouring columns take, from `p` on.
  static constexpr int kStoreWords = kStore < 4 ? 1 : kStore / 4;
  static __device__ __forceinline__ void gather(const rt_u8* p, rt_u32 (&out)[kColumns][kStoreWords]) {
    constexpr int kBytes = kPieceBytes * kColumns;
    constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
    rt_u32 in[kUnits][kWords];
#pragma unroll
    for (int j = 0; j < kUnits; ++j) get<kBytes>(p + j * kRowBytes, in[j]);
    if constexpr (kColumns == 1) {
#pragma unroll
      for (int i = 0; i < kStoreWords; ++i) out[0][i] = in[i / kWords][i % kWords];
    } else if constexpr (kColumns == 2) {
#pragma unroll
      for (int i = 0; i < kStoreWords; ++i) {
        out[0][i] = __byte_perm(in[2 * i][0], in[2 * i + 1][0], 0x5410);
        out[1][i] = __byte_perm(in[2 * i][0], in[2 * i + 1][0], 0x7632);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kStoreWords; ++i) {
        const rt_u32 rows[4] = {in[4 * i][0], in[4 * i + 1][0], in[4 * i + 2][0], in[4 * i + 3][0]};
        rt_u32 columns[4];
        rt_transpose_bytes(rows, columns);
#pragma unroll
        for (int c = 0; c < 4; ++c) out[c][i] = columns[c];
      }
    }
  }

  static __device__ __forceinline__ void store_box(Store* y, const Table& table, const rt_u8* box) {
    constexpr int kGroups = kStoresY / kLanesY;  // of lanes along a column
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int height = table.height;
#pragma unroll
    for (int k = 0; k < (kGathers + RT_BLOCK - 1) / RT_BLOCK; ++k) {
      const int group = k * (RT_BLOCK / 32) + warp;
      const int column = (group / kGroups * kLanesX + lane / kLanesY) * kColumns;
      if (kGathers % RT_BLOCK != 0 && column >= RT_TILE_X) continue;
      const int at = group % kGroups * kLanesY + lane % kLanesY, row = at / kParts * kUnits;
      if (row >= height) continue;
      rt_u32 word[kColumns][kStoreWords];
      gather(box + row_at(row) + column * kUnitBytes + at % kParts * kStore, word);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const rt_i64 to = table.to[column + c];
        if (to >= 0) rt_store<kStore>(reinterpret_cast<rt_u8*>(y + to) + at * kStore, word[c]);
      }
    }
  }

 public:
  // Moves the whole tensor. The grid is an estimate: ragged boxes are more.
  static __device__ __forceinline__ void move(const Store* x, Store* y, const View& view) {
    __shared__ Shared shared;
    for (rt_u32 index = blockIdx.x; fill_table(view.layout(), index, &shared.table); index += gridDim.x) {
      __syncthreads();
      load_box(x, shared.table, shared.box);
      asm volatile("cp.async.wait_all;" ::: "memory");
      __syncthreads();
      store_box(y, shared.table, shared.box);
      __syncthreads();
    }
  }
};

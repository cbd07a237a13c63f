// Permutation through boxes in shared memory, for short axes: X is the run of innermost axes of the source, Y that of the
// output, each taken as one long axis, so that loads are in one piece along X and stores along Y however short the
// single axes are (patches of a video, channels first to channels last).
//
// Defines: RT_DTYPE; RT_PERM, RT_RANK (common/permute.cuh); RT_UNIT elements that move together: the extent of an
// innermost axis that stays, at most 16 bytes, or 1; RT_BLOCK threads a block; RT_TILE_X and RT_TILE_Y units of a box.
// At most 2^31 boxes and 2^32 units.
#include "common/permute.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_UNIT> Unit;
typedef Unit::Store Store;

// The groups of axes (source numbers) by what they are; without the one that is the unit.
struct Roles {
  bool in_x[kRtMaxAxes];
  bool in_y[kRtMaxAxes];
  int count;
};
constexpr Roles roles() {
  Roles roles = {};
  const int last = kRtGroups.count - 1;
  roles.count = kRtGroups.source[last] == last ? last : last + 1;
  const int innermost = roles.count - 1;
  for (int o = innermost; o >= 0 && kRtGroups.source[o] != innermost; --o) roles.in_y[kRtGroups.source[o]] = true;
  for (int s = innermost; s >= 0 && !roles.in_y[s]; --s) roles.in_x[s] = true;
  return roles;
}
constexpr Roles kRoles = roles();
static_assert(kRoles.count >= 2, "something moves");
static_assert(RT_UNIT == 1 || kRoles.count < kRtGroups.count, "a unit of several elements is an axis that stays");

// A unit in shared memory takes its own bytes; rows of a box are an odd number of 32-bit words, or of units if those
// are wider, apart, so that neighbours along Y meet different banks.
constexpr int kPad = Unit::kBytes >= 4 ? 1 : 4 / Unit::kBytes;
constexpr int kRow = RT_TILE_X + kPad;
constexpr int kItems = RT_TILE_X * RT_TILE_Y / RT_BLOCK;

struct Shared {
  rt_u32 from[RT_TILE_Y];  // of rows of the box, in the source, in units
  rt_u32 to[RT_TILE_X];    // of columns, in the output
  alignas(16) rt_u8 box[RT_TILE_Y * kRow * Unit::kBytes];
};

__device__ __forceinline__ void put(Shared& shared, int at, const Unit& unit) {
  rt_u8* const p = shared.box + at * Unit::kBytes;
  if constexpr (Unit::kBytes == 1) *p = static_cast<rt_u8>(unit.word[0]);
  if constexpr (Unit::kBytes == 2) *reinterpret_cast<rt_u16*>(p) = static_cast<rt_u16>(unit.word[0]);
  if constexpr (Unit::kBytes == 4) *reinterpret_cast<rt_u32*>(p) = unit.word[0];
  if constexpr (Unit::kBytes == 8) *reinterpret_cast<uint2*>(p) = {unit.word[0], unit.word[1]};
  if constexpr (Unit::kBytes == 16) {
    *reinterpret_cast<uint4*>(p) = {unit.word[0], unit.word[1], unit.word[2], unit.word[3]};
  }
}
__device__ __forceinline__ Unit get(const Shared& shared, int at) {
  const rt_u8* const p = shared.box + at * Unit::kBytes;
  Unit unit;
  if constexpr (Unit::kBytes == 1) unit.word[0] = *p;
  if constexpr (Unit::kBytes == 2) unit.word[0] = *reinterpret_cast<const rt_u16*>(p);
  if constexpr (Unit::kBytes == 4) unit.word[0] = *reinterpret_cast<const rt_u32*>(p);
  if constexpr (Unit::kBytes == 8) {
    const uint2 v = *reinterpret_cast<const uint2*>(p);
    unit.word[0] = v.x, unit.word[1] = v.y;
  }
  if constexpr (Unit::kBytes == 16) {
    const uint4 v = *reinterpret_cast<const uint4*>(p);
    unit.word[0] = v.x, unit.word[1] = v.y, unit.word[2] = v.z, unit.word[3] = v.w;
  }
  return unit;
}

// What the groups of a role have in common.
enum Role { kX, kY, kRest };
template <Role ROLE>
__device__ __forceinline__ constexpr bool has(int group) {
  return ROLE == kX ? kRoles.in_x[group] : ROLE == kY ? kRoles.in_y[group] : !kRoles.in_x[group] && !kRoles.in_y[group];
}
template <Role ROLE>
__device__ __forceinline__ rt_u32 extent_of(const RtLayout& layout) {
  rt_u32 extent = 1;
#pragma unroll
  for (int g = 0; g < kRoles.count; ++g) {
    if (has<ROLE>(g)) extent *= static_cast<rt_u32>(layout.extent[g]);
  }
  return extent;
}
// Offsets of number `index` of a role, in units, groups in the order of the source (X) or the output (others).
template <Role ROLE>
__device__ __forceinline__ RtOffsets offsets_of(const RtLayout& layout, rt_u32 index) {
  RtOffsets at = {0, 0};
#pragma unroll
  for (int i = kRoles.count - 1; i >= 0; --i) {
    const int g = ROLE == kX ? i : kRtGroups.source[i];
    if (!has<ROLE>(g)) continue;
    const rt_u32 extent = static_cast<rt_u32>(layout.extent[g]);
    const rt_u32 next = index / extent;
    const rt_i64 coordinate = index - next * extent;
    at.from += coordinate * (layout.from[g] / RT_UNIT);
    at.to += coordinate * (layout.to[g] / RT_UNIT);
    index = next;
  }
  return at;
}

struct Box {
  RtOffsets at;  // of the coordinates that are neither X nor Y
  rt_u32 x, y;   // first along each
};

__device__ __forceinline__ void move_box(const Store* from, Store* to, const Box& box, rt_u32 left_x, rt_u32 left_y,
                                         const RtLayout& layout, Shared& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < RT_TILE_X + RT_TILE_Y; i += RT_BLOCK) {
    if (i < RT_TILE_Y) {
      shared.from[i] = static_cast<rt_u32>(offsets_of<kY>(layout, box.y + i).from);
    } else {
      shared.to[i - RT_TILE_Y] = static_cast<rt_u32>(offsets_of<kX>(layout, box.x + i - RT_TILE_Y).to);
    }
  }
  __syncthreads();
  from += (box.at.from + box.x) * RT_UNIT;
  to += (box.at.to + box.y) * RT_UNIT;
  Unit held[kItems];
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const rt_u32 i = k * RT_BLOCK + threadIdx.x, x = i % RT_TILE_X, y = i / RT_TILE_X;
    if (x < left_x && y < left_y) held[k].load_stream(from + (static_cast<rt_i64>(shared.from[y]) + x) * RT_UNIT);
  }
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const rt_u32 i = k * RT_BLOCK + threadIdx.x, x = i % RT_TILE_X, y = i / RT_TILE_X;
    put(shared, static_cast<int>(y * kRow + x), held[k]);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const rt_u32 i = k * RT_BLOCK + threadIdx.x, y = i % RT_TILE_Y, x = i / RT_TILE_Y;
    if (x >= left_x || y >= left_y) continue;
    const Unit unit = get(shared, static_cast<int>(y * kRow + x));
    unit.store_stream(to + (static_cast<rt_i64>(shared.to[x]) + y) * RT_UNIT);
  }
  __syncthreads();
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK)
    rt_permute_box(const Store* x, Store* y, rt_i64 d0, rt_i64 d1, rt_i64 d2, rt_i64 d3, rt_i64 d4,
                   rt_i64 d5, rt_i64 d6, rt_i64 d7) {
  __shared__ Shared shared;
  const rt_i64 extent[kRtMaxAxes] = {d0, d1, d2, d3, d4, d5, d6, d7};
  const RtLayout layout = rt_layout(extent);
  const rt_u32 extent_x = extent_of<kX>(layout), extent_y = extent_of<kY>(layout);
  const rt_u32 boxes_x = (extent_x + RT_TILE_X - 1) / RT_TILE_X, boxes_y = (extent_y + RT_TILE_Y - 1) / RT_TILE_Y;
  const rt_u32 boxes = boxes_x * boxes_y * extent_of<kRest>(layout);
  // Along X first: neighbouring blocks read neighbouring pieces. The grid is an estimate.
  for (rt_u32 index = blockIdx.x; index < boxes; index += gridDim.x) {
    const rt_u32 row = index / boxes_x, batch = row / boxes_y;
    const Box box = {offsets_of<kRest>(layout, batch), (index - row * boxes_x) * RT_TILE_X,
                     (row - batch * boxes_y) * RT_TILE_Y};
    move_box(x, y, box, extent_x - box.x, extent_y - box.y, layout, shared);
  }
}

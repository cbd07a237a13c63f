// Quantisation with a scale for each group of neighbours in a row, or with one that is given.
//
// Defines: RT_DTYPE; RT_QTYPE; RT_GROUP (32, 64 or 128 elements, divisors of a row; 0: the scale is given); RT_COLUMN
// (scales as [groups of a row, rows rounded up to 4] instead of [rows, groups of a row]); RT_POW2 (scales are powers of
// two); RT_BLOCK threads a block; RT_VEC elements a vector, a divisor of a row; RT_ITEMS vectors that a thread loads
// before it computes; RT_ROWS rows of a tile (RT_COLUMN; else tiles run on over the ends of rows).
//
// The lanes that hold a group are neighbours in a warp, and find its largest element by shuffles.
#include "common/quantized.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

// Tiles inside the tensor, where none of their elements is clamped, have a path of their own.
#define RT_WHOLE_TILES (RT_GROUP && !RT_COLUMN && !RT_POW2 && (RT_QTYPE == RT_INT4 || RT_QTYPE == RT_INT8))

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
constexpr int kTile = RT_BLOCK * RT_ITEMS;  // vectors

// The tensor in vectors; `groups` and `rows` only where there are groups.
struct Shape {
  rt_i64 vectors;
  rt_u32 groups;  // of a row
  rt_u32 rows;
};

#if RT_GROUP
constexpr int kLanes = RT_GROUP / RT_VEC;  // of a group
static_assert(kLanes >= 1 && kLanes <= 32, "a group lies in one warp");
#endif

#if RT_COLUMN
constexpr int kTileGroups = kTile / kLanes / RT_ROWS;  // of each row of a tile
static_assert(kTileGroups >= 1, "a tile has a group of each of its rows");

// Vector number k of this thread in tile `tile`. Groups of neighbouring lanes lie below each other, so that their
// scales lie side by side.
struct Spot {
  rt_u32 row, group;
  bool inside;
  rt_i64 vector;
  __device__ __forceinline__ Spot(const Shape& shape, rt_i64 tile, int k) {
    const rt_u32 across = (shape.groups + kTileGroups - 1) / kTileGroups;
    const rt_u32 number = (k * RT_BLOCK + threadIdx.x) / kLanes;
    row = static_cast<rt_u32>(tile) / across * RT_ROWS + number % RT_ROWS;
    group = static_cast<rt_u32>(tile) % across * kTileGroups + number / RT_ROWS;
    inside = row < shape.rows && group < shape.groups;
    vector = (static_cast<rt_i64>(row) * shape.groups + group) * kLanes + threadIdx.x % kLanes;
  }
  // Zeros behind the last row.
  __device__ __forceinline__ void write(float* scales, const Shape& shape, float scale) const {
    const rt_u32 padded = (shape.rows + 3) / 4 * 4;
    float* const to = scales + static_cast<rt_i64>(group) * padded + row;
    *to = scale;
    if (row + 1 != shape.rows) return;
    for (rt_u32 i = 1; row + i < padded; ++i) to[i] = 0.0f;
  }
};
__device__ __forceinline__ rt_i64 tiles(const Shape& shape) {
  return static_cast<rt_i64>((shape.rows + RT_ROWS - 1) / RT_ROWS) * ((shape.groups + kTileGroups - 1) / kTileGroups);
}
#else
struct Spot {
  bool inside;
  rt_i64 vector;
  __device__ __forceinline__ Spot(const Shape& shape, rt_i64 tile, int k) {
    vector = tile * kTile + k * RT_BLOCK + threadIdx.x;
    inside = vector < shape.vectors;
  }
#if RT_GROUP
  __device__ __forceinline__ void write(float* scales, const Shape&, float scale) const {
    scales[vector / kLanes] = scale;
  }
#endif
};
__device__ __forceinline__ rt_i64 tiles(const Shape& shape) { return (shape.vectors + kTile - 1) / kTile; }
#endif

__device__ __forceinline__ void to_floats(const Vector& in, float (&v)[RT_VEC]) {
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) v[i] = in.get(i);
}

__device__ __forceinline__ void* place(rt_u8* q, rt_i64 vector) {
  return q + vector * RtQuantized<RT_QTYPE, RT_VEC>::kBits / 8;
}

#if RT_GROUP
// A group's largest element, in all lanes that hold it.
__device__ __forceinline__ float largest_of_group(float largest) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, offset));
  }
  return largest;
}
#endif

#if RT_WHOLE_TILES
template <bool WITHIN>
__device__ __forceinline__ void store_tile(const float (&v)[RT_ITEMS][RT_VEC], const float (&inverse)[RT_ITEMS],
                                           rt_u8* q, const Shape& shape, rt_i64 tile) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    rt_store_quantized<RT_QTYPE, WITHIN>(v[k], inverse[k], place(q, Spot(shape, tile, k).vector));
  }
}

// With no question at each vector, the shuffles of all of them are under way together.
__device__ __forceinline__ void quantize_whole_tile(const Store* x, rt_u8* q, float* scales, float amax_floor,
                                                    const Shape& shape, rt_i64 tile) {
  Vector in[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) in[k].load(x + Spot(shape, tile, k).vector * RT_VEC);
  float v[RT_ITEMS][RT_VEC], largest[RT_ITEMS], inverse[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) to_floats(in[k], v[k]);
  const bool within = rt_largest_within(v, largest);
  float* const own = scales + tile * (kTile / kLanes) + threadIdx.x / kLanes;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    const RtScale s = rt_scale_of<RT_QTYPE, false>(fmaxf(largest_of_group(largest[k]), amax_floor));
    inverse[k] = s.inverse;
    if (threadIdx.x % kLanes == 0) own[k * (RT_BLOCK / kLanes)] = s.scale;
  }
  if (within) {
    store_tile<true>(v, inverse, q, shape, tile);
  } else {
    store_tile<false>(v, inverse, q, shape, tile);
  }
}
#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_quantize_flat(const Store* x,
#if RT_GROUP
                                                                        rt_u8* q, float* scales, float amax_floor,
#else
                                                                        const float* scale, rt_u8* q,
#endif
                                                                        rt_i64 vectors, int groups, int rows) {
  const Shape shape = {vectors, static_cast<rt_u32>(groups), static_cast<rt_u32>(rows)};
#if !RT_GROUP
  const float inverse = 1.0f / *scale;
#endif
  for (rt_i64 tile = blockIdx.x; tile < tiles(shape); tile += gridDim.x) {
#if RT_WHOLE_TILES
    if ((tile + 1) * kTile <= vectors) {
      quantize_whole_tile(x, q, scales, amax_floor, shape, tile);
      continue;
    }
#endif
    Vector in[RT_ITEMS];
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      const Spot at(shape, tile, k);
      in[k].fill(0);
      if (at.inside) in[k].load(x + at.vector * RT_VEC);
    }
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      const Spot at(shape, tile, k);
      float v[RT_VEC];
      to_floats(in[k], v);
#if RT_GROUP
      const float largest = largest_of_group(rt_largest(v, 0.0f));
      const RtScale s = rt_scale_of<RT_QTYPE, RT_POW2>(fmaxf(largest, amax_floor));
      const float inverse = s.inverse;
      if (threadIdx.x % kLanes == 0 && at.inside) at.write(scales, shape, s.scale);
#endif
      if (at.inside) rt_store_quantized<RT_QTYPE>(v, inverse, place(q, at.vector));
    }
  }
}

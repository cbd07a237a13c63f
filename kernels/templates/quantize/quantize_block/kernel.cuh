// Quantisation with a scale for each block of 128 × 128 elements: a thread block holds one in registers.
//
// Defines: RT_DTYPE; RT_QTYPE; RT_POW2 (scales are powers of two); RT_BLOCK threads a block; RT_VEC elements a vector, a
// divisor of cols and of 128.
#include "common/quantized.cuh"
#include "common/row.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

constexpr int kSide = 128;
constexpr int kLanes = kSide / RT_VEC;               // of one row of the tile
constexpr int kRowStep = RT_BLOCK / kLanes;          // rows that the block loads at once
constexpr int kItems = kSide / kRowStep;             // vectors a thread holds
static_assert(kRowStep * kItems == kSide, "the threads divide the tile");
typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
typedef RtRow<RT_BLOCK, 1, 1> Block;

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK)
    rt_quantize_block(const Store* x, rt_u8* q, float* scales, float amax_floor, rt_i64 rows, rt_i64 cols, int groups) {
  __shared__ Block::Shared shared;
  const rt_i64 row = static_cast<rt_i64>(blockIdx.x / static_cast<rt_u32>(groups)) * kSide + threadIdx.x / kLanes;
  const rt_i64 col =
      static_cast<rt_i64>(blockIdx.x % static_cast<rt_u32>(groups)) * kSide + threadIdx.x % kLanes * RT_VEC;
  const rt_i64 at = row * cols + col;
  Vector in[kItems];
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    in[k].fill(0);
    if (row + k * kRowStep < rows && col < cols) in[k].load(x + at + k * kRowStep * cols);
  }
  float largest = 0.0f;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) largest = fmaxf(largest, fabsf(in[k].get(i)));
  }
  largest = Block::max(largest, &shared);
  const RtScale s = rt_scale_of<RT_QTYPE, RT_POW2>(fmaxf(largest, amax_floor));
  if (threadIdx.x == 0) scales[blockIdx.x] = s.scale;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    // Without this the compiler holds all vectors as floats across the barrier, twice the registers.
    in[k].keep(static_cast<rt_u32>(rows >> 63));
    if (row + k * kRowStep >= rows || col >= cols) continue;
    float v[RT_VEC];
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) v[i] = in[k].get(i);
    const rt_i64 element = at + k * kRowStep * cols;
    rt_store_quantized<RT_QTYPE>(v, s.inverse, q + element * (RT_QTYPE == RT_INT4 ? 4 : 8) / 8);
  }
}

// Gated linear units in 8 bits with a scale for each row: y = act(gate) · up, scale = max |y| / (448 or 127), y / scale.
//
// Defines: RT_DTYPE; RT_PACKED (1: x[row] = gate[cols], up[cols]; 0: two tensors); RT_ACT (2 gelu in its tanh form, 3
// silu); RT_QUANT (1 FP8 E4M3, 2 INT8); RT_VARIANT (0 the row's y in registers as floats; 1 two passes over global
// memory, any length); RT_BLOCK threads a block; RT_ROWS rows a block (variant 0); RT_VEC elements a vector, a divisor of
// cols; RT_ITEMS vectors of each half that a thread holds (0) or loads at once (1).
#include "common/glu.cuh"
#include "common/quantized.cuh"
#include "common/row.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
constexpr int kThreads = RT_BLOCK / RT_ROWS;  // of one row
typedef RtRow<kThreads, RT_ROWS, 1> Row;
constexpr int kQuantized = RT_QUANT == 1 ? RT_FP8_E4M3 : RT_INT8;

__device__ __forceinline__ int column(int k) {
  return (k * kThreads + static_cast<int>(threadIdx.x % kThreads)) * RT_VEC;
}

// y of RT_ITEMS vectors from number `base` on; zeros past the end. All loads are under way before the first is used.
__device__ __forceinline__ void gate_chunk(const Store* gate, const Store* up, int cols, int base,
                                           float (&y)[RT_ITEMS][RT_VEC]) {
  Vector g[RT_ITEMS], u[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    g[k].fill(0);
    u[k].fill(0);
    if (column(base + k) >= cols) continue;
    g[k].load(gate + column(base + k));
    u[k].load(up + column(base + k));
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) y[k][i] = rt_glu_activate<RT_ACT>(g[k].get(i)) * u[k].get(i);
  }
}

// The largest magnitude so far. True if these elements may be stored as within the range of the type.
__device__ __forceinline__ bool add_largest(const float (&y)[RT_ITEMS][RT_VEC], float* largest) {
#if RT_QUANT == 2
  float each[RT_ITEMS];
  const bool within = rt_largest_within(y, each);
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) *largest = fmaxf(*largest, each[k]);
  return within;
#else
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) *largest = rt_largest(y[k], *largest);
  return false;
#endif
}

template <bool WITHIN>
__device__ __forceinline__ void store_chunk(const float (&y)[RT_ITEMS][RT_VEC], float inverse, rt_u8* to, int cols,
                                            int base) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (column(base + k) < cols) rt_store_quantized<kQuantized, WITHIN>(y[k], inverse, to + column(base + k));
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_glu_quant(
#if RT_PACKED
    const Store* x,
#else
    const Store* gate, const Store* up,
#endif
    rt_u8* y, float* scales, rt_i64 rows, rt_i64 cols) {
  __shared__ Row::Shared shared;
  const rt_i64 row = static_cast<rt_i64>(blockIdx.x) * RT_ROWS + threadIdx.x / kThreads;
  // A row past the end takes part in the barriers with no columns of its own.
  const int mine = row < rows ? static_cast<int>(cols) : 0;
#if RT_PACKED
  const Store* const gate_row = x + row * 2 * cols;
  const Store* const up_row = gate_row + cols;
#else
  const Store* const gate_row = gate + row * cols;
  const Store* const up_row = up + row * cols;
#endif
  rt_u8* const to = y + row * cols;
  float v[RT_ITEMS][RT_VEC];
  float largest = 0.0f;
#if RT_VARIANT == 0
  gate_chunk(gate_row, up_row, mine, 0, v);
  const bool within = add_largest(v, &largest);
#else
  int base = 0;
  for (; column(base) < mine; base += RT_ITEMS) {
    gate_chunk(gate_row, up_row, mine, base, v);
    add_largest(v, &largest);
  }
#endif
  const RtScale s = rt_scale_of<kQuantized, false>(Row::max(largest, &shared));
  if (threadIdx.x % kThreads == 0 && mine > 0) scales[row] = s.scale;
#if RT_VARIANT == 0
  if (within) {
    store_chunk<true>(v, s.inverse, to, mine, 0);
  } else {
    store_chunk<false>(v, s.inverse, to, mine, 0);
  }
#else
  // Backwards: what was read last is still in a cache.
  for (base -= RT_ITEMS; base >= 0; base -= RT_ITEMS) {
    gate_chunk(gate_row, up_row, mine, base, v);
    float ignored = 0.0f;
    if (add_largest(v, &ignored)) {
      store_chunk<true>(v, s.inverse, to, mine, base);
    } else {
      store_chunk<false>(v, s.inverse, to, mine, base);
    }
  }
#endif
}

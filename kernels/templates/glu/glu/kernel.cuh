// Gated linear units: y = act(gate) · up.
//
// Defines: RT_DTYPE; RT_PACKED (1: x[row] = gate[cols], up[cols]; 0: two tensors); RT_ACT (2 gelu in its tanh form,
// 3 silu); RT_BLOCK threads a block; RT_ROWS rows a block; RT_VEC elements a vector, a divisor of cols; RT_ITEMS
// vectors of each half that a thread loads before it computes. A block takes a chunk of RT_BLOCK / RT_ROWS · RT_ITEMS
// vectors of each of its rows.
#include "common/glu.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
constexpr int kThreads = RT_BLOCK / RT_ROWS;  // of one row

__device__ __forceinline__ Vector gated(const Vector& gate, const Vector& up) {
  float y[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) y[i] = rt_glu_activate<RT_ACT>(gate.get(i)) * up.get(i);
  Vector out;
  out.set(y);
  return out;
}

__device__ __forceinline__ void gate_row(const Store* gate, const Store* up, Store* y, rt_i64 first, rt_i64 cols) {
  constexpr int kStep = kThreads * RT_VEC;
  Vector g[RT_ITEMS];
  Vector u[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (first + k * kStep >= cols) continue;
    g[k].load(gate + first + k * kStep);
    u[k].load(up + first + k * kStep);
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (first + k * kStep < cols) gated(g[k], u[k]).store(y + first + k * kStep);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_glu(
#if RT_PACKED
    const Store* x,
#else
    const Store* gate, const Store* up,
#endif
    Store* y, rt_i64 rows, rt_i64 cols) {
  constexpr int kChunk = kThreads * RT_VEC * RT_ITEMS;
  // The grid has fewer than 2^31 blocks, and so has a row.
  const rt_u32 chunks = static_cast<rt_u32>((cols + kChunk - 1) / kChunk);
  const rt_i64 row = static_cast<rt_i64>(blockIdx.x / chunks) * RT_ROWS + threadIdx.x / kThreads;
  const rt_i64 first = static_cast<rt_i64>(blockIdx.x % chunks) * kChunk + threadIdx.x % kThreads * RT_VEC;
  if (row >= rows) return;
#if RT_PACKED
  gate_row(x + row * 2 * cols, x + row * 2 * cols + cols, y + row * cols, first, cols);
#else
  gate_row(gate + row * cols, up + row * cols, y + row * cols, first, cols);
#endif
}

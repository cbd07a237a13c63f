// Gated linear units: y = act(gate) · up.
//
// Defines: RT_DTYPE; RT_PACKED (1: x[row] = gate[cols], up[cols]; 0: two tensors); RT_ACT (2 gelu in its tanh form,
// 3 silu); RT_BLOCK threads a block; RT_ROWS rows a block; RT_VEC elements a vector, a divisor of cols; RT_ITEMS
// vectors of each half that a thread loads before it computes; RT_FULL (1: blocks have all of their rows and vectors, of
// fewer than 2^32 elements, and none along z). A block takes a chunk of RT_BLOCK / RT_ROWS · RT_ITEMS
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

// Of elements; where there is little to do, the arithmetic of 64 bits is a part of it.
#if RT_FULL
typedef rt_u32 Index;
#else
typedef rt_i64 Index;
#endif

constexpr int kStep = kThreads * RT_VEC;

// Whether the thread has a vector number k; `left` elements of the row are left from its first one on.
__device__ __forceinline__ bool has(int k, Index left) { return RT_FULL || k * kStep < left; }

__device__ __forceinline__ void gate_row(const Store* gate, const Store* up, Store* y, Index left) {
  Vector g[RT_ITEMS];
  Vector u[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (!has(k, left)) continue;
    g[k].load(gate + k * kStep);
    u[k].load(up + k * kStep);
  }
  rt_issue_loads();
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (has(k, left)) gated(g[k], u[k]).store(y + k * kStep);
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
  // Chunks along x, rows along y and z: to divide by the number of chunks would take longer than the arithmetic does.
  const Index block = RT_FULL ? blockIdx.y : static_cast<Index>(blockIdx.z) * gridDim.y + blockIdx.y;
  const Index inside = RT_ROWS > 1 ? threadIdx.x / kThreads : 0;
  const Index row = block * RT_ROWS + inside;
  const Index first = static_cast<Index>(blockIdx.x) * (kStep * RT_ITEMS) + threadIdx.x % kThreads * RT_VEC;
  const Index width = static_cast<Index>(cols);
  if (!RT_FULL && row >= rows) return;
#if RT_PACKED
  const Store* const gate = x + (row * 2 * width + first);
  gate_row(gate, gate + width, y + (row * width + first), width - first);
#else
  const Index at = row * width + first;
  gate_row(gate + at, up + at, y + at, width - first);
#endif
}

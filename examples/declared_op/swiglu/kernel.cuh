// swiglu: y[r, c] = silu(x[r, c]) · x[r, cols + c].
//
// Defines: RT_DTYPE; RT_BLOCK threads a block; RT_VEC elements a vector, a divisor of cols; RT_ITEMS vectors of each
// half that a thread loads before it computes. A block takes a chunk of RT_BLOCK · RT_ITEMS vectors of one row.
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;

__device__ __forceinline__ float silu(float g) {
  float r;
  asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(g), "f"(1.0f + rt_exp(-g)));
  return r;
}

__device__ __forceinline__ Vector gated(const Vector& gate, const Vector& up) {
  float y[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) y[i] = silu(gate.get(i)) * up.get(i);
  Vector out;
  out.set(y);
  return out;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK)
    rt_swiglu(const Vector::Store* x, Vector::Store* y, rt_i64 rows, rt_i64 cols) {
  constexpr int kStep = RT_BLOCK * RT_VEC;
  const rt_i64 chunks = (cols + kStep * RT_ITEMS - 1) / (kStep * RT_ITEMS);
  const rt_i64 row = blockIdx.x / chunks;
  const rt_i64 first = (blockIdx.x % chunks * RT_BLOCK * RT_ITEMS + threadIdx.x) * RT_VEC;
  if (row >= rows) return;
  const Vector::Store* const gate_row = x + row * 2 * cols;
  Vector gate[RT_ITEMS];
  Vector up[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (first + k * kStep >= cols) continue;
    gate[k].load(gate_row + first + k * kStep);
    up[k].load(gate_row + cols + first + k * kStep);
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (first + k * kStep < cols) gated(gate[k], up[k]).store(y + row * cols + first + k * kStep);
  }
}

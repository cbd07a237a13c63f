// RMS norm along rows: y = h · rsqrt(mean(h²) + eps) · weight, with h = x, or h = x + residual rounded to the dtype
// and written out as residual_out.
//
// Defines: RT_DTYPE; RT_RESIDUAL (0 or 1); RT_VARIANT (0 the row in registers in its storage type; 1 two passes over
// global memory, any length); RT_BLOCK threads a block; RT_ROWS rows a block (variant 0); RT_VEC elements a vector, a
// divisor of cols; RT_ITEMS vectors a thread holds (0) or loads at once (1).
#include "common/row.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
constexpr int kThreads = RT_BLOCK / RT_ROWS;  // of one row
typedef RtRow<kThreads, RT_ROWS, 1> Row;

// The pointers of one row.
struct Pointers {
  const Store* x;
  const Store* residual;
  const Store* weight;
  Store* y;
  Store* residual_out;
};

__device__ __forceinline__ int column(int k) {
  return (k * kThreads + static_cast<int>(threadIdx.x % kThreads)) * RT_VEC;
}

__device__ __forceinline__ float square_sum(const Vector& v) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) sum = fmaf(v.get(i), v.get(i), sum);
  return sum;
}

#if RT_RESIDUAL
__device__ __forceinline__ Vector add(const Vector& a, const Vector& b) {
  float h[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) h[i] = a.get(i) + b.get(i);
  Vector out;
  out.set(h);
  return out;
}

#endif

__device__ __forceinline__ Vector scale(const Vector& h, const Vector& weight, float factor) {
  float y[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) y[i] = h.get(i) * factor * weight.get(i);
  Vector out;
  out.set(y);
  return out;
}

// Loads RT_ITEMS vectors of h from number `base` on (zeros past the end), writes residual_out, returns Σ h².
__device__ __forceinline__ float load_chunk(const Pointers& p, int cols, int base, Vector (&h)[RT_ITEMS]) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    h[k].fill(0);
    if (column(base + k) < cols) h[k].load_stream(p.x + column(base + k));
  }
#if RT_RESIDUAL
  Vector r[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    r[k].fill(0);
    if (column(base + k) < cols) r[k].load_stream(p.residual + column(base + k));
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    h[k] = add(h[k], r[k]);
    if (column(base + k) < cols) h[k].store_stream(p.residual_out + column(base + k));
  }
#endif
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) sum += square_sum(h[k]);
  return sum;
}

__device__ __forceinline__ float factor(float sum, int cols, float eps, Row::Shared* shared) {
  float r;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(Row::sum(sum, shared) / static_cast<float>(cols) + eps));
  return r;
}

#if RT_VARIANT == 0
__device__ __forceinline__ void norm_row(const Pointers& p, int cols, int length, float eps, Row::Shared* shared) {
  Vector h[RT_ITEMS];
  const float sum = load_chunk(p, cols, 0, h);
  // Issued before the barrier, so that they arrive while the row is summed.
  Vector w[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    w[k].fill(0);
    if (column(k) < cols) w[k].load_cached(p.weight + column(k));
  }
  const float f = factor(sum, length, eps, shared);
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (column(k) < cols) scale(h[k], w[k], f).store_stream(p.y + column(k));
  }
}
#else
__device__ __forceinline__ void norm_row(const Pointers& p, int cols, int length, float eps, Row::Shared* shared) {
  Vector h[RT_ITEMS];
  float sum = 0.0f;
  int base = 0;
  for (; column(base) < cols; base += RT_ITEMS) sum += load_chunk(p, cols, base, h);
  const float f = factor(sum, length, eps, shared);
  // Backwards: what was read (or written) last is still in a cache.
  const Store* const from = RT_RESIDUAL ? p.residual_out : p.x;
  for (base -= RT_ITEMS; base >= 0; base -= RT_ITEMS) {
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      h[k].fill(0);
      if (column(base + k) < cols) h[k].load_cached(from + column(base + k));
    }
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (column(base + k) >= cols) continue;
      Vector w;
      w.load_cached(p.weight + column(base + k));
      scale(h[k], w, f).store_stream(p.y + column(base + k));
    }
  }
}
#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_rmsnorm(const Store* x,
#if RT_RESIDUAL
                                                                  const Store* residual,
#endif
                                                                  const Store* weight, Store* y,
#if RT_RESIDUAL
                                                                  Store* residual_out,
#endif
                                                                  float eps, rt_i64 rows, rt_i64 cols) {
  __shared__ Row::Shared shared;
  const rt_i64 row = static_cast<rt_i64>(blockIdx.x) * RT_ROWS + threadIdx.x / kThreads;
  const rt_i64 offset = row * cols;
#if RT_RESIDUAL
  const Pointers p = {x + offset, residual + offset, weight, y + offset, residual_out + offset};
#else
  const Pointers p = {x + offset, nullptr, weight, y + offset, nullptr};
#endif
  // A row past the end takes part in the barrier with no columns of its own.
  norm_row(p, row < rows ? static_cast<int>(cols) : 0, static_cast<int>(cols), eps, &shared);
}

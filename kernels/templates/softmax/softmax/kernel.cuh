// Softmax along rows: y = exp(x − max) / Σ exp(x − max).
//
// Defines: RT_DTYPE; RT_VARIANT (0 the row in registers as floats, so that each exponential is computed once; 1 the
// row in shared memory; 2 two passes over global memory, any length; 3 the row in registers in its storage type: half
// the registers for 16-bit types, each exponential twice); RT_BLOCK threads a block; RT_ROWS rows a block (variants 0
// and 3); RT_VEC elements a vector, a divisor of cols; RT_ITEMS vectors a thread holds (0, 3) or loads at once (1, 2);
// RT_CLUSTER blocks that share a row (sm_90 and newer); RT_RESIDENT blocks an
// SM must have registers for.
//
// Results below the smallest normal fp32 number (1.2e-38) may become 0.
// A fully masked row (all −∞) gives NaN, as 0 / 0 does.
#include "common/row.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
constexpr int kThreads = RT_BLOCK / RT_ROWS;  // of one row in this block
typedef RtRow<kThreads, RT_ROWS, RT_CLUSTER> Row;

// First element of the thread's vector number k; consecutive threads have consecutive vectors, consecutive blocks of
// the cluster consecutive chunks.
__device__ __forceinline__ int column(int k) {
  const int rank = RT_CLUSTER > 1 ? static_cast<int>(blockIdx.x % RT_CLUSTER) : 0;
  return ((k * RT_CLUSTER + rank) * kThreads + static_cast<int>(threadIdx.x % kThreads)) * RT_VEC;
}

__device__ __forceinline__ float exp_biased(float x, float bias) { return rt_exp2(fmaf(x, kRtLog2E, bias)); }

#if RT_VARIANT != 0
// Adds vectors to the running state. They stay packed: without the `keep` after each use the compiler holds all of
// them as floats, twice the registers.
__device__ __forceinline__ void accumulate(Vector (&v)[RT_ITEMS], rt_u32 zero, RtMaxSum* state) {
  float max = state->max;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) max = fmaxf(max, v[k].get(i));
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) v[k].keep(zero);
  const float bias = rt_exp_bias(max);
  float sum = state->sum * exp_biased(state->max, bias);
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) sum += exp_biased(v[k].get(i), bias);
  }
  *state = {max, sum};
}

__device__ __forceinline__ Vector normalize(const Vector& v, float bias, float scale) {
  float y[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) y[i] = exp_biased(v.get(i), bias) * scale;
  Vector out;
  out.set(y);
  return out;
}
#endif

#if RT_VARIANT == 0 || RT_VARIANT == 3
// The row stays in registers: one read, one write.
__device__ __forceinline__ void softmax_row(const Vector::Store* x, Vector::Store* y, int cols, rt_u32 zero,
                                            Row::Shared* shared) {
  Vector v[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    v[k].fill(rt_minus_infinity<RT_DTYPE>());
    if (column(k) < cols) v[k].load_stream(x + column(k));
  }
#if RT_VARIANT == 3
  RtMaxSum state = {-rt_infinity(), 0.0f};
  accumulate(v, zero, &state);
  state = Row::max_sum(state, shared);
  const float bias = rt_exp_bias(state.max);
  const float scale = 1.0f / state.sum;
  const rt_u32 never = state.sum < 0.0f;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    v[k].keep(never);
    if (column(k) < cols) normalize(v[k], bias, scale).store_stream(y + column(k));
  }
#else
  // Exponentials relative to the thread's own maximum, rescaled once the row's is known.
  float max = -rt_infinity();
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) max = fmaxf(max, v[k].get(i));
  }
  const float own_bias = rt_exp_bias(max);
  float e[RT_ITEMS][RT_VEC];
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) {
      e[k][i] = exp_biased(v[k].get(i), own_bias);
      sum += e[k][i];
    }
  }
  const RtMaxSum state = Row::max_sum({max, sum}, shared);
  const float scale = exp_biased(max, rt_exp_bias(state.max)) / state.sum;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) e[k][i] *= scale;
    v[k].set(e[k]);
    if (column(k) < cols) v[k].store_stream(y + column(k));
  }
#endif
}
#elif RT_VARIANT == 1
// The row stays in shared memory, each thread with its own slots; copied there without passing registers, so that
// the whole row is in flight at once.
__device__ __forceinline__ void copy_async(Vector* slot, const Vector::Store* x) {
  const rt_u32 to = static_cast<rt_u32>(__cvta_generic_to_shared(slot));
  if constexpr (Vector::kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x) : "memory");
  } else if constexpr (Vector::kBytes == 4 || Vector::kBytes == 8) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(x), "n"(Vector::kBytes) : "memory");
  } else {
    slot->load_stream(x);
  }
}

__device__ __forceinline__ void softmax_row(const Vector::Store* x, Vector::Store* y, int cols, rt_u32 zero,
                                            Row::Shared* shared) {
  extern __shared__ __align__(16) rt_u8 storage[];
  Vector* const row = reinterpret_cast<Vector*>(storage) + threadIdx.x;
#pragma unroll RT_ITEMS
  for (int k = 0; column(k) < cols; ++k) copy_async(row + k * kThreads, x + column(k));
  asm volatile("cp.async.wait_all;" ::: "memory");

  RtMaxSum state = {-rt_infinity(), 0.0f};
  for (int base = 0; column(base) < cols; base += RT_ITEMS) {
    Vector v[RT_ITEMS];
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      v[k].fill(rt_minus_infinity<RT_DTYPE>());
      if (column(base + k) < cols) v[k] = row[(base + k) * kThreads];
    }
    accumulate(v, zero, &state);
  }
  state = Row::max_sum(state, shared);
  const float bias = rt_exp_bias(state.max);
  const float scale = 1.0f / state.sum;
#pragma unroll RT_ITEMS
  for (int k = 0; column(k) < cols; ++k) normalize(row[k * kThreads], bias, scale).store_stream(y + column(k));
}
#else
// Reads the row twice. The second pass runs backwards: what the first read last is still in a cache.
__device__ __forceinline__ void load_chunk(const Vector::Store* x, int cols, int base, Vector (&v)[RT_ITEMS]) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    v[k].fill(rt_minus_infinity<RT_DTYPE>());
    if (column(base + k) < cols) v[k].load_cached(x + column(base + k));
  }
}

__device__ __forceinline__ void softmax_row(const Vector::Store* x, Vector::Store* y, int cols, rt_u32 zero,
                                            Row::Shared* shared) {
  RtMaxSum state = {-rt_infinity(), 0.0f};
  int base = 0;
  Vector v[RT_ITEMS];
  for (; column(base) < cols; base += RT_ITEMS) {
    load_chunk(x, cols, base, v);
    accumulate(v, zero, &state);
  }
  state = Row::max_sum(state, shared);
  const float bias = rt_exp_bias(state.max);
  const float scale = 1.0f / state.sum;
  for (base -= RT_ITEMS; base >= 0; base -= RT_ITEMS) {
    load_chunk(x, cols, base, v);
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (column(base + k) < cols) normalize(v[k], bias, scale).store_stream(y + column(base + k));
    }
  }
}
#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK, RT_RESIDENT)
    rt_softmax(const Vector::Store* x, Vector::Store* y, rt_i64 rows, rt_i64 cols) {
  __shared__ Row::Shared shared;
  const rt_i64 row = static_cast<rt_i64>(blockIdx.x / RT_CLUSTER) * RT_ROWS + threadIdx.x / kThreads;
  // A row past the end takes part in the barriers with no columns of its own.
  softmax_row(x + row * cols, y + row * cols, row < rows ? static_cast<int>(cols) : 0, static_cast<rt_u32>(rows >> 63),
              &shared);
  Row::finish();
}

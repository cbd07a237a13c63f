// Softmax along rows: y = exp(t − max t) / Σ exp(t − max t), or its logarithm, with t = x, scale·x, or these + mask;
// with RT_CAUSAL row r attends to columns up to r + cols − rows alone.
//
// Rows that do not start on a vector (RT_RAGGED) are read from the vector before their start to that after their end,
// and what belongs to other rows is taken out; only whole vectors are written as such.
//
// Defines: RT_DTYPE; RT_VARIANT (0 the row in registers as floats, so that each exponential is computed once; 1 the
// row in shared memory; 2 two passes over global memory, any length; 3 the row in registers in its storage type: half
// the registers for 16-bit types, each exponential twice); RT_BLOCK threads a block; RT_ROWS rows a block (variants 0
// and 3); RT_VEC elements a vector; RT_RAGGED (1: cols is not a multiple of it; variants 0 and 3
// without clusters); RT_ITEMS vectors a thread holds (0, 3) or loads at once (1, 2);
// RT_CLUSTER blocks that share a row (sm_90 and newer); RT_RESIDENT blocks an SM must have registers for; RT_SCALED,
// RT_MASK, RT_CAUSAL, RT_LOG (0 or 1). With a mask variant 3 would hold two packed tensors, as many registers as 0.
//
// Results below the smallest normal fp32 number (1.2e-38) may become 0.
// A fully masked row (all −∞) gives NaN, as 0 / 0 does.
#include "common/softmax.cuh"

namespace {

constexpr int kThreads = RT_BLOCK / RT_ROWS;  // of one row in this block
typedef RtRow<kThreads, RT_ROWS, RT_CLUSTER> Row;

// First element of the thread's vector number k; consecutive threads have consecutive vectors, consecutive blocks of
// the cluster consecutive chunks.
__device__ __forceinline__ int column(int k) {
  const int rank = RT_CLUSTER > 1 ? static_cast<int>(blockIdx.x % RT_CLUSTER) : 0;
  return ((k * RT_CLUSTER + rank) * kThreads + static_cast<int>(threadIdx.x % kThreads)) * RT_VEC;
}

// First element of the thread's vector number k within its row; negative where the vector starts before it.
__device__ __forceinline__ int first_of(const Source& in, int k) { return column(k) - (RT_RAGGED ? in.head : 0); }

// Writes what of the vector belongs to the row.
__device__ __forceinline__ void store(const Vector& v, Vector::Store* y, int first, int cols) {
  if (first >= cols) return;
  if (!RT_RAGGED || (first >= 0 && first + RT_VEC <= cols)) {
    v.store(y + first);
    return;
  }
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) {
    if (first + i >= 0 && first + i < cols) y[first + i] = v.bits(i);
  }
}

// Vectors from number `base` on; −∞ past the end.
template <bool CACHED>
__device__ __forceinline__ void load_row(const Source& in, int cols, int base, Elements (&v)[RT_ITEMS]) {
#if RT_MASK
  Vector x[RT_ITEMS];
  Vector mask[RT_ITEMS];
#else
  Vector(&x)[RT_ITEMS] = v;
#endif
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    const int first = first_of(in, base + k);
    x[k].fill(in.nothing());
#if RT_MASK
    mask[k].fill(0);
#endif
    if (first >= (RT_CAUSAL ? in.attended : cols)) continue;
    if (CACHED) {
      x[k].load(in.x + first);
    } else {
      x[k].load(in.x + first);
    }
#if RT_MASK
    if (CACHED) {
      mask[k].load(in.mask + first);
    } else {
      mask[k].load(in.mask + first);
    }
#endif
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#if RT_MASK
    v[k].set(x[k], mask[k], first_of(in, base + k), in);
#else
    in.limit(first_of(in, base + k), &v[k]);
#endif
  }
}

#if RT_VARIANT == 0 || RT_VARIANT == 3
// The row stays in registers: one read, one write.
__device__ __forceinline__ void softmax_row(const Source& in, Vector::Store* y, int cols, rt_u32 zero,
                                            Row::Shared* shared) {
  Elements v[RT_ITEMS];
  load_row<false>(in, cols, 0, v);
#if RT_VARIANT == 3
  RtMaxSum state = {-rt_infinity(), 0.0f};
  accumulate(v, in, zero, &state);
  state = Row::max_sum(state, shared);
  const Finish finish(state);
  const rt_u32 never = state.sum < 0.0f;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    v[k].keep(never);
    store(normalize(v[k], in, finish), y, first_of(in, k), cols);
  }
#else
  // Exponentials relative to the thread's own maximum, rescaled once the row's is known.
  float max = -rt_infinity();
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) max = fmaxf(max, element(v[k].get(i), in));
  }
  const float own_bias = rt_exp_bias(max);
  float e[RT_ITEMS][RT_VEC];
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) {
      e[k][i] = exponential(v[k].get(i), in, own_bias);
      sum += e[k][i];
    }
  }
  const RtMaxSum state = Row::max_sum({max, sum}, shared);
#if RT_LOG
  const Finish finish(state);
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    store(normalize(v[k], in, finish), y, first_of(in, k), cols);
  }
#else
  const float scale = exp_biased(max, rt_exp_bias(state.max)) * rt_reciprocal(state.sum);
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) e[k][i] *= scale;
    Vector out;
    out.set(e[k]);
    store(out, y, first_of(in, k), cols);
  }
#endif
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
    slot->load(x);
  }
}

// Vector number k of the row from its slot: −∞ past the columns attended to. With a mask its slots follow the row's.
__device__ __forceinline__ Elements from_slot(const Source& in, const Vector* row, int slots, int k) {
  const int first = column(k);
  Vector x;
  x.fill(in.nothing());
  const bool read = first < (RT_CAUSAL ? in.attended : in.length);
  if (read) x = row[k * kThreads];
#if RT_MASK
  Vector mask;
  mask.fill(0);
  if (read) mask = row[(slots + k) * kThreads];
  Elements v;
  v.set(x, mask, first, in);
  return v;
#else
  in.limit(first, &x);
  return x;
#endif
}

__device__ __forceinline__ void softmax_row(const Source& in, Vector::Store* y, int cols, rt_u32 zero,
                                            Row::Shared* shared) {
  extern __shared__ __align__(16) rt_u8 storage[];
  Vector* const row = reinterpret_cast<Vector*>(storage) + threadIdx.x;
  const int read = RT_CAUSAL ? in.attended : cols;
  const int slots = (cols + kThreads * RT_VEC * RT_CLUSTER - 1) / (kThreads * RT_VEC * RT_CLUSTER);
#pragma unroll RT_ITEMS
  for (int k = 0; column(k) < read; ++k) {
    copy_async(row + k * kThreads, in.x + column(k));
#if RT_MASK
    copy_async(row + (slots + k) * kThreads, in.mask + column(k));
#endif
  }
  asm volatile("cp.async.wait_all;" ::: "memory");

  RtMaxSum state = {-rt_infinity(), 0.0f};
  for (int base = 0; column(base) < read; base += RT_ITEMS) {
    Elements v[RT_ITEMS];
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) v[k] = from_slot(in, row, slots, base + k);
    accumulate(v, in, zero, &state);
  }
  state = Row::max_sum(state, shared);
  const Finish finish(state);
#pragma unroll RT_ITEMS
  for (int k = 0; column(k) < cols; ++k) {
    normalize(from_slot(in, row, slots, k), in, finish).store(y + column(k));
  }
}
#else
// Reads the row twice. The second pass runs backwards: what the first read last is still in a cache.
__device__ __forceinline__ void softmax_row(const Source& in, Vector::Store* y, int cols, rt_u32 zero,
                                            Row::Shared* shared) {
  RtMaxSum state = {-rt_infinity(), 0.0f};
  int base = 0;
  Elements v[RT_ITEMS];
  for (; column(base) < cols; base += RT_ITEMS) {
    load_row<true>(in, cols, base, v);
    accumulate(v, in, zero, &state);
  }
  state = Row::max_sum(state, shared);
  const Finish finish(state);
  for (base -= RT_ITEMS; base >= 0; base -= RT_ITEMS) {
    load_row<true>(in, cols, base, v);
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (column(base + k) < cols) normalize(v[k], in, finish).store(y + column(base + k));
    }
  }
}
#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK, RT_RESIDENT) rt_softmax(const Vector::Store* x,
#if RT_MASK
                                                                               const Vector::Store* mask,
#endif
                                                                               Vector::Store* y,
#if RT_SCALED
                                                                               float scale,
#endif
                                                                               rt_i64 rows, rt_i64 cols) {
  __shared__ Row::Shared shared;
  rt_i64 row = static_cast<rt_i64>(blockIdx.x / RT_CLUSTER) * RT_ROWS + threadIdx.x / kThreads;
#if RT_CAUSAL
  // Short and long rows in turn: the memory reads and writes evenly, and no long rows are left for the end.
  if (row < rows) row = row % 2 == 0 ? row / 2 : rows - 1 - row / 2;
#endif
  // A row past the end takes part in the barriers with no columns of its own.
  const int length = row < rows ? static_cast<int>(cols) : 0;
  const int head = RT_RAGGED && row < rows ? static_cast<int>(row * cols % RT_VEC) : 0;
  Source in = {x + row * cols, nullptr, length, length, head};
#if RT_MASK
  in.mask = mask + row * cols;
#endif
#if RT_SCALED
  in.scale_by(scale);
#endif
#if RT_CAUSAL
  if (row < rows) in.attended = static_cast<int>(row + 1 + cols - rows);
#endif
  softmax_row(in, y + row * cols, length, static_cast<rt_u32>(rows >> 63), &shared);
  Row::finish();
}

// RMS norm and LayerNorm along rows. With h = pre(x), or h = pre of x + residual, the sum rounded to the dtype, which is
// written out as residual_out:
//   RMS norm    y = h · rsqrt(mean(h²) + eps) · weight
//   LayerNorm   y = (h − mean(h)) · rsqrt(var(h) + eps) · weight (+ bias)
// then an activation, then, if asked for, 8 bits with a scale for each row: scale = max |y| / (448 or 127), y / scale.
//
// Defines: RT_DTYPE; RT_QUANT (0 none, 1 FP8 E4M3, 2 INT8); RT_CENTER (0 RMS norm, 1 LayerNorm); RT_RESIDUAL and
// RT_BIAS (0 or 1); RT_PRE and RT_ACT (0 none, 1 relu, 2 gelu, 3 silu); RT_VARIANT (0 the row, weight and
// bias in registers in their storage type; 1 several passes over global memory, any length; 2 the row alone in
// registers; weight and bias from a cache when they are needed); RT_BLOCK threads a block; RT_ROWS rows a block
// (variants 0 and 2); RT_CLUSTER blocks that share a row (variant 2, sm_90 and newer); RT_PARTS blocks that write a row,
// a divisor of RT_ITEMS, each of which reads all of it (variant 0, one row a block, no 8-bit output, not in place);
// RT_VEC elements a vector, a divisor of cols; RT_ITEMS vectors a thread holds (0, 2) or loads at once (1); RT_FULL (0,
// 2: 1 = rows fill all of these, blocks have all of their rows, and there are fewer than 2^32 elements); RT_FLOATS
// (variant 2: 1 = the row as floats once it has come). With 8-bit output results are held as floats until the scale is
// known.
#pragma once

#include "common/norm_elements.cuh"
#include "common/row.cuh"

constexpr int kRtNormThreads = RT_BLOCK / RT_ROWS;  // of one row in this block
typedef RtRow<kRtNormThreads, RT_ROWS, RT_CLUSTER> RtNormRow;

// Each reduction has its own words, so that one barrier each is enough.
struct RtNormShared {
#if RT_QUANT
  RtNormRow::Shared largest;
#endif
  RtNormRow::Shared squares;
#if RT_CENTER
  RtNormRow::Shared mean;
#endif
};

// Of elements; short rows wait for the arithmetic of 64 bits.
#if RT_FULL
typedef rt_u32 RtNormIndex;
constexpr int kRtNormLength = kRtNormThreads * RT_CLUSTER * RT_ITEMS * RT_VEC;
#else
typedef rt_i64 RtNormIndex;
#endif

__device__ __forceinline__ RtNormIndex rt_norm_row_number() {
  const int inside = RT_ROWS > 1 ? static_cast<int>(threadIdx.x) / kRtNormThreads : 0;
  return static_cast<RtNormIndex>(blockIdx.x / (RT_CLUSTER * RT_PARTS)) * RT_ROWS + inside;
}

__device__ __forceinline__ int rt_norm_rank() {
  return RT_CLUSTER > 1 ? static_cast<int>(blockIdx.x % RT_CLUSTER) : 0;
}

// Of a thread's vectors those are the block's own that it writes.
constexpr int kRtNormOwn = RT_ITEMS / RT_PARTS;
__device__ __forceinline__ int rt_norm_part() { return RT_PARTS > 1 ? static_cast<int>(blockIdx.x % RT_PARTS) : 0; }

// Where the thread's elements of the row start; consecutive blocks of a cluster have consecutive chunks.
__device__ __forceinline__ int rt_norm_first() {
  return (rt_norm_rank() * kRtNormThreads + static_cast<int>(threadIdx.x % kRtNormThreads)) * RT_VEC;
}

// Elements of the tensor before the thread's.
__device__ __forceinline__ RtNormIndex rt_norm_offset([[maybe_unused]] rt_i64 cols) {
#if RT_FULL
  return rt_norm_row_number() * kRtNormLength + rt_norm_first();
#else
  return rt_norm_row_number() * cols + rt_norm_first();
#endif
}

// Elements from there to the thread's vector number k: a constant where k is one, so that all of a thread's vectors have
// one address.
__device__ __forceinline__ int rt_norm_step(int k) { return k * RT_CLUSTER * kRtNormThreads * RT_VEC; }

// Elements from there to the first of the thread's own vectors.
__device__ __forceinline__ int rt_norm_own_step() { return rt_norm_step(rt_norm_part() * kRtNormOwn); }

__device__ __forceinline__ int rt_norm_column(int k) { return rt_norm_first() + rt_norm_step(k); }
__device__ __forceinline__ bool rt_norm_has(int k, int cols) { return RT_FULL || rt_norm_column(k) < cols; }

// Own vector number k: whether there is one, and where it is among all.
__device__ __forceinline__ bool rt_norm_has_own(int k, int cols) {
  return rt_norm_has(rt_norm_part() * kRtNormOwn + k, cols);
}
__device__ __forceinline__ RtNormVector rt_norm_own(const RtNormVector (&h)[RT_ITEMS], int k) {
  RtNormVector own = h[k];
#pragma unroll
  for (int part = 1; part < RT_PARTS; ++part) {
    for (int i = 0; i < RtNormVector::kWords; ++i) {
      own.word[i] = rt_norm_part() == part ? h[part * kRtNormOwn + k].word[i] : own.word[i];
    }
  }
  return own;
}

#if RT_QUANT
// Writes the row's scale and returns its inverse. A row of zeros has scale 0 and stays zeros.
__device__ __forceinline__ float rt_norm_scale(const RtNormPointers& p, int cols, float largest, RtNormShared* shared) {
  RtNormRow::finish();
  largest = RtNormRow::max(largest, &shared->largest);
  const RtScale s = rt_scale_of<RT_QUANT == 1 ? RT_FP8_E4M3 : RT_INT8, false>(largest);
  if (threadIdx.x % kRtNormThreads == 0 && rt_norm_rank() == 0 && cols > 0) p.scale[rt_norm_row_number()] = s.scale;
  return s.inverse;
}
#endif

// Loads RT_ITEMS vectors of h from number `base` on (zeros past the end) and, with WRITE, writes the own ones of
// residual_out. also() loads what else is needed, before any of it is waited for.
template <bool WRITE, typename Also>
__device__ __forceinline__ void rt_norm_load(const RtNormPointers& p, int cols, int base, RtNormVector (&h)[RT_ITEMS],
                                             Also also) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    h[k].fill(0);
    if (rt_norm_has(base + k, cols)) h[k].load(p.x + rt_norm_step(base + k));
  }
#if RT_RESIDUAL
  RtNormVector r[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    r[k].fill(0);
    if (rt_norm_has(base + k, cols)) r[k].load(p.residual + rt_norm_step(base + k));
  }
#endif
  // First what is needed first, where nothing else keeps the device busy.
  if constexpr (RT_PARTS > 1) rt_issue_loads();
  also();
  rt_issue_loads();
#if RT_RESIDUAL
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) h[k] = rt_norm_total(h[k], r[k]);
#pragma unroll
  for (int k = 0; k < kRtNormOwn; ++k) {
    if (!WRITE || !rt_norm_has_own(base + k, cols)) continue;
    rt_norm_write_residual(rt_norm_own(h, k), p.residual_out + rt_norm_step(base + k));
  }
#else
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) rt_norm_prepare(&h[k]);
#endif
}
template <bool WRITE>
__device__ __forceinline__ void rt_norm_load(const RtNormPointers& p, int cols, int base, RtNormVector (&h)[RT_ITEMS]) {
  rt_norm_load<WRITE>(p, cols, base, h, [] {});
}

#if RT_VARIANT != 1
// The variance is of the differences from the mean, so that it does not cancel.
template <typename V>
__device__ __forceinline__ RtNormMoments rt_norm_moments(const V (&h)[RT_ITEMS], int cols, int length, float eps,
                                                         RtNormShared* shared) {
#if RT_FULL
  constexpr float kInverse = 1.0f / kRtNormLength;
#else
  const float kInverse = rt_reciprocal(static_cast<float>(length));
#endif
  // Vectors one by one: their sums do not wait for each other.
  float mean = 0.0f;
#if RT_CENTER
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) sum = k == 0 ? rt_norm_sum(h[k], 0.0f) : sum + rt_norm_sum(h[k], 0.0f);
  mean = RT_FULL ? sum * (1.0f / (RT_ITEMS * RT_VEC)) : RtNormRow::sum(sum, &shared->mean) * kInverse;
#endif
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (RT_CENTER && !rt_norm_has(k, cols)) continue;
    const float own = rt_norm_square_sum(h[k], mean, 0.0f);
    squares = k == 0 ? own : squares + own;
  }
#if RT_CENTER && RT_FULL
  // So far around the thread's own mean.
  const RtMoments row = RtNormRow::moments<RT_ITEMS * RT_VEC>({sum, squares}, &shared->squares);
  mean = row.sum * kInverse;
  squares = row.squares;
#else
#if RT_CENTER
  RtNormRow::finish();
#endif
  squares = RtNormRow::sum(squares, &shared->squares);
#endif
  return {mean, rt_norm_rsqrt(fmaf(squares, kInverse, eps))};
}

#endif

#if RT_VARIANT == 2
__device__ __forceinline__ void rt_norm_row(const RtNormPointers& p, int cols, int length, float eps,
                                            RtNormShared* shared) {
  RtNormVector h[RT_ITEMS];
  rt_norm_load<true>(p, cols, 0, h);
#if RT_FLOATS
  RtNormFloats f[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) f[k].set(h[k]);
#else
  RtNormVector(&f)[RT_ITEMS] = h;
#endif
  const RtNormMoments m = rt_norm_moments(f, cols, length, eps, shared);
#if RT_QUANT
  float y[RT_ITEMS][RT_VEC];
  float largest = 0.0f;
#endif
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (!rt_norm_has(k, cols)) continue;
    RtNormVector weight;
    RtNormVector bias;
    rt_norm_load_parameters(p, rt_norm_step(k), &weight, &bias);
#if RT_QUANT
    rt_norm_apply(f[k], weight, bias, m, y[k]);
    largest = rt_norm_largest(y[k], largest);
#else
    float y[RT_VEC];
    rt_norm_apply(f[k], weight, bias, m, y);
    rt_norm_store(y, 1.0f, p.y + rt_norm_step(k));
#endif
  }
#if RT_QUANT
  const float inverse = rt_norm_scale(p, cols, largest, shared);
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (rt_norm_has(k, cols)) rt_norm_store(y[k], inverse, p.y + rt_norm_step(k));
  }
#endif
}
#elif RT_VARIANT == 0
// `cols` is 0 for a row past the end, which takes part in the barriers; `length` is the number of columns.
__device__ __forceinline__ void rt_norm_row(const RtNormPointers& p, int cols, int length, float eps,
                                            RtNormShared* shared) {
  RtNormVector h[RT_ITEMS];
  RtNormVector weight[kRtNormOwn];
  RtNormVector bias[kRtNormOwn];
  rt_norm_load<true>(p, cols, 0, h, [&] {
#pragma unroll
    for (int k = 0; k < kRtNormOwn; ++k) {
      weight[k].fill(0);
      bias[k].fill(0);
      if (rt_norm_has_own(k, cols)) rt_norm_load_parameters(p, rt_norm_step(k), &weight[k], &bias[k]);
    }
  });
  const RtNormMoments m = rt_norm_moments(h, cols, length, eps, shared);
#if RT_QUANT
  float y[RT_ITEMS][RT_VEC];
  float largest = 0.0f;
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    rt_norm_apply(h[k], weight[k], bias[k], m, y[k]);
    if (rt_norm_has(k, cols)) largest = rt_norm_largest(y[k], largest);
  }
  const float inverse = rt_norm_scale(p, cols, largest, shared);
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (rt_norm_has(k, cols)) rt_norm_store(y[k], inverse, p.y + rt_norm_step(k));
  }
#else
#pragma unroll
  for (int k = 0; k < kRtNormOwn; ++k) {
    if (!rt_norm_has_own(k, cols)) continue;
    float y[RT_VEC];
    rt_norm_apply(rt_norm_own(h, k), weight[k], bias[k], m, y);
    rt_norm_store(y, 1.0f, p.y + rt_norm_step(k));
  }
#endif
}
#else
// Count, mean and Σ (h − mean)² of what a thread has seen, extended by whole chunks: each chunk's mean and squares are
// exact to rounding, and the difference of the means brings the two together.
struct RtNormRunning {
  float count = 0.0f;
  float mean = 0.0f;
  float squares = 0.0f;

  __device__ __forceinline__ void add(const RtNormVector (&h)[RT_ITEMS], int cols, int base) {
#if RT_CENTER
    float chunk_count = 0.0f;
    float chunk_sum = 0.0f;
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (rt_norm_column(base + k) < cols) chunk_count += RT_VEC;
      chunk_sum = rt_norm_sum(h[k], chunk_sum);
    }
    const float chunk_mean = chunk_sum / chunk_count;
    float chunk_squares = 0.0f;
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (rt_norm_column(base + k) < cols) chunk_squares = rt_norm_square_sum(h[k], chunk_mean, chunk_squares);
    }
    const float share = chunk_count / (count + chunk_count);
    const float difference = chunk_mean - mean;
    squares += chunk_squares + difference * difference * count * share;
    mean = fmaf(difference, share, mean);
    count += chunk_count;
#else
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) squares = rt_norm_square_sum(h[k], 0.0f, squares);
#endif
  }

  __device__ __forceinline__ RtNormMoments reduce(int length, float eps, RtNormShared* shared) const {
    float row_mean = 0.0f;
    float own = squares;
#if RT_CENTER
    row_mean = RtNormRow::sum(mean * count, &shared->mean) / static_cast<float>(length);
    own += count * (mean - row_mean) * (mean - row_mean);
#endif
    const float sum = RtNormRow::sum(own, &shared->squares);
    return {row_mean, rt_norm_rsqrt(sum / static_cast<float>(length) + eps)};
  }
};

// Calls use(y, step) for each vector of the chunk at `base`, read once more.
template <typename Use>
__device__ __forceinline__ void rt_norm_reload(const RtNormPointers& p, int cols, int base, RtNormMoments m, Use use) {
  RtNormVector h[RT_ITEMS];
#if RT_RESIDUAL
  if constexpr (kRtNormLate) {
    rt_norm_load<false>(p, cols, base, h);
  } else {
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      h[k].fill(0);
      if (rt_norm_column(base + k) < cols) h[k].load(p.residual_out + rt_norm_step(base + k));
    }
  }
#else
  rt_norm_load<false>(p, cols, base, h);
#endif
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (rt_norm_column(base + k) >= cols) continue;
    RtNormVector weight;
    RtNormVector bias;
    float y[RT_VEC];
    rt_norm_load_parameters(p, rt_norm_step(base + k), &weight, &bias);
    rt_norm_apply(h[k], weight, bias, m, y);
    use(y, rt_norm_step(base + k));
  }
}

__device__ __forceinline__ void rt_norm_row(const RtNormPointers& p, int cols, int length, float eps,
                                            RtNormShared* shared) {
  RtNormVector h[RT_ITEMS];
  RtNormRunning running;
  int base = 0;
  for (; rt_norm_column(base) < cols; base += RT_ITEMS) {
    rt_norm_load<true>(p, cols, base, h);
    running.add(h, cols, base);
  }
  const RtNormMoments m = running.reduce(length, eps, shared);
#if RT_QUANT
  // Backwards, then forwards: what was read (or written) last is still in a cache.
  float largest = 0.0f;
  for (base -= RT_ITEMS; base >= 0; base -= RT_ITEMS) {
    rt_norm_reload(p, cols, base, m, [&](float(&y)[RT_VEC], int) { largest = rt_norm_largest(y, largest); });
  }
  const float inverse = rt_norm_scale(p, cols, largest, shared);
  for (base = 0; rt_norm_column(base) < cols; base += RT_ITEMS) {
    rt_norm_reload(p, cols, base, m, [&](float(&y)[RT_VEC], int step) { rt_norm_store(y, inverse, p.y + step); });
  }
#else
  // Backwards: what was read (or written) last is still in a cache.
  for (base -= RT_ITEMS; base >= 0; base -= RT_ITEMS) {
    rt_norm_reload(p, cols, base, m, [&](float(&y)[RT_VEC], int step) { rt_norm_store(y, 1.0f, p.y + step); });
  }
#endif
}
#endif

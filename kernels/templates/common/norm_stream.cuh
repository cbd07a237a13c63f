// RMS norm and LayerNorm along long rows, which come through shared memory while the rows before them are reduced and
// written (common/row_stream.cuh); what is computed is that of common/norm.cuh, without 8-bit output.
//
// Weight and bias stay on the chip: read again for each row they would cost as much of the L2 cache as the row itself.
//
// Defines: those of common/norm_elements.cuh, RT_RESIDUAL; RT_THREADS that reduce, RT_ITEMS vectors a thread has of a
// chunk, RT_CHUNKS that a block has of a row at most, RT_STAGES, RT_FLIGHT, RT_CLUSTER; RT_PARAMETERS: weight and bias
// are in registers (0) or in shared memory behind the stages (1).
#pragma once

#include "common/norm_elements.cuh"
#include "common/row_stream.cuh"

typedef RtRowStream<RT_THREADS, RT_ITEMS, RT_STAGES, RT_FLIGHT, 1 + RT_RESIDUAL, RT_CLUSTER> RtNormStream;
typedef RtStreamReduction<RT_THREADS, RT_CLUSTER> RtNormReduction;
constexpr int kRtNormChunk = RtNormStream::kVectors * RT_VEC;  // elements

struct RtNormShared {
  RtNormStream::Shared stream;
  RtNormReduction::Shared squares;
#if RT_CENTER
  // One set for all rows: all have read a row's sums before the barrier of its squares.
  RtNormReduction::Block::Shared mean;
#endif
};

// First element of the thread's vector number k of chunk number c of this block.
__device__ __forceinline__ int rt_norm_column(int c, int k) { return RtNormStream::vector(c, k) * RT_VEC; }

__device__ __forceinline__ RtNormVector rt_norm_vector(const uint4* p) {
  const uint4 u = *p;
  return {{u.x, u.y, u.z, u.w}};
}

__device__ __forceinline__ void rt_norm_keep(const RtNormVector& v, uint4* p) {
  *p = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
}

// Weight and bias of the thread's vectors.
class RtNormParameters {
 public:
  __device__ __forceinline__ RtNormParameters(const RtNormPointers& p, int cols, rt_u8* storage)
      : storage_(reinterpret_cast<uint4*>(storage)) {
#pragma unroll
    for (int c = 0; c < RT_CHUNKS; ++c) {
#pragma unroll
      for (int k = 0; k < RT_ITEMS; ++k) {
        RtNormVector weight, bias;
        weight.fill(0);
        bias.fill(0);
        if (rt_norm_column(c, k) < cols) rt_norm_load_parameters(p, rt_norm_column(c, k), &weight, &bias);
#if RT_PARAMETERS == 0
        weight_[c][k] = weight;
        bias_[c][k] = bias;
#else
        rt_norm_keep(weight, slot(0, c, k));
        if (RT_BIAS) rt_norm_keep(bias, slot(1, c, k));
#endif
      }
    }
  }

  __device__ __forceinline__ void get(int c, int k, RtNormVector* weight, RtNormVector* bias) const {
#if RT_PARAMETERS == 0
    *weight = weight_[c][k];
    *bias = bias_[c][k];
    // The compiler must not know them from row to row: it would keep them as floats, which are twice as many.
#pragma unroll
    for (int i = 0; i < RtNormVector::kWords; ++i) asm volatile("" : "+r"(weight->word[i]), "+r"(bias->word[i]));
#else
    *weight = rt_norm_vector(slot(0, c, k));
    bias->fill(0);
    if (RT_BIAS) *bias = rt_norm_vector(slot(1, c, k));
#endif
  }

 private:
  // A thread reads none but its own slots.
  __device__ __forceinline__ uint4* slot(int tensor, int c, int k) const {
    return storage_ + (tensor * RT_CHUNKS + c) * RtNormStream::kVectors + RtNormStream::own(k);
  }

  uint4* const storage_;
#if RT_PARAMETERS == 0
  RtNormVector weight_[RT_CHUNKS][RT_ITEMS];
  RtNormVector bias_[RT_CHUNKS][RT_ITEMS];
#endif
};

// h of the thread's vectors of a chunk that was read before; zeros past the end.
__device__ __forceinline__ void rt_norm_read(const RtNormStream& stream, const RtNormStream::Stage& stage, int c,
                                             int cols, RtNormVector (&h)[RT_ITEMS]) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    h[k].fill(0);
    if (rt_norm_column(c, k) < cols) h[k] = rt_norm_vector(stream.at(stage, 0, k));
    if (!RT_RESIDUAL) rt_norm_prepare(&h[k]);
  }
}

// h of a chunk that has just come. With a residual it takes the place of x, and is written out.
__device__ __forceinline__ void rt_norm_first_read(const RtNormStream& stream, int c, int cols,
                                                   RtNormStore* residual_out, RtNormVector (&h)[RT_ITEMS]) {
#if RT_RESIDUAL
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (rt_norm_column(c, k) >= cols) continue;
    const RtNormVector x = rt_norm_vector(stream.at(stream.place(), 0, k));
    const RtNormVector r = rt_norm_vector(stream.at(stream.place(), 1, k));
    const RtNormVector total = rt_norm_total(x, r);
    rt_norm_keep(total, stream.at(stream.place(), 0, k));
    total.store(residual_out + rt_norm_column(c, k));
  }
#endif
  rt_norm_read(stream, stream.place(), c, cols, h);
}

#if RT_CENTER
// Elements of a row that block `rank` of the cluster has; at least 1, to divide by.
__device__ __forceinline__ float rt_norm_count(int rank, int cols) {
  int count = 0;
#pragma unroll
  for (int c = 0; c < RT_CHUNKS; ++c) {
    count += max(0, min(kRtNormChunk, cols - (c * RT_CLUSTER + rank) * kRtNormChunk));
  }
  return static_cast<float>(max(1, count));
}

// Σ (h − mean)² of the block's chunks, the first of which is in `stage`.
__device__ __forceinline__ float rt_norm_squares(const RtNormStream& stream, RtNormStream::Stage stage, int cols,
                                                 float mean) {
  float squares = 0.0f;
#pragma unroll
  for (int c = 0; c < RT_CHUNKS; ++c) {
    if (!RtNormStream::has(c, cols / RT_VEC)) continue;
    RtNormVector h[RT_ITEMS];
    rt_norm_read(stream, stage, c, cols, h);
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      if (rt_norm_column(c, k) < cols) squares = rt_norm_square_sum(h[k], mean, squares);
    }
    stage.next();
  }
  return squares;
}
#endif

// Moments of the row whose chunks come next; they stay in their stages. `turn` is the number of rows before it.
__device__ __forceinline__ RtNormMoments rt_norm_moments(RtNormStream& stream, RtNormStore* residual_out, int cols,
                                                         float eps, int turn, RtNormShared* shared) {
  const float length = static_cast<float>(cols);
  const RtNormStream::Stage first = stream.place();
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < RT_CHUNKS; ++c) {
    if (!RtNormStream::has(c, cols / RT_VEC)) continue;
    stream.wait();
    RtNormVector h[RT_ITEMS];
    rt_norm_first_read(stream, c, cols, residual_out, h);
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) sum = RT_CENTER ? rt_norm_sum(h[k], sum) : rt_norm_square_sum(h[k], 0.0f, sum);
    stream.next();
  }
#if RT_CENTER
  sum = RtNormReduction::Block::sum(sum, &shared->mean);
#if RT_CLUSTER > 1
  // The squares are around the block's mean first; lane l brings those of block l to the mean of the row.
  float squares = rt_norm_squares(stream, first, cols, sum / rt_norm_count(RtNormStream::rank(), cols));
  squares = RtNormReduction::Block::sum(squares, &shared->squares.block[turn & 1]);
  const RtMaxSum part = RtNormReduction::exchange({sum, squares}, turn, &shared->squares);
  const float mean = RtNormReduction::Block::lanes_sum<RT_CLUSTER>(part.max) / length;
  const float count = rt_norm_count(threadIdx.x % RT_CLUSTER, cols);
  const float off = part.max / count - mean;
  squares = RtNormReduction::Block::lanes_sum<RT_CLUSTER>(fmaf(count * off, off, part.sum));
#else
  const float mean = sum / length;
  const float squares =
      RtNormReduction::sum(rt_norm_squares(stream, first, cols, mean), turn, &shared->squares);
#endif
#else
  const float mean = 0.0f;
  const float squares = RtNormReduction::sum(sum, turn, &shared->squares);
#endif
  return {mean, rt_norm_rsqrt(squares / length + eps)};
}

__device__ __forceinline__ void rt_norm_row(RtNormStream& stream, const RtNormParameters& parameters, RtNormOut* y,
                                            RtNormStore* residual_out, int cols, float eps, int turn,
                                            RtNormShared* shared) {
  RtNormStream::Stage stage = stream.place();
  const RtNormMoments m = rt_norm_moments(stream, residual_out, cols, eps, turn, shared);
#pragma unroll
  for (int c = 0; c < RT_CHUNKS; ++c) {
    if (!RtNormStream::has(c, cols / RT_VEC)) continue;
    RtNormVector h[RT_ITEMS];
    rt_norm_read(stream, stage, c, cols, h);
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
      RtNormVector weight, bias;
      parameters.get(c, k, &weight, &bias);
      float out[RT_VEC];
      rt_norm_apply(h[k], weight, bias, m, out);
      if (rt_norm_column(c, k) < cols) rt_norm_store(out, 1.0f, y + rt_norm_column(c, k));
    }
    if (RT_RESIDUAL) rt_async_fence();
    stream.release(stage);
    stage.next();
  }
}

// `p` has the addresses of the tensors.
__device__ __forceinline__ void rt_norm_rows(const RtNormPointers& p, float eps, rt_i64 rows, int cols) {
  extern __shared__ __align__(128) rt_u8 storage[];
  __shared__ RtNormShared shared;
  RtNormStream stream(storage, &shared.stream);
  if (threadIdx.x == 0) {
    stream.init();
    RtNormReduction::init(&shared.squares);
  }
  RtNormStream::meet();
  if (RtNormStream::loads()) {
    if (rt_elect()) {
      for (rt_i64 row = RtNormStream::first_row(); row < rows; row += RtNormStream::clusters()) {
        const RtNormStore* from[1 + RT_RESIDUAL];
        from[0] = p.x + row * cols;
#if RT_RESIDUAL
        from[1] = p.residual + row * cols;
#endif
        stream.load(from, cols / RT_VEC);
      }
    }
  } else {
    const RtNormParameters parameters(p, cols, storage + RT_STAGES * RtNormStream::kStageBytes);
    int turn = 0;
    for (rt_i64 row = RtNormStream::first_row(); row < rows; row += RtNormStream::clusters()) {
      rt_norm_row(stream, parameters, p.y + row * cols, p.residual_out + row * cols, cols, eps, turn++, &shared);
    }
  }
  RtNormStream::finish();
}

// Softmax along long rows, which come through shared memory while the rows before them are reduced and written
// (common/row_stream.cuh); what is computed is that of the template softmax.
//
// Defines: RT_DTYPE, RT_SCALED, RT_MASK, RT_CAUSAL, RT_LOG (as in softmax); RT_RAGGED (0); RT_VEC elements of 16 bytes;
// RT_THREADS that reduce, RT_ITEMS vectors a thread has of a chunk, RT_CHUNKS that a block has of a row at most,
// RT_STAGES, RT_FLIGHT, RT_CLUSTER; RT_ONCE (1: the row in registers as floats once it has
// come, so that each exponential is computed once; not with RT_LOG); RT_HELD chunks that stay in registers in their
// storage type (RT_ONCE 0), while the others stay in shared memory.
#include "common/row_stream.cuh"
#include "common/softmax.cuh"

namespace {

typedef RtRowStream<RT_THREADS, RT_ITEMS, RT_STAGES, RT_FLIGHT, 1 + RT_MASK, RT_CLUSTER> Stream;
typedef RtStreamReduction<RT_THREADS, RT_CLUSTER> Reduction;
typedef Elements Chunk[RT_ITEMS];  // a thread's part of one

struct Shared {
  Stream::Shared stream;
  Reduction::Shared state;
};

// First element, within the row, of the thread's vector number k of chunk number c of this block.
__device__ __forceinline__ int column(int c, int k) { return Stream::vector(c, k) * RT_VEC; }

// Columns that are loaded.
__device__ __forceinline__ int loaded(int attended) { return (attended + RT_VEC - 1) / RT_VEC * RT_VEC; }

__device__ __forceinline__ Vector vector_of(const uint4* p) {
  const uint4 u = *p;
  return {{u.x, u.y, u.z, u.w}};
}

// A chunk from its stage; −∞ past the columns attended to.
__device__ __forceinline__ void read(const Stream& stream, const Stream::Stage& stage, const Source& in, int c,
                                     Chunk& v) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    const bool there = column(c, k) < (RT_CAUSAL ? in.attended : in.length);
    Vector x;
    x.fill(in.nothing());
    if (there) x = vector_of(stream.at(stage, 0, k));
#if RT_MASK
    Vector mask;
    mask.fill(0);
    if (there) mask = vector_of(stream.at(stage, 1, k));
    v[k].set(x, mask, column(c, k), in);
#else
    in.limit(column(c, k), &x);
    v[k] = x;
#endif
  }
}

__device__ __forceinline__ void write(const Chunk& v, const Source& in, const Finish& finish, int c, Vector::Store* y) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (column(c, k) < in.length) normalize(v[k], in, finish).store(y + column(c, k));
  }
}

// One row. `zero` is 0, `turn` the number of rows before it.
#if RT_ONCE
__device__ __forceinline__ void softmax_row(Stream& stream, const Source& in, Vector::Store* y, rt_u32 zero, int turn,
                                            Shared* shared) {
  Chunk v[RT_CHUNKS];
  float max = -rt_infinity();
#pragma unroll
  for (int c = 0; c < RT_CHUNKS; ++c) {
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) v[c][k].fill(in.nothing());
    if (!Stream::has(c, loaded(in.attended) / RT_VEC)) continue;
    stream.wait();
    read(stream, stream.place(), in, c, v[c]);
    stream.release(stream.place());
    stream.next();
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
      for (int i = 0; i < RT_VEC; ++i) max = fmaxf(max, element(v[c][k].get(i), in));
      v[c][k].keep(zero);
    }
  }
  // Exponentials relative to the thread's own maximum, rescaled once the row's is known.
  const float own_bias = rt_exp_bias(max);
  float e[RT_CHUNKS][RT_ITEMS][RT_VEC];
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < RT_CHUNKS; ++c) {
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
      for (int i = 0; i < RT_VEC; ++i) {
        e[c][k][i] = exponential(v[c][k].get(i), in, own_bias);
        sum += e[c][k][i];
      }
    }
  }
  const RtMaxSum state = Reduction::max_sum({max, sum}, turn, &shared->state);
  const float scale = exp_biased(max, rt_exp_bias(state.max)) / state.sum;
#pragma unroll
  for (int c = 0; c < RT_CHUNKS; ++c) {
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
      for (int i = 0; i < RT_VEC; ++i) e[c][k][i] *= scale;
      Vector out;
      out.set(e[c][k]);
      if (column(c, k) < in.length) out.store(y + column(c, k));
    }
  }
}
#else
__device__ __forceinline__ void softmax_row(Stream& stream, const Source& in, Vector::Store* y, rt_u32 zero, int turn,
                                            Shared* shared) {
  const int vectors = loaded(in.attended) / RT_VEC;
  Chunk held[RT_HELD > 0 ? RT_HELD : 1];
  RtMaxSum state = {-rt_infinity(), 0.0f};
#pragma unroll
  for (int c = 0; c < RT_HELD; ++c) {
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) held[c][k].fill(in.nothing());
    if (!Stream::has(c, vectors)) continue;
    stream.wait();
    read(stream, stream.place(), in, c, held[c]);
    stream.release(stream.place());
    stream.next();
    accumulate(held[c], in, zero, &state);
  }
  Stream::Stage stage = stream.place();
#pragma unroll
  for (int c = RT_HELD; c < RT_CHUNKS; ++c) {
    if (!Stream::has(c, vectors)) continue;
    stream.wait();
    Chunk v;
    read(stream, stream.place(), in, c, v);
    stream.next();
    accumulate(v, in, zero, &state);
  }
  state = Reduction::max_sum(state, turn, &shared->state);
  const Finish finish(state);
#pragma unroll
  for (int c = RT_HELD; c < RT_CHUNKS; ++c) {
    if (!Stream::has(c, in.length / RT_VEC)) continue;
    Chunk v;
    read(stream, stage, in, c, v);
    write(v, in, finish, c, y);
    if (!Stream::has(c, vectors)) continue;
    stream.release(stage);
    stage.next();
  }
  const rt_u32 never = state.sum < 0.0f;
#pragma unroll
  for (int c = 0; c < RT_HELD; ++c) {
#pragma unroll
    for (int k = 0; k < RT_ITEMS; ++k) held[c][k].keep(never);
    write(held[c], in, finish, c, y);
  }
}
#endif

// Columns that a row attends to.
__device__ __forceinline__ int attended(rt_i64 row, rt_i64 rows, rt_i64 cols) {
  return static_cast<int>(RT_CAUSAL ? row + 1 + cols - rows : cols);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_THREADS + 32) rt_softmax_stream(const Vector::Store* x,
#if RT_MASK
                                                                                             const Vector::Store* mask,
#endif
                                                                                             Vector::Store* y,
#if RT_SCALED
                                                                                             float scale,
#endif
                                                                                             rt_i64 rows, rt_i64 cols) {
  extern __shared__ __align__(128) rt_u8 storage[];
  __shared__ Shared shared;
  Stream stream(storage, &shared.stream);
  if (threadIdx.x == 0) {
    stream.init();
    Reduction::init(&shared.state);
  }
  Stream::meet();
  if (Stream::loads()) {
    if (rt_elect()) {
      for (rt_i64 row = Stream::first_row(); row < rows; row += Stream::clusters()) {
        const Vector::Store* from[1 + RT_MASK];
        from[0] = x + row * cols;
#if RT_MASK
        from[1] = mask + row * cols;
#endif
        stream.load(from, loaded(attended(row, rows, cols)) / RT_VEC);
      }
    }
  } else {
    Source in = {};
    in.length = static_cast<int>(cols);
#if RT_SCALED
    in.scale_by(scale);
#endif
    int turn = 0;
    for (rt_i64 row = Stream::first_row(); row < rows; row += Stream::clusters()) {
      in.attended = attended(row, rows, cols);
      softmax_row(stream, in, y + row * cols, static_cast<rt_u32>(rows >> 63), turn++, &shared);
    }
  }
  Stream::finish();
}

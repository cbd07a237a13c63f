// Cross entropy with its gradient in place along long rows, each of which is read once: a row waits in the shared
// memory of a cluster until its sum is known; what is computed is that of the template cross_entropy.
//
// One warp asks for the chunks of rows to come by bulk copies, as long as there are free stages. RT_THREADS threads sum
// up what has come, and as many write the gradient of the row whose sum is known. Neither waits for the other within a
// row, so that memory always has loads and stores to do.
//
// Defines: RT_DTYPE; RT_VEC elements of 16 bytes; RT_CLUSTER blocks that share a row, each has every RT_CLUSTER-th
// chunk; RT_THREADS; RT_ITEMS vectors a thread has of a chunk; RT_CHUNKS that every block has of a row (some have one
// more); RT_STAGES; RT_FLIGHT chunks under way at a time.
#include "common/pairs.cuh"
#include "common/row_stream.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;
typedef Vector Chunk[RT_ITEMS];  // a thread's part of one
// Its `free` stages have been read for the second time, by the threads that write.
typedef RtRowStream<RT_THREADS, RT_ITEMS, RT_STAGES, RT_FLIGHT, 1, RT_CLUSTER> Stream;

constexpr int kWarps = RT_THREADS / 32;
constexpr int kVectors = Stream::kVectors;  // of a chunk
// Of a row, one of each warp that sums up in the cluster.
constexpr int kParts = RT_CLUSTER * kWarps;
static_assert(kParts <= 32, "a warp has the parts of a row in its lanes");
// Rows of which chunks may be in stages at a time, and twice as many that have parts: a block that sums up row r has
// written all rows but so many before it, for which the others had summed up theirs, and so had written all but as many
// before those.
constexpr int kRowsInStages = (RT_STAGES + RT_CHUNKS - 1) / RT_CHUNKS;
constexpr int kRows = 2 * kRowsInStages;
typedef RtStage<kRows> Place;  // of a row's parts

struct Shared {
  Stream::Shared stream;
  rt_u64 known[kRows];  // parts are there
  RtMaxSum part[kRows][kParts];
};

__device__ __forceinline__ rt_u32 address(const rt_u64& barrier) { return rt_shared_address(&barrier); }
// First vector of this block's first chunk of a row, and from there to that of its next one.
__device__ __forceinline__ int first_vector() { return Stream::rank() * kVectors; }
constexpr int kNextChunk = RT_CLUSTER * kVectors;

// Of the threads that sum up, or of those that write.
__device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x) % RT_THREADS; }
// The thread's vector number k in any chunk; those of a warp lie together.
__device__ __forceinline__ int own(int k) { return (thread() / 32 * RT_ITEMS + k) * 32 + thread() % 32; }

__device__ __forceinline__ float exp_biased(float x, float bias) { return rt_exp2(fmaf(x, kRtLog2E, bias)); }

// One thread asks for this block's chunks.
__device__ __forceinline__ void load_rows(Stream& stream, const Store* x, rt_i64 rows, int vectors) {
  for (rt_i64 row = Stream::first_row(); row < rows; row += Stream::clusters()) {
    const uint4* const from[1] = {reinterpret_cast<const uint4*>(x) + row * vectors};
    stream.load(from, vectors);
  }
}

// The thread's vectors of a chunk that has `vectors` from its start to the end of the row; −∞ past that.
__device__ __forceinline__ void read(const rt_u8* storage, const Stream::Stage& stage, int vectors, Chunk& v) {
  const uint4* const from = reinterpret_cast<const uint4*>(storage + stage.number * Stream::kChunkBytes);
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    v[k].fill(rt_minus_infinity<RT_DTYPE>());
    if (own(k) < vectors) {
      const uint4 u = from[own(k)];
      v[k] = {{u.x, u.y, u.z, u.w}};
    }
  }
}

// Largest element; of 16-bit types two at a time, in their own format.
__device__ __forceinline__ float largest(const Chunk& v) {
#if RT_DTYPE == RT_FP32
  float max = v[0].get(0);
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) max = fmaxf(max, v[k].get(i));
  }
  return max;
#else
  Vector max = v[0];
#pragma unroll
  for (int k = 1; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int w = 0; w < Vector::kWords; ++w) max.word[w] = rt_larger_pair<RT_DTYPE>(max.word[w], v[k].word[w]);
  }
#pragma unroll
  for (int w = 1; w < Vector::kWords; ++w) max.word[0] = rt_larger_pair<RT_DTYPE>(max.word[0], max.word[w]);
  return fmaxf(max.get(0), max.get(1));
#endif
}

// Adds a chunk to the running state.
__device__ __forceinline__ void accumulate(const Chunk& v, RtMaxSum* state) {
  const float max = fmaxf(state->max, largest(v));
  const float bias = rt_exp_bias(max);
  float sum[2] = {state->sum * exp_biased(state->max, bias), 0.0f};
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) sum[i % 2] += exp_biased(v[k].get(i), bias);
  }
  *state = {max, sum[0] + sum[1]};
}

// Every warp tells all blocks of the cluster its part of a row.
__device__ __forceinline__ void sum_rows(Stream& stream, rt_i64 rows, int vectors, const rt_u8* storage, Shared* shared) {
  Place place;
  for (rt_i64 row = Stream::first_row(); row < rows; row += Stream::clusters(), place.next()) {
    RtMaxSum state = {-rt_infinity(), 0.0f};
    for (int first = first_vector(); first < vectors; first += kNextChunk, stream.next()) {
      stream.wait();
      Chunk v;
      read(storage, stream.place(), vectors - first, v);
      accumulate(v, &state);
    }
    state = RtRow<32, 1, 1>::lanes_max_sum<32, true>(state);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < RT_CLUSTER) {
      RtMaxSum* const part = &shared->part[place.number][rt_cluster_rank() * kWarps + thread() / 32];
      rt_store_remote(rt_shared_address(part), state.max, state.sum, address(shared->known[place.number]), lane);
    }
  }
}

// What a row's gradient and loss are made with.
struct Finish {
  RtMaxSum state;
  float bias;
  float factor;
  float hot;  // the scale, or 0 for a row that is ignored
  int target;
};

// The thread that has the target stores the loss, too.
__device__ __forceinline__ void write(const Vector& v, int first, const Finish& finish, Store* x, float* loss) {
  float g[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) g[i] = exp_biased(v.get(i), finish.bias) * finish.factor;
  const rt_u32 at = static_cast<rt_u32>(finish.target - first);
  if (at < RT_VEC) {
    float at_target = 0.0f;
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) {
      if (static_cast<rt_u32>(i) != at) continue;
      g[i] -= finish.hot;
      at_target = v.get(i);
    }
    float log2_sum;
    asm("lg2.approx.f32 %0, %1;" : "=f"(log2_sum) : "f"(finish.state.sum));
    *loss = fmaf(log2_sum, 0.6931471805599453f, finish.state.max - at_target);
  }
  Vector out;
  out.set(g);
  out.store(x + first);
}

__device__ __forceinline__ void write_rows(Stream& stream, Store* x, const int* targets, float* loss, float scale,
                                           rt_i64 rows, int vectors, const rt_u8* storage, Shared* shared) {
  Place place;
  for (rt_i64 row = Stream::first_row(); row < rows; row += Stream::clusters(), place.next()) {
    Finish finish;
    finish.target = targets[row];
    const bool counts = finish.target >= 0 && finish.target < vectors * RT_VEC;
    const rt_u32 known = address(shared->known[place.number]);
    rt_barrier_wait(known, place.parity);
    // For the row that uses this place next.
    if (thread() == 0) rt_barrier_expect(known, kParts * static_cast<int>(sizeof(RtMaxSum)));
    finish.state = RtRow<32, 1, 1>::lanes_max_sum<kParts, true>(shared->part[place.number][threadIdx.x % kParts]);
    finish.bias = rt_exp_bias(finish.state.max);
    finish.hot = counts ? scale : 0.0f;
    finish.factor = finish.hot / finish.state.sum;
    if (!counts && rt_cluster_rank() == 0 && thread() == 0) loss[row] = 0.0f;
    Store* const to = x + row * vectors * RT_VEC;
    for (int first = first_vector(); first < vectors; first += kNextChunk, stream.next()) {
      // For what the copy wrote to be seen by these threads as well; it came long ago.
      stream.wait();
      Chunk v;
      read(storage, stream.place(), vectors - first, v);
      stream.release(stream.place());
#pragma unroll
      for (int k = 0; k < RT_ITEMS; ++k) {
        if (first + own(k) < vectors) write(v[k], (first + own(k)) * RT_VEC, finish, to, loss + row);
      }
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(2 * RT_THREADS + 32)
    rt_cross_entropy_stream(Store* logits, const int* targets, float* loss, float grad_scale, rt_i64 rows,
                            rt_i64 vocab) {
  extern __shared__ __align__(128) rt_u8 storage[];
  __shared__ Shared shared;
  Stream stream(storage, &shared.stream);
  const int vectors = static_cast<int>(vocab / RT_VEC);
  if (threadIdx.x == 0) {
    stream.init();
    for (int i = 0; i < kRows; ++i) rt_barrier_init(address(shared.known[i]), 1);
    rt_barrier_init_fence();
    for (int i = 0; i < kRows; ++i) {
      rt_barrier_expect(address(shared.known[i]), kParts * static_cast<int>(sizeof(RtMaxSum)));
    }
  }
  Stream::meet();
  if (threadIdx.x < RT_THREADS) {
    sum_rows(stream, rows, vectors, storage, &shared);
  } else if (threadIdx.x < 2 * RT_THREADS) {
    write_rows(stream, logits, targets, loss, grad_scale, rows, vectors, storage, &shared);
  } else {
    if (rt_elect()) load_rows(stream, logits, rows, vectors);
  }
  Stream::finish();
}

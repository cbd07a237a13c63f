// Softmax along very long rows, each of which a team of SMs shares, or all of them; what is computed is that of the
// template softmax. The launch is cooperative.
//
// Every block has a slice of every row of its team. Slices come by bulk copies into stages of shared memory, are summed
// up, wait there until the sums of the whole row are known, are turned into results where they lie and go by bulk
// copies. Warps of their own do each of these, so that many rows are on their way at a time and neither memory nor
// arithmetic waits while blocks tell one another their sums.
//
// Defines: RT_DTYPE, RT_SCALED, RT_LOG (as in softmax); RT_MASK, RT_CAUSAL, RT_RAGGED (0); RT_VEC elements of 16 bytes;
// RT_TEAMS; RT_THREADS that sum up, and as many that write; RT_CHUNK vectors of a chunk, which is what a stage holds;
// RT_ITEMS of them a thread; RT_CHUNKS of a slice; RT_STAGES; RT_FLIGHT chunks under way at a time; RT_LEARNERS warps
// that wait for the sums of others, a row each; RT_PEERS blocks of a team that a lane asks.
#include "common/grid.cuh"
#include "common/pairs.cuh"
#include "common/row_stream.cuh"
#include "common/softmax.cuh"

namespace {

typedef RtStage<RT_STAGES> Stage;
constexpr int kWarps = RT_THREADS / 32;
// Rows of which chunks may be in stages at a time.
constexpr int kRows = (RT_STAGES + 2 * RT_CHUNKS - 2) / RT_CHUNKS;
typedef RtStage<kRows> Place;  // of a row
// Rows that a block may be ahead of another one, by what it tells.
constexpr int kAhead = 2 * kRows;
constexpr int kChunkBytes = RT_CHUNK * 16;

struct Shared {
  rt_u64 full[RT_STAGES];     // the chunk has come
  rt_u64 written[RT_STAGES];  // results are in its place
  rt_u64 free[RT_STAGES];     // they have gone
  rt_u64 summed[kRows];       // parts are there
  rt_u64 known[kRows];        // what the row's results are made with is
  RtMaxSum part[kRows][kWarps];
  float2 finish[kRows];  // bias and scale of results
};

// What is this block's.
struct Slice {
  int team;    // blocks of it
  int rank;    // of this block in it
  int number;  // of the team
  int first;   // vector of a row
  int vectors;

  explicit __device__ __forceinline__ Slice(rt_i64 cols) {
    team = static_cast<int>(gridDim.x) / RT_TEAMS;
    rank = static_cast<int>(blockIdx.x) % team;
    number = static_cast<int>(blockIdx.x) / team;
    // In lines of 128 bytes.
    const int all = static_cast<int>(cols / RT_VEC);
    const rt_i64 lines = (all + 7) / 8;
    first = min(all, static_cast<int>(lines * rank / team) * 8);
    vectors = min(all, static_cast<int>(lines * (rank + 1) / team) * 8) - first;
  }
  // Vectors of chunk number c.
  __device__ __forceinline__ int of_chunk(int c) const { return max(0, min(RT_CHUNK, vectors - c * RT_CHUNK)); }
};

__device__ __forceinline__ rt_u32 address(const rt_u64& barrier) { return rt_shared_address(&barrier); }

// One thread asks for chunks as long as there are free stages.
__device__ __forceinline__ void load_rows(const Slice& slice, const Vector::Store* x, rt_i64 rows, rt_i64 cols,
                                          rt_u8* storage, Shared* shared) {
  Stage stage, oldest;
  int asked = 0;
  for (rt_i64 row = slice.number; row < rows; row += RT_TEAMS) {
    const Vector::Store* from = x + row * cols + static_cast<rt_i64>(slice.first) * RT_VEC;
    for (int c = 0; c < RT_CHUNKS; ++c, stage.next(), from += RT_CHUNK * RT_VEC) {
      const int bytes = slice.of_chunk(c) * 16;
      rt_barrier_wait(address(shared->free[stage.number]), stage.parity ^ 1);
      if (asked++ >= RT_FLIGHT) {
        rt_barrier_wait(address(shared->full[oldest.number]), oldest.parity);
        oldest.next();
      }
      const rt_u32 full = address(shared->full[stage.number]);
      rt_barrier_expect(full, bytes);
      if (bytes > 0) {
        rt_bulk_load(rt_shared_address(storage + stage.number * kChunkBytes), from, bytes, full);
      }
    }
  }
}

// One thread has results copied, and frees the stages that have been read.
__device__ __forceinline__ void store_rows(const Slice& slice, Vector::Store* y, rt_i64 rows, rt_i64 cols,
                                           const rt_u8* storage, Shared* shared) {
  Stage stage, oldest;
  int stored = 0;
  for (rt_i64 row = slice.number; row < rows; row += RT_TEAMS) {
    Vector::Store* to = y + row * cols + static_cast<rt_i64>(slice.first) * RT_VEC;
    for (int c = 0; c < RT_CHUNKS; ++c, stage.next(), to += RT_CHUNK * RT_VEC) {
      const int bytes = slice.of_chunk(c) * 16;
      rt_barrier_wait(address(shared->written[stage.number]), stage.parity);
      if (bytes > 0) {
        rt_bulk_store(to, rt_shared_address(storage + stage.number * kChunkBytes), bytes);
      }
      rt_store_commit();
      if (stored++ > 0) {
        rt_store_wait_read<1>();
        rt_barrier_arrive(address(shared->free[oldest.number]));
        oldest.next();
      }
    }
  }
  rt_store_wait_read<0>();
}

// The thread's vectors of a chunk; −∞ past its end.
__device__ __forceinline__ void read(const uint4* chunk, int vectors, const Source& in, Vector (&v)[RT_ITEMS]) {
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    const int i = k * RT_THREADS + static_cast<int>(threadIdx.x) % RT_THREADS;
    v[k].fill(in.nothing());
    if (i < vectors) {
      const uint4 u = chunk[i];
      v[k] = {{u.x, u.y, u.z, u.w}};
    }
  }
}

__device__ __forceinline__ const uint4* chunk_of(const rt_u8* storage, const Stage& stage) {
  return reinterpret_cast<const uint4*>(storage + stage.number * kChunkBytes);
}

// Largest t of the thread's vectors. Of 16-bit types two at a time, in their own format.
__device__ __forceinline__ float largest(const Vector (&v)[RT_ITEMS], const Source& in) {
#if RT_DTYPE == RT_FP32
  float max = -rt_infinity();
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) max = fmaxf(max, element(v[k].get(i), in));
  }
  return max;
#else
  // With a negative scale the smallest x counts.
  const rt_u32 flip = RT_SCALED && in.scale < 0.0f ? 0x80008000u : 0;
  Vector max = v[0];
#pragma unroll
  for (int w = 0; w < Vector::kWords; ++w) {
    max.word[w] ^= flip;
#pragma unroll
    for (int k = 1; k < RT_ITEMS; ++k) max.word[w] = rt_larger_pair<RT_DTYPE>(max.word[w], v[k].word[w] ^ flip);
  }
#pragma unroll
  for (int w = 1; w < Vector::kWords; ++w) max.word[0] = rt_larger_pair<RT_DTYPE>(max.word[0], max.word[w]);
  max.word[0] ^= flip;
  return fmaxf(element(max.get(0), in), element(max.get(1), in));
#endif
}

// Adds vectors to the running state.
__device__ __forceinline__ void add(const Vector (&v)[RT_ITEMS], const Source& in, RtMaxSum* state) {
  const float max = fmaxf(state->max, largest(v, in));
  const float bias = rt_exp_bias(max);
  float sum[2] = {state->sum * exp_biased(state->max, bias), 0.0f};
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
#pragma unroll
    for (int i = 0; i < RT_VEC; ++i) sum[i % 2] += exponential(v[k].get(i), in, bias);
  }
  *state = {max, sum[0] + sum[1]};
}

// Of 16-bit types 1 / Σ becomes part of the bias: it spares a product an element, and the error is far below theirs.
constexpr bool kScaleInBias = RT_DTYPE != RT_FP32 && !RT_LOG;

__device__ __forceinline__ float2 finish_of(RtMaxSum state) {
  if (kScaleInBias) {
    float log2_sum;
    asm("lg2.approx.f32 %0, %1;" : "=f"(log2_sum) : "f"(state.sum));
    return {rt_exp_bias(state.max) - log2_sum, 1.0f};
  }
  const Finish finish(state);
  return {finish.bias, finish.scale};
}

__device__ __forceinline__ Vector result(const Vector& v, const Source& in, float2 finish) {
  float y[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) {
    y[i] = RT_LOG ? fmaf(v.get(i), in.scale, finish.x) : exponential(v.get(i), in, finish.x);
    if (!RT_LOG && !kScaleInBias) y[i] *= finish.y;
  }
  Vector out;
  out.set(y);
  return out;
}

__device__ __forceinline__ void sum_rows(const Slice& slice, const Source& in, rt_i64 rows, const rt_u8* storage,
                                         Shared* shared) {
  Stage stage;
  Place place;
  for (rt_i64 row = slice.number; row < rows; row += RT_TEAMS, place.next()) {
    RtMaxSum state = {-rt_infinity(), 0.0f};
    for (int c = 0; c < RT_CHUNKS; ++c, stage.next()) {
      rt_barrier_wait(address(shared->full[stage.number]), stage.parity);
      Vector v[RT_ITEMS];
      read(chunk_of(storage, stage), slice.of_chunk(c), in, v);
      add(v, in, &state);
    }
    state = RtRow<32, 1, 1>::lanes_max_sum<32, true>(state);
    if (threadIdx.x % 32 == 0) {
      shared->part[place.number][threadIdx.x / 32] = state;
      rt_barrier_arrive(address(shared->summed[place.number]));
    }
  }
}

__device__ __forceinline__ void write_rows(const Slice& slice, const Source& in, rt_i64 rows, rt_u8* storage,
                                           Shared* shared) {
  Stage stage;
  Place place;
  for (rt_i64 row = slice.number; row < rows; row += RT_TEAMS, place.next()) {
    rt_barrier_wait(address(shared->known[place.number]), place.parity);
    const float2 finish = shared->finish[place.number];
    for (int c = 0; c < RT_CHUNKS; ++c, stage.next()) {
      // For what the copy wrote to be seen by these threads as well; it came long ago.
      rt_barrier_wait(address(shared->full[stage.number]), stage.parity);
      const int vectors = slice.of_chunk(c);
      Vector v[RT_ITEMS];
      read(chunk_of(storage, stage), vectors, in, v);
#pragma unroll
      for (int k = 0; k < RT_ITEMS; ++k) {
        const int i = k * RT_THREADS + static_cast<int>(threadIdx.x) % RT_THREADS;
        const Vector out = result(v[k], in, finish);
        if (i < vectors) {
          const_cast<uint4*>(chunk_of(storage, stage))[i] = {out.word[0], out.word[1], out.word[2], out.word[3]};
        }
      }
      rt_async_fence();
      rt_barrier_arrive_warp(address(shared->written[stage.number]), threadIdx.x % 32);
    }
  }
}

// What blocks tell one another, in the workspace. It is zero at first, and each launch leaves what the next one needs.
class Exchange {
 public:
  // `warp` of those that tell and learn. Each has its own count of the rows of all launches before this one, so that no
  // number comes twice and no launch takes for its own what an earlier one left.
  __device__ __forceinline__ Exchange(rt_u8* workspace, const Slice& slice, int warp)
      : slots_(reinterpret_cast<RtNumbered*>(workspace + gridDim.x * kCountBytes) +
               static_cast<rt_i64>(slice.number) * kAhead * slice.team),
        count_(reinterpret_cast<rt_u32*>(workspace + blockIdx.x * kCountBytes) + warp),
        before_(*count_),
        team_(slice.team) {}

  // Where block number i of the team tells of a row; `turn` is the number of the team's rows before it.
  __device__ __forceinline__ RtNumbered* slot(int turn, int i) const { return slots_ + turn % kAhead * team_ + i; }
  __device__ __forceinline__ rt_u32 number(int turn) const { return before_ + static_cast<rt_u32>(turn) + 1; }
  // The team had so many rows.
  __device__ __forceinline__ void finish(int turns) const {
    if (threadIdx.x % 32 == 0) *count_ = before_ + static_cast<rt_u32>(turns);
  }

 private:
  static constexpr int kCountBytes = 32;  // of up to 8 warps

  RtNumbered* const slots_;
  rt_u32* const count_;
  const rt_u32 before_;
  const int team_;
};

// One warp tells the team the block's sums.
__device__ __forceinline__ void tell_rows(const Slice& slice, rt_i64 rows, const Exchange& exchange, Shared* shared) {
  Place place;
  int turn = 0;
  for (rt_i64 row = slice.number; row < rows; row += RT_TEAMS, place.next(), ++turn) {
    rt_barrier_wait(address(shared->summed[place.number]), place.parity);
    const RtMaxSum state =
        RtRow<32, 1, 1>::lanes_max_sum<kWarps, true>(shared->part[place.number][threadIdx.x % kWarps]);
    if (threadIdx.x % 32 == 0) rt_tell(exchange.slot(turn, slice.rank), state.max, state.sum, exchange.number(turn));
  }
  exchange.finish(turn);
}

// Warp number w of RT_LEARNERS waits for the sums of every RT_LEARNERS-th row of the team.
__device__ __forceinline__ void learn_rows(const Slice& slice, int w, rt_i64 rows, const Exchange& exchange,
                                           Shared* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int turns = static_cast<int>((rows - slice.number + RT_TEAMS - 1) / RT_TEAMS);
  for (int turn = w; turn < turns; turn += RT_LEARNERS) {
    RtNumbered told[RT_PEERS];
    bool all;
    do {
      all = true;
#pragma unroll
      for (int k = 0; k < RT_PEERS; ++k) {
        rt_ask(exchange.slot(turn, min(lane + 32 * k, slice.team - 1)), exchange.number(turn), &told[k]);
      }
#pragma unroll
      for (int k = 0; k < RT_PEERS; ++k) all = all && told[k].is_for(exchange.number(turn));
    } while (!__all_sync(0xFFFFFFFFu, all));
    RtMaxSum state = {-rt_infinity(), 0.0f};
#pragma unroll
    for (int k = 0; k < RT_PEERS; ++k) state.max = fmaxf(state.max, told[k].first());
    const float bias = rt_exp_bias(state.max);
#pragma unroll
    for (int k = 0; k < RT_PEERS; ++k) {
      if (lane + 32 * k < slice.team) state.sum = fmaf(told[k].second(), exp_biased(told[k].first(), bias), state.sum);
    }
    state = RtRow<32, 1, 1>::lanes_max_sum<32, true>(state);
    if (lane == 0) {
      shared->finish[turn % kRows] = finish_of(state);
      rt_barrier_arrive(address(shared->known[turn % kRows]));
    }
  }
  exchange.finish(turns);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(2 * RT_THREADS + 32 * (3 + RT_LEARNERS))
    rt_softmax_grid(const Vector::Store* x, Vector::Store* y,
#if RT_SCALED
                    float scale,
#endif
                    rt_u8* workspace, rt_i64 rows, rt_i64 cols) {
  extern __shared__ __align__(128) rt_u8 storage[];
  __shared__ Shared shared;
  const Slice slice(cols);
  if (threadIdx.x == 0) {
    for (int i = 0; i < RT_STAGES; ++i) {
      rt_barrier_init(address(shared.full[i]), 1);
      rt_barrier_init(address(shared.written[i]), kWarps * kRtWarpArrivals);
      rt_barrier_init(address(shared.free[i]), 1);
    }
    for (int i = 0; i < kRows; ++i) {
      rt_barrier_init(address(shared.summed[i]), kWarps);
      rt_barrier_init(address(shared.known[i]), 1);
    }
    rt_barrier_init_fence();
  }
  __syncthreads();
  Source in = {};
#if RT_SCALED
  in.scale_by(scale);
#endif
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < kWarps) {
    sum_rows(slice, in, rows, storage, &shared);
  } else if (warp < 2 * kWarps) {
    write_rows(slice, in, rows, storage, &shared);
  } else if (warp == 2 * kWarps) {
    if (rt_elect()) load_rows(slice, x, rows, cols, storage, &shared);
  } else if (warp == 2 * kWarps + 1) {
    if (rt_elect()) store_rows(slice, y, rows, cols, storage, &shared);
  } else {
    const int w = warp - 2 * kWarps - 2;
    const Exchange exchange(workspace, slice, w);
    if (w == 0) {
      tell_rows(slice, rows, exchange, &shared);
    } else {
      learn_rows(slice, w - 1, rows, exchange, &shared);
    }
  }
}

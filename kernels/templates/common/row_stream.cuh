// Long rows on their way through shared memory (sm_90 and later): one warp asks for the chunks of rows to come by bulk
// copies, as long as there are free stages, while the others reduce a row and write its results.
//
// A row belongs to the CTAS blocks of a cluster, each of which has every CTAS-th chunk; a thread has ITEMS vectors of
// 16 bytes of a chunk, those of a warp lie together. A stage holds the same chunk of INPUTS tensors. The clusters are
// as many as the GPU holds and take rows in turn.
#pragma once

#include "common/row.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"

// Stages are used in turn; `parity` is that of the turn.
template <int STAGES>
struct RtStage {
  int number = 0;
  rt_u32 parity = 0;

  __device__ __forceinline__ void next() {
    if (++number == STAGES) {
      number = 0;
      parity ^= 1;
    }
  }
};

template <int THREADS, int ITEMS, int STAGES, int FLIGHT, int INPUTS, int CTAS>
class RtRowStream {
 public:
  static constexpr int kVectors = THREADS * ITEMS;  // of a chunk
  static constexpr int kChunkBytes = 16 * kVectors;
  static constexpr int kStageBytes = INPUTS * kChunkBytes;
  typedef RtStage<STAGES> Stage;

  struct Shared {
    rt_u64 full[STAGES];
    rt_u64 free[STAGES];
  };

  __device__ __forceinline__ RtRowStream(rt_u8* storage, Shared* shared) : storage_(storage), shared_(shared) {}

  // By one thread, before the blocks meet.
  __device__ __forceinline__ void init() const {
    for (int i = 0; i < STAGES; ++i) {
      rt_barrier_init(rt_shared_address(&shared_->full[i]), 1);
      rt_barrier_init(rt_shared_address(&shared_->free[i]), THREADS / 32 * kRtWarpArrivals);
    }
    rt_barrier_init_fence();
  }
  static __device__ __forceinline__ void meet() {
    if constexpr (CTAS > 1) {
      rt_cluster_barrier();
    } else {
      __syncthreads();
    }
  }
  // No block of a cluster ends while others write into its shared memory.
  static __device__ __forceinline__ void finish() {
    if constexpr (CTAS > 1) rt_cluster_barrier();
  }

  // Whether the thread is of the warp that loads.
  static __device__ __forceinline__ bool loads() { return threadIdx.x >= THREADS; }
  static __device__ __forceinline__ int rank() { return CTAS > 1 ? rt_cluster_rank() : 0; }
  static __device__ __forceinline__ rt_i64 first_row() { return blockIdx.x / CTAS; }
  static __device__ __forceinline__ rt_i64 clusters() { return gridDim.x / CTAS; }

  // Whether this block has a chunk number c of a row of so many vectors.
  static __device__ __forceinline__ bool has(int c, int vectors) { return (c * CTAS + rank()) * kVectors < vectors; }
  // The thread's vector number k in any chunk, and in the row for chunk number c.
  static __device__ __forceinline__ int own(int k) {
    return (static_cast<int>(threadIdx.x) / 32 * ITEMS + k) * 32 + static_cast<int>(threadIdx.x) % 32;
  }
  static __device__ __forceinline__ int vector(int c, int k) { return (c * CTAS + rank()) * kVectors + own(k); }

  // By one thread of the loading warp: asks for this block's chunks of a row of so many vectors. FLIGHT chunks are
  // under way at a time: with more than 64 KiB of an SM it got slower on an H200.
  template <typename T>
  __device__ __forceinline__ void load(const T* const (&row)[INPUTS], int vectors) {
    for (int first = rank() * kVectors; first < vectors; first += CTAS * kVectors) {
      const int bytes = 16 * min(vectors - first, kVectors);
      rt_barrier_wait(rt_shared_address(&shared_->free[place_.number]), place_.parity ^ 1);
      if (asked_++ >= FLIGHT) {
        rt_barrier_wait(rt_shared_address(&shared_->full[oldest_.number]), oldest_.parity);
        oldest_.next();
      }
      const rt_u32 full = rt_shared_address(&shared_->full[place_.number]);
      rt_barrier_expect(full, bytes * INPUTS);
#pragma unroll
      for (int i = 0; i < INPUTS; ++i) {
        const uint4* const from = reinterpret_cast<const uint4*>(row[i]) + first;
        rt_bulk_load(rt_shared_address(slot(place_, i)), from, bytes, full);
      }
      place_.next();
    }
  }

  // The stage of the chunk that comes next, for the threads that reduce; wait() until it has come.
  __device__ __forceinline__ const Stage& place() const { return place_; }
  __device__ __forceinline__ void next() { place_.next(); }
  __device__ __forceinline__ void wait() const {
    rt_barrier_wait(rt_shared_address(&shared_->full[place_.number]), place_.parity);
  }
  // The thread's vector number k of tensor number `input`.
  __device__ __forceinline__ uint4* at(const Stage& stage, int input, int k) const {
    return reinterpret_cast<uint4*>(slot(stage, input)) + own(k);
  }
  // The warp needs the stage no longer.
  __device__ __forceinline__ void release(const Stage& stage) const {
    rt_barrier_arrive_warp(rt_shared_address(&shared_->free[stage.number]), threadIdx.x % 32);
  }

 private:
  __device__ __forceinline__ rt_u8* slot(const Stage& stage, int input) const {
    return storage_ + stage.number * kStageBytes + input * kChunkBytes;
  }

  rt_u8* const storage_;
  Shared* const shared_;
  Stage place_;
  // Of the loading thread: chunks asked for, and the oldest that is under way.
  Stage oldest_;
  int asked_ = 0;
};

// Reductions that are repeated row by row, over the threads that do not load and the blocks of the cluster. Blocks
// write what they have into each other's shared memory; two sets of words in turn, as a block may be a row ahead.
template <int THREADS, int CTAS>
class RtStreamReduction {
 public:
  typedef RtRow<THREADS, 1, 1, true> Block;
  struct Shared {
    typename Block::Shared block[2];
    RtMaxSum part[2][CTAS];
    rt_u64 arrived[2];
  };

  // By one thread, before the blocks meet.
  static __device__ __forceinline__ void init(Shared* shared) {
    if constexpr (CTAS > 1) {
      for (int i = 0; i < 2; ++i) rt_barrier_init(rt_shared_address(&shared->arrived[i]), 1);
      rt_barrier_init_fence();
    }
  }

  // `turn` is the number of rows before this one.
  static __device__ __forceinline__ RtMaxSum max_sum(RtMaxSum v, int turn, Shared* shared) {
    v = Block::max_sum(v, &shared->block[turn & 1]);
    if constexpr (CTAS > 1) v = Block::template lanes_max_sum<CTAS, true>(exchange(v, turn, shared));
    return v;
  }
  static __device__ __forceinline__ float sum(float v, int turn, Shared* shared) {
    v = Block::sum(v, &shared->block[turn & 1]);
    if constexpr (CTAS > 1) v = Block::template lanes_sum<CTAS>(exchange({0.0f, v}, turn, shared).sum);
    return v;
  }

  // Lane l gets what block l % CTAS has; `v` is the same in all threads of a block.
  static __device__ __forceinline__ RtMaxSum exchange(RtMaxSum v, int turn, Shared* shared) {
    const int set = turn & 1;
    const rt_u32 arrived = rt_shared_address(&shared->arrived[set]);
    if (threadIdx.x == 0) rt_barrier_expect(arrived, CTAS * static_cast<int>(sizeof(RtMaxSum)));
    if (threadIdx.x < CTAS) {
      rt_store_remote(rt_shared_address(&shared->part[set][rt_cluster_rank()]), v.max, v.sum, arrived,
                      static_cast<int>(threadIdx.x));
    }
    rt_barrier_wait(arrived, turn >> 1 & 1);
    return shared->part[set][threadIdx.x % CTAS];
  }
};

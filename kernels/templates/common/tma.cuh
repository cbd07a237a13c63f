// Bulk copies and the shared-memory barriers they complete on (sm_90 and later), one instruction a function.
//
// Shared-memory addresses are 32-bit addresses of the block's own window, which are also valid in the cluster's.
#pragma once
#include "common/types.cuh"

// What cuTensorMapEncodeTiled writes. Passed by value as a `const __grid_constant__` parameter.
struct alignas(64) RtTensorMap {
  rt_u64 opaque[16];
};

__device__ __forceinline__ rt_u32 rt_shared_address(const void* p) {
  return static_cast<rt_u32>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void rt_barrier_init(rt_u32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers known to the copy engine and to the blocks of the cluster.
__device__ __forceinline__ void rt_barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and adds the bytes that copies will bring in this phase.
__device__ __forceinline__ void rt_barrier_expect(rt_u32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void rt_barrier_arrive(rt_u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// A whole warp tells that what its lanes read or wrote is done: one lane arrives, and __syncwarp orders the others'
// accesses before it. racecheck does not follow that order and reports every access of the other lanes
// (docs/verification.md); for it alone RT_EVERY_LANE_ARRIVES is 1 and every lane arrives.
#ifndef RT_EVERY_LANE_ARRIVES
#define RT_EVERY_LANE_ARRIVES 0
#endif
constexpr int kRtWarpArrivals = RT_EVERY_LANE_ARRIVES ? 32 : 1;
__device__ __forceinline__ void rt_barrier_arrive_warp(rt_u32 barrier, int lane) {
  if constexpr (kRtWarpArrivals == 1) {
    __syncwarp();
    if (lane == 0) rt_barrier_arrive(barrier);
  } else {
    rt_barrier_arrive(barrier);
  }
}
// Arrives at the barrier that block `rank` of the cluster has at this address. It tells that reads are done, whose
// results the caller has: a release of cluster scope would add a fence of the whole GPU, about half a microsecond.
__device__ __forceinline__ void rt_barrier_arrive_at(rt_u32 barrier, int rank) {
  asm volatile(
      "{.reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;"
      " mbarrier.arrive.shared::cluster.b64 _, [remote];}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// Writes two words to this address (a multiple of 8) in block `rank` of the cluster, whose barrier is told of 8 bytes.
__device__ __forceinline__ void rt_store_remote(rt_u32 to, float a, float b, rt_u32 barrier, int rank) {
  asm volatile(
      "{.reg .b32 place, told; mapa.shared::cluster.u32 place, %0, %4; mapa.shared::cluster.u32 told, %3, %4;"
      " st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [place], {%1, %2}, [told];}" ::"r"(to),
      "f"(a), "f"(b), "r"(barrier), "r"(rank)
      : "memory");
}
// The same with four words (a multiple of 16).
__device__ __forceinline__ void rt_store_remote(rt_u32 to, float4 v, rt_u32 barrier, int rank) {
  asm volatile(
      "{.reg .b32 place, told; mapa.shared::cluster.u32 place, %0, %6; mapa.shared::cluster.u32 told, %5, %6;"
      " st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [place], {%1, %2, %3, %4}, [told];}" ::"r"(to),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier), "r"(rank)
      : "memory");
}
// Two words at this address (a multiple of 8) in block `rank` of the cluster.
__device__ __forceinline__ float2 rt_load_remote(rt_u32 from, int rank) {
  float2 v;
  asm volatile(
      "{.reg .b32 place; mapa.shared::cluster.u32 place, %2, %3;"
      " ld.shared::cluster.v2.f32 {%0, %1}, [place];}"
      : "=f"(v.x), "=f"(v.y)
      : "r"(from), "r"(rank)
      : "memory");
  return v;
}
// Waits until the phase of this parity has completed. The phase before the first counts as completed with parity 1.
__device__ __forceinline__ void rt_barrier_wait(rt_u32 barrier, rt_u32 parity) {
  rt_u32 done;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  } while (!done);
}

__device__ __forceinline__ void rt_tensor_prefetch(const RtTensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// What L2 is told to keep: nothing special, this first to go. There is no last to go: what is read so stays whatever else is
// read, in a measurement until its buffers' next turn as in use at the cost of others (docs/measuring.md).
enum RtKeep { kRtKeepNormal = 0, kRtKeepFirstOut = 1 };
template <int KEEP>
__device__ __forceinline__ rt_u64 rt_keep_policy() {
  rt_u64 policy = 0;
  if constexpr (KEEP == kRtKeepFirstOut) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}

// Copies the map's box at (c0, c1, c2), innermost first, to shared memory. `barrier` is told of the bytes. `policy` is
// from rt_keep_policy<KEEP>.
#define RT_TENSOR_LOAD "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
template <int KEEP>
__device__ __forceinline__ void rt_tensor_load(rt_u32 to, const RtTensorMap& map, rt_u32 barrier, int c0, int c1,
                                               int c2, rt_u64 policy) {
  if constexpr (KEEP != kRtKeepNormal) {
    asm volatile(RT_TENSOR_LOAD ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to), "l"(&map),
                 "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "l"(policy)
                 : "memory");
  } else {
    asm volatile(RT_TENSOR_LOAD " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to), "l"(&map), "r"(barrier), "r"(c0), "r"(c1),
                 "r"(c2)
                 : "memory");
  }
}
// The same to this address in every block of the cluster whose bit is set in `blocks`, each with its own barrier.
template <int KEEP>
__device__ __forceinline__ void rt_tensor_multicast(rt_u32 to, const RtTensorMap& map, rt_u32 barrier, int c0, int c1,
                                                    int c2, rt_u32 blocks, rt_u64 policy) {
  if constexpr (KEEP != kRtKeepNormal) {
    asm volatile(RT_TENSOR_LOAD ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "h"(static_cast<rt_u16>(blocks)), "l"(policy)
                 : "memory");
  } else {
    asm volatile(RT_TENSOR_LOAD ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to), "l"(&map),
                 "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "h"(static_cast<rt_u16>(blocks))
                 : "memory");
  }
}

// Copies a box from shared memory; the part outside the tensor is dropped. Writers fence (rt_async_fence) and meet
// at a barrier first.
__device__ __forceinline__ void rt_tensor_store(const RtTensorMap& map, rt_u32 from, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map), "r"(from),
               "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}
__device__ __forceinline__ void rt_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until all but the last N groups of stores by this thread have read their shared memory.
template <int N>
__device__ __forceinline__ void rt_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// Copies without a map: `bytes` and both addresses are multiples of 16. `barrier` is told of the bytes.
__device__ __forceinline__ void rt_bulk_load(rt_u32 to, const void* from, int bytes, rt_u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// As rt_tensor_store.
__device__ __forceinline__ void rt_bulk_store(void* to, rt_u32 from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}

// Orders this thread's ordinary writes of shared memory before what the copy engine and the tensor cores do next.
__device__ __forceinline__ void rt_async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// True in one thread of a warp, all of whose threads call it. The compiler knows that it is one, unlike with a
// comparison of thread numbers, and issues copies without a loop over threads.
__device__ __forceinline__ bool rt_elect() {
  rt_u32 elected;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(elected));
  return elected;
}

__device__ __forceinline__ int rt_cluster_rank() {
  rt_u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
// All threads of the cluster.
__device__ __forceinline__ void rt_cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The same where no writes have to be seen after it: it spares a fence of the whole GPU.
__device__ __forceinline__ void rt_cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The two halves of it.
__device__ __forceinline__ void rt_cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void rt_cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// `threads` threads of the block, a multiple of 32, of which some may only arrive; barrier 0 is __syncthreads.
__device__ __forceinline__ void rt_named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void rt_named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Bulk tensor copies and the shared-memory barriers they complete on (sm_90 and later), one instruction a function.
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
// Arrives at the barrier that block `rank` of the cluster has at this address.
__device__ __forceinline__ void rt_barrier_arrive_at(rt_u32 barrier, int rank) {
  asm volatile(
      "{.reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;"
      " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];}" ::"r"(barrier),
      "r"(rank)
      : "memory");
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

// Copies the map's box at (c0, c1, c2), innermost first, to shared memory. `barrier` is told of the bytes.
__device__ __forceinline__ void rt_tensor_load(rt_u32 to, const RtTensorMap& map, rt_u32 barrier, int c0, int c1,
                                               int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(to),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
// The same to this address in every block of the cluster whose bit is set in `blocks`, each with its own barrier.
__device__ __forceinline__ void rt_tensor_multicast(rt_u32 to, const RtTensorMap& map, rt_u32 barrier, int c0, int c1,
                                                    int c2, rt_u32 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "h"(static_cast<rt_u16>(blocks))
      : "memory");
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
// Orders this thread's ordinary writes of shared memory before what the copy engine and the tensor cores do next.
__device__ __forceinline__ void rt_async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ int rt_cluster_rank() {
  rt_u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
// All threads of the cluster.
__device__ __forceinline__ void rt_cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// `threads` threads of the block, a multiple of 32; barrier 0 is __syncthreads.
__device__ __forceinline__ void rt_named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Kernels of the run worker: fills, poison, comparison, redzones, cache flush, baselines and ceilings.
//
// All are extern "C", take 64-bit sizes and are correct for any grid and any block of a multiple of 32 threads up
// to 1024; the recommended launch stands at each. Buffers come from the driver's allocator or from a mapping and
// are at least 16-byte aligned, except where a kernel says that it takes any address.
//
// Defines: none. Compile once an architecture.
#pragma once

#include "common/generate.cuh"
#include "common/types.cuh"

// What rt_compare found, in this layout: 48 bytes, no padding. Reset it by rt_reset_result before each compare.
struct CompareResult {
  rt_u64 wrong;              // byte 0: elements outside their bound, unwritten ones included
  rt_u64 unwritten;          // byte 8: elements that still hold the poison pattern (all bits set)
  rt_u64 first_wrong_index;  // byte 16: smallest wrong index; 2^64 − 1 if none
  rt_u64 nonfinite;          // byte 24: written elements that are NaN or infinite, right or wrong
  double max_ratio;          // byte 32: largest |error| / bound among finite elements with a finite reference
  double max_abs;            // byte 40: largest |error| among the same elements
};

struct alignas(16) RtVec16 {
  rt_u32 x, y, z, w;
};

// Without cache hints, as in vector.cuh. L2's normal policy: a read of a big buffer evicts what was there before.
__device__ __forceinline__ RtVec16 rt_load(const RtVec16* p) {
  RtVec16 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ __forceinline__ RtVec16 rt_load_l2(const RtVec16* p) {
  RtVec16 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ void rt_store(RtVec16* p, RtVec16 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ rt_u32 rt_fold(RtVec16 v) { return v.x ^ v.y ^ v.z ^ v.w; }

// Vectors each thread has in flight in the streaming kernels: a tile is 4 vectors a thread, so a block of 512
// threads moves 32 KiB a tile.
constexpr int kRtUnroll = 4;

__device__ __forceinline__ rt_i64 rt_thread() { return static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ rt_i64 rt_threads() { return static_cast<rt_i64>(gridDim.x) * blockDim.x; }

// Tiles of `vectors` 16-byte vectors for this block size.
__device__ __forceinline__ rt_i64 rt_tiles(rt_i64 vectors) {
  const rt_i64 tile = static_cast<rt_i64>(blockDim.x) * kRtUnroll;
  return (vectors + tile - 1) / tile;
}

// Loads one tile; vectors past the end become zero. Full tiles take the branch without bounds checks, so that the
// loads issue back to back.
__device__ __forceinline__ void rt_load_tile(const RtVec16* p, rt_i64 vectors, rt_i64 tile, RtVec16 (&v)[kRtUnroll]) {
  const rt_i64 base = tile * blockDim.x * kRtUnroll + threadIdx.x;
  if (base - threadIdx.x + static_cast<rt_i64>(blockDim.x) * kRtUnroll <= vectors) {
#pragma unroll
    for (int k = 0; k < kRtUnroll; ++k) v[k] = rt_load(p + base + k * blockDim.x);
  } else {
#pragma unroll
    for (int k = 0; k < kRtUnroll; ++k) {
      const rt_i64 i = base + k * blockDim.x;
      v[k] = i < vectors ? rt_load(p + i) : RtVec16{0, 0, 0, 0};
    }
  }
}
__device__ __forceinline__ void rt_store_tile(RtVec16* p, rt_i64 vectors, rt_i64 tile, const RtVec16 (&v)[kRtUnroll]) {
  const rt_i64 base = tile * blockDim.x * kRtUnroll + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kRtUnroll; ++k) {
    const rt_i64 i = base + k * blockDim.x;
    if (i < vectors) rt_store(p + i, v[k]);
  }
}

// Fills a tensor: see generate.cuh. dtype: a float type, INT8, INT4 or INT32 (anything else fills nothing). A range
// above 0 makes an INT32 or INT64 tensor one of indices, different from one another or not, with −1 for about one in
// `skip`.
// Launch: 8 blocks an SM × 256 threads.
extern "C" __global__ void rt_fill(void* out, rt_i64 n, int dtype, rt_u64 seed, rt_u32 tensor, float mean,
                                   float stddev, rt_i64 range, int distinct, rt_i64 skip, rt_i64 total, int offsets) {
  const float scale = rt_generate_scale(stddev);
  if (dtype == RT_INT4) {
    for (rt_i64 i = rt_thread(); i < (n + 1) / 2; i += rt_threads()) {
      const int low = __float2int_rn(rt_generate(seed, tensor, static_cast<rt_u64>(2 * i), mean, scale));
      const int high = __float2int_rn(rt_generate(seed, tensor, static_cast<rt_u64>(2 * i + 1), mean, scale));
      static_cast<rt_u8*>(out)[i] =
          static_cast<rt_u8>((max(-8, min(7, low)) & 15) | (max(-8, min(7, high)) & 15) << 4);
    }
    return;
  }
  for (rt_i64 i = rt_thread(); i < n; i += rt_threads()) {
    if (total > 0) {
      const rt_i64 groups = n - (offsets != 0 ? 1 : 0);
      const rt_i64 begin = rt_generate_group_start(seed, tensor, i, groups, total);
      static_cast<int*>(out)[i] = static_cast<int>(
          offsets != 0 ? begin : rt_generate_group_start(seed, tensor, i + 1, groups, total) - begin);
      continue;
    }
    if (range <= 0) {
      rt_put(out, i, dtype, rt_generate(seed, tensor, static_cast<rt_u64>(i), mean, scale));
      continue;
    }
    const rt_i64 place = rt_generate_place(seed, tensor, static_cast<rt_u64>(i), static_cast<rt_u64>(range), distinct,
                                           skip);
    if (dtype == RT_INT32) static_cast<int*>(out)[i] = static_cast<int>(place);
    if (dtype == RT_INT64) static_cast<rt_i64*>(out)[i] = place;
  }
}

// Sets every byte to 0xFF: a NaN in every float type, and one that arithmetic does not produce (the canonical NaN
// has a clear sign bit), so that an element still holding it was never written. Any address, any size.
// Launch: 8 blocks an SM × 256 threads.
extern "C" __global__ void rt_poison(void* out, rt_i64 bytes) {
  rt_u8* const base = static_cast<rt_u8*>(out);
  const rt_i64 misaligned = reinterpret_cast<rt_u64>(out) & 15;
  rt_i64 head = misaligned == 0 ? 0 : 16 - misaligned;
  if (head > bytes) head = bytes;
  const rt_i64 vectors = (bytes - head) / 16;
  const rt_i64 tail = head + vectors * 16;
  RtVec16* const body = reinterpret_cast<RtVec16*>(base + head);
  for (rt_i64 i = rt_thread(); i < vectors; i += rt_threads()) body[i] = RtVec16{~0u, ~0u, ~0u, ~0u};
  if (rt_thread() < head) base[rt_thread()] = 0xFF;
  if (rt_thread() < bytes - tail) base[tail + rt_thread()] = 0xFF;
}

// Adds to *damaged the number of bytes that are not 0xFF (redzones). Any address, any size.
// Launch: enough for one byte a thread, at most 8 blocks an SM × 256 threads.
extern "C" __global__ void rt_check_bytes(const void* p, rt_i64 bytes, rt_u64* damaged) {
  const rt_u8* const base = static_cast<const rt_u8*>(p);
  rt_u64 count = 0;
  for (rt_i64 i = rt_thread(); i < bytes; i += rt_threads()) count += base[i] != 0xFF;
  if (count != 0) atomicAdd(damaged, count);
}

// Fills the shared memory of an SM with the poison pattern: a kernel that reads what it has not yet written there must
// not find what the launch before it left, which may be just what it needs.
// Launch: one block an SM, with all the dynamic shared memory that a block can have (`words` of 4 bytes).
extern "C" __global__ void __launch_bounds__(1024) rt_scrub_shared(int words) {
  extern __shared__ rt_u32 rt_scrubbed[];
  volatile rt_u32* const to = rt_scrubbed;
  for (int i = static_cast<int>(threadIdx.x); i < words; i += static_cast<int>(blockDim.x)) to[i] = 0xFFFFFFFFu;
}

// Adds to *sum a checksum of all bytes and where they are, the same in whatever order threads come. A single changed
// word always changes it, others all but 2^-64 of the time. `p` is aligned to 4 bytes.
// Launch: 8 blocks an SM × 256 threads.
extern "C" __global__ void rt_checksum(const void* p, rt_i64 bytes, rt_u64* sum) {
  const rt_u32* const words = static_cast<const rt_u32*>(p);
  const rt_i64 n = bytes / 4;
  rt_u64 part = 0;
  // An odd multiple of the index never gives two words of one position the same input.
  for (rt_i64 i = rt_thread(); i < n; i += rt_threads())
    part += rt_mix(static_cast<rt_u64>(i) * 0x9E3779B97F4A7C15ull + words[i]);
  if (rt_thread() < bytes % 4) {
    const rt_i64 i = n * 4 + rt_thread();
    part += rt_mix(~(static_cast<rt_u64>(i) << 8 | static_cast<const rt_u8*>(p)[i]));
  }
  if (part != 0) atomicAdd(sum, part);
}

// One block, one thread.
extern "C" __global__ void rt_reset_result(CompareResult* result) {
  if (rt_thread() == 0) *result = CompareResult{0, 0, ~0ull, 0, 0.0, 0.0};
}

// An element as read back from a tensor.
struct RtElement {
  double value;
  bool poison;
};
__device__ __forceinline__ RtElement rt_element(const void* p, rt_i64 i, int dtype) {
  if (dtype == RT_FP32) {
    const rt_u32 bits = static_cast<const rt_u32*>(p)[i];
    return {static_cast<double>(__uint_as_float(bits)), bits == 0xFFFFFFFFu};
  }
  if (dtype == RT_FP8_E4M3) {
    const rt_u8 bits = static_cast<const rt_u8*>(p)[i];
    return {static_cast<double>(RtType<RT_FP8_E4M3>::load(bits)), bits == 0xFFu};
  }
  if (dtype == RT_FP8_E5M2) {
    const rt_u8 bits = static_cast<const rt_u8*>(p)[i];
    return {static_cast<double>(RtType<RT_FP8_E5M2>::load(bits)), bits == 0xFFu};
  }
  if (dtype == RT_INT4) {
    return {static_cast<double>(RtType<RT_INT4>::load(static_cast<const rt_u8*>(p)[i / 2], static_cast<int>(i & 1))),
            false};
  }
  if (dtype == RT_INT8) {
    // No value is free for poison: an element never written is a −1, which is wrong nearly everywhere.
    return {static_cast<double>(static_cast<const signed char*>(p)[i]), false};
  }
  if (dtype == RT_INT32) {
    // −1 is no index, so it can stand for "never written" here, too.
    const int v = static_cast<const int*>(p)[i];
    return {static_cast<double>(v), v == -1};
  }
  const rt_u16 bits = static_cast<const rt_u16*>(p)[i];
  const float v = dtype == RT_FP16 ? RtType<RT_FP16>::load(bits) : RtType<RT_BF16>::load(bits);
  return {static_cast<double>(v), bits == 0xFFFFu};
}

// Smallest magnitude that rounds to infinity: halfway between the largest finite number and the next power of two.
__device__ __forceinline__ double rt_overflow(int dtype) {
  if (dtype == RT_FP16) return 65520.0;                 // 2^16 − 2^4
  if (dtype == RT_BF16) return 3.3961775292304601e+38;  // 2^128 − 2^119
  return 3.4028235677973366e+38;                        // 2^128 − 2^103
}

__device__ __forceinline__ bool rt_is_nan(double v) { return v != v; }
__device__ __forceinline__ bool rt_is_finite(double v) { return v - v == 0.0; }

// Largest of non-negative doubles: their bit patterns order as they do.
__device__ __forceinline__ void rt_atomic_max(double* target, double v) {
  atomicMax(reinterpret_cast<rt_u64*>(target), static_cast<rt_u64>(__double_as_longlong(v)));
}
template <typename T>
__device__ __forceinline__ T rt_warp_max(T v) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(0xFFFFFFFFu, v, offset);
    v = other > v ? other : v;
  }
  return v;
}
__device__ __forceinline__ rt_u64 rt_warp_sum(rt_u64 v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, offset);
  return v;
}

// What one thread saw.
struct RtTally {
  rt_u64 wrong = 0;
  rt_u64 unwritten = 0;
  rt_u64 first = ~0ull;
  rt_u64 nonfinite = 0;
  double ratio = 0;
  double abs = 0;
};

__device__ __forceinline__ void rt_judge(RtElement got, double ref, double bound, int dtype, rt_u64 index,
                                         RtTally* tally) {
  bool wrong = true;
  if (got.poison) {
    ++tally->unwritten;
  } else if (rt_is_finite(got.value)) {
    const double error = fabs(got.value - ref);
    // Not `error > bound`: a bound that is not a number accepts nothing.
    wrong = !(error <= bound) || !rt_is_finite(ref);
    if (rt_is_finite(ref)) {
      tally->abs = error > tally->abs ? error : tally->abs;
      const double ratio = error == 0.0 ? 0.0 : error / bound;
      tally->ratio = ratio > tally->ratio ? ratio : tally->ratio;
    }
  } else {
    ++tally->nonfinite;
    if (rt_is_nan(got.value)) {
      wrong = !rt_is_nan(ref);
    } else {
      // An infinity is right where the reference is that infinity, or rounds to it in the output's type.
      wrong = rt_is_nan(ref) || (got.value > 0) != (ref > 0) || !(fabs(ref) + bound >= rt_overflow(dtype));
    }
  }
  if (wrong) {
    ++tally->wrong;
    tally->first = index < tally->first ? index : tally->first;
  }
}

// How far an element may be from its reference. 8-bit floats are what quantisation makes, where a scale that is wrong
// by a little must show: the true value lies within accumulate·mag of the reference, and rounding moves it by at most
// half the spacing of its neighbours. `relative` is one spacing of numbers between 1 and 2.
__device__ __forceinline__ double rt_bound(double ref, double mag, int dtype, double relative, double accumulate,
                                           double tiny) {
  const double slack = accumulate * mag;
  if (dtype != RT_FP8_E4M3 && dtype != RT_FP8_E5M2) return relative * fabs(ref) + slack + tiny;
  const double smallest = dtype == RT_FP8_E4M3 ? 0.015625 : 6.103515625e-05;
  const double size = fabs(ref) + slack < smallest ? smallest : fabs(ref) + slack;
  // Its largest power of two.
  const double power = __longlong_as_double(__double_as_longlong(size) & 0x7FF0000000000000ll);
  return 0.5 * relative * power + slack;
}

// Compares a whole output with the reference: element i is right if |out − ref| ≤ relative·|ref| +
// accumulate·mag + tiny (8-bit floats: rt_bound). NaN matches NaN alone. dtype: FP32, FP16, BF16, FP8_E4M3, FP8_E5M2,
// INT8, INT4 or INT32. Adds to *result.
// Launch: 8 blocks an SM × 256 threads.
extern "C" __global__ void rt_compare(const void* out, const double* ref, const float* mag, rt_i64 n, int dtype,
                                      double relative, double accumulate, double tiny, CompareResult* result) {
  RtTally tally;
  for (rt_i64 i = rt_thread(); i < n; i += rt_threads()) {
    const double bound = rt_bound(ref[i], static_cast<double>(mag[i]), dtype, relative, accumulate, tiny);
    rt_judge(rt_element(out, i, dtype), ref[i], bound, dtype, static_cast<rt_u64>(i), &tally);
  }
  const rt_u64 wrong = rt_warp_sum(tally.wrong);
  const rt_u64 unwritten = rt_warp_sum(tally.unwritten);
  const rt_u64 nonfinite = rt_warp_sum(tally.nonfinite);
  const rt_u64 first = ~rt_warp_max(~tally.first);
  const double ratio = rt_warp_max(tally.ratio);
  const double abs = rt_warp_max(tally.abs);
  if ((threadIdx.x & 31) != 0) return;
  if (wrong != 0) {
    atomicAdd(&result->wrong, wrong);
    atomicMin(&result->first_wrong_index, first);
  }
  if (unwritten != 0) atomicAdd(&result->unwritten, unwritten);
  if (nonfinite != 0) atomicAdd(&result->nonfinite, nonfinite);
  if (ratio > 0) rt_atomic_max(&result->max_ratio, ratio);
  if (abs > 0) rt_atomic_max(&result->max_abs, abs);
}

// The sum of all bits read goes to the sink only if it is this value, which keeps the reads alive.
constexpr rt_u32 kRtNever = 0x9E3779B9u;

__device__ __forceinline__ rt_u32 rt_read_all(const void* p, rt_i64 bytes) {
  const RtVec16* const body = static_cast<const RtVec16*>(p);
  const rt_i64 vectors = bytes / 16;
  const rt_i64 tiles = rt_tiles(vectors);
  rt_u32 fold = 0;
  for (rt_i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    RtVec16 v[kRtUnroll];
    rt_load_tile(body, vectors, tile, v);
#pragma unroll
    for (int k = 0; k < kRtUnroll; ++k) fold ^= rt_fold(v[k]);
  }
  if (rt_thread() < bytes % 16) fold ^= static_cast<const rt_u8*>(p)[vectors * 16 + rt_thread()];
  return fold;
}

// Reads a buffer, so that L2 holds it instead of what it held before, and holds it clean: a flush by writing would
// leave the next kernel to pay for the write-back. `bytes` should be at least twice the L2.
// Launch: 512 threads; one block a tile of 32 KiB, that is ceildiv(bytes, 32768) blocks (at least 1).
extern "C" __global__ void rt_flush_read(const void* p, rt_i64 bytes, rt_u32* sink) {
  const rt_u32 fold = rt_read_all(p, bytes);
  if (fold == kRtNever) *sink = fold;
}

// Read bandwidth. Launch: as rt_flush_read.
extern "C" __global__ void rt_read(const void* p, rt_i64 bytes, rt_u32* sink) {
  const rt_u32 fold = rt_read_all(p, bytes);
  if (fold == kRtNever) *sink = fold;
}

// Copy bandwidth, and the baseline "copy" of operators that read as much as they write. Buffers must not overlap.
// One vector a thread: reads and writes alternate finely, which an H200 rewards with 4 % over four vectors a thread
// (4267 against 4096 GB/s at 1 GB).
// Launch: 256 threads; ceildiv(bytes, 4096) blocks (at least 1).
extern "C" __global__ void __launch_bounds__(1024) rt_copy(const void* src, void* dst, rt_i64 bytes) {
  const RtVec16* const from = static_cast<const RtVec16*>(src);
  RtVec16* const to = static_cast<RtVec16*>(dst);
  const rt_i64 vectors = bytes / 16;
  for (rt_i64 i = rt_thread(); i < vectors; i += rt_threads()) rt_store(to + i, rt_load(from + i));
  if (rt_thread() < bytes % 16) {
    const rt_i64 i = vectors * 16 + rt_thread();
    static_cast<rt_u8*>(dst)[i] = static_cast<const rt_u8*>(src)[i];
  }
}

// Write bandwidth (zeros). Launch: as rt_flush_read.
extern "C" __global__ void __launch_bounds__(1024) rt_write(void* dst, rt_i64 bytes) {
  RtVec16* const to = static_cast<RtVec16*>(dst);
  const rt_i64 vectors = bytes / 16;
  const rt_i64 tiles = rt_tiles(vectors);
  const RtVec16 zero[kRtUnroll] = {};
  for (rt_i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) rt_store_tile(to, vectors, tile, zero);
  if (rt_thread() < bytes % 16) static_cast<rt_u8*>(dst)[vectors * 16 + rt_thread()] = 0;
}

// Reads `read_bytes` and writes `write_bytes`, both spread evenly over the run: bandwidth of uneven mixes, and the copy
// baseline of operators that read and write different amounts. Sizes are rounded down to 16 bytes. Either may be zero.
// A block has its share of the tiles, a vector a thread, of either: as in rt_copy reads and writes alternate finely, which
// an H200 rewards with 3 % over four vectors a thread. `reads` and `writes` are the tiles of a block in units of 2^-32,
// rounded up.
// Launch: 128 threads; as many blocks as there are tiles of what is less, and an eighth of those of what is more.
extern "C" __global__ void __launch_bounds__(1024) rt_read_write(const void* src, rt_i64 read_bytes, rt_u64 reads,
                                                                 void* dst, rt_i64 write_bytes, rt_u64 writes) {
  const rt_i64 read_vectors = read_bytes / 16;
  const rt_i64 write_vectors = write_bytes / 16;
  const rt_u64 block = blockIdx.x;
  RtVec16 v = {};
  rt_u32 fold = 0;
  for (rt_u64 tile = block * reads >> 32; tile < (block + 1) * reads >> 32; ++tile) {
    const rt_i64 i = static_cast<rt_i64>(tile) * blockDim.x + threadIdx.x;
    if (i < read_vectors) v = rt_load(static_cast<const RtVec16*>(src) + i);
    fold ^= rt_fold(v);
  }
  for (rt_u64 tile = block * writes >> 32; tile < (block + 1) * writes >> 32; ++tile) {
    const rt_i64 i = static_cast<rt_i64>(tile) * blockDim.x + threadIdx.x;
    if (i < write_vectors) rt_store(static_cast<RtVec16*>(dst) + i, v);
  }
  // Keeps reads alive that no write used.
  if (fold == kRtNever && rt_thread() < write_vectors) static_cast<RtVec16*>(dst)[rt_thread()].x = fold;
}

// Bandwidth of `writes` (2, 4 or 8) bytes written for one that is read. A thread reads 16 / writes bytes and writes 16, so
// that both alternate as finely as in rt_copy; an H200 moves 4.03 TB/s so, where rt_read_write moves 3.90 (1:2 of 400 MB).
// Launch: 128 threads; ceildiv(write_bytes, 2048) blocks (at least 1).
extern "C" __global__ void __launch_bounds__(1024) rt_widen(const void* src, void* dst, rt_i64 write_bytes, int writes) {
  const rt_i64 vectors = write_bytes / 16;
  for (rt_i64 i = rt_thread(); i < vectors; i += rt_threads()) {
    rt_u64 v;
    if (writes == 2) {
      v = static_cast<const rt_u64*>(src)[i];
    } else if (writes == 4) {
      v = static_cast<const rt_u32*>(src)[i];
    } else {
      v = static_cast<const rt_u16*>(src)[i];
    }
    const rt_u32 low = static_cast<rt_u32>(v), high = static_cast<rt_u32>(v >> 32);
    rt_store(static_cast<RtVec16*>(dst) + i, RtVec16{low, high, low, high});
  }
}

// L2 read bandwidth: reads the buffer `repeats` times past L1. Size it well under the L2.
// Launch: 2 blocks an SM × 1024 threads.
extern "C" __global__ void rt_l2_read(const void* p, rt_i64 bytes, int repeats, rt_u32* sink) {
  const RtVec16* const body = static_cast<const RtVec16*>(p);
  const rt_i64 vectors = bytes / 16;
  const rt_i64 stride = rt_threads();
  rt_u32 fold = 0;
  for (int r = 0; r < repeats; ++r) {
    rt_i64 i = rt_thread();
    for (; i + 3 * stride < vectors; i += 4 * stride) {
      RtVec16 v[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) v[k] = rt_load_l2(body + i + k * stride);
#pragma unroll
      for (int k = 0; k < 4; ++k) fold ^= rt_fold(v[k]);
    }
    for (; i < vectors; i += stride) fold ^= rt_fold(rt_load_l2(body + i));
  }
  if (fold == kRtNever) *sink = fold;
}

// Launch overhead.
extern "C" __global__ void rt_empty() {}

__device__ __forceinline__ rt_u64 rt_globaltimer() {
  rt_u64 ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// SM clock: out[0] = cycles and out[1] = nanoseconds at the start, out[2] and out[3] at the end of about 10 µs.
// SM MHz = (out[2] − out[0]) · 1000 / (out[3] − out[1]). Both ends are taken right after the timer stepped (it
// steps by 32 ns on Hopper and by about 1 µs elsewhere). Launch: one thread.
extern "C" __global__ void rt_clock(rt_u64* out) {
  if (rt_thread() != 0) return;
  rt_u64 before = rt_globaltimer();
  rt_u64 start = before;
  while (start == before) start = rt_globaltimer();
  const rt_u64 start_cycles = static_cast<rt_u64>(clock64());
  rt_u64 now = start;
  while (now - start < 10000) now = rt_globaltimer();
  const rt_u64 end_cycles = static_cast<rt_u64>(clock64());
  out[0] = start_cycles;
  out[1] = start;
  out[2] = end_cycles;
  out[3] = now;
}

// Ceiling of the FMA pipe: 128 fused multiply-adds (256 operations) a thread and iteration, 8 independent chains.
// `out`: one float a thread is only written if a result is not a number, which does not happen.
// Launch: 4 blocks an SM × 512 threads; iters ≥ 1000.
extern "C" __global__ void rt_ffma(float* out, int iters) {
  float v[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = 0.25f * k + threadIdx.x;
  const float a = 0.5f + 1e-9f * threadIdx.x;
  for (int i = 0; i < iters; ++i) {
#pragma unroll
    for (int u = 0; u < 16; ++u) {
#pragma unroll
      for (int k = 0; k < 8; ++k) v[k] = __fmaf_rn(v[k], a, 0.5f);
    }
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) sum += v[k];
  if (sum != sum) out[rt_thread()] = sum;
}

// Ceiling of the special-function unit: 64 ex2 (64 operations) a thread and iteration, 8 independent chains of
// v = 2^-v, which stay near 0.64. Launch and `out` as rt_ffma.
extern "C" __global__ void rt_ex2(float* out, int iters) {
  float v[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = 0.125f * k + 1e-3f * threadIdx.x;
  for (int i = 0; i < iters; ++i) {
#pragma unroll
    for (int u = 0; u < 8; ++u) {
#pragma unroll
      for (int k = 0; k < 8; ++k) v[k] = rt_exp2(-v[k]);
    }
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) sum += v[k];
  if (sum != sum) out[rt_thread()] = sum;
}

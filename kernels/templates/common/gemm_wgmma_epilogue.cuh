// Ends of the Hopper GEMM: from the sums in registers to d, to the workspace, or to the sum over a cluster.
#pragma once
#include "common/gemm_epilogue.cuh"
#include "common/gemm_wgmma_tile.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"

#if !RT_PARTIAL
// Two neighbours of a storage type, as one load brings them, and each as fp32.
template <int DTYPE>
struct Two {
  rt_u32 bits;
  __device__ __forceinline__ float at(int i) const {
    return RtType<DTYPE>::load(static_cast<rt_u16>(i == 0 ? bits : bits >> 16));
  }
};
template <>
struct Two<RT_FP32> {
  float2 pair;
  __device__ __forceinline__ float at(int i) const { return i == 0 ? pair.x : pair.y; }
};

// Two neighbours (aligned to both) or one of a storage type; zero where `valid` is false, without a branch. Volatile:
// the compiler would hoist more of these loads out of the epilogue's loops than there are registers for.
#define RT_LOAD_IF "{.reg .pred p; setp.ne.u32 p, %"
__device__ __forceinline__ void load_two(Two<RT_FP32>& v, const float* p, bool valid) {
  v.pair = make_float2(0, 0);
  asm volatile(RT_LOAD_IF "3, 0; @p ld.global.nc.v2.f32 {%0, %1}, [%2];}"
               : "+f"(v.pair.x), "+f"(v.pair.y)
               : "l"(p), "r"(static_cast<rt_u32>(valid)));
}
template <int DTYPE>
__device__ __forceinline__ void load_two(Two<DTYPE>& v, const rt_u16* p, bool valid) {
  v.bits = 0;
  asm volatile(RT_LOAD_IF "2, 0; @p ld.global.nc.u32 %0, [%1];}"
               : "+r"(v.bits)
               : "l"(p), "r"(static_cast<rt_u32>(valid)));
}
__device__ __forceinline__ void load_one(float& v, const float* p, bool valid) {
  v = 0;
  asm volatile(RT_LOAD_IF "2, 0; @p ld.global.nc.f32 %0, [%1];}" : "+f"(v) : "l"(p), "r"(static_cast<rt_u32>(valid)));
}
__device__ __forceinline__ void load_one(rt_u16& v, const rt_u16* p, bool valid) {
  v = 0;
  asm volatile(RT_LOAD_IF "2, 0; @p ld.global.nc.u16 %0, [%1];}" : "+h"(v) : "l"(p), "r"(static_cast<rt_u32>(valid)));
}

// What the epilogue adds to the four sums of a block: 0 and 1 at (x, y) and (x, y + 1), 2 and 3 eight further in x.
// Zero outside d. Neighbours in y are neighbours in memory, or, with RT_SWAP, rows.
#if RT_SWAP
struct Addends {
#if RT_BETA
  RtOut c[4];
  __device__ __forceinline__ float addend(int i) const { return RtType<RT_OUT>::load(c[i]); }
#endif
#if RT_SCALE == RT_SCALE_ROW
  float scale_m[2], scale_n[2];
  __device__ __forceinline__ float scale_of(int i) const { return scale_m[i % 2] * scale_n[i / 2]; }
#endif
#if RT_BIAS
  RtBias bias[2];
  __device__ __forceinline__ float bias_of(int i) const { return RtType<RT_BIAS_DTYPE>::load(bias[i / 2]); }
#endif

  __device__ __forceinline__ void load(const RtEpilogueArgs& args, const Extents& e, int batch, int x, int y) {
#if RT_BETA
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int xi = x + i / 2 * 8, yi = y + i % 2;
      load_one(c[i], args.c + (static_cast<size_t>(batch) * e.m + yi) * e.n + xi, xi < e.n && yi < e.m);
    }
#endif
#if RT_SCALE == RT_SCALE_ROW
#pragma unroll
    for (int i = 0; i < 2; ++i) load_one(scale_m[i], args.scale_a + y + i, y + i < e.m);
#pragma unroll
    for (int i = 0; i < 2; ++i) load_one(scale_n[i], args.scale_b + x + i * 8, x + i * 8 < e.n);
#endif
#if RT_BIAS
#pragma unroll
    for (int i = 0; i < 2; ++i) load_one(bias[i], args.bias + x + i * 8, x + i * 8 < e.n);
#endif
  }
};
#else
struct Addends {
#if RT_BETA
  Two<RT_OUT> c[2];
  __device__ __forceinline__ float addend(int i) const { return c[i / 2].at(i % 2); }
#endif
#if RT_SCALE == RT_SCALE_ROW
  float scale_m[2];
  Two<RT_FP32> scale_n;
  __device__ __forceinline__ float scale_of(int i) const { return scale_m[i / 2] * scale_n.at(i % 2); }
#endif
#if RT_BIAS
  Two<RT_BIAS_DTYPE> bias;
  __device__ __forceinline__ float bias_of(int i) const { return bias.at(i % 2); }
#endif

  // n is even.
  __device__ __forceinline__ void load(const RtEpilogueArgs& args, const Extents& e, int batch, int x, int y) {
#if RT_BETA
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int xi = x + i * 8;
      load_two(c[i], args.c + (static_cast<size_t>(batch) * e.m + xi) * e.n + y, xi < e.m && y < e.n);
    }
#endif
#if RT_SCALE == RT_SCALE_ROW
#pragma unroll
    for (int i = 0; i < 2; ++i) load_one(scale_m[i], args.scale_a + x + i * 8, x + i * 8 < e.m);
    load_two(scale_n, args.scale_b + y, y < e.n);
#endif
#if RT_BIAS
    load_two(bias, args.bias + y, y < e.n);
#endif
  }
};
#endif

// What 8-bit results are multiplied with. Volatile as above: it need not be held while tiles are multiplied.
__device__ __forceinline__ float scale_of_results([[maybe_unused]] const RtEpilogueArgs& args) {
  float scale = 1.0f;
#if RT_QUANTIZED
  load_one(scale, args.scale_d, true);
#endif
  return scale;
}

__device__ __forceinline__ void finish_block(float* v, const RtEpilogueArgs& args, const Addends& addends,
                                             [[maybe_unused]] float scale_d) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] *= args.alpha;
#if RT_SCALE == RT_SCALE_ROW
    v[i] *= addends.scale_of(i);
#endif
#if RT_BETA
    v[i] += args.beta * addends.addend(i);
#endif
#if RT_BIAS
    v[i] += addends.bias_of(i);
#endif
    v[i] = rt_activate(v[i]);
#if RT_QUANTIZED
    v[i] *= scale_d;
#endif
  }
}
#endif

#if !RT_STORE_TMA && !RT_STORE_ROWS
// One and two results of 8 or 16 bits as they are stored.
#if RT_QUANTIZED
typedef rt_u8 Single;
typedef rt_u16 Pair;
__device__ __forceinline__ rt_u32 store_pair(float v, float w) { return rt_quantize2<RT_OUT>(v, w); }
#else
typedef rt_u16 Single;
typedef rt_u32 Pair;
constexpr int kPairOf = RT_OUT == RT_FP32 ? RT_BF16 : RT_OUT;  // fp32 needs only the name
__device__ __forceinline__ rt_u32 store_pair(float v, float w) { return rt_pack2<kPairOf>(v, w); }
#endif

// Straight from registers: a warp writes whole sectors of fp32, 8 rows × 8 columns an instruction or two. Of 8 bits it
// writes quarters of sectors, of 16, which leave so where a cluster has added their sums, halves.
template <typename T>
__device__ __forceinline__ void store_block(const float* v, T* d, const Extents& e, int x, int y) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int xi = x + i / 2 * 8, yi = y + i % 2;
    const int row = kSwap ? yi : xi, column = kSwap ? xi : yi;
    T* const p = d + static_cast<size_t>(row) * e.n + column;
    constexpr int kTogether = kSwap ? 1 : 2;  // n is even
    if (row >= e.m || column >= e.n) continue;
    if (i % kTogether != 0) continue;
    if constexpr (sizeof(T) == 4) {
      if constexpr (kSwap) {
        *p = v[i];
      } else {
        *reinterpret_cast<float2*>(p) = make_float2(v[i], v[i + 1]);
      }
    } else {
      const rt_u32 pair = store_pair(v[i], v[i + kTogether - 1]);
      if constexpr (kSwap) {
        *reinterpret_cast<Single*>(p) = static_cast<Single>(pair);
      } else {
        *reinterpret_cast<Pair*>(p) = static_cast<Pair>(pair);
      }
    }
  }
}
#endif

#if RT_STORE_TMA || RT_STORE_ROWS
template <bool TRANS>
__device__ __forceinline__ void store_matrices(rt_u32 to, const rt_u32* r, bool four) {
  if (four) {
    if constexpr (TRANS) {
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]),
                   "r"(r[1]), "r"(r[2]), "r"(r[3])
                   : "memory");
    } else {
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]), "r"(r[1]),
                   "r"(r[2]), "r"(r[3])
                   : "memory");
    }
  } else if constexpr (TRANS) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(r[0]), "r"(r[1])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(r[0]), "r"(r[1]) : "memory");
  }
}

// XOR of the 16-byte chunk of a row, as TMA's swizzle of 128, 64, 32 or no bytes has it.
__device__ __forceinline__ int store_swizzle(int row) {
  if (kStoreRow == 128) return row & 7;
  if (kStoreRow == 64) return row >> 1 & 3;
  if (kStoreRow == 32) return row >> 2 & 1;
  return 0;
}

// Of 16-bit results: where this lane's row of the matrices that start at block `j` (8 of y) goes within a box. The four matrices are
// (x 0, y 0) (x 8, y 0) (x 0, y 8) (x 8, y 8).
__device__ __forceinline__ rt_u32 store_offset(int warp, int lane, int j) {
  const int x_half = lane >> 3 & 1, y_block = j + (lane >> 4);
  const int row = kSwap ? y_block * 8 + (lane & 7) : warp * 16 + x_half * 8 + (lane & 7);
  const int chunk = kSwap ? warp * 2 + x_half : y_block;
  return row * kStoreRow + ((chunk ^ store_swizzle(row)) << 4);
}
#endif

#if RT_STORE_TMA && RT_QUANTIZED
// Block `j` (8 of y) of a box of bytes: the lanes of an instruction meet in no bank, whichever side lies along rows.
__device__ __forceinline__ void store_bytes(rt_u32 box, int warp, int lane, int j, const float* v) {
  const auto place = [&](int row, int column) {
    return box + row * kStoreRow + ((column >> 4 ^ store_swizzle(row)) << 4) + (column & 15);
  };
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int x = warp * 16 + (lane >> 2) + h * 8, y = j * 8 + (lane & 3) * 2;
    const rt_u32 pair = rt_quantize2<RT_OUT>(v[h * 2], v[h * 2 + 1]);
    if constexpr (kSwap) {
      asm volatile("st.shared.u8 [%0], %1;" ::"r"(place(y, x)), "r"(pair) : "memory");
      asm volatile("st.shared.u8 [%0], %1;" ::"r"(place(y + 1, x)), "r"(pair >> 8) : "memory");
    } else {
      asm volatile("st.shared.u16 [%0], %1;" ::"r"(place(x, y)), "h"(static_cast<rt_u16>(pair)) : "memory");
    }
  }
}
#endif

#if RT_STORE_TMA
// Writes a warpgroup's part of the tile, box by box, through a ring of buffers: while TMA reads one, the next is
// written. `at` is the ring's position, kept from tile to tile. (x, y) is the part's corner in d.
__device__ __forceinline__ void store_tile(Sums& sums, const RtEpilogueArgs& args, const Extents& e,
                                           const RtTensorMap& map_d, rt_u32 buffers, int& at, int batch, int x, int y,
                                           int group) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
  const float scale_d = scale_of_results(args);
#pragma unroll
  for (int box = 0; box < kBlocksX * kStoresY; ++box) {
    const int i = box / kStoresY, y0 = box % kStoresY * kStoreY;
    const rt_u32 buffer = buffers + at * kStoreBytes;
    if (++at == RT_STORE_BUFFERS) at = 0;
    const int x_lane = x + i * 64 + warp * 16 + (lane >> 2), y_lane = y + y0 + (lane & 3) * 2;
    // Blocks whose addends are loaded together: more take registers, fewer take time.
    constexpr int kAhead = kSwap || kBlocksX * kSums > (RT_BETA || RT_SCALE == RT_SCALE_ROW ? 64 : 128) ? 2 : 4;
    Addends addends[kAhead];
#pragma unroll
    for (int j = 0; j < kStoreY / 8; j += 2) {
#pragma unroll
      for (int h = 0; h < kAhead && j % kAhead == 0 && j + h < kStoreY / 8; ++h) {
        addends[h].load(args, e, batch, x_lane, y_lane + (j + h) * 8);
      }
      const bool four = j + 1 < kStoreY / 8;
      [[maybe_unused]] rt_u32 packed[4];
#pragma unroll
      for (int h = 0; h < (four ? 2 : 1); ++h) {
        float v[4];
#pragma unroll
        for (int s = 0; s < 4; ++s) v[s] = static_cast<float>(sums[i][(y0 / 8 + j + h) * 4 + s]);
        finish_block(v, args, addends[(j + h) % kAhead], scale_d);
#if RT_QUANTIZED
        store_bytes(buffer, warp, lane, j + h, v);
#else
        packed[h * 2] = rt_pack2<RT_OUT>(v[0], v[1]);
        packed[h * 2 + 1] = rt_pack2<RT_OUT>(v[2], v[3]);
#endif
      }
#if !RT_QUANTIZED
      store_matrices<kSwap>(buffer + store_offset(warp, four ? lane : lane & 15, j), packed, four);
#endif
    }
    rt_async_fence();
    const bool leader = (threadIdx.x & 127) == 0;
    // The buffer written next is free once all but the last RT_STORE_BUFFERS - 2 stores have been read; the barrier
    // tells the others.
    if (leader) rt_store_wait_read<RT_STORE_BUFFERS - 2>();
    rt_named_barrier(kGroupBarrier + group, 128);
    if (leader) {
      const int bx = x + i * 64, by = y + y0;
      rt_tensor_store(map_d, buffer, kSwap ? bx : by, kSwap ? by : bx, batch);
      rt_store_commit();
    }
  }
}
#endif

#if RT_CLUSTER
// Sums that the other shares of a tile send this block, [share, without its own][quad of its own][thread], and the
// barrier that is told of them.
struct Parts {
  rt_u32 sums, arrived;

  static __device__ __forceinline__ int quads(int share) {
    return max(0, min(kShareQuads, kQuads - share * kShareQuads));
  }
  // One thread, before the cluster meets.
  __device__ __forceinline__ void begin(int share) const {
    rt_barrier_init(arrived, 1);
    rt_barrier_init_fence();
    rt_barrier_expect(arrived, (RT_SPLIT_K - 1) * quads(share) * kConsumers * 16);
  }
  // Where share `from` leaves the thread's quad `q`, in the block that finishes it.
  __device__ __forceinline__ rt_u32 place(int from, int q) const {
    const int slot = from - (from > q / kShareQuads);
    return sums + ((slot * kShareQuads + q % kShareQuads) * kConsumers + threadIdx.x) * 16;
  }
};

// Sends each share its part of the sums, and finishes this block's from those of all shares, added in their order.
// (x, y) is the corner of the warpgroup's part in d. Once the cluster has met.
__device__ __forceinline__ void reduce_tile(const Sums& sums, const Parts& parts, const RtEpilogueArgs& args,
                                            const Extents& e, const Work& work, int x, int y) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
  const auto quad = [&](int q) {
    const RtSum* const s = sums[q / (kSums / 4)] + q % (kSums / 4) * 4;
    return make_float4(static_cast<float>(s[0]), static_cast<float>(s[1]), static_cast<float>(s[2]),
                       static_cast<float>(s[3]));
  };
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int owner = q / kShareQuads;
    if (owner != work.share) rt_store_remote(parts.place(work.share, q), quad(q), parts.arrived, owner);
  }
  if (Parts::quads(work.share) == 0) return;
  RtOut* const matrix = args.d + static_cast<size_t>(work.batch) * e.m * e.n;
  const float scale_d = scale_of_results(args);
  rt_barrier_wait(parts.arrived, 0);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    if (q / kShareQuads != work.share) continue;
    const int xi = x + q / (kSums / 4) * 64 + warp * 16 + (lane >> 2);
    const int yi = y + q % (kSums / 4) * 8 + (lane & 3) * 2;
    Addends addends;
    addends.load(args, e, work.batch, xi, yi);
    float v[4] = {};
#pragma unroll
    for (int s = 0; s < RT_SPLIT_K; ++s) {
      float4 f = quad(q);
      if (s != work.share) {
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(f.x), "=f"(f.y), "=f"(f.z), "=f"(f.w)
                     : "r"(parts.place(s, q))
                     : "memory");
      }
      v[0] += f.x, v[1] += f.y, v[2] += f.z, v[3] += f.w;
    }
    finish_block(v, args, addends, scale_d);
    store_block(v, matrix, e, xi, yi);
  }
}
#endif

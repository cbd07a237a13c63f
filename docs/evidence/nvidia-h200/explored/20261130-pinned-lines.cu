// How much of what a kernel read with L2::evict_last is still in the L2 after other reads, by latencies of single loads.
#include <cstdio>
#include <vector>
#include <algorithm>
#include <cuda_runtime.h>

template <int KEEP>
__global__ void read_all(const uint4* p, size_t n, unsigned* sink) {
  unsigned long long policy = 0;
  if (KEEP == 1) asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  if (KEEP == 2) asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  unsigned s = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    uint4 v;
    if (KEEP)
      asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p + i), "l"(policy));
    else
      asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p + i));
    s ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (s == 0x12345678) *sink = s;
}
__global__ void write_all(uint4* p, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) p[i] = make_uint4(i, 1, 2, 3);
}
__global__ void write_first(uint4* p, size_t n) {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1,%1,%1,%1}, %2;" ::"l"(p + i), "r"((unsigned)i), "l"(policy) : "memory");
}
__global__ void probe(const char* p, size_t bytes, int each, unsigned turn, unsigned* out) {
  unsigned state = (blockIdx.x + turn * 4099u) * 2654435761u + 12345u;
  const size_t lines = bytes / 128;
  for (int i = 0; i < each; ++i) {
    state = state * 1664525u + 1013904223u;
    const char* at = p + ((size_t)(state >> 4) % lines) * 128;
    unsigned v; long long a, b;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(a) :: "memory");
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    asm volatile("{ .reg .pred q; setp.eq.u32 q, %1, 0xABCDEF01; @q trap; mov.u64 %0, %%clock64; }" : "=l"(b) : "r"(v) : "memory");
    out[blockIdx.x * each + i] = (unsigned)(b - a);
  }
}
static unsigned* d_out; static unsigned* sink;
static std::vector<unsigned> sample(const void* p, size_t bytes) {
  const int blocks = 64, each = 24;
  static unsigned turn = 0; probe<<<blocks, 1>>>((const char*)p, bytes, each, ++turn, d_out);
  std::vector<unsigned> h(blocks * each);
  cudaMemcpy(h.data(), d_out, h.size() * 4, cudaMemcpyDeviceToHost);
  std::sort(h.begin(), h.end());
  return h;
}
template <int K> static void rd(const void* p, size_t bytes) { read_all<K><<<132 * 8, 256>>>((const uint4*)p, bytes / 16, sink); }
static void rd(int k, const void* p, size_t b) { if (k == 0) rd<0>(p, b); else if (k == 1) rd<1>(p, b); else rd<2>(p, b); }
int main() {
  cudaDeviceProp prop; cudaGetDeviceProperties(&prop, 0);
  const size_t l2 = prop.l2CacheSize, mb = 1 << 20;
  printf("%s, L2 %zu\n", prop.name, l2);
  char *x, *y; cudaMalloc(&x, 64 * mb); cudaMalloc(&y, 8 * l2); cudaMalloc(&d_out, 1 << 20); cudaMalloc(&sink, 4);
  cudaMemset(x, 1, 64 * mb); cudaMemset(y, 1, 8 * l2);
  // The first probes pay for translations; each takes other lines.
  for (int i = 0; i < 4; ++i) { rd(0, x, 8 * mb); sample(x, 8 * mb); }
  rd(0, x, 8 * mb); const auto hit = sample(x, 8 * mb);
  rd(0, y, 8 * l2); const auto miss = sample(x, 8 * mb);
  const unsigned threshold = (hit[hit.size() / 2] + miss[miss.size() / 2]) / 2;
  auto share = [&](const std::vector<unsigned>& h) { return 100.0 * (std::lower_bound(h.begin(), h.end(), threshold) - h.begin()) / h.size(); };
  printf("hit p50 %u p95 %u, miss p5 %u p50 %u, threshold %u: %.1f %% of hits, %.1f %% of misses count as hits\n", hit[hit.size()/2], hit[hit.size()*95/100], miss[miss.size()/20], miss[miss.size()/2], threshold, share(hit), share(miss));
  const char* names[] = {"normal", "evict_first", "evict_last"};
  // What unpins lines: reads with another policy, stores in place.
  const auto clean = [&] { write_all<<<132 * 8, 256>>>((uint4*)y, 4 * l2 / 16); rd(0, y, 4 * l2); };
  const char* then[] = {"nothing", "a normal read of it", "an evict_first read of it", "a normal store to it", "an evict_first store to it"};
  for (size_t size : {8 * mb, 24 * mb, 48 * mb})
    for (int k : {0, 2})
      for (int with : {0, 2})
        for (double times : {1.0, 2.0, 3.0, 6.0}) {
          clean();
          rd(k, x, size);
          rd(with, y, (size_t)(times * l2) / 4096 * 4096);
          printf("%2zu MB read %-11s then %.0f L2 read %-11s: %5.1f %% still there\n", size / mb, names[k], times, names[with], share(sample(x, size)));
        }
  for (double times : {1.0, 2.0, 3.0}) {
    rd(2, x, 24 * mb);
    const auto e = cudaCtxResetPersistingL2Cache();
    rd(0, y, (size_t)(times * l2) / 4096 * 4096);
    printf("24 MB read evict_last, cudaCtxResetPersistingL2Cache (%s), then %.0f L2 read normal: %5.1f %% still there\n", cudaGetErrorString(e), times, share(sample(x, 24 * mb)));
  }
  // A rotated problem: of each of n sets a part is read evict_last and the rest normal; is the part there at its next turn?
  for (size_t part : {4 * mb, 8 * mb, 16 * mb})
    for (int k : {0, 2}) {
      clean();
      const size_t set = 60 * mb; const int n = 4;
      for (int turn = 0; turn < 3; ++turn) for (int i = 0; i < n; ++i) { rd(k, y + i * set, part); rd(0, y + i * set + part, set - part); }
      printf("%zu of 60 MB of each of 4 sets read %-11s: %5.1f %% there at the next turn\n", part / mb, names[k], share(sample(y, part)));
    }
  for (size_t size : {8 * mb, 24 * mb, 48 * mb})
    for (int how = 0; how < 5; ++how) {
      clean();
      rd(2, x, size);
      if (how == 1) rd(0, x, size);
      if (how == 2) rd(1, x, size);
      if (how == 3) write_all<<<132 * 8, 256>>>((uint4*)x, size / 16);
      if (how == 4) write_first<<<132 * 8, 256>>>((uint4*)x, size / 16);
      rd(0, y, 2 * l2);
      printf("%2zu MB read evict_last, then %s, then 2 L2 read normal: %5.1f %% still there\n", size / mb, then[how], share(sample(x, size)));
    }
  // A flush by evict_last reads, unpinned again: does it clear pinned lines, and is the L2 whole afterwards?
  for (int how = 0; how < 4; ++how) {
    clean();
    rd(2, x, 24 * mb);
    if (how >= 1) rd(2, y, 2 * l2);
    if (how >= 2) rd(how == 2 ? 0 : 1, y, 2 * l2);
    printf("24 MB pinned, flush %d (0 none, 1 evict_last, 2 and normal, 3 and evict_first): %5.1f %% still there;", how, share(sample(x, 24 * mb)));
    char* z = y + 4 * l2;
    rd(0, z, 32 * mb);
    printf(" of 32 MB read then %5.1f %% stay\n", share(sample(z, 32 * mb)));
  }
  // The same of small problems: how much of 40 MB read normal stays beside lines pinned before.
  for (size_t size : {0 * mb, 8 * mb, 24 * mb, 48 * mb}) {
    clean();
    if (size) rd(2, x, size);
    rd(0, y + 4 * l2, 40 * mb);
    printf("%2zu MB pinned: of 40 MB read normal afterwards %5.1f %% are there\n", size / mb, share(sample(y + 4 * l2, 40 * mb)));
  }
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}

// What printed 20261130-racecheck-arrivals.txt, as it was run: nvcc -std=c++17 -O2 -lineinfo -arch=sm_90a -I kernels/templates, then
// compute-sanitizer --tool racecheck [--racecheck-report hazard] for cases 0 to 19.
// Minimal pipelines for racecheck: which way of filling and freeing a stage it understands.
#include <cstdio>
#include <cstdlib>
#include "common/tma.cuh"
#include "common/types.cuh"
enum { LANE0 = 0, ALL = 1 };
enum { ONE = 0, TWO_EXPECT_SUM = 1, TWO_EXPECT_EACH = 2, TWO_BARRIERS = 3, GENERIC = 4, GENERIC_ALL = 5, ONE_REREAD = 6, TWO_LOADERS=7 };
constexpr int THREADS = 128, STAGES = 3, VEC = 128;  // vectors of a copy
struct Bars { rt_u64 full[2][STAGES]; rt_u64 free[STAGES]; };
template <int FILL, int FREE, int PASSES, int REALSTAGES>
__global__ void __launch_bounds__(THREADS + 32) k(const uint4* x, const uint4* z, uint4* y, int chunks, int last) {
  __shared__ __align__(128) uint4 buf[REALSTAGES][2][VEC];
  __shared__ Bars b;
  __shared__ float dummy[4];
  constexpr bool two = FILL == TWO_EXPECT_SUM || FILL == TWO_EXPECT_EACH || FILL == TWO_BARRIERS;
  if (threadIdx.x == 0) {
    for (int i = 0; i < REALSTAGES; ++i) {
      int n = FILL == TWO_EXPECT_EACH ? 2 : FILL == GENERIC_ALL ? 32 : 1;
      rt_barrier_init(rt_shared_address(&b.full[0][i]), n);
      rt_barrier_init(rt_shared_address(&b.full[1][i]), 1);
      rt_barrier_init(rt_shared_address(&b.free[i]), FREE == ALL ? THREADS : THREADS / 32);
    }
    rt_barrier_init_fence();
  }
  __syncthreads();
  int s = 0; rt_u32 par = 0;
  if (threadIdx.x >= THREADS) {
    const int lane = threadIdx.x % 32;
    if (FILL == GENERIC || FILL == GENERIC_ALL) {
      for (int c = blockIdx.x; c < chunks; c += gridDim.x) {
        rt_barrier_wait(rt_shared_address(&b.free[s]), par ^ 1);
        for (int i = lane; i < VEC; i += 32) buf[s][0][i] = x[c * VEC + i];
        if (FILL == GENERIC) {
          __syncwarp();
          if (lane == 0) rt_barrier_arrive(rt_shared_address(&b.full[0][s]));
        } else {
          rt_barrier_arrive(rt_shared_address(&b.full[0][s]));
        }
        if (++s == REALSTAGES) s = 0, par ^= 1;
      }
    } else if (lane == 0) {
      for (int c = blockIdx.x; c < chunks; c += gridDim.x) {
        const int bytes = 16 * (c % 3 == 2 ? last : VEC);
        rt_barrier_wait(rt_shared_address(&b.free[s]), par ^ 1);
        rt_u32 f0 = rt_shared_address(&b.full[0][s]), f1 = rt_shared_address(&b.full[1][s]);
        rt_u32 d0 = rt_shared_address(&buf[s][0][0]), d1 = rt_shared_address(&buf[s][1][0]);
        if (!two) {
          rt_barrier_expect(f0, bytes);
          rt_bulk_load<0>(d0, x + c * VEC, bytes, f0, 0);
        } else if (FILL == TWO_EXPECT_SUM) {
          rt_barrier_expect(f0, 2 * bytes);
          rt_bulk_load<0>(d0, x + c * VEC, bytes, f0, 0);
          rt_bulk_load<0>(d1, z + c * VEC, bytes, f0, 0);
        } else if (FILL == TWO_EXPECT_EACH) {
          rt_barrier_expect(f0, bytes);
          rt_bulk_load<0>(d0, x + c * VEC, bytes, f0, 0);
          rt_barrier_expect(f0, bytes);
          rt_bulk_load<0>(d1, z + c * VEC, bytes, f0, 0);
        } else {
          rt_barrier_expect(f0, bytes);
          rt_bulk_load<0>(d0, x + c * VEC, bytes, f0, 0);
          rt_barrier_expect(f1, bytes);
          rt_bulk_load<0>(d1, z + c * VEC, bytes, f1, 0);
        }
        if (++s == REALSTAGES) s = 0, par ^= 1;
      }
    }
  } else {
    for (int c = blockIdx.x; c < chunks; c += gridDim.x) {
      const int n = c % 3 == 2 ? last : VEC;
      rt_barrier_wait(rt_shared_address(&b.full[0][s]), par);
      if (FILL == TWO_BARRIERS) rt_barrier_wait(rt_shared_address(&b.full[1][s]), par);
      uint4 v = make_uint4(0, 0, 0, 0);
      for (int p = 0; p < PASSES; ++p) {
        const int i = threadIdx.x;
        if (i < n) {
          uint4 a = ((volatile uint4(*)[2][VEC])buf)[s][0][i].x ? buf[s][0][i] : buf[s][0][i];
          v.x += a.x; v.y += a.y; v.z += a.z; v.w += a.w;
          if (two) { uint4 a = buf[s][1][i]; v.x += a.x; v.y += a.y; v.z += a.z; v.w += a.w; }
        }
        if (p + 1 < PASSES) {  // a block reduction between
          rt_named_barrier(1, THREADS);
          if (threadIdx.x % 32 == 0) dummy[threadIdx.x / 32] = v.x;
          rt_named_barrier(1, THREADS);
          v.w += dummy[(threadIdx.x / 32 + 1) % 4];
        }
      }
      if (FREE == ALL) {
        rt_barrier_arrive(rt_shared_address(&b.free[s]));
      } else {
        __syncwarp();
        if (threadIdx.x % 32 == 0) rt_barrier_arrive(rt_shared_address(&b.free[s]));
      }
      if (threadIdx.x < n) y[c * VEC + threadIdx.x] = v;
      if (++s == REALSTAGES) s = 0, par ^= 1;
    }
  }
}
#define CHECK(e) do { cudaError_t r = (e); if (r != cudaSuccess) { printf("%s: %s\n", #e, cudaGetErrorString(r)); exit(3); } } while (0)
template <int FILL, int FREE, int PASSES, int ST> void go(const char* name, int last) {
  const int chunks = 48;
  uint4 *x, *z, *y;
  CHECK(cudaMalloc(&x, chunks * VEC * 16)); CHECK(cudaMalloc(&z, chunks * VEC * 16)); CHECK(cudaMalloc(&y, chunks * VEC * 16));
  CHECK(cudaMemset(x, 1, chunks * VEC * 16)); CHECK(cudaMemset(z, 2, chunks * VEC * 16));
  k<FILL, FREE, PASSES, ST><<<2, THREADS + 32>>>(x, z, y, chunks, last);
  CHECK(cudaGetLastError()); CHECK(cudaDeviceSynchronize());
  printf("ran %s\n", name);
}
int main(int argc, char** argv) {
  const int c = atoi(argv[1]);
#define CASE(N, F, R, P, S, L) case N: go<F, R, P, S>(#F " " #R " passes=" #P " stages=" #S " last=" #L, L); break;
  switch (c) {
    CASE(0, ONE, LANE0, 1, 3, 128)
    CASE(1, ONE, ALL, 1, 3, 128)
    CASE(2, TWO_EXPECT_SUM, LANE0, 1, 3, 128)
    CASE(3, TWO_EXPECT_SUM, ALL, 1, 3, 128)
    CASE(4, TWO_EXPECT_EACH, LANE0, 1, 3, 128)
    CASE(5, TWO_BARRIERS, LANE0, 1, 3, 128)
    CASE(6, TWO_BARRIERS, ALL, 1, 3, 128)
    CASE(7, GENERIC, LANE0, 1, 3, 128)
    CASE(8, GENERIC, ALL, 1, 3, 128)
    CASE(9, GENERIC_ALL, LANE0, 1, 3, 128)
    CASE(10, GENERIC_ALL, ALL, 1, 3, 128)
    CASE(11, ONE, LANE0, 1, 3, 40)
    CASE(12, ONE, LANE0, 2, 3, 128)
    CASE(13, ONE, LANE0, 2, 3, 40)
    CASE(14, ONE, ALL, 2, 3, 40)
    CASE(15, ONE, LANE0, 1, 1, 128)
    CASE(16, TWO_EXPECT_SUM, LANE0, 1, 1, 128)
    CASE(17, TWO_EXPECT_EACH, ALL, 1, 3, 128)
    CASE(18, TWO_EXPECT_SUM, LANE0, 2, 3, 40)
    CASE(19, TWO_BARRIERS, LANE0, 2, 3, 40)
    default: return 4;
  }
}

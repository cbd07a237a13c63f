// GEMM of few rows, d = act(alpha·A·Bᵀ + beta·C + bias) with B [n, k]: common/weight_stream.cuh with B as the weights.
//
// Defines: those of common/weight_stream.cuh.
#include "common/weight_stream.cuh"

extern "C" __global__ void __launch_bounds__(weight_stream::kThreads)
    rt_gemm_stream(const RtIn* __restrict__ a, const RtIn* __restrict__ b,
                   RT_EPILOGUE_INPUTS RtOut* __restrict__ d, RT_EPILOGUE_FACTORS
                   int m, int n, int k, int lda, int ldb) {
  extern __shared__ __align__(16) float memory[];
  const int lane = threadIdx.x & 31, warp_n = (threadIdx.x >> 5) % RT_WARPS_N;
  const int first_n = static_cast<int>(blockIdx.x) / RT_SPLIT_K * weight_stream::kBlockN;
  const size_t batch = blockIdx.y;
  weight_stream::Source source;
  source.k = k;
  source.t = lane & 3;
#pragma unroll
  for (int r = 0; r < RT_ROWS; ++r)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Rows past n repeat the last one and are thrown away.
      const int row = min(first_n + (warp_n * RT_ROWS + r) * 16 + h * 8 + (lane >> 2), n - 1);
      source.w[r][h] = reinterpret_cast<const char*>(b + (batch * n + row) * ldb);
    }
  // Rows past m repeat the last one: their sums are thrown away.
  source.x = a + (batch * m + min(lane >> 2, m - 1)) * lda;
  RtEpilogueArgs args = RT_EPILOGUE_ARGS;
  args.d = d;
  weight_stream::run(source, first_n, 0, m, n, memory, [&](float value, int row, int column) {
    rt_finish<1>(&value, args, (batch * m + row) * n + column, column);
  });
}

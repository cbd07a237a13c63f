// Few rows of 16-bit activations times int4 or int8 weights: common/weight_stream.cuh.
//
// Defines: those of common/weight_stream.cuh; RT_OUT = RT_DTYPE, RT_BETA 0.
#include "common/weight_stream.cuh"

extern "C" __global__ void __launch_bounds__(weight_stream::kThreads)
    rt_gemm_wq_stream(const RtIn* __restrict__ x, const char* __restrict__ w, const RtIn* __restrict__ scales,
#if RT_ZERO
                      const signed char* __restrict__ zeros,
#endif
#if RT_BIAS
                      const RtIn* __restrict__ bias,
#endif
                      RtOut* __restrict__ y, int m, int n, int k) {
  extern __shared__ __align__(16) float memory[];
  const int lane = threadIdx.x & 31, warp_n = (threadIdx.x >> 5) % RT_WARPS_N;
  const int first_n = static_cast<int>(blockIdx.x) / RT_SPLIT_K * weight_stream::kBlockN;
  const int groups = RT_GROUP == 0 ? 1 : k / (RT_GROUP == 0 ? 1 : RT_GROUP);
  weight_stream::Source source;
  source.k = k;
  source.t = lane & 3;
#pragma unroll
  for (int r = 0; r < RT_ROWS; ++r)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Rows past n repeat the last one and are thrown away.
      const size_t row = min(first_n + (warp_n * RT_ROWS + r) * 16 + h * 8 + (lane >> 2), n - 1);
      source.w[r][h] = w + row * (static_cast<size_t>(k) * RT_WEIGHT / 8);
      source.scales[r][h] = scales + row * groups;
#if RT_ZERO
      source.zeros[r][h] = zeros + row * groups;
#endif
    }
  // Rows past m repeat the last one: their sums are thrown away.
  source.x = x + static_cast<size_t>(min(lane >> 2, m - 1)) * k;
  RtEpilogueArgs args;
#if RT_BIAS
  args.bias = bias;
#endif
  args.d = y;
  args.alpha = 1.0f;
  weight_stream::run(source, first_n, 0, m, n, memory, [&](float value, int row, int column) {
    if (RT_GROUP == 0) value *= RtType<RT_DTYPE>::load(scales[column]) * RtCodes<RT_DTYPE, RT_WEIGHT>::kUnits;
    rt_finish<1>(&value, args, static_cast<size_t>(row) * n + column, column);
  });
}

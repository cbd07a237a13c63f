// Second step of split-K GEMM templates: d from the fp32 partials [share][batch][m][n] in the workspace.
#pragma once
#include "common/gemm_epilogue.cuh"

#if RT_SPLIT_K > 1 && !RT_CLUSTER
// Sums in the order of the shares, so that equal inputs give equal bits. `count` is batch·m·n.
extern "C" __global__ void __launch_bounds__(128)
    rt_gemm_reduce(const float* __restrict__ partial, RT_EPILOGUE_INPUTS RtOut* __restrict__ d, RT_EPILOGUE_FACTORS
                   rt_i64 count, int n) {
  constexpr int kVec = RT_VEC_D < 4 ? RT_VEC_D : 4;
  const size_t index = (static_cast<size_t>(blockIdx.x) * 128 + threadIdx.x) * kVec;
  if (index >= static_cast<size_t>(count)) return;
  RtPack<float, kVec> shares[RT_SPLIT_K];
#pragma unroll
  for (int s = 0; s < RT_SPLIT_K; ++s) shares[s].load(partial + static_cast<size_t>(s) * count + index);
  float v[kVec];
#pragma unroll
  for (int i = 0; i < kVec; ++i) v[i] = shares[0].value[i];
#pragma unroll
  for (int s = 1; s < RT_SPLIT_K; ++s)
#pragma unroll
    for (int i = 0; i < kVec; ++i) v[i] += shares[s].value[i];
  RtEpilogueArgs args = RT_EPILOGUE_ARGS;
  args.d = d;
  rt_finish<kVec>(v, args, index, static_cast<int>(index % n), static_cast<int>(index / n));
}
#endif

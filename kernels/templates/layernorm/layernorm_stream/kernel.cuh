// LayerNorm along long rows; common/norm_stream.cuh says how, and lists the defines.
#include "common/norm_stream.cuh"

extern "C" __global__ void __launch_bounds__(RT_THREADS + 32) rt_layernorm_stream(const RtNormStore* x,
#if RT_RESIDUAL
                                                                                  const RtNormStore* residual,
#endif
                                                                                  const RtNormStore* weight,
#if RT_BIAS
                                                                                  const RtNormStore* bias,
#endif
                                                                                  RtNormOut* y,
#if RT_RESIDUAL
                                                                                  RtNormStore* residual_out,
#endif
                                                                                  float eps, rt_i64 rows, rt_i64 cols) {
  RtNormPointers p = {};
  p.x = x;
  p.weight = weight;
  p.y = y;
#if RT_RESIDUAL
  p.residual = residual;
  p.residual_out = residual_out;
#endif
#if RT_BIAS
  p.bias = bias;
#endif
  rt_norm_rows(p, eps, rows, static_cast<int>(cols));
}

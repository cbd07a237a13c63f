// RMS norm along rows; common/norm.cuh says what and how, and lists the defines.
#include "common/norm.cuh"

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_rmsnorm(const RtNormStore* x,
#if RT_RESIDUAL
                                                                  const RtNormStore* residual,
#endif
                                                                  const RtNormStore* weight, RtNormOut* y,
#if RT_RESIDUAL
                                                                  RtNormStore* residual_out,
#endif
#if RT_QUANT
                                                                  float* scale,
#endif
                                                                  float eps, rt_i64 rows, rt_i64 cols) {
  __shared__ RtNormShared shared;
  const rt_i64 row = rt_norm_row_number();
  const rt_i64 offset = row * cols + rt_norm_column(0);
  RtNormPointers p = {};
  p.x = x + offset;
  p.weight = weight + rt_norm_column(0);
  p.y = y + offset;
#if RT_RESIDUAL
  p.residual = residual + offset;
  p.residual_out = residual_out + offset;
#endif
#if RT_QUANT
  p.scale = scale;
#endif
  // A row past the end takes part in the barriers with no columns of its own.
  rt_norm_row(p, row < rows ? static_cast<int>(cols) : 0, static_cast<int>(cols), eps, &shared);
  RtNormRow::finish();
}

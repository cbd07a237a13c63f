// RMS norm along rows; common/norm.cuh says what and how, and lists the defines.
// RT_RESIDENT blocks fit on an SM (0: what their registers allow).
#include "common/norm.cuh"

extern "C" __global__ void __launch_bounds__(RT_BLOCK, RT_RESIDENT) rt_rmsnorm(const RtNormStore* x,
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
  const RtNormIndex offset = rt_norm_offset(cols);
  const int own = rt_norm_own_step();
  RtNormPointers p = {};
  p.x = x + offset;
  p.weight = weight + rt_norm_first() + own;
  p.y = y + offset + own;
#if RT_RESIDUAL
  p.residual = residual + offset;
  p.residual_out = residual_out + offset + own;
#endif
#if RT_QUANT
  p.scale = scale;
#endif
  // A row past the end takes part in the barriers with no columns of its own.
  rt_norm_row(p, RT_FULL || rt_norm_row_number() < rows ? static_cast<int>(cols) : 0, static_cast<int>(cols), eps,
              &shared);
  RtNormRow::finish();
}

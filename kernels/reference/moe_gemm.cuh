// What a moe_gemm must give: every element by its definition, in double from the stored inputs; the magnitude is
// Σ|terms|, which rounding errors scale with.
//
// Written apart from the templates on purpose: it shares only the storage types with them.
// Defines: RT_DTYPE RT_OUT RT_MASKED RT_GATHER RT_SCATTER RT_WEIGHTED; see moe_gemm.op.txtpb. `rows` is m, or with
// RT_MASKED the rows that an expert has room for.
#include "common/types.cuh"

typedef RtType<RT_DTYPE> In;
#define RT_SCALED (RT_DTYPE == RT_FP8_E4M3)

extern "C" __global__ void __launch_bounds__(256)
    rt_reference(const In::Store* x, const In::Store* w,
#if RT_SCALED
                 const float* scale_x, const float* scale_w,
#endif
                 const int* groups,
#if RT_GATHER || RT_SCATTER
                 const int* slots,
#endif
#if RT_WEIGHTED
                 const float* weights,
#endif
#if RT_MASKED
                 const RtType<RT_OUT>::Store* before,
#endif
                 double* value, float* magnitude, rt_i64 rows, rt_i64 n, rt_i64 k, rt_i64 experts, rt_i64 topk) {
  const rt_i64 id = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const rt_i64 row = id / n, column = id % n;
#if RT_MASKED
  // One row of the padded tensors.
  const rt_i64 expert = row / rows, source = row, target = row;
  if (expert >= experts) return;
  if (row % rows >= groups[expert]) {
    const double kept = RtType<RT_OUT>::load(before[id]);
    value[id] = kept;
    magnitude[id] = static_cast<float>(fabs(kept));
    return;
  }
#else
  // One sorted row.
  if (row >= rows) return;
  rt_i64 expert = 0, source = row, target = row;
  while (row >= groups[expert + 1]) ++expert;
#if RT_GATHER
  source = slots[row] / topk;
#endif
#if RT_SCATTER
  target = slots[row];
#endif
#endif
  double sum = 0, sizes = 0;
  for (rt_i64 i = 0; i < k; ++i) {
    double term = static_cast<double>(In::load(x[source * k + i])) * In::load(w[(expert * n + column) * k + i]);
#if RT_SCALED
    const rt_i64 blocks_k = (k + 127) / 128, blocks_n = (n + 127) / 128;
    term *= static_cast<double>(scale_x[source * blocks_k + i / 128]) *
            scale_w[(expert * blocks_n + column / 128) * blocks_k + i / 128];
#endif
    sum += term;
    sizes += fabs(term);
  }
#if RT_WEIGHTED
  const double factor = weights[target];
#else
  const double factor = 1;
#endif
  value[target * n + column] = factor * sum;
  magnitude[target * n + column] = static_cast<float>(fabs(factor) * sizes);
}

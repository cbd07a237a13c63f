// What a gemm_wq must give: every element by its definition, in double from the stored codes, scales and zero points.
// act(Σ x·(code − zero)·scale + bias); the magnitude is Σ|terms|. No activation steepens an error by more than 1.13.
//
// Written apart from the templates on purpose: it shares only the storage types with them.
// Defines: RT_DTYPE RT_WEIGHT (bits, 4 or 8) RT_ZERO RT_BIAS RT_ACT (none 0, relu 1, gelu 2, silu 3).
#include "common/types.cuh"

namespace {

__device__ double value_of(RtType<RT_DTYPE>::Store v) { return static_cast<double>(RtType<RT_DTYPE>::load(v)); }

__device__ double activation(double x) {
  if (RT_ACT == 1) return x < 0.0 ? 0.0 : x;
  if (RT_ACT == 2) return 0.5 * x * (1.0 + tanh(0.7978845608028653559 * (x + 0.044715 * x * x * x)));
  if (RT_ACT == 3) return x / (1.0 + exp(-x));
  return x;
}

// Code of element i of a row.
__device__ int code(const signed char* row, rt_i64 i) {
  if (RT_WEIGHT == 8) return row[i];
  const int byte = static_cast<unsigned char>(row[i / 2]);
  return i % 2 == 0 ? byte % 16 : byte / 16;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    rt_reference(const RtType<RT_DTYPE>::Store* x, const signed char* w, const RtType<RT_DTYPE>::Store* scales,
#if RT_ZERO
                 const signed char* zeros,
#endif
#if RT_BIAS
                 const RtType<RT_DTYPE>::Store* bias,
#endif
                 double* value, float* magnitude, rt_i64 m, rt_i64 n, rt_i64 k, rt_i64 group) {
  const rt_i64 id = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (id >= m * n) return;
  const rt_i64 column = id % n, row = id / n, groups = k / group;
  double sum = 0.0, size = 0.0;
  for (rt_i64 i = 0; i < k; ++i) {
    const rt_i64 part = column * groups + i / group;
#if RT_ZERO
    const int zero = zeros[part];
#else
    const int zero = RT_WEIGHT == 4 ? 8 : 0;
#endif
    const double weight = (code(w + column * (k * RT_WEIGHT / 8), i) - zero) * value_of(scales[part]);
    const double term = value_of(x[row * k + i]) * weight;
    sum += term;
    size += fabs(term);
  }
#if RT_BIAS
  const double shift = value_of(bias[column]);
  sum += shift;
  size += fabs(shift);
#endif
  value[id] = activation(sum);
  magnitude[id] = static_cast<float>(size);
}

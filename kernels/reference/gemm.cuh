// What a gemm must give: every element by its definition, in double from the stored inputs.
// act(alpha·scale_a·scale_b·Σ a·b + beta·c + bias), of 8 bits times scale_d and clamped; the magnitude is Σ|terms|,
// which rounding errors scale with. No activation steepens an error by more than 1.13 (gelu), which the bound's margin
// covers.
//
// Written apart from the templates on purpose: it shares only the storage types with them.
// Defines: RT_DTYPE RT_OUT RT_LAYOUT (nn 0, nt 1, tn 2, tt 3) RT_BIAS RT_ACT (none 0, relu 1, gelu 2, silu 3) RT_BETA
// RT_SCALE (none 0, of a whole tensor 1, of each row of a and of b 2, of blocks of 128: see gemm.op.txtpb 3)
// RT_BIAS_DTYPE RT_QUANTIZED (results of 8 bits).
#include "common/types.cuh"

namespace {

template <int D>
__device__ double value_of(typename RtType<D>::Store v) {
  return static_cast<double>(RtType<D>::load(v));
}

__device__ double activation(double x) {
  if (RT_ACT == 1) return x < 0.0 ? 0.0 : x;
  if (RT_ACT == 2) return 0.5 * x * (1.0 + tanh(0.7978845608028653559 * (x + 0.044715 * x * x * x)));
  if (RT_ACT == 3) return x / (1.0 + exp(-x));
  return x;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    rt_reference(const RtType<RT_DTYPE>::Store* a, const RtType<RT_DTYPE>::Store* b,
#if RT_BETA
                 const RtType<RT_OUT>::Store* c,
#endif
#if RT_SCALE
                 const float* scale_a, const float* scale_b,
#endif
#if RT_QUANTIZED
                 const float* scale_d,
#endif
#if RT_BIAS
                 const RtType<RT_BIAS_DTYPE>::Store* bias,
#endif
                 float alpha,
#if RT_BETA
                 float beta_value,
#endif
                 double* value, float* magnitude, rt_i64 m, rt_i64 n, rt_i64 k, rt_i64 batch, rt_i64 pitch_a,
                 rt_i64 pitch_b) {
  const rt_i64 id = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (id >= batch * m * n) return;
  const rt_i64 column = id % n, row = id / n % m, matrix = id / (m * n);
  // Where k = 0 lies, and how far the next k is.
  constexpr bool a_turned = RT_LAYOUT == 2 || RT_LAYOUT == 3, b_turned = RT_LAYOUT == 1 || RT_LAYOUT == 3;
  const auto* pa = a + matrix * (a_turned ? k : m) * pitch_a + (a_turned ? row : row * pitch_a);
  const auto* pb = b + matrix * (b_turned ? n : k) * pitch_b + (b_turned ? column * pitch_b : column);
  const rt_i64 step_a = a_turned ? pitch_a : 1, step_b = b_turned ? 1 : pitch_b;
  double sum = 0.0, size = 0.0;
  for (rt_i64 i = 0; i < k; ++i) {
    double term = value_of<RT_DTYPE>(pa[i * step_a]) * value_of<RT_DTYPE>(pb[i * step_b]);
#if RT_SCALE == 3
    const rt_i64 blocks = (k + 127) / 128;
    term *= static_cast<double>(scale_a[row * blocks + i / 128]) * scale_b[column / 128 * blocks + i / 128];
#endif
    sum += term;
    size += fabs(term);
  }
  sum *= alpha;
  size *= fabs(static_cast<double>(alpha));
#if RT_SCALE == 1 || RT_SCALE == 2
  const double scale = static_cast<double>(scale_a[RT_SCALE == 2 ? row : 0]) * scale_b[RT_SCALE == 2 ? column : 0];
  sum *= scale;
  size *= fabs(scale);
#endif
#if RT_BETA
  const double old = static_cast<double>(beta_value) * value_of<RT_OUT>(c[id]);
  sum += old;
  size += fabs(old);
#endif
#if RT_BIAS
  const double shift = value_of<RT_BIAS_DTYPE>(bias[column]);
  sum += shift;
  size += fabs(shift);
#endif
  sum = activation(sum);
#if RT_QUANTIZED
  const double limit = RT_OUT == RT_FP8_E4M3 ? 448.0 : RT_OUT == RT_FP8_E5M2 ? 57344.0 : 127.0;
  const double lowest = RT_OUT == RT_INT8 ? -128.0 : -limit;
  sum *= *scale_d;
  size *= fabs(static_cast<double>(*scale_d));
  // A NaN stays one.
  sum = sum > limit ? limit : sum < lowest ? lowest : sum;
#endif
  value[id] = sum;
  magnitude[id] = static_cast<float>(size);
}

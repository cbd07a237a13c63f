// Reference of layernorm: y = act((h − mean(h)) / √(var(h) + eps) · weight + bias) in double, where h = pre(x), or pre
// of x + residual, added in fp32 and rounded to the dtype: that rounding is part of the definition. residual_out is h.
// Gelu and silu steepen an error by at most 1.13, which the bound's margin covers. The variance is the mean square
// difference from the mean.
// RT_QUANT (1 FP8 E4M3, 2 INT8): scale = max |y| / 448 or 127 of the row, and y / scale (0 where scale is 0) in place
// of y, not rounded.
// Defines: RT_DTYPE, RT_RESIDUAL, RT_BIAS, RT_PRE and RT_ACT (0 none, 1 relu, 2 gelu, 3 silu), RT_QUANT.
// Launch: 256 threads, one block a row.
#include "common/reference.cuh"
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;
typedef Type::Store Store;

extern "C" __global__ void __launch_bounds__(kThreads) rt_reference(const Store* x,
#if RT_RESIDUAL
                                                                    const Store* residual,
#endif
                                                                    const Store* weight,
#if RT_BIAS
                                                                    const Store* bias,
#endif
                                                                    float eps, double* y_value, float* y_magnitude,
#if RT_RESIDUAL
                                                                    double* residual_value, float* residual_magnitude,
#endif
#if RT_QUANT
                                                                    double* scale_value, float* scale_magnitude,
#endif
                                                                    rt_i64 rows, rt_i64 cols) {
  __shared__ double shared[kThreads];
  for (rt_i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const rt_i64 first = row * cols;
    const auto h = [&](rt_i64 i) -> double {
#if RT_RESIDUAL
      const double h = Type::load(Type::store(__fadd_rn(Type::load(x[first + i]), Type::load(residual[first + i]))));
#else
      const double h = Type::load(x[first + i]);
#endif
      return activate<RT_PRE>(h);
    };
    const double count = static_cast<double>(cols);
    double sum = 0, absolute = 0, squares = 0;
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) sum += h(i);
    const double mean = sum_of(sum, shared) / count;
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) {
      absolute += fabs(h(i) - mean);
      squares += (h(i) - mean) * (h(i) - mean);
    }
    const double factor = 1.0 / sqrt(sum_of(squares, shared) / count + static_cast<double>(eps));
    // What errors of the mean scale with: sums of differences from about the mean, and 8 units in the last place of the
    // mean itself, in which the row's length, which the bound multiplies this with, has no part.
    const double around = sum_of(absolute, shared) / count + fabs(mean) * 8 / (8 + 4 * sqrt(count));
    const auto offset = [&](rt_i64 i) -> double {
#if RT_BIAS
      return Type::load(bias[i]);
#else
      return 0;
#endif
    };
    const auto norm = [&](rt_i64 i) {
      return activate<RT_ACT>((h(i) - mean) * factor * static_cast<double>(Type::load(weight[i])) + offset(i));
    };
    // The mean's error enters every element.
    const auto size = [&](rt_i64 i) {
      return (fabs(h(i) - mean) + around) * factor * fabs(Type::load(weight[i])) + fabs(offset(i));
    };
#if RT_QUANT
    double largest = 0, largest_size = 0;
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) {
      largest = fmax(largest, fabs(norm(i)));
      largest_size = fmax(largest_size, size(i));
    }
    const double limit = RT_QUANT == 1 ? 448 : 127;
    const double scale = max_of(largest, shared) / limit;
    largest_size = max_of(largest_size, shared);
    if (threadIdx.x == 0) {
      scale_value[row] = scale;
      scale_magnitude[row] = static_cast<float>(largest_size / limit);
    }
    const double inverse = scale > 0 ? 1 / scale : 0;
#endif
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) {
#if RT_QUANT
      y_value[first + i] = norm(i) * inverse;
      // The scale's own error moves every element of the row by as much, relatively.
      y_magnitude[first + i] = static_cast<float>(size(i) * inverse + fabs(norm(i)) * inverse * largest_size /
                                                                          (scale > 0 ? scale * limit : 1));
#else
      y_value[first + i] = norm(i);
      y_magnitude[first + i] = static_cast<float>(size(i));
#endif
#if RT_RESIDUAL
      residual_value[first + i] = h(i);
      residual_magnitude[first + i] = fabsf(Type::load(x[first + i])) + fabsf(Type::load(residual[first + i]));
#endif
    }
  }
}

// Reference of layernorm: y = act((h − mean(h)) / √(var(h) + eps) · weight + bias) in double, where h = x, or
// x + residual added in fp32 and rounded to the dtype: that rounding is part of the definition (residual_out is a
// tensor of the dtype, and the norm is of what it holds). The variance is the mean square difference from the mean.
// Defines: RT_DTYPE, RT_RESIDUAL, RT_BIAS, RT_ACT (0 none, 1 relu). Launch: 256 threads, one block a row.
#include "common/types.cuh"

constexpr int kThreads = 256;
typedef RtType<RT_DTYPE> Type;
typedef Type::Store Store;

// Sums 256 values in a fixed tree; every thread gets the result.
__device__ double reduce(double v, double* shared) {
  __syncthreads();
  shared[threadIdx.x] = v;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[0];
}

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
                                                                    rt_i64 rows, rt_i64 cols) {
  __shared__ double shared[kThreads];
  for (rt_i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const rt_i64 first = row * cols;
    const auto h = [&](rt_i64 i) -> double {
#if RT_RESIDUAL
      return Type::load(Type::store(__fadd_rn(Type::load(x[first + i]), Type::load(residual[first + i]))));
#else
      return Type::load(x[first + i]);
#endif
    };
    double sum = 0, absolute = 0, squares = 0;
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) {
      sum += h(i);
      absolute += fabs(h(i));
    }
    const double mean = reduce(sum, shared) / static_cast<double>(cols);
    const double mean_absolute = reduce(absolute, shared) / static_cast<double>(cols);
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) squares += (h(i) - mean) * (h(i) - mean);
    squares = reduce(squares, shared);
    const double factor = 1.0 / sqrt(squares / static_cast<double>(cols) + static_cast<double>(eps));
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) {
      const double w = Type::load(weight[i]);
#if RT_BIAS
      const double b = Type::load(bias[i]);
#else
      const double b = 0;
#endif
      double y = (h(i) - mean) * factor * w + b;
      if (RT_ACT == 1 && y < 0) y = 0;
      y_value[first + i] = y;
      // The mean is a sum of the row's elements over cols, and its error enters every element.
      y_magnitude[first + i] = static_cast<float>((fabs(h(i)) + mean_absolute) * factor * fabs(w) + fabs(b));
#if RT_RESIDUAL
      residual_value[first + i] = h(i);
      residual_magnitude[first + i] = fabsf(Type::load(x[first + i])) + fabsf(Type::load(residual[first + i]));
#endif
    }
  }
}

// Reference of rmsnorm: y = h · rsqrt(mean(h²) + eps) · weight in double, where h = x, or x + residual added in fp32
// and rounded to the dtype: that rounding is part of the definition (residual_out is a tensor of the dtype, and the
// norm is of what it holds).
// Defines: RT_DTYPE, RT_RESIDUAL. Launch: 256 threads, one block a row.
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

extern "C" __global__ void __launch_bounds__(kThreads)
    rt_reference(const Store* x,
#if RT_RESIDUAL
                 const Store* residual,
#endif
                 const Store* weight, float eps, double* y_value, float* y_magnitude,
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
    double sum = 0;
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) sum += h(i) * h(i);
    sum = reduce(sum, shared);
    const double factor = 1.0 / sqrt(sum / static_cast<double>(cols) + static_cast<double>(eps));
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) {
      const double y = h(i) * factor * static_cast<double>(Type::load(weight[i]));
      y_value[first + i] = y;
      y_magnitude[first + i] = static_cast<float>(fabs(y));
#if RT_RESIDUAL
      residual_value[first + i] = h(i);
      residual_magnitude[first + i] = fabsf(Type::load(x[first + i])) + fabsf(Type::load(residual[first + i]));
#endif
    }
  }
}

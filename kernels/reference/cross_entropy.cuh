// Reference of cross entropy: loss = max + log Σ exp(x − max) − x[target], and with RT_GRAD the gradient of the logits
// (softmax − onehot(target)) · grad_scale, in double. A target outside of the vocabulary gives zeros.
// Defines: RT_DTYPE, RT_GRAD (0 or 1). Launch: 256 threads, one block a row.
#include "common/types.cuh"

constexpr int kThreads = 256;
typedef RtType<RT_DTYPE> Type;

// Combines 256 values in a fixed tree; every thread gets the result.
template <typename Combine>
__device__ double reduce(double v, double* shared, Combine combine) {
  __syncthreads();
  shared[threadIdx.x] = v;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  return shared[0];
}

// The magnitude of a loss has a 1 in it: a relative error of the sum is an absolute one of its logarithm.
extern "C" __global__ void __launch_bounds__(kThreads)
    rt_reference(const Type::Store* logits, const int* targets,
#if RT_GRAD
                 float grad_scale, double* grad_value, float* grad_magnitude,
#endif
                 double* loss_value, float* loss_magnitude, rt_i64 rows, rt_i64 vocab) {
  __shared__ double shared[kThreads];
  for (rt_i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const Type::Store* const x = logits + row * vocab;
    double max = __longlong_as_double(static_cast<rt_i64>(0xFFF0000000000000ull));
    for (rt_i64 i = threadIdx.x; i < vocab; i += kThreads) max = fmax(max, static_cast<double>(Type::load(x[i])));
    max = reduce(max, shared, [](double a, double b) { return fmax(a, b); });
    double sum = 0;
    for (rt_i64 i = threadIdx.x; i < vocab; i += kThreads) sum += exp(static_cast<double>(Type::load(x[i])) - max);
    sum = reduce(sum, shared, [](double a, double b) { return a + b; });
    const rt_i64 target = targets[row];
    const bool counts = target >= 0 && target < vocab;
    if (threadIdx.x == 0) {
      const double at_target = counts ? static_cast<double>(Type::load(x[target])) : 0;
      loss_value[row] = counts ? max + log(sum) - at_target : 0;
      loss_magnitude[row] = counts ? static_cast<float>(1 + fabs(max) + fabs(log(sum)) + fabs(at_target)) : 0;
    }
#if RT_GRAD
    const double scale = counts ? static_cast<double>(grad_scale) : 0;
    for (rt_i64 i = threadIdx.x; i < vocab; i += kThreads) {
      const double p = exp(static_cast<double>(Type::load(x[i])) - max) / sum;
      const double hot = i == target ? 1 : 0;
      grad_value[row * vocab + i] = (p - hot) * scale;
      grad_magnitude[row * vocab + i] = static_cast<float>((p + hot) * fabs(scale));
    }
#endif
  }
}

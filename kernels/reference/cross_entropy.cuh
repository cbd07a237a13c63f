// Reference of cross entropy: loss = max + log Σ exp(x − max) − x[target], and with RT_GRAD the gradient of the logits
// (softmax − onehot(target)) · grad_scale, in double. A target outside of the vocabulary gives zeros.
// Defines: RT_DTYPE, RT_GRAD (0 or 1). Launch: 256 threads, one block a row.
#include "common/reference.cuh"
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;

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
    max = max_of(max, shared);
    double sum = 0;
    for (rt_i64 i = threadIdx.x; i < vocab; i += kThreads) sum += exp(static_cast<double>(Type::load(x[i])) - max);
    sum = sum_of(sum, shared);
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

// Reference of softmax: what each element must be, in double, straight from the definition.
// Defines: RT_DTYPE, RT_LOG, RT_CAUSAL (row r sees columns up to r + cols − rows), RT_SCALED, RT_MASK. Launch: 256
// threads, one block a row.
#include "common/reference.cuh"
#include "common/types.cuh"

__device__ double element(RtType<RT_DTYPE>::Store v) { return RtType<RT_DTYPE>::load(v); }

// Without scale and mask the value is its own magnitude: a quotient of sums of positive terms has no cancellation. t
// made by arithmetic carries the rounding of its size into the exponent, and a logarithm is a difference of its terms.
extern "C" __global__ void __launch_bounds__(kThreads)
    rt_reference(const RtType<RT_DTYPE>::Store* x,
#if RT_MASK
                 const RtType<RT_DTYPE>::Store* mask,
#endif
#if RT_SCALED
                 float scale,
#endif
                 double* value, float* magnitude, rt_i64 rows, rt_i64 cols) {
  __shared__ double shared[kThreads];
  const double infinity = __longlong_as_double(0x7FF0000000000000ll);
  for (rt_i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const rt_i64 attended = RT_CAUSAL ? row + 1 + cols - rows : cols;
    const auto t = [&](rt_i64 i) {
      double v = element(x[row * cols + i]);
#if RT_SCALED
      v *= static_cast<double>(scale);
#endif
#if RT_MASK
      v += element(mask[row * cols + i]);
#endif
      return v;
    };
    double max = -infinity;
    for (rt_i64 i = threadIdx.x; i < attended; i += kThreads) max = fmax(max, t(i));
    max = max_of(max, shared);
    double sum = 0;
    for (rt_i64 i = threadIdx.x; i < attended; i += kThreads) sum += exp(t(i) - max);
    sum = sum_of(sum, shared);
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) {
      double y = RT_LOG ? -infinity : 0;
      double size = 0;
      if (i < attended && RT_LOG) {
        y = t(i) - max - log(sum);
        // The sum's rounding is an absolute error of its logarithm.
        size = fabs(t(i)) + fabs(max) + fabs(log(sum)) + 1;
      } else if (i < attended) {
        y = exp(t(i) - max) / sum;
        // A masked element is 0 without an error, where t is −∞.
        size = (RT_SCALED || RT_MASK) && y > 0 ? y * (1 + fabs(t(i)) + fabs(max)) : y;
      }
      value[row * cols + i] = y;
      magnitude[row * cols + i] = static_cast<float>(size);
    }
  }
}

// Reference of reductions, by their definitions, in double. The magnitude of a sum is Σ|x|, of a mean that over the
// count, of a variance mean(x²) + mean(x)², of a largest element its own, of an index 0.
// Defines: RT_DTYPE, RT_AXIS (0 row, 1 column, 2 full), RT_KIND (0 sum, 1 max, 2 mean, 3 argmax, 4 mean and variance).
// Launch: 256 threads, one block a result.
#include "common/reference.cuh"
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;

__device__ double add(double a, double b) { return a + b; }
// NaN if either is.
__device__ double larger(double a, double b) { return a != a || a > b ? a : b; }
__device__ double smaller(double a, double b) { return a < b ? a : b; }

extern "C" __global__ void __launch_bounds__(kThreads)
    rt_reference(const Type::Store* x, double* value, float* magnitude,
#if RT_KIND == 4
                 double* variance_value, float* variance_magnitude,
#endif
                 rt_i64 rows, rt_i64 cols) {
  __shared__ double shared[kThreads];
  const rt_i64 outputs = RT_AXIS == 0 ? rows : RT_AXIS == 1 ? cols : 1;
  const rt_i64 terms = RT_AXIS == 0 ? cols : RT_AXIS == 1 ? rows : rows * cols;
  for (rt_i64 o = blockIdx.x; o < outputs; o += gridDim.x) {
    const auto element = [&](rt_i64 i) -> double { return Type::load(x[RT_AXIS == 1 ? i * cols + o : o * cols + i]); };
    double sum = 0, size = 0, max = __longlong_as_double(static_cast<rt_i64>(0xFFF0000000000000ull));
    for (rt_i64 i = threadIdx.x; i < terms; i += kThreads) {
      sum += element(i);
      size += fabs(element(i));
      max = larger(max, element(i));
    }
    sum = reduce(sum, shared, add);
    size = reduce(size, shared, add);
    max = reduce(max, shared, larger);
#if RT_KIND == 2 || RT_KIND == 4
    const double mean = sum / static_cast<double>(terms);
#endif
#if RT_KIND == 3
    double first = static_cast<double>(terms - 1);
    for (rt_i64 i = threadIdx.x; i < terms; i += kThreads) {
      if (element(i) == max || (max != max && element(i) != element(i))) first = smaller(first, static_cast<double>(i));
    }
    first = reduce(first, shared, smaller);
#elif RT_KIND == 4
    double squares = 0, spread = 0;
    for (rt_i64 i = threadIdx.x; i < terms; i += kThreads) {
      squares += element(i) * element(i);
      spread += (element(i) - mean) * (element(i) - mean);
    }
    squares = reduce(squares, shared, add) / static_cast<double>(terms);
    spread = reduce(spread, shared, add) / static_cast<double>(terms);
#endif
    if (threadIdx.x != 0) continue;
#if RT_KIND == 0
    value[o] = sum;
    magnitude[o] = static_cast<float>(size);
#elif RT_KIND == 1
    value[o] = max;
    magnitude[o] = static_cast<float>(fabs(max));
#elif RT_KIND == 3
    value[o] = first;
    magnitude[o] = 0;
#else
    value[o] = mean;
    magnitude[o] = static_cast<float>(size / static_cast<double>(terms));
#if RT_KIND == 4
    variance_value[o] = spread;
    variance_magnitude[o] = static_cast<float>(squares + mean * mean);
#endif
#endif
  }
}

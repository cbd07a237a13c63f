// Reference of softmax: what each element must be, in double, straight from the definition.
// Define: RT_DTYPE. Launch: 256 threads, one block a row.
#include "common/types.cuh"

constexpr int kThreads = 256;

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

__device__ double element(RtType<RT_DTYPE>::Store v) { return RtType<RT_DTYPE>::load(v); }

// The value is its own magnitude: a quotient of sums of positive terms has no cancellation.
extern "C" __global__ void __launch_bounds__(kThreads)
    rt_reference(const RtType<RT_DTYPE>::Store* x, double* value, float* magnitude, rt_i64 rows, rt_i64 cols) {
  __shared__ double shared[kThreads];
  for (rt_i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const RtType<RT_DTYPE>::Store* const in = x + row * cols;
    double max = __longlong_as_double(static_cast<rt_i64>(0xFFF0000000000000ull));
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) max = fmax(max, element(in[i]));
    max = reduce(max, shared, [](double a, double b) { return fmax(a, b); });
    double sum = 0;
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) sum += exp(element(in[i]) - max);
    sum = reduce(sum, shared, [](double a, double b) { return a + b; });
    for (rt_i64 i = threadIdx.x; i < cols; i += kThreads) {
      const double y = exp(element(in[i]) - max) / sum;
      value[row * cols + i] = y;
      magnitude[row * cols + i] = static_cast<float>(y);
    }
  }
}

// Pieces of reference kernels, in double. Nothing here is for the kernels that they judge.
#pragma once

constexpr int kThreads = 256;  // of a block

// Combines a value of each thread in a fixed tree, so that equal inputs give equal bits; every thread gets the result.
// `shared` holds kThreads.
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
__device__ double sum_of(double v, double* shared) {
  return reduce(v, shared, [](double a, double b) { return a + b; });
}
// A NaN counts only if all are.
__device__ double max_of(double v, double* shared) {
  return reduce(v, shared, [](double a, double b) { return fmax(a, b); });
}

// KIND: 0 none, 1 relu, 2 gelu in its tanh form, 3 silu.
template <int KIND>
__device__ double activate(double y) {
  if (KIND == 1) return y < 0 ? 0 : y;
  if (KIND == 2) return 0.5 * y * (1 + tanh(0.7978845608028653559 * (y + 0.044715 * y * y * y)));
  if (KIND == 3) return y / (1 + exp(-y));
  return y;
}

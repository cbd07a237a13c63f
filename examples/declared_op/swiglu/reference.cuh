// What swiglu must give, in double. Launch: 256 threads, one thread an element.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
    rt_reference(const RtType<RT_DTYPE>::Store* x, double* value, float* magnitude, rt_i64 rows, rt_i64 cols) {
  const rt_i64 stride = static_cast<rt_i64>(gridDim.x) * blockDim.x;
  for (rt_i64 i = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * cols; i += stride) {
    const RtType<RT_DTYPE>::Store* const row = x + i / cols * 2 * cols;
    const double gate = RtType<RT_DTYPE>::load(row[i % cols]);
    const double up = RtType<RT_DTYPE>::load(row[cols + i % cols]);
    value[i] = gate / (1 + exp(-gate)) * up;
    // The error of the exponential's argument, rounded, scales with |gate| once more.
    magnitude[i] = static_cast<float>(fabs(value[i]) * (1 + fabs(gate)));
  }
}

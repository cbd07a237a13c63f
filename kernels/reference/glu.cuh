// Reference of glu: y = act(gate) · up in double, with silu(g) = g / (1 + e^−g) and gelu in its tanh form.
// RT_QUANT (1 FP8 E4M3, 2 INT8): scale = max |y| / 448 or 127 of the row, and y / scale (0 where scale is 0) in place
// of y, not rounded.
// Defines: RT_DTYPE, RT_PACKED (1: x[row] = gate[cols], up[cols]), RT_ACT (2 gelu, 3 silu), RT_QUANT.
// Launch: 256 threads, one thread an element (RT_QUANT: one block a row).
#include "common/reference.cuh"
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;
typedef Type::Store Store;

// The activation, and how far its argument's rounding moves it: relative, in units of that rounding.
struct Activated {
  double value;
  double sensitivity;
};
__device__ Activated activate(double g) {
#if RT_ACT == 3
  return {g / (1 + exp(-g)), fabs(g)};
#else
  const double argument = 0.7978845608028654 * (g + 0.044715 * g * g * g);
  return {0.5 * g * (1 + tanh(argument)), 2 * fabs(argument)};
#endif
}

struct Result {
  double value;
  double magnitude;
};
__device__ Result gated(double g, double u) {
  const Activated a = activate(g);
  return {a.value * u, fabs(a.value * u) * (1 + a.sensitivity)};
}

#if RT_PACKED
#define RT_INPUTS const Store* x
#else
#define RT_INPUTS const Store *gate, const Store *up
#endif

// Element number i of y.
__device__ Result element(RT_INPUTS, rt_i64 i, rt_i64 cols) {
#if RT_PACKED
  const rt_i64 at = i / cols * 2 * cols + i % cols;
  return gated(Type::load(x[at]), Type::load(x[at + cols]));
#else
  return gated(Type::load(gate[i]), Type::load(up[i]));
#endif
}

#if RT_PACKED
#define RT_PASSED x
#else
#define RT_PASSED gate, up
#endif

#if RT_QUANT
extern "C" __global__ void __launch_bounds__(kThreads)
    rt_reference(RT_INPUTS, double* value, float* magnitude, double* scale_value, float* scale_magnitude, rt_i64 rows,
                 rt_i64 cols) {
  __shared__ double shared[kThreads];
  const rt_i64 row = blockIdx.x;
  double largest = 0, largest_size = 0;
  for (rt_i64 i = row * cols + threadIdx.x; i < (row + 1) * cols; i += kThreads) {
    const Result y = element(RT_PASSED, i, cols);
    largest = fmax(largest, fabs(y.value));
    largest_size = fmax(largest_size, y.magnitude);
  }
  const double limit = RT_QUANT == 1 ? 448 : 127;
  const double scale = max_of(largest, shared) / limit;
  largest_size = max_of(largest_size, shared);
  if (threadIdx.x == 0) {
    scale_value[row] = scale;
    scale_magnitude[row] = static_cast<float>(largest_size / limit);
  }
  for (rt_i64 i = row * cols + threadIdx.x; i < (row + 1) * cols; i += kThreads) {
    const Result y = element(RT_PASSED, i, cols);
    const double inverse = scale > 0 ? 1 / scale : 0;
    value[i] = y.value * inverse;
    // The scale's own error moves every element of the row by as much, relatively.
    magnitude[i] = static_cast<float>(
        y.magnitude * inverse + fabs(y.value) * inverse * largest_size / (scale > 0 ? scale * limit : 1));
  }
}
#else
extern "C" __global__ void __launch_bounds__(256)
    rt_reference(RT_INPUTS, double* value, float* magnitude, rt_i64 rows, rt_i64 cols) {
  const rt_i64 stride = static_cast<rt_i64>(gridDim.x) * blockDim.x;
  for (rt_i64 i = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * cols; i += stride) {
    const Result y = element(RT_PASSED, i, cols);
    value[i] = y.value;
    magnitude[i] = static_cast<float>(y.magnitude);
  }
}
#endif

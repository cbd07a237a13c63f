// Reference of glu: y = act(gate) · up in double, with silu(g) = g / (1 + e^−g) and gelu in its tanh form.
// Defines: RT_DTYPE, RT_PACKED (1: x[row] = gate[cols], up[cols]), RT_ACT (2 gelu, 3 silu).
// Launch: 256 threads, one thread an element.
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

extern "C" __global__ void __launch_bounds__(256) rt_reference(
#if RT_PACKED
    const Store* x,
#else
    const Store* gate, const Store* up,
#endif
    double* value, float* magnitude, rt_i64 rows, rt_i64 cols) {
  const rt_i64 stride = static_cast<rt_i64>(gridDim.x) * blockDim.x;
  for (rt_i64 i = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * cols; i += stride) {
#if RT_PACKED
    const rt_i64 at = i / cols * 2 * cols + i % cols;
    const double g = Type::load(x[at]);
    const double u = Type::load(x[at + cols]);
#else
    const double g = Type::load(gate[i]);
    const double u = Type::load(up[i]);
#endif
    const Activated a = activate(g);
    value[i] = a.value * u;
    magnitude[i] = static_cast<float>(fabs(a.value * u) * (1 + a.sensitivity));
  }
}

// Reference of elementwise chains: interprets the postfix program of costmodel/chain.h in double, one operation after
// the other, and keeps beside each value the magnitude that rounding errors up to there scale with.
// Defines: RT_DTYPE, RT_INPUTS (1 … 8), RT_CHAIN. Launch: 256 threads, one thread an element.
#include "common/types.cuh"

typedef RtType<RT_DTYPE> Type;
typedef Type::Store Store;

struct Value {
  double value;
  double magnitude;
};

constexpr int kInputBase = 100;
// 32 operations of up to three operands: each leaves one value and has two more waiting.
constexpr int kMaxDepth = 66;

// First-order propagation: the error of f(a, b, …) is at most Σ |∂f| · error of the operand, plus the rounding of
// the result.
__device__ Value binary(int code, Value a, Value b) {
  switch (code) {
    case 1:
      return {a.value + b.value, a.magnitude + b.magnitude};
    case 2:
      return {a.value - b.value, a.magnitude + b.magnitude};
    case 3:
      return {a.value * b.value, a.magnitude * b.magnitude};
    case 4: {
      const double v = a.value / b.value;
      const double divisor = b.value * b.value;
      return {v, divisor > 0 ? a.magnitude * b.magnitude / divisor : fabs(v)};
    }
    // The number, if the other is NaN.
    case 5:
      return {fmax(a.value, b.value), fmax(a.magnitude, b.magnitude)};
    default:
      return {fmin(a.value, b.value), fmax(a.magnitude, b.magnitude)};
  }
}

__device__ double gelu(double x) { return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); }

__device__ Value unary(int code, Value a) {
  const double x = a.value;
  // How much larger the error of the operand is than its own rounding.
  const double relative = x != 0 ? a.magnitude / fabs(x) : 1;
  double v = 0;
  switch (code) {
    case 10:
      return {-x, a.magnitude};
    case 11:
      return {fabs(x), a.magnitude};
    case 12:
      return {x < 0 ? 0 : x, a.magnitude};
    case 13:
      v = exp(x);
      return {v, v * (1 + a.magnitude)};
    // The slope of these four is at most 1.13, and an error of the argument is passed on.
    case 14:
      v = tanh(x);
      return {v, fabs(v) + a.magnitude};
    case 15:
      v = 1 / (1 + exp(-x));
      return {v, v + a.magnitude};
    case 16:
      v = x / (1 + exp(-x));
      return {v, fabs(v) + a.magnitude};
    case 17:
      v = gelu(x);
      return {v, fabs(v) + a.magnitude};
    case 18:
      v = sqrt(x);
      return {v, v * relative};
    case 19:
      v = 1 / sqrt(x);
      return {v, v * relative};
    case 20:
      return {x * x, a.magnitude * a.magnitude};
    default:
      v = log(x);
      return {v, fabs(v) + relative};
  }
}

__device__ Value evaluate(const double* input) {
  const int program[] = {RT_CHAIN};
  Value stack[kMaxDepth];
  int depth = 0;
  for (int code : program) {
    if (code >= kInputBase) {
      stack[depth++] = {input[code - kInputBase], fabs(input[code - kInputBase])};
    } else if (code >= 30) {
      depth -= 2;
      stack[depth - 1] = binary(1, binary(3, stack[depth - 1], stack[depth]), stack[depth + 1]);
    } else if (code >= 10) {
      stack[depth - 1] = unary(code, stack[depth - 1]);
    } else {
      --depth;
      stack[depth - 1] = binary(code, stack[depth - 1], stack[depth]);
    }
  }
  return stack[0];
}

extern "C" __global__ void __launch_bounds__(256) rt_reference(const Store* a,
#if RT_INPUTS > 1
                                                               const Store* b,
#endif
#if RT_INPUTS > 2
                                                               const Store* c,
#endif
#if RT_INPUTS > 3
                                                               const Store* d,
#endif
#if RT_INPUTS > 4
                                                               const Store* e,
#endif
#if RT_INPUTS > 5
                                                               const Store* f,
#endif
#if RT_INPUTS > 6
                                                               const Store* g,
#endif
#if RT_INPUTS > 7
                                                               const Store* h,
#endif
                                                               double* value, float* magnitude, rt_i64 n) {
  const Store* const inputs[] = {
    a,
#if RT_INPUTS > 1
    b,
#endif
#if RT_INPUTS > 2
    c,
#endif
#if RT_INPUTS > 3
    d,
#endif
#if RT_INPUTS > 4
    e,
#endif
#if RT_INPUTS > 5
    f,
#endif
#if RT_INPUTS > 6
    g,
#endif
#if RT_INPUTS > 7
    h,
#endif
  };
  const rt_i64 stride = static_cast<rt_i64>(gridDim.x) * blockDim.x;
  for (rt_i64 i = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    double input[RT_INPUTS];
    for (int t = 0; t < RT_INPUTS; ++t) input[t] = Type::load(inputs[t][i]);
    const Value y = evaluate(input);
    value[i] = y.value;
    magnitude[i] = static_cast<float>(y.magnitude);
  }
}

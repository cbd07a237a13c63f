// Reference of elementwise chains: interprets the postfix program of costmodel/chain.h in double, one operation after
// the other, and keeps beside each value the magnitude that rounding errors up to there scale with.
// Defines: RT_DTYPE, RT_INPUTS (1 … 8), RT_CHAIN, RT_AXES and RT_DTYPES (one an input: mask of its axes, and its type
// or 0 for RT_DTYPE). Launch: 256 threads, one thread an element.
#include "common/types.cuh"

struct Value {
  double value;
  double magnitude;
  bool exact;  // an input
};

constexpr int kInputBase = 100;
// 32 operations of up to three operands: each leaves one value and has two more waiting.
constexpr int kMaxDepth = 66;

// First-order propagation of errors, by the same rules as costmodel/chain.h: the harness compares both.
__device__ Value binary(int code, Value a, Value b) {
  const double x = a.value, y = b.value;
  switch (code) {
    case 1:
      return {x + y, a.magnitude + b.magnitude};
    case 2:
      return {x - y, a.magnitude + b.magnitude};
    case 3:
      return {x * y, fabs(x) * b.magnitude + fabs(y) * a.magnitude};
    case 4: {
      const double v = x / y;
      return {v, (a.magnitude + fabs(v) * b.magnitude) / fabs(y)};
    }
    // The number, if the other is NaN.
    case 5:
      return {fmax(x, y), fmax(a.magnitude, b.magnitude)};
    case 6:
      return {fmin(x, y), fmax(a.magnitude, b.magnitude)};
    default:
      break;
  }
  // Comparisons: so close that the rounding of an operand decides, either answer is right.
  const bool holds = code == 7 ? x > y : code == 8 ? x >= y : x == y;
  const bool undecided = !(a.exact && b.exact) && fabs(x - y) <= 9.5367431640625e-07 * (a.magnitude + b.magnitude);
  return {holds ? 1.0 : 0.0, undecided ? 1048576.0 : 0.0};
}

__device__ Value ternary(int code, Value a, Value b, Value c) {
  if (code == 30) return binary(1, binary(3, a, b), c);
  if (code == 32) return binary(6, binary(5, a, b), c);
  const Value taken = a.value != 0 ? b : c;
  return {taken.value, taken.magnitude + (a.exact ? 0 : a.magnitude * fabs(b.value - c.value))};
}

__device__ double gelu(double x) { return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); }

__device__ Value unary(int code, Value a) {
  const double x = a.value, m = a.magnitude;
  double v = 0;
  switch (code) {
    case 10:
      return {-x, m};
    case 11:
      return {fabs(x), m};
    case 12:
      return {x < 0 ? 0 : x, m};
    case 13:
      v = exp(x);
      return {v, v * (1 + m)};
    case 14:
      v = tanh(x);
      return {v, (1 - v * v) * m + fabs(v)};
    case 15:
      v = 1 / (1 + exp(-x));
      return {v, v * (1 - v) * m + v};
    // The slopes of silu and gelu are at most 1.10 and 1.13.
    case 16:
      v = x / (1 + exp(-x));
      return {v, 1.10 * m + fabs(v)};
    case 17:
      v = gelu(x);
      return {v, 1.13 * m + fabs(v)};
    case 18:
      v = sqrt(x);
      return {v, v > 0 ? m / (2 * v) + v : sqrt(m)};
    case 19:
      v = 1 / sqrt(x);
      return {v, v * (1 + m / (2 * fabs(x)))};
    case 20:
      return {x * x, 2 * fabs(x) * m};
    default:
      v = log(x);
      return {v, m / fabs(x) + fabs(v)};
  }
}

__device__ Value evaluate(const double* input) {
  const int program[] = {RT_CHAIN};
  Value stack[kMaxDepth];
  int depth = 0;
  for (int code : program) {
    if (code >= kInputBase) {
      stack[depth++] = {input[code - kInputBase], fabs(input[code - kInputBase]), true};
    } else if (code >= 30) {
      depth -= 2;
      stack[depth - 1] = ternary(code, stack[depth - 1], stack[depth], stack[depth + 1]);
    } else if (code >= 10) {
      stack[depth - 1] = unary(code, stack[depth - 1]);
    } else {
      --depth;
      stack[depth - 1] = binary(code, stack[depth - 1], stack[depth]);
    }
  }
  return stack[0];
}

__device__ double load(int dtype, const void* p, rt_i64 i) {
  if (dtype == RT_FP32) return static_cast<const float*>(p)[i];
  const rt_u16 bits = static_cast<const rt_u16*>(p)[i];
  return dtype == RT_FP16 ? RtType<RT_FP16>::load(bits) : RtType<RT_BF16>::load(bits);
}

// Where an input with these axes has the element at these coordinates.
__device__ rt_i64 offset(int axes, const rt_i64 (&extent)[4], const rt_i64 (&coordinate)[4]) {
  rt_i64 at = 0;
  for (int axis = 0; axis < 4; ++axis) {
    if (axes >> axis & 1) at = at * extent[axis] + coordinate[axis];
  }
  return at;
}

extern "C" __global__ void __launch_bounds__(256) rt_reference(const void* a,
#if RT_INPUTS > 1
                                                               const void* b,
#endif
#if RT_INPUTS > 2
                                                               const void* c,
#endif
#if RT_INPUTS > 3
                                                               const void* d,
#endif
#if RT_INPUTS > 4
                                                               const void* e,
#endif
#if RT_INPUTS > 5
                                                               const void* f,
#endif
#if RT_INPUTS > 6
                                                               const void* g,
#endif
#if RT_INPUTS > 7
                                                               const void* h,
#endif
                                                               double* value, float* magnitude, rt_i64 n, rt_i64 d1, rt_i64 d2,
                                                               rt_i64 d3) {
  const void* const inputs[] = {
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
  const int axes[] = {RT_AXES};
  const int dtypes[] = {RT_DTYPES};
  const rt_i64 extent[4] = {n, d1, d2, d3};
  const rt_i64 i = static_cast<rt_i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n * d1 * d2 * d3) return;
  const rt_i64 coordinate[4] = {i / d3 / d2 / d1, i / d3 / d2 % d1, i / d3 % d2, i % d3};
  double input[RT_INPUTS];
  for (int t = 0; t < RT_INPUTS; ++t) {
    input[t] = load(dtypes[t] != 0 ? dtypes[t] : RT_DTYPE, inputs[t], offset(axes[t], extent, coordinate));
  }
  const Value y = evaluate(input);
  value[i] = y.value;
  magnitude[i] = static_cast<float>(y.magnitude);
}

// A chain of elementwise operations in one pass: y = chain(a, b, …).
//
// Defines: RT_DTYPE; RT_INPUTS (1 … 8); RT_CHAIN, the postfix program of costmodel/chain.h (codes of ChainOp; input i
// is 100 + i); RT_BLOCK threads a block; RT_VEC elements a vector; RT_ITEMS vectors of each input that a thread loads
// before it computes.
//
// The program is unrolled at compile time and evaluated in fp32: the kernel holds no interpreter.
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_DTYPE, RT_VEC> Vector;
typedef Vector::Store Store;

constexpr int kInputBase = 100;

constexpr int program_length() {
  constexpr int program[] = {RT_CHAIN};
  return sizeof(program) / sizeof(program[0]);
}
constexpr int program_code(int position) {
  constexpr int program[] = {RT_CHAIN};
  return program[position];
}
// Codes from 10 take one operand, from 30 three, the rest two.
constexpr int operands(int code) { return code >= kInputBase ? 0 : code >= 30 ? 3 : code >= 10 ? 1 : 2; }
constexpr int stack_depth() {
  int depth = 0;
  int deepest = 0;
  for (int i = 0; i < program_length(); ++i) {
    depth += 1 - operands(program_code(i));
    deepest = depth > deepest ? depth : deepest;
  }
  return deepest;
}

// A NaN stays one.
__device__ __forceinline__ float relu(float x) {
  float r;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(r) : "f"(x));
  return r;
}
// Keeps subnormal results, unlike rt_exp: they are results here, not weights of a sum.
__device__ __forceinline__ float exp_full(float x) {
  float r;
  asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x * 1.4426950408889634f));
  return r;
}
// a / b within 2 units in the last place over the whole range.
__device__ __forceinline__ float divide(float a, float b) {
  float r;
  asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ float tanh_of(float x) {
  if constexpr (RT_DTYPE == RT_BF16) {
    // Relative error 2^-11: an eighth of a bf16 unit in the last place.
    float r;
    asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
  } else {
    return tanhf(x);
  }
}
__device__ __forceinline__ float sigmoid(float x) { return divide(1.0f, 1.0f + exp_full(-x)); }

__device__ __forceinline__ float square_root(float x) {
  float r;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float inverse_root(float x) {
  float r;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float logarithm(float x) {
  float r;
  asm("lg2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r * 0.6931471805599453f;
}

template <int CODE>
__device__ __forceinline__ float unary(float x) {
  static_assert(CODE >= 10 && CODE <= 21, "unknown operation of one operand");
  if constexpr (CODE == 10) return -x;
  if constexpr (CODE == 11) return fabsf(x);
  if constexpr (CODE == 12) return relu(x);
  if constexpr (CODE == 13) return exp_full(x);
  if constexpr (CODE == 14) return tanh_of(x);
  if constexpr (CODE == 15) return sigmoid(x);
  if constexpr (CODE == 16) return divide(x, 1.0f + exp_full(-x));
  // The tanh form: 0.5·x·(1 + tanh(u)) = x·sigmoid(2u) with u = √(2/π)·(x + 0.044715·x³).
  if constexpr (CODE == 17) return x * sigmoid(1.5957691216057308f * fmaf(0.044715f * x * x, x, x));
  if constexpr (CODE == 18) return square_root(x);
  if constexpr (CODE == 19) return inverse_root(x);
  if constexpr (CODE == 20) return x * x;
  return logarithm(x);
}

template <int CODE>
__device__ __forceinline__ float binary(float a, float b) {
  static_assert(CODE >= 1 && CODE <= 6, "unknown operation of two operands");
  if constexpr (CODE == 1) return a + b;
  if constexpr (CODE == 2) return a - b;
  if constexpr (CODE == 3) return a * b;
  if constexpr (CODE == 4) return divide(a, b);
  if constexpr (CODE == 5) return fmaxf(a, b);  // the number, if the other is NaN
  return fminf(a, b);
}

template <int POSITION, int DEPTH>
__device__ __forceinline__ float evaluate(const float (&input)[RT_INPUTS], float (&stack)[stack_depth()]) {
  if constexpr (POSITION == program_length()) {
    static_assert(DEPTH == 1, "the program leaves one value");
    return stack[0];
  } else {
    constexpr int code = program_code(POSITION);
    constexpr int count = operands(code);
    constexpr int base = DEPTH - count;
    static_assert(base >= 0, "the program takes more than it has");
    if constexpr (count == 0) {
      stack[base] = input[code - kInputBase];
    } else if constexpr (count == 1) {
      stack[base] = unary<code>(stack[base]);
    } else if constexpr (count == 2) {
      stack[base] = binary<code>(stack[base], stack[base + 1]);
    } else {
      static_assert(code == 30, "unknown operation of three operands");
      stack[base] = fmaf(stack[base], stack[base + 1], stack[base + 2]);
    }
    return evaluate<POSITION + 1, base + 1>(input, stack);
  }
}

struct Inputs {
  const Store* p[RT_INPUTS];
};

__device__ __forceinline__ Vector compute(const Vector (&v)[RT_INPUTS]) {
  float y[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) {
    float input[RT_INPUTS];
    float stack[stack_depth()];
#pragma unroll
    for (int t = 0; t < RT_INPUTS; ++t) input[t] = v[t].get(i);
    y[i] = evaluate<0, 0>(input, stack);
  }
  Vector out;
  out.set(y);
  return out;
}

// The last elements, when n is no multiple of the vector.
__device__ __forceinline__ void compute_tail(const Inputs& in, Store* y, rt_i64 first, rt_i64 n) {
  for (rt_i64 i = first; i < n; ++i) {
    float input[RT_INPUTS];
    float stack[stack_depth()];
#pragma unroll
    for (int t = 0; t < RT_INPUTS; ++t) input[t] = RtType<RT_DTYPE>::load(in.p[t][i]);
    y[i] = RtType<RT_DTYPE>::store(evaluate<0, 0>(input, stack));
  }
}

// A tile is RT_ITEMS vectors a thread, consecutive threads side by side. FULL tiles need no bounds checks.
template <bool FULL>
__device__ __forceinline__ void compute_tile(const Inputs& in, Store* y, rt_i64 tile, rt_i64 n) {
  const rt_i64 first = (tile * RT_ITEMS * RT_BLOCK + threadIdx.x) * RT_VEC;
  constexpr rt_i64 kStep = RT_BLOCK * RT_VEC;
  Vector v[RT_ITEMS][RT_INPUTS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (!FULL && first + k * kStep + RT_VEC > n) continue;
#pragma unroll
    for (int t = 0; t < RT_INPUTS; ++t) v[k][t].load_stream(in.p[t] + first + k * kStep);
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (!FULL && first + k * kStep + RT_VEC > n) {
      compute_tail(in, y, first + k * kStep, n);
      continue;
    }
    compute(v[k]).store_stream(y + first + k * kStep);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_elementwise(const Store* a,
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
                                                                      Store* y, rt_i64 n) {
  const Inputs in = {{
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
  }};
  constexpr rt_i64 kTile = static_cast<rt_i64>(RT_BLOCK) * RT_ITEMS * RT_VEC;
  const rt_i64 tiles = (n + kTile - 1) / kTile;
  for (rt_i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    if ((tile + 1) * kTile <= n) {
      compute_tile<true>(in, y, tile, n);
    } else {
      compute_tile<false>(in, y, tile, n);
    }
  }
}

// A chain of elementwise operations in one pass: y = chain(a, b, …).
//
// Defines: RT_DTYPE; RT_OUT, y's type; RT_INPUTS (1 … 8); RT_CHAIN, the postfix program of costmodel/chain.h (codes of
// ChainOp; input i is 100 + i); RT_AXES and RT_DTYPES, one an input: the mask of its axes and its type, 0 for RT_DTYPE;
// RT_RANK axes that count (1 … 4); RT_INPLACE (1: y is a); RT_BLOCK threads a block; RT_VEC elements a vector, where an
// input lacks an axis a divisor of the innermost extent; RT_ITEMS vectors of each input that a thread loads before it
// computes.
//
// The program is unrolled at compile time and evaluated in fp32: the kernel holds no interpreter. Inputs that lack an
// axis are read from caches; at most 2^32 vectors then.
#include "common/types.cuh"
#include "common/vector.cuh"

namespace {

typedef RtVector<RT_OUT, RT_VEC> Result;
typedef Result::Store Out;

constexpr int kInputBase = 100;

constexpr int program_length() {
  constexpr int program[] = {RT_CHAIN};
  return sizeof(program) / sizeof(program[0]);
}
constexpr int program_code(int position) {
  constexpr int program[] = {RT_CHAIN};
  return program[position];
}
constexpr int axes_of(int input) {
  constexpr int axes[] = {RT_AXES};
  return axes[input];
}
constexpr int dtype_of(int input) {
  constexpr int dtypes[] = {RT_DTYPES};
  return dtypes[input] != 0 ? dtypes[input] : RT_DTYPE;
}
// Axes that are not there count as had: their extent is 1.
constexpr int kAllAxes = (1 << RT_RANK) - 1;
constexpr bool has_all_axes(int input) { return (axes_of(input) & kAllAxes) == kAllAxes; }
constexpr bool has_inner_axis(int input) { return axes_of(input) >> (RT_RANK - 1) & 1; }
constexpr bool broadcasts() {
  for (int i = 0; i < RT_INPUTS; ++i) {
    if (!has_all_axes(i)) return true;
  }
  return false;
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
  if constexpr (RT_OUT == RT_BF16) {
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
  static_assert(CODE >= 1 && CODE <= 9, "unknown operation of two operands");
  if constexpr (CODE == 1) return a + b;
  if constexpr (CODE == 2) return a - b;
  if constexpr (CODE == 3) return a * b;
  if constexpr (CODE == 4) return divide(a, b);
  if constexpr (CODE == 5) return fmaxf(a, b);  // the number, if the other is NaN
  if constexpr (CODE == 6) return fminf(a, b);
  if constexpr (CODE == 7) return a > b ? 1.0f : 0.0f;
  if constexpr (CODE == 8) return a >= b ? 1.0f : 0.0f;
  return a == b ? 1.0f : 0.0f;
}

template <int CODE>
__device__ __forceinline__ float ternary(float a, float b, float c) {
  static_assert(CODE >= 30 && CODE <= 32, "unknown operation of three operands");
  if constexpr (CODE == 30) return fmaf(a, b, c);
  if constexpr (CODE == 31) return a != 0.0f ? b : c;
  return fminf(fmaxf(a, b), c);
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
      stack[base] = ternary<code>(stack[base], stack[base + 1], stack[base + 2]);
    }
    return evaluate<POSITION + 1, base + 1>(input, stack);
  }
}

// Addresses of the inputs, and the extents that number an element.
struct Problem {
  const void* p[RT_INPUTS];
  rt_i64 n;  // of all elements
  rt_u32 extent[4];
};

// Coordinates of a vector's first element; the innermost one last. The first axis needs no division.
struct Coordinates {
  rt_u32 at[RT_RANK];

  __device__ __forceinline__ Coordinates(const Problem& problem, rt_i64 first) {
    // In vectors, of which a row has a whole number.
    rt_u32 rest = static_cast<rt_u32>(first / RT_VEC);
    const rt_u32 row = problem.extent[RT_RANK - 1] / RT_VEC;
#pragma unroll
    for (int axis = RT_RANK - 1; axis > 0; --axis) {
      const rt_u32 extent = axis == RT_RANK - 1 ? row : problem.extent[axis];
      const rt_u32 next = rest / extent;
      at[axis] = rest - next * extent;
      rest = next;
    }
    at[0] = rest;
    at[RT_RANK - 1] *= RT_VEC;
  }

  // Offset in an input that has these axes.
  template <int AXES>
  __device__ __forceinline__ rt_i64 offset(const Problem& problem) const {
    rt_i64 offset = 0;
#pragma unroll
    for (int axis = 0; axis < RT_RANK; ++axis) {
      if (AXES >> axis & 1) offset = offset * problem.extent[axis] + at[axis];
    }
    return offset;
  }
};

// What a thread has loaded for one vector of the result: the inputs from number INPUT on.
template <int INPUT>
struct Operands {
  static constexpr int kDtype = dtype_of(INPUT);
  // Without the innermost axis a vector of the result needs one element.
  RtVector<kDtype, has_inner_axis(INPUT) ? RT_VEC : 1> v;
  Operands<INPUT + 1> rest;

  __device__ __forceinline__ void load(const Problem& problem, rt_i64 first) {
    typedef typename RtType<kDtype>::Store Store;
    const Store* const p = static_cast<const Store*>(problem.p[INPUT]);
    if constexpr (has_all_axes(INPUT)) {
      v.load(p + first);
    } else {
      v.load(p + Coordinates(problem, first).offset<axes_of(INPUT)>(problem));
    }
    rest.load(problem, first);
  }
  __device__ __forceinline__ void get(int i, float (&input)[RT_INPUTS]) const {
    input[INPUT] = v.get(has_inner_axis(INPUT) ? i : 0);
    rest.get(i, input);
  }
  // Element number `at` by itself, where the result's end cuts a vector: no input lacks an axis.
  static __device__ __forceinline__ void load_one(const Problem& problem, rt_i64 at, float (&input)[RT_INPUTS]) {
    typedef typename RtType<kDtype>::Store Store;
    const Store* const p = static_cast<const Store*>(problem.p[INPUT]);
    // Of rank 1, what is broadcast is one element.
    input[INPUT] = RtType<kDtype>::load(p[has_all_axes(INPUT) ? at : 0]);
    Operands<INPUT + 1>::load_one(problem, at, input);
  }
};
template <>
struct Operands<RT_INPUTS> {
  __device__ __forceinline__ void load(const Problem&, rt_i64) {}
  __device__ __forceinline__ void get(int, float (&)[RT_INPUTS]) const {}
  static __device__ __forceinline__ void load_one(const Problem&, rt_i64, float (&)[RT_INPUTS]) {}
};

__device__ __forceinline__ Result compute(const Operands<0>& operands) {
  float y[RT_VEC];
#pragma unroll
  for (int i = 0; i < RT_VEC; ++i) {
    float input[RT_INPUTS];
    float stack[stack_depth()];
    operands.get(i, input);
    y[i] = evaluate<0, 0>(input, stack);
  }
  Result out;
  out.set(y);
  return out;
}

// The last elements, when the number of all is no multiple of the vector.
__device__ __forceinline__ void compute_tail(const Problem& problem, Out* y, rt_i64 first) {
  for (rt_i64 i = first; i < problem.n; ++i) {
    float input[RT_INPUTS];
    float stack[stack_depth()];
    Operands<0>::load_one(problem, i, input);
    y[i] = RtType<RT_OUT>::store(evaluate<0, 0>(input, stack));
  }
}

// A tile is RT_ITEMS vectors a thread, consecutive threads side by side. FULL tiles need no bounds checks.
template <bool FULL>
__device__ __forceinline__ void compute_tile(const Problem& problem, Out* y, rt_i64 tile) {
  const rt_i64 first = (tile * RT_ITEMS * RT_BLOCK + threadIdx.x) * RT_VEC;
  constexpr rt_i64 kStep = RT_BLOCK * RT_VEC;
  Operands<0> operands[RT_ITEMS];
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (!FULL && first + k * kStep + RT_VEC > problem.n) continue;
    operands[k].load(problem, first + k * kStep);
  }
#pragma unroll
  for (int k = 0; k < RT_ITEMS; ++k) {
    if (!FULL && first + k * kStep + RT_VEC > problem.n) {
      compute_tail(problem, y, first + k * kStep);
      continue;
    }
    compute(operands[k]).store(y + first + k * kStep);
  }
}

}  // namespace

// In place the first argument is y as well.
extern "C" __global__ void __launch_bounds__(RT_BLOCK) rt_elementwise(const void* a,
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
#if !RT_INPLACE
                                                                      Out* y,
#endif
                                                                      rt_i64 n, rt_i64 d1, rt_i64 d2, rt_i64 d3) {
  const Problem problem = {{
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
  }, n * d1 * d2 * d3, {static_cast<rt_u32>(n), static_cast<rt_u32>(d1), static_cast<rt_u32>(d2),
                        static_cast<rt_u32>(d3)}};
#if RT_INPLACE
  Out* const y = static_cast<Out*>(const_cast<void*>(a));
#endif
  constexpr rt_i64 kTile = static_cast<rt_i64>(RT_BLOCK) * RT_ITEMS * RT_VEC;
  const rt_i64 tiles = (problem.n + kTile - 1) / kTile;
  for (rt_i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    if ((tile + 1) * kTile <= problem.n) {
      compute_tile<true>(problem, y, tile);
    } else {
      compute_tile<false>(problem, y, tile);
    }
  }
}

// Elementwise chains: `relu(add(a,b))`, a closed list of operations on inputs a, b, c, … (each used
// once or more, in order of first use without gaps). The program handed to kernels is postfix: codes of
// `ChainOp`; input i is pushed by kChainInputBase + i.
//
// Where an input is used first, it may say which axes of the result it has and of which type it is: `b:1` is one
// row for all (axis 1 alone), `b:0` a column, `b:02` has axes 0 and 2, `b:scalar` is one element, `b:fp32` a type
// other than the operator's, `b:1:fp32` both.
#ifndef ROOFTUNE_COSTMODEL_CHAIN_H_
#define ROOFTUNE_COSTMODEL_CHAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rooftune {

inline constexpr int64_t kChainInputBase = 100;
inline constexpr int kChainMaxInputs = 8;
inline constexpr int kChainMaxOps = 32;
// Axes of a result; bit i of an input's mask: it has axis i (else its extent there is 1).
inline constexpr int kChainMaxAxes = 4;
inline constexpr int64_t kChainAllAxes = (int64_t{1} << kChainMaxAxes) - 1;

// Codes are part of compile keys: never renumber.
enum class ChainOp : int64_t {
  kAdd = 1, kSub = 2, kMul = 3, kDiv = 4, kMax = 5, kMin = 6,
  kGt = 7, kGe = 8, kEq = 9,  // 1 where it holds, else 0; a NaN compares as false
  kNeg = 10, kAbs = 11, kRelu = 12, kExp = 13, kTanh = 14, kSigmoid = 15, kSilu = 16, kGelu = 17, kSqrt = 18,
  kRsqrt = 19, kSquare = 20, kLog = 21,
  kFma = 30,    // fma(a,b,c) = a·b + c
  kWhere = 31,  // where(c,a,b) = a where c is not 0, else b
  kClamp = 32,  // clamp(x,lo,hi) = min(max(x,lo),hi)
};

struct Chain {
  std::string text;  // canonical: no blanks
  std::vector<int64_t> program;
  int inputs = 0;
  // One an input: mask of its axes, and DType code (0 = the operator's).
  std::vector<int64_t> axes, dtypes;
  // Per output element: simple operations and special-function results.
  int64_t fp32_ops = 0;
  int64_t sfu_ops = 0;
};

// INVALID_ARGUMENT with the column and the list of operations.
absl::StatusOr<Chain> ParseChain(absl::string_view text);

// Value in double and the magnitude that rounding errors scale with. An input has magnitude |x|; then, with
// operands (x, X), (y, Y), (z, Z) and result v:
//   add sub: X + Y    mul: |x|Y + |y|X    fma: |x|Y + |y|X + Z    div: (X + |v|Y) / |y|    max min: max(X, Y)
//   clamp: max(X, Y, Z)    where: that of the one taken + X·|y - z|
//   gt ge eq: 0, or kChainUndecided where an operand is a result and so close that its rounding decides
//   neg abs relu: X   square: 2|x|X       exp: v(1 + X)           log: X / |x| + |v|       tanh: (1 - v²)X + |v|
//   sigmoid: v(1 - v)X + v                silu: 1.10X + |v|       gelu: 1.13X + |v|
//   sqrt: X / (2v) + v (√X where v = 0)   rsqrt: v(1 + X / (2|x|))
struct ChainValue {
  double value = 0;
  double magnitude = 0;
  // An input, which has no rounding error.
  bool exact = false;
};
// Times the bound's 2^-23 · 12 more than 1: either answer is right.
inline constexpr double kChainUndecided = 1048576;
// `operands` holds as many as the operation takes, but three are readable.
ChainValue ApplyChainOp(ChainOp op, const ChainValue* operands);
// NaN for a malformed program.
ChainValue EvalChain(const std::vector<int64_t>& program, const double* inputs);

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_CHAIN_H_

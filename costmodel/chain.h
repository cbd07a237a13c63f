// Elementwise chains: `relu(add(a,b))`, a closed list of operations on inputs a, b, c, … (each used
// once or more, in order of first use without gaps). The program handed to kernels is postfix: codes of
// `ChainOp`; input i is pushed by kChainInputBase + i.
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

// Codes are part of compile keys: never renumber.
enum class ChainOp : int64_t {
  kAdd = 1, kSub = 2, kMul = 3, kDiv = 4, kMax = 5, kMin = 6,
  kNeg = 10, kAbs = 11, kRelu = 12, kExp = 13, kTanh = 14, kSigmoid = 15, kSilu = 16, kGelu = 17, kSqrt = 18,
  kRsqrt = 19, kSquare = 20, kLog = 21,
  kFma = 30,  // fma(a,b,c) = a·b + c
};

struct Chain {
  std::string text;  // canonical: no blanks
  std::vector<int64_t> program;
  int inputs = 0;
  // Per output element: simple operations and special-function results.
  int64_t fp32_ops = 0;
  int64_t sfu_ops = 0;
};

// INVALID_ARGUMENT with the column and the list of operations.
absl::StatusOr<Chain> ParseChain(absl::string_view text);

// Value in double and the magnitude that rounding errors scale with. An input has magnitude |x|; then, with
// operands (x, X), (y, Y), (z, Z) and result v:
//   add sub: X + Y    mul: |x|Y + |y|X    fma: |x|Y + |y|X + Z    div: (X + |v|Y) / |y|    max min: max(X, Y)
//   neg abs relu: X   square: 2|x|X       exp: v(1 + X)           log: X / |x| + |v|       tanh: (1 - v²)X + |v|
//   sigmoid: v(1 - v)X + v                silu: 1.10X + |v|       gelu: 1.13X + |v|
//   sqrt: X / (2v) + v (√X where v = 0)   rsqrt: v(1 + X / (2|x|))
struct ChainValue {
  double value = 0;
  double magnitude = 0;
};
// `operands` holds as many as the operation takes, but three are readable.
ChainValue ApplyChainOp(ChainOp op, const ChainValue* operands);
// NaN for a malformed program.
ChainValue EvalChain(const std::vector<int64_t>& program, const double* inputs);

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_CHAIN_H_

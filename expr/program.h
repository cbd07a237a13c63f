// Stack code of an expression and its evaluation. Code has no backward jumps, so it always ends.
#ifndef ROOFTUNE_EXPR_PROGRAM_H_
#define ROOFTUNE_EXPR_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "expr/expression.h"
#include "expr/rational.h"

namespace rooftune::expr_internal {

// Deepest stack a program may need. 64 levels of nesting with at most 6 pending values each stay below it; the
// parser checks.
inline constexpr int kMaxStack = 400;

enum Code : int16_t {
  kConstant,  // push operand
  kName,      // push values[operand]
  // Two values → one.
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kCeilDivide,
  kMin,
  kMax,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  // One value → one.
  kNegate,
  kNot,
  kAbs,
  kLog2,
  kPowerOfTwoCeil,
  // Jumps by `operand` instructions.
  kJump,
  kJumpIfFalse,       // pops the condition
  kJumpIfFalseOrPop,  // and
  kJumpIfTrueOrPop,   // or
  // Inner comparisons of a chain, in the order of kLess…: a b → b if it holds, else → 0 and jump.
  kChainLess,
  kChainLessEqual,
  kChainGreater,
  kChainGreaterEqual,
  kChainEqual,
  kChainNotEqual,
  // Membership: x found element → x found', and at the end x found → found, or its opposite.
  kInElement,
  kInEnd,
  kNotInEnd,
};

struct Program {
  std::vector<Instruction> code;
  // Sorted, each once: what kName's operands count.
  std::vector<std::string> names;
};

// Syntax only; INVALID_ARGUMENT with the column.
absl::StatusOr<Program> Compile(absl::string_view text);

// Evaluates in 64 bits. False if something is not an integer of 64 bits on the way, or does not exist: then
// EvaluateExact says which.
bool EvaluateFast(const std::vector<Instruction>& code, const int64_t* values, int64_t* result);

// Evaluates in fractions of 128 bits. `column` is set to where a fault arose.
Fault EvaluateExact(const std::vector<Instruction>& code, const int64_t* values, Rational* result, int* column);

}  // namespace rooftune::expr_internal

#endif  // ROOFTUNE_EXPR_PROGRAM_H_

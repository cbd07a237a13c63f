// The one expression language of rooftune: constraints, geometry, workspace, preconditions and declared
// work. Python's precedence and meaning on integers; see docs/expressions.md for the grammar.
//
// Numbers are exact rationals; a result that must be an integer and is not is an error. Evaluation is
// checked: results outside 64 bits (128 for Eval128) and division by zero are OUT_OF_RANGE. Intermediate values
// are fractions of 128-bit integers in either case.
#ifndef ROOFTUNE_EXPR_EXPRESSION_H_
#define ROOFTUNE_EXPR_EXPRESSION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/int128.h"

namespace rooftune {

// What names mean. Ordered, so that everything made from it is deterministic.
using Names = std::map<std::string, int64_t>;

namespace expr_internal {
struct Program;

// One step of stack code; see expr/program.h.
struct Instruction {
  int16_t code;
  // Where in the text it came from, for messages.
  int16_t column;
  // Constant, slot, or distance of a jump.
  int64_t operand;
};
}  // namespace expr_internal

// Longest text of an expression.
inline constexpr size_t kMaxExpressionText = 4096;

// A parsed expression. Immutable, cheap to copy, thread-safe.
class Expression {
 public:
  // INVALID_ARGUMENT with the column (from 1) of the first thing that is wrong. At most 4 KiB of text and
  // 64 levels of nesting.
  static absl::StatusOr<Expression> Parse(absl::string_view text);

  const std::string& text() const { return text_; }
  // Names it uses, sorted, each once.
  const std::vector<std::string>& names() const { return names_; }

  // INVALID_ARGUMENT naming an unknown name; OUT_OF_RANGE for overflow, division by zero or a fraction.
  absl::StatusOr<int64_t> Eval(const Names& names) const;
  // The same with 128-bit results.
  absl::StatusOr<Int128> Eval128(const Names& names) const;

 private:
  Expression() = default;
  friend class BoundExpression;

  std::string text_;
  std::vector<std::string> names_;
  std::shared_ptr<const expr_internal::Program> program_;
};

// An expression whose names are resolved to positions of an array: for loops over millions of points.
class BoundExpression {
 public:
  // INVALID_ARGUMENT naming a name that is not in `slots`.
  static absl::StatusOr<BoundExpression> Bind(const Expression& expression, const std::vector<std::string>& slots);

  // False if the value does not exist (overflow, division by zero, fraction).
  bool Eval(const int64_t* values, int64_t* result) const;
  // Largest slot it reads, or -1 for a constant: it can be evaluated once that slot is set.
  int max_slot() const { return max_slot_; }

 private:
  // Stack code: no allocation while evaluating.
  std::vector<expr_internal::Instruction> code_;
  int max_slot_ = -1;
};

}  // namespace rooftune

#endif  // ROOFTUNE_EXPR_EXPRESSION_H_

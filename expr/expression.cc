#include "expr/expression.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "expr/program.h"

namespace rooftune {
namespace {

using expr_internal::Fault;
using expr_internal::Instruction;
using expr_internal::Rational;

absl::Status FaultStatus(Fault fault, const std::string& text, int column) {
  const auto error = [&](absl::string_view reason, absl::string_view what) {
    return Error(absl::StatusCode::kOutOfRange, reason, absl::StrCat(text, ": column ", column, ": ", what),
                 {{"expression", text}});
  };
  switch (fault) {
    case Fault::kDivisionByZero:
      return error("DIVISION_BY_ZERO", "division by zero");
    case Fault::kNotInteger:
      return error("NOT_AN_INTEGER", "the value is not an integer");
    case Fault::kNegativeExponent:
      return error("NOT_AN_INTEGER", "negative exponent");
    case Fault::kNotPositive:
      return error("NOT_POSITIVE", "needs a positive integer");
    default:
      return error("OVERFLOW", "the value is too large");
  }
}

// Values of `names` in their order.
absl::StatusOr<std::vector<int64_t>> Values(const std::vector<std::string>& names, const Names& known,
                                            const std::string& text) {
  std::vector<int64_t> values;
  values.reserve(names.size());
  for (const std::string& name : names) {
    const auto found = known.find(name);
    if (found == known.end()) {
      return Error(absl::StatusCode::kInvalidArgument, "UNKNOWN_NAME",
                   absl::StrCat(text, ": unknown name '", name, "'"), {{"name", name}, {"expression", text}});
    }
    values.push_back(found->second);
  }
  return values;
}

}  // namespace

absl::StatusOr<Expression> Expression::Parse(absl::string_view text) {
  RT_ASSIGN_OR_RETURN(auto program, expr_internal::Compile(text));
  Expression expression;
  expression.text_ = std::string(text);
  expression.names_ = program.names;
  expression.program_ = std::make_shared<const expr_internal::Program>(std::move(program));
  return expression;
}

absl::StatusOr<int64_t> Expression::Eval(const Names& names) const {
  RT_ASSIGN_OR_RETURN(const auto values, Values(names_, names, text_));
  int64_t fast;
  if (expr_internal::EvaluateFast(program_->code, values.data(), &fast)) return fast;
  RT_ASSIGN_OR_RETURN(const Int128 result, Eval128(names));
  if (result < std::numeric_limits<int64_t>::min() || result > std::numeric_limits<int64_t>::max()) {
    return FaultStatus(Fault::kOverflow, text_, 1);
  }
  return static_cast<int64_t>(result);
}

absl::StatusOr<Int128> Expression::Eval128(const Names& names) const {
  RT_ASSIGN_OR_RETURN(const auto values, Values(names_, names, text_));
  Rational result;
  int column = 1;
  const Fault fault = expr_internal::EvaluateExact(program_->code, values.data(), &result, &column);
  if (fault != Fault::kNone) return FaultStatus(fault, text_, column);
  if (!result.IsInteger()) return FaultStatus(Fault::kNotInteger, text_, 1);
  return result.num;
}

absl::StatusOr<BoundExpression> BoundExpression::Bind(const Expression& expression,
                                                      const std::vector<std::string>& slots) {
  BoundExpression bound;
  bound.code_ = expression.program_->code;
  for (Instruction& instruction : bound.code_) {
    if (instruction.code != expr_internal::kName) continue;
    const std::string& name = expression.names_[instruction.operand];
    const auto slot = std::find(slots.begin(), slots.end(), name);
    if (slot == slots.end()) {
      return Error(absl::StatusCode::kInvalidArgument, "UNKNOWN_NAME",
                   absl::StrCat(expression.text_, ": unknown name '", name, "'"),
                   {{"name", name}, {"expression", expression.text_}});
    }
    instruction.operand = slot - slots.begin();
    bound.max_slot_ = std::max(bound.max_slot_, static_cast<int>(instruction.operand));
  }
  return bound;
}

bool BoundExpression::Eval(const int64_t* values, int64_t* result) const {
  if (expr_internal::EvaluateFast(code_, values, result)) return true;
  Rational exact;
  int column;
  if (expr_internal::EvaluateExact(code_, values, &exact, &column) != Fault::kNone || !exact.IsInteger() ||
      exact.num < std::numeric_limits<int64_t>::min() || exact.num > std::numeric_limits<int64_t>::max()) {
    return false;
  }
  *result = static_cast<int64_t>(exact.num);
  return true;
}

}  // namespace rooftune

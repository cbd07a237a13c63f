// Recursive descent straight to stack code. Only parentheses, argument lists and the right side of ** recurse
// (counted, at most 64); runs of `not`, signs and `else` are loops.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "expr/program.h"

namespace rooftune::expr_internal {
namespace {

constexpr int kMaxNesting = 64;

// Python's, so that a name is a name in Python too.
constexpr const char* kReserved[] = {
    "and",      "as",    "assert",  "async", "await", "break",  "class", "continue", "def",   "del",  "elif",   "else",
    "except",   "False", "finally", "for",   "from",  "global", "if",    "import",   "in",    "is",   "lambda", "None",
    "nonlocal", "not",   "or",      "pass",  "raise", "return", "True",  "try",      "while", "with", "yield"};

struct Function {
  const char* name;
  Code code;
  int min_args;
  int max_args;
};
constexpr int kAnyNumber = std::numeric_limits<int>::max();
constexpr Function kFunctions[] = {{"min", kMin, 2, kAnyNumber},   {"max", kMax, 2, kAnyNumber},
                                   {"ceildiv", kCeilDivide, 2, 2}, {"abs", kAbs, 1, 1},
                                   {"log2", kLog2, 1, 1},          {"pow2ceil", kPowerOfTwoCeil, 1, 1}};

struct Operator {
  const char* text;
  Code code;
};
// Longer ones first where one begins another.
constexpr Operator kComparisons[] = {{"<=", kLessEqual}, {">=", kGreaterEqual}, {"==", kEqual},
                                     {"!=", kNotEqual},  {"<", kLess},          {">", kGreater}};
constexpr Operator kFactors[] = {{"//", kFloorDivide}, {"/", kDivide}, {"*", kMultiply}, {"%", kModulo}};
constexpr Operator kTerms[] = {{"+", kAdd}, {"-", kSubtract}};

bool IsNameStart(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsNamePart(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  absl::StatusOr<Program> Run() {
    if (text_.size() > kMaxExpressionText) {
      return Fail(kMaxExpressionText, absl::StrCat("longer than ", kMaxExpressionText, " characters"));
    }
    Skip();
    if (pos_ == text_.size()) return Fail(pos_, "empty expression");
    RT_RETURN_IF_ERROR(Conditional());
    if (pos_ != text_.size()) return Unexpected("expected an operator or the end");
    return Finish();
  }

 private:
  absl::Status Fail(size_t pos, absl::string_view what) const {
    return Error(absl::StatusCode::kInvalidArgument, "EXPRESSION_SYNTAX", absl::StrCat("column ", pos + 1, ": ", what),
                 {{"column", absl::StrCat(pos + 1)}, {"expression", std::string(text_.substr(0, 256))}});
  }

  // What stands at pos_, and advice for what other languages write.
  absl::Status Unexpected(absl::string_view expected) const {
    if (pos_ >= text_.size()) return Fail(pos_, absl::StrCat(expected, ", found the end"));
    const char c = text_[pos_];
    absl::string_view advice;
    if (c == '&') advice = "; write 'and'";
    if (c == '|') advice = "; write 'or'";
    if (c == '!') advice = "; write 'not'";
    if (c == '=') advice = "; write '=='";
    if (c == '.') advice = "; numbers are integers, write a fraction as '1/2'";
    const std::string seen = IsNameStart(c) ? std::string(PeekWord())
                             : absl::ascii_isprint(static_cast<unsigned char>(c))
                                 ? std::string(1, c)
                                 : absl::StrCat("byte ", static_cast<int>(static_cast<unsigned char>(c)));
    return Fail(pos_, absl::StrCat(expected, ", found '", seen, "'", advice));
  }

  void Skip() {
    while (pos_ < text_.size() && std::strchr(" \t\r\n", text_[pos_]) != nullptr && text_[pos_] != '\0') ++pos_;
  }

  absl::string_view PeekWord() const {
    size_t end = pos_;
    if (end < text_.size() && IsNameStart(text_[end])) {
      while (end < text_.size() && IsNamePart(text_[end])) ++end;
    }
    return text_.substr(pos_, end - pos_);
  }

  bool AcceptWord(absl::string_view word) {
    if (PeekWord() != word) return false;
    pos_ += word.size();
    Skip();
    return true;
  }

  bool Accept(absl::string_view symbol) {
    if (text_.substr(pos_, symbol.size()) != symbol) return false;
    pos_ += symbol.size();
    Skip();
    return true;
  }

  absl::Status Expect(absl::string_view symbol) {
    if (Accept(symbol)) return absl::OkStatus();
    return Unexpected(absl::StrCat("expected '", symbol, "'"));
  }

  // The operator of `table` at pos_, or nullptr. `**` is none of the factors.
  template <size_t N>
  const Operator* AcceptOperator(const Operator (&table)[N]) {
    for (const Operator& op : table) {
      if (text_.substr(pos_, 2) == "**" || !Accept(op.text)) continue;
      return &op;
    }
    return nullptr;
  }

  // Appends, and follows the depth of the stack.
  size_t Emit(Code code, int64_t operand, size_t pos, int pushed) {
    code_.push_back({static_cast<int16_t>(code), static_cast<int16_t>(pos + 1), operand});
    stack_ += pushed;
    max_stack_ = std::max(max_stack_, stack_);
    return code_.size() - 1;
  }
  // Makes the jump at `from` go to the next instruction to be emitted.
  void Land(size_t from) { code_[from].operand = static_cast<int64_t>(code_.size() - from); }

  absl::Status Enter(size_t pos) {
    if (++nesting_ > kMaxNesting) return Fail(pos, absl::StrCat("more than ", kMaxNesting, " levels of nesting"));
    return absl::OkStatus();
  }

  // value ["if" condition "else" …]
  absl::Status Conditional() {
    std::vector<size_t> to_end;
    size_t start = code_.size();
    RT_RETURN_IF_ERROR(Or());
    for (size_t pos = pos_; AcceptWord("if"); pos = pos_) {
      // The condition is evaluated first: its code moves before that of the value. Jumps are relative and
      // stay within either part.
      const size_t middle = code_.size();
      --stack_;
      RT_RETURN_IF_ERROR(Or());
      const auto begin = code_.begin() + static_cast<ptrdiff_t>(start);
      const size_t condition_size = code_.size() - middle, value_size = middle - start;
      std::rotate(begin, code_.begin() + static_cast<ptrdiff_t>(middle), code_.end());
      code_.insert(code_.begin() + static_cast<ptrdiff_t>(start + condition_size),
                   {kJumpIfFalse, static_cast<int16_t>(pos + 1), static_cast<int64_t>(value_size + 2)});
      to_end.push_back(Emit(kJump, 0, pos, -1));
      if (!AcceptWord("else")) return Unexpected("expected 'else'");
      start = code_.size();
      RT_RETURN_IF_ERROR(Or());
    }
    for (const size_t jump : to_end) Land(jump);
    return absl::OkStatus();
  }

  absl::Status Or() { return ShortCircuit("or", kJumpIfTrueOrPop, &Parser::And); }
  absl::Status And() { return ShortCircuit("and", kJumpIfFalseOrPop, &Parser::Not); }

  absl::Status ShortCircuit(absl::string_view word, Code jump, absl::Status (Parser::*operand)()) {
    std::vector<size_t> to_end;
    RT_RETURN_IF_ERROR((this->*operand)());
    for (size_t pos = pos_; AcceptWord(word); pos = pos_) {
      to_end.push_back(Emit(jump, 0, pos, -1));
      RT_RETURN_IF_ERROR((this->*operand)());
    }
    for (const size_t from : to_end) Land(from);
    return absl::OkStatus();
  }

  absl::Status Not() {
    std::vector<size_t> places;
    for (size_t pos = pos_; AcceptWord("not"); pos = pos_) places.push_back(pos);
    RT_RETURN_IF_ERROR(Comparison());
    for (auto pos = places.rbegin(); pos != places.rend(); ++pos) Emit(kNot, 0, *pos, 0);
    return absl::OkStatus();
  }

  // A comparison that is followed by another keeps its right operand; which it is shows only then.
  absl::Status Comparison() {
    std::vector<size_t> chained;
    RT_RETURN_IF_ERROR(Sum());
    size_t previous = code_.size();  // none
    for (size_t pos = pos_;; pos = pos_) {
      const size_t before = pos_;
      const Operator* op = AcceptOperator(kComparisons);
      const bool negated = op == nullptr && AcceptWord("not");
      const bool in = op == nullptr && AcceptWord("in");
      if (op == nullptr && !in) {
        if (negated) return Unexpected("expected 'in' after 'not'");
        pos_ = before;
        break;
      }
      if (previous < code_.size()) {
        Instruction& last = code_[previous];
        last.code = static_cast<int16_t>(last.code - kLess + kChainLess);
        chained.push_back(previous);
      }
      if (in) {
        RT_RETURN_IF_ERROR(Membership(negated, pos));
        break;
      }
      RT_RETURN_IF_ERROR(Sum());
      previous = Emit(op->code, 0, pos, -1);
    }
    for (const size_t from : chained) Land(from);
    return absl::OkStatus();
  }

  // "(" [value {"," value} [","]] ")" after `in`.
  absl::Status Membership(bool negated, size_t pos) {
    const size_t open = pos_;
    RT_RETURN_IF_ERROR(Expect("("));
    RT_RETURN_IF_ERROR(Enter(open));
    Emit(kConstant, 0, pos, 1);
    while (!Accept(")")) {
      RT_RETURN_IF_ERROR(Conditional());
      Emit(kInElement, 0, pos, -1);
      if (Accept(",")) continue;
      RT_RETURN_IF_ERROR(Expect(")"));
      break;
    }
    --nesting_;
    Emit(negated ? kNotInEnd : kInEnd, 0, pos, -1);
    return absl::OkStatus();
  }

  absl::Status Sum() {
    RT_RETURN_IF_ERROR(Product());
    for (size_t pos = pos_;; pos = pos_) {
      const Operator* op = AcceptOperator(kTerms);
      if (op == nullptr) return absl::OkStatus();
      RT_RETURN_IF_ERROR(Product());
      Emit(op->code, 0, pos, -1);
    }
  }

  absl::Status Product() {
    RT_RETURN_IF_ERROR(Signed());
    for (size_t pos = pos_;; pos = pos_) {
      const Operator* op = AcceptOperator(kFactors);
      if (op == nullptr) return absl::OkStatus();
      RT_RETURN_IF_ERROR(Signed());
      Emit(op->code, 0, pos, -1);
    }
  }

  absl::Status Signed() {
    std::vector<size_t> minuses;
    for (size_t pos = pos_;; pos = pos_) {
      if (Accept("-")) {
        minuses.push_back(pos);
      } else if (!Accept("+")) {
        break;
      }
    }
    RT_RETURN_IF_ERROR(Power());
    for (auto pos = minuses.rbegin(); pos != minuses.rend(); ++pos) Emit(kNegate, 0, *pos, 0);
    return absl::OkStatus();
  }

  absl::Status Power() {
    RT_RETURN_IF_ERROR(Primary());
    const size_t pos = pos_;
    if (!Accept("**")) return absl::OkStatus();
    RT_RETURN_IF_ERROR(Enter(pos));
    RT_RETURN_IF_ERROR(Signed());
    --nesting_;
    Emit(kPower, 0, pos, -1);
    return absl::OkStatus();
  }

  absl::Status Primary() {
    const size_t pos = pos_;
    if (Accept("(")) {
      RT_RETURN_IF_ERROR(Enter(pos));
      RT_RETURN_IF_ERROR(Conditional());
      --nesting_;
      return Expect(")");
    }
    if (pos < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[pos]))) return Integer();
    const absl::string_view word = PeekWord();
    if (word.empty()) return Unexpected("expected a value");
    if (word == "True" || word == "False") {
      Emit(kConstant, word == "True", pos, 1);
      AcceptWord(word);
      return absl::OkStatus();
    }
    if (std::find(std::begin(kReserved), std::end(kReserved), word) != std::end(kReserved)) {
      return Unexpected("expected a value");
    }
    AcceptWord(word);
    if (text_.substr(pos_, 1) == "(") return Call(word, pos);
    for (const Function& function : kFunctions) {
      if (word == function.name) return Fail(pos, absl::StrCat("'", word, "' is a function: expected '(' after it"));
    }
    const auto name = names_.emplace(std::string(word), static_cast<int64_t>(names_.size())).first;
    Emit(kName, name->second, pos, 1);
    return absl::OkStatus();
  }

  absl::Status Call(absl::string_view word, size_t pos) {
    const Function* function = nullptr;
    for (const Function& f : kFunctions) {
      if (word == f.name) function = &f;
    }
    if (function == nullptr) {
      return Fail(pos,
                  absl::StrCat("unknown function '", word, "'; there are min, max, ceildiv, abs, log2 and pow2ceil"));
    }
    RT_RETURN_IF_ERROR(Expect("("));
    RT_RETURN_IF_ERROR(Enter(pos));
    int args = 0;
    while (!Accept(")")) {
      RT_RETURN_IF_ERROR(Conditional());
      // Two-valued ones fold from the left as their arguments come.
      if (++args > 1 && args <= function->max_args) Emit(function->code, 0, pos, -1);
      if (Accept(",")) continue;
      RT_RETURN_IF_ERROR(Expect(")"));
      break;
    }
    --nesting_;
    if (args < function->min_args || args > function->max_args) {
      return Fail(
          pos, absl::StrCat(word, "() takes ", function->min_args, function->max_args == kAnyNumber ? " or more" : "",
                            " argument", function->min_args == 1 ? "" : "s", ", found ", args));
    }
    if (function->max_args == 1) Emit(function->code, 0, pos, 0);
    return absl::OkStatus();
  }

  // Python's: underscores between digits, no leading zeros, 0x.
  absl::Status Integer() {
    const size_t start = pos_;
    size_t end = start;
    while (end < text_.size() && IsNamePart(text_[end])) ++end;
    absl::string_view digits = text_.substr(start, end - start);
    const bool hex = digits.size() > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
    if (hex) digits.remove_prefix(digits[2] == '_' ? 3 : 2);
    const int base = hex ? 16 : 10;
    int64_t value = 0;
    bool nonzero_lead = false;
    for (size_t i = 0; i < digits.size(); ++i) {
      const char c = digits[i];
      if (c == '_' && i > 0 && i + 1 < digits.size() && digits[i + 1] != '_') continue;
      const bool valid = hex ? absl::ascii_isxdigit(static_cast<unsigned char>(c))
                             : absl::ascii_isdigit(static_cast<unsigned char>(c));
      if (!valid) return Fail(start, absl::StrCat("'", text_.substr(start, end - start), "' is not an integer"));
      const int digit = c <= '9' ? c - '0' : absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10;
      if (i == 0) nonzero_lead = digit != 0;
      if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value)) {
        return Fail(start, "the number does not fit 64 bits");
      }
    }
    if (digits.empty() || (!hex && !nonzero_lead && value != 0)) {
      return Fail(start, absl::StrCat("'", text_.substr(start, end - start), "' is not an integer",
                                      digits.empty() ? "" : ": leading zeros"));
    }
    Emit(kConstant, value, start, 1);
    pos_ = end;
    Skip();
    return absl::OkStatus();
  }

  absl::StatusOr<Program> Finish() {
    if (max_stack_ > kMaxStack) return Fail(0, "needs too deep a stack; split it by lets");
    Program program;
    std::vector<int64_t> rank(names_.size());
    for (const auto& [name, index] : names_) {
      rank[static_cast<size_t>(index)] = static_cast<int64_t>(program.names.size());
      program.names.push_back(name);
    }
    for (Instruction& instruction : code_) {
      if (instruction.code == kName) instruction.operand = rank[static_cast<size_t>(instruction.operand)];
    }
    program.code = std::move(code_);
    return program;
  }

  const absl::string_view text_;
  size_t pos_ = 0;
  int nesting_ = 0;
  int stack_ = 0;
  int max_stack_ = 0;
  std::vector<Instruction> code_;
  std::map<std::string, int64_t> names_;
};

}  // namespace

absl::StatusOr<Program> Compile(absl::string_view text) { return Parser(text).Run(); }

}  // namespace rooftune::expr_internal

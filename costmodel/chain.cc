#include "costmodel/chain.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "base/suggest.h"
#include "rooftune/v1/types.pb.h"

namespace rooftune {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxText = 4096;
// Steepest slopes of GELU (tanh form) and SiLU, rounded up: how much they can enlarge an error of their input.
constexpr double kGeluSlope = 1.13;
constexpr double kSiluSlope = 1.10;

// Counts are the fewest operations that compute the function with a fast tanh or ex2 (a fused multiply-add
// counts 2), so that a bound made from them is never above what a kernel needs:
//   exp = 2^(x·log2 e); sigmoid = ½·tanh(½x) + ½; silu = x·sigmoid; log = log2(x)·ln 2; div = a·(1/b);
//   gelu = h + h·tanh(x·(c0 + c1·x²)) with h = ½x: two products, an FMA, a product, an FMA.
struct OpInfo {
  ChainOp op;
  const char* name;
  int arity;
  int64_t fp32_ops;
  int64_t sfu_ops;
};
constexpr OpInfo kOps[] = {
    {ChainOp::kAdd, "add", 2, 1, 0},     {ChainOp::kSub, "sub", 2, 1, 0},       {ChainOp::kMul, "mul", 2, 1, 0},
    {ChainOp::kDiv, "div", 2, 1, 1},     {ChainOp::kMax, "max", 2, 1, 0},       {ChainOp::kMin, "min", 2, 1, 0},
    {ChainOp::kNeg, "neg", 1, 1, 0},     {ChainOp::kAbs, "abs", 1, 1, 0},       {ChainOp::kRelu, "relu", 1, 1, 0},
    {ChainOp::kExp, "exp", 1, 1, 1},     {ChainOp::kTanh, "tanh", 1, 0, 1},     {ChainOp::kSigmoid, "sigmoid", 1, 3, 1},
    {ChainOp::kSilu, "silu", 1, 4, 1},   {ChainOp::kGelu, "gelu", 1, 7, 1},     {ChainOp::kSqrt, "sqrt", 1, 0, 1},
    {ChainOp::kRsqrt, "rsqrt", 1, 0, 1}, {ChainOp::kSquare, "square", 1, 1, 0}, {ChainOp::kLog, "log", 1, 1, 1},
    {ChainOp::kFma, "fma", 3, 2, 0},     {ChainOp::kGt, "gt", 2, 1, 0},         {ChainOp::kGe, "ge", 2, 1, 0},
    {ChainOp::kEq, "eq", 2, 1, 0},       {ChainOp::kWhere, "where", 3, 1, 0},   {ChainOp::kClamp, "clamp", 3, 2, 0},
};

const OpInfo* FindOp(absl::string_view name) {
  for (const OpInfo& info : kOps) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

const OpInfo* FindOp(int64_t code) {
  for (const OpInfo& info : kOps) {
    if (code == static_cast<int64_t>(info.op)) return &info;
  }
  return nullptr;
}

std::vector<std::string> OpNames() {
  std::vector<std::string> names;
  for (const OpInfo& info : kOps) names.push_back(info.name);
  return names;
}

bool IsLetter(char c) { return c >= 'a' && c <= 'z'; }

// Types of inputs that say their own, by DType code.
struct InputType {
  const char* name;
  v1::DType dtype;
};
constexpr InputType kInputTypes[] = {{"fp32", v1::FP32}, {"fp16", v1::FP16}, {"bf16", v1::BF16}};

// Relative distance below which the rounding of a computed operand may decide a comparison: 2^-20, eight times
// the unit in the last place of fp32.
constexpr double kClose = 9.5367431640625e-07;

// Recursive descent over  term = input [':' axes] [':' type] | name '(' term {',' term} ')'.
class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  absl::StatusOr<Chain> Parse() {
    if (text_.size() > kMaxText) return Fail("it is longer than 4096 characters");
    RT_RETURN_IF_ERROR(Term(0));
    SkipBlanks();
    if (at_ < text_.size()) return Fail("unexpected text after the chain");
    return std::move(chain_);
  }

 private:
  absl::Status Fail(absl::string_view what) const {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE",
                 absl::StrCat("chain, column ", at_ + 1, ": ", what, " (operations: ", absl::StrJoin(OpNames(), " "),
                              "; inputs: a, b, c, …)"));
  }

  void SkipBlanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool Take(char c) {
    SkipBlanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    chain_.text += c;
    return true;
  }

  absl::Status Term(int depth) {
    if (depth > kMaxDepth) return Fail("nested too deeply");
    SkipBlanks();
    const size_t start = at_;
    size_t end = at_;
    while (end < text_.size() && IsLetter(text_[end])) ++end;
    const absl::string_view word = text_.substr(start, end - start);
    if (word.empty()) return Fail("expected an operation or an input");
    if (word.size() == 1) return Input(word[0]);
    const OpInfo* info = FindOp(word);
    if (info == nullptr) return Fail(absl::StrCat("unknown operation ", word, DidYouMean(word, OpNames())));
    if (++operations_ > kChainMaxOps) return Fail(absl::StrCat("more than ", kChainMaxOps, " operations"));
    chain_.text.append(word.data(), word.size());
    at_ = end;
    if (!Take('(')) return Fail(absl::StrCat("expected ( after ", word));
    for (int i = 0; i < info->arity; ++i) {
      if (i > 0 && !Take(',')) return Fail(absl::StrCat(word, " takes ", info->arity, " operands"));
      RT_RETURN_IF_ERROR(Term(depth + 1));
    }
    if (!Take(')')) return Fail(absl::StrCat("expected ) after the ", info->arity, " operand(s) of ", word));
    chain_.program.push_back(static_cast<int64_t>(info->op));
    chain_.fp32_ops += info->fp32_ops;
    chain_.sfu_ops += info->sfu_ops;
    return absl::OkStatus();
  }

  absl::Status Input(char letter) {
    const int index = letter - 'a';
    if (index >= kChainMaxInputs)
      return Fail(absl::StrCat("inputs are a to ", std::string(1, 'a' + kChainMaxInputs - 1)));
    if (index > chain_.inputs) {
      return Fail(absl::StrCat("input ", std::string(1, letter), " is used before ",
                               std::string(1, static_cast<char>('a' + chain_.inputs)),
                               ": name inputs in order of first use"));
    }
    chain_.text += letter;
    chain_.program.push_back(kChainInputBase + index);
    ++at_;
    if (index < chain_.inputs) {
      if (at_ < text_.size() && text_[at_] == ':') return Fail("an input says axes and type where it is used first");
      return absl::OkStatus();
    }
    ++chain_.inputs;
    return View();
  }

  // Axes and type of the input that was just read; both may be missing.
  absl::Status View() {
    int64_t axes = kChainAllAxes, dtype = 0;
    RT_RETURN_IF_ERROR(Axes(&axes));
    if (at_ < text_.size() && text_[at_] == ':') {
      const absl::string_view word = Word();
      for (const InputType& type : kInputTypes) {
        if (word == type.name) dtype = type.dtype;
      }
      if (dtype == 0) return Fail("after : come the input's axes (digits 0 to 3, or scalar) or fp32, fp16, bf16");
      at_ += 1 + word.size();
      absl::StrAppend(&chain_.text, ":", word);
    }
    chain_.axes.push_back(axes);
    chain_.dtypes.push_back(dtype);
    return absl::OkStatus();
  }

  absl::Status Axes(int64_t* axes) {
    if (at_ >= text_.size() || text_[at_] != ':') return absl::OkStatus();
    const absl::string_view word = Word();
    const bool scalar = word == "scalar";
    if (!scalar && (word.empty() || word[0] < '0' || word[0] > '9')) return absl::OkStatus();
    *axes = 0;
    for (size_t i = 0; !scalar && i < word.size(); ++i) {
      const int axis = word[i] - '0';
      if (axis < 0 || axis >= kChainMaxAxes) return Fail("axes are digits 0 to 3");
      if (i > 0 && word[i] <= word[i - 1]) return Fail("axes are in ascending order");
      *axes |= int64_t{1} << axis;
    }
    at_ += 1 + word.size();
    if (*axes != kChainAllAxes) absl::StrAppend(&chain_.text, ":", word);
    return absl::OkStatus();
  }

  // Letters and digits after the : that is next.
  absl::string_view Word() const {
    size_t end = at_ + 1;
    while (end < text_.size() && (IsLetter(text_[end]) || (text_[end] >= '0' && text_[end] <= '9'))) ++end;
    return text_.substr(at_ + 1, end - at_ - 1);
  }

  const absl::string_view text_;
  size_t at_ = 0;
  int operations_ = 0;
  Chain chain_;
};

ChainValue Gelu(const ChainValue& a) {
  constexpr double kSqrt2OverPi = 0.7978845608028654;
  const double x = a.value;
  const double v = 0.5 * x * (1.0 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
  return {v, kGeluSlope * a.magnitude + std::fabs(v)};
}

ChainValue ApplyUnary(ChainOp op, const ChainValue& a) {
  const double x = a.value;
  double v = 0;
  switch (op) {
    case ChainOp::kNeg:
      return {-x, a.magnitude};
    case ChainOp::kAbs:
      return {std::fabs(x), a.magnitude};
    // Written so that NaN stays NaN.
    case ChainOp::kRelu:
      return {x < 0 ? 0.0 : x, a.magnitude};
    case ChainOp::kExp:
      v = std::exp(x);
      return {v, v * (1.0 + a.magnitude)};
    case ChainOp::kTanh:
      v = std::tanh(x);
      return {v, (1.0 - v * v) * a.magnitude + std::fabs(v)};
    case ChainOp::kSigmoid:
      v = 1.0 / (1.0 + std::exp(-x));
      return {v, v * (1.0 - v) * a.magnitude + v};
    case ChainOp::kSilu:
      v = x / (1.0 + std::exp(-x));
      return {v, kSiluSlope * a.magnitude + std::fabs(v)};
    case ChainOp::kGelu:
      return Gelu(a);
    case ChainOp::kSqrt:
      v = std::sqrt(x);
      return {v, v > 0 ? a.magnitude / (2.0 * v) + v : std::sqrt(a.magnitude)};
    case ChainOp::kRsqrt:
      v = 1.0 / std::sqrt(x);
      return {v, v * (1.0 + a.magnitude / (2.0 * std::fabs(x)))};
    case ChainOp::kSquare:
      return {x * x, 2.0 * std::fabs(x) * a.magnitude};
    case ChainOp::kLog:
      v = std::log(x);
      return {v, a.magnitude / std::fabs(x) + std::fabs(v)};
    default:
      break;
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return {nan, nan};
}

ChainValue Compare(ChainOp op, const ChainValue& a, const ChainValue& b) {
  const double x = a.value, y = b.value;
  const bool holds = op == ChainOp::kGt ? x > y : op == ChainOp::kGe ? x >= y : x == y;
  const bool undecided = !(a.exact && b.exact) && std::fabs(x - y) <= kClose * (a.magnitude + b.magnitude);
  return {holds ? 1.0 : 0.0, undecided ? kChainUndecided : 0.0};
}

ChainValue Ternary(ChainOp op, const ChainValue& a, const ChainValue& b, const ChainValue& c) {
  if (op == ChainOp::kFma) {
    const double m = std::fabs(a.value) * b.magnitude + std::fabs(b.value) * a.magnitude + c.magnitude;
    return {a.value * b.value + c.value, m};
  }
  if (op == ChainOp::kClamp) {
    return {std::fmin(std::fmax(a.value, b.value), c.value),
            std::fmax(std::fmax(a.magnitude, b.magnitude), c.magnitude)};
  }
  const ChainValue& taken = a.value != 0 ? b : c;
  return {taken.value, taken.magnitude + (a.exact ? 0 : a.magnitude * std::fabs(b.value - c.value))};
}

}  // namespace

absl::StatusOr<Chain> ParseChain(absl::string_view text) { return Parser(text).Parse(); }

ChainValue ApplyChainOp(ChainOp op, const ChainValue* operands) {
  const ChainValue& a = operands[0];
  const ChainValue& b = operands[1];
  switch (op) {
    case ChainOp::kAdd:
      return {a.value + b.value, a.magnitude + b.magnitude};
    case ChainOp::kSub:
      return {a.value - b.value, a.magnitude + b.magnitude};
    case ChainOp::kMul:
      return {a.value * b.value, std::fabs(a.value) * b.magnitude + std::fabs(b.value) * a.magnitude};
    case ChainOp::kDiv: {
      const double v = a.value / b.value;
      return {v, (a.magnitude + std::fabs(v) * b.magnitude) / std::fabs(b.value)};
    }
    case ChainOp::kMax:
      return {std::fmax(a.value, b.value), std::fmax(a.magnitude, b.magnitude)};
    case ChainOp::kMin:
      return {std::fmin(a.value, b.value), std::fmax(a.magnitude, b.magnitude)};
    case ChainOp::kGt:
    case ChainOp::kGe:
    case ChainOp::kEq:
      return Compare(op, a, b);
    case ChainOp::kFma:
    case ChainOp::kWhere:
    case ChainOp::kClamp:
      return Ternary(op, a, b, operands[2]);
    default:
      return ApplyUnary(op, a);
  }
}

ChainValue EvalChain(const std::vector<int64_t>& program, const double* inputs) {
  // Postfix of at most kChainMaxOps operations of up to three operands each.
  ChainValue stack[3 * kChainMaxOps + 4];
  const double nan = std::numeric_limits<double>::quiet_NaN();
  int top = 0;
  for (const int64_t code : program) {
    if (code >= kChainInputBase) {
      if (top >= 3 * kChainMaxOps || code >= kChainInputBase + kChainMaxInputs) return {nan, nan};
      const double x = inputs[code - kChainInputBase];
      stack[top++] = {x, std::fabs(x), true};
      continue;
    }
    const OpInfo* info = FindOp(code);
    if (info == nullptr || top < info->arity) return {nan, nan};
    top -= info->arity;
    stack[top] = ApplyChainOp(info->op, stack + top);
    ++top;
  }
  return top == 1 ? stack[0] : ChainValue{nan, nan};
}

}  // namespace rooftune

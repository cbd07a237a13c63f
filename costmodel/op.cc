// OpSchema::Parse: the text form of operators.
#include "costmodel/op.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "costmodel/op_parsed.h"
#include "base/suggest.h"

namespace rooftune {
namespace {

absl::Status Bad(absl::string_view reason, const std::string& word, const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, reason, what, {{"field", word}});
}

// Plain decimal: digits, a minus sign where negative numbers make sense, no leading zeros, no suffix.
absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t min, int64_t max) {
  const absl::string_view digits = text.substr(min < 0 && !text.empty() && text[0] == '-' ? 1 : 0);
  const bool plain = !digits.empty() && std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
                     (digits.size() == 1 || digits[0] != '0');
  if (!plain)
    return absl::InvalidArgumentError(
        absl::StrCat("must be a plain decimal integer, not \"", text.substr(0, 64), "\""));
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < min || value > max) {
    return absl::InvalidArgumentError(absl::StrCat("is ", text.substr(0, 64), ", not within [", min, ", ", max, "]"));
  }
  return value;
}

// Splits at blanks outside parentheses.
absl::StatusOr<std::vector<std::string>> SplitWords(absl::string_view text) {
  if (text.size() > kOpTextMax)
    return Bad("BAD_VALUE", "", absl::StrCat("the operator's text is longer than ", kOpTextMax, " bytes"));
  std::vector<std::string> words;
  bool in_word = false;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) {
      return Bad("BAD_VALUE", "",
                 absl::StrCat("the operator's text has a character that is not printable ASCII at column ", i + 1));
    }
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ' ' && depth <= 0) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    words.back() += c;
  }
  return words;
}

std::vector<std::string> SymbolNames(const manifest::v1::Attribute& attribute) {
  std::vector<std::string> names;
  for (const auto& symbol : attribute.symbol()) names.push_back(symbol.name());
  if (names.empty() && attribute.type() == manifest::v1::Attribute::DTYPE) {
    for (int code = v1::DType_MIN + 1; code <= v1::DType_MAX; ++code)
      names.push_back(DTypeName(static_cast<v1::DType>(code)));
  }
  return names;
}

absl::StatusOr<AttributeValue> ParseChainValue(absl::string_view text) {
  AttributeValue value;
  RT_ASSIGN_OR_RETURN(value.chain, ParseChain(text));
  value.text = value.chain.text;
  value.code = value.chain.inputs;
  return value;
}

}  // namespace

absl::StatusOr<AttributeValue> ParseAttributeValue(const manifest::v1::Attribute& attribute, absl::string_view text) {
  const std::string& name = attribute.name();
  if (attribute.type() == manifest::v1::Attribute::CHAIN) return ParseChainValue(text);
  if (attribute.type() == manifest::v1::Attribute::INT) {
    const absl::StatusOr<int64_t> code = ParseInteger(text, attribute.min(), attribute.max());
    if (!code.ok()) return Bad("BAD_VALUE", name, absl::StrCat(name, " ", code.status().message()));
    return AttributeValue{absl::StrCat(*code), *code, {}};
  }
  const std::vector<std::string> allowed = SymbolNames(attribute);
  const auto found = std::find(allowed.begin(), allowed.end(), text);
  if (found == allowed.end()) {
    return Bad("BAD_VALUE", name,
               absl::StrCat(name, "=", text.substr(0, 64), " is not one of ", absl::StrJoin(allowed, ", "),
                            DidYouMean(text, allowed)));
  }
  if (attribute.type() == manifest::v1::Attribute::DTYPE) return AttributeValue{*found, ParseDType(*found), {}};
  return AttributeValue{*found, attribute.symbol(static_cast<int>(found - allowed.begin())).value(), {}};
}

// Parses one text against a schema.
class OpParser {
 public:
  explicit OpParser(const OpSchema& schema) : schema_(schema), proto_(schema.proto()) {}

  absl::StatusOr<Op> Parse(absl::string_view text) {
    RT_RETURN_IF_ERROR(ReadWords(text));
    op_.kind = proto_.kind();
    op_.text = proto_.kind();
    op_.names = schema_.parsed_->constants;
    for (const auto& dim : proto_.dim()) RT_RETURN_IF_ERROR(TakeDim(dim));
    for (const auto& attribute : proto_.attribute()) RT_RETURN_IF_ERROR(TakeAttribute(attribute));
    RT_RETURN_IF_ERROR(EvalLets());
    RT_RETURN_IF_ERROR(CheckConstraints());
    // Sizes that overflow are refused here, so that everything later may rely on them.
    RT_RETURN_IF_ERROR(schema_.Tensors(op_).status());
    return std::move(op_);
  }

 private:
  absl::Status ReadWords(absl::string_view text) {
    RT_ASSIGN_OR_RETURN(const std::vector<std::string> words, SplitWords(text));
    if (words.empty() || words[0] != proto_.kind()) {
      return Bad("BAD_VALUE", proto_.kind(),
                 absl::StrCat("the text of a ", proto_.kind(), " must start with ", proto_.kind()));
    }
    std::vector<std::string> known;
    for (const auto& dim : proto_.dim()) known.push_back(dim.name());
    for (const auto& attribute : proto_.attribute()) known.push_back(attribute.name());
    for (size_t i = 1; i < words.size(); ++i) {
      const size_t equals = words[i].find('=');
      const std::string name = words[i].substr(0, equals);
      const std::string shown = name.substr(0, 64);
      if (equals == std::string::npos)
        return Bad("BAD_VALUE", shown, absl::StrCat("\"", shown, "\" is not of the form name=value"));
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return Bad("UNKNOWN_ATTRIBUTE", shown,
                   absl::StrCat(proto_.kind(), " has no \"", shown, "\"", DidYouMean(name, known),
                                " (usage: ", schema_.Usage(), ")"));
      }
      if (!values_.emplace(name, words[i].substr(equals + 1)).second) {
        return Bad("DUPLICATE", name, absl::StrCat(name, " is given twice"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status TakeDim(const manifest::v1::Dim& dim) {
    const auto given = values_.find(dim.name());
    int64_t extent = dim.default_value();
    if (given != values_.end()) {
      const int64_t max = dim.max() > 0 ? dim.max() : kDefaultDimMax;
      const absl::StatusOr<int64_t> value = ParseInteger(given->second, std::max<int64_t>(dim.min(), 1), max);
      if (!value.ok()) return Bad("BAD_VALUE", dim.name(), absl::StrCat(dim.name(), " ", value.status().message()));
      extent = *value;
    } else if (extent == 0) {
      return Bad("MISSING_DIM", dim.name(),
                 absl::StrCat(proto_.kind(), " needs ", dim.name(), "= (usage: ", schema_.Usage(), ")"));
    }
    op_.dims.emplace_back(dim.name(), extent);
    op_.names[dim.name()] = extent;
    if (extent != dim.default_value()) absl::StrAppend(&op_.text, " ", dim.name(), "=", extent);
    return absl::OkStatus();
  }

  absl::Status TakeAttribute(const manifest::v1::Attribute& attribute) {
    const std::string& name = attribute.name();
    const auto given = values_.find(name);
    if (given == values_.end() && attribute.default_value().empty()) {
      return Bad("MISSING_ATTRIBUTE", name,
                 absl::StrCat(proto_.kind(), " needs ", name, "= (usage: ", schema_.Usage(), ")"));
    }
    RT_ASSIGN_OR_RETURN(
        AttributeValue value,
        ParseAttributeValue(attribute, given == values_.end() ? attribute.default_value() : given->second));
    if (attribute.type() == manifest::v1::Attribute::CHAIN) {
      TakeChain(name, std::move(value.chain));
    }
    op_.names[name] = value.code;
    if (value.text != attribute.default_value()) absl::StrAppend(&op_.text, " ", name, "=", value.text);
    op_.attributes[name] = std::move(value.text);
    return absl::OkStatus();
  }

  void TakeChain(const std::string& name, Chain chain) {
    const auto typed = [&](auto... dtypes) {
      return std::count_if(chain.dtypes.begin(), chain.dtypes.end(), [=](int64_t d) { return ((d == dtypes) || ...); });
    };
    op_.names[absl::StrCat(name, "_inputs")] = chain.inputs;
    op_.names[absl::StrCat(name, "_fp32_ops")] = chain.fp32_ops;
    op_.names[absl::StrCat(name, "_sfu_ops")] = chain.sfu_ops;
    op_.names[absl::StrCat(name, "_broadcast_inputs")] =
        chain.inputs - std::count(chain.axes.begin(), chain.axes.end(), kChainAllAxes);
    op_.names[absl::StrCat(name, "_fp32_inputs")] = typed(v1::FP32);
    op_.names[absl::StrCat(name, "_half_inputs")] = typed(v1::FP16, v1::BF16);
    op_.names[absl::StrCat(name, "_first_axes")] = chain.axes[0];
    op_.names[absl::StrCat(name, "_first_dtype")] = chain.dtypes[0];
    op_.lists[name] = std::move(chain.program);
    op_.lists[absl::StrCat(name, "_axes")] = std::move(chain.axes);
    op_.lists[absl::StrCat(name, "_dtypes")] = std::move(chain.dtypes);
  }

  absl::Status EvalLets() {
    for (int i = 0; i < proto_.let_size(); ++i) {
      const absl::StatusOr<int64_t> value = schema_.parsed_->lets[i].Eval(op_.names);
      const std::string& name = proto_.let(i).name();
      if (!value.ok())
        return Bad("BAD_VALUE", name, absl::StrCat(op_.text, ": ", name, ": ", value.status().message()));
      op_.names[name] = *value;
    }
    return absl::OkStatus();
  }

  absl::Status CheckConstraints() {
    for (int i = 0; i < proto_.constraint_size(); ++i) {
      const manifest::v1::Constraint& constraint = proto_.constraint(i);
      const absl::StatusOr<int64_t> holds = schema_.parsed_->constraints[i].Eval(op_.names);
      if (holds.ok() && *holds != 0) continue;
      const std::string why = holds.ok() ? "" : absl::StrCat(" (", holds.status().message(), ")");
      return Bad("CONSTRAINT", constraint.name(),
                 absl::StrCat(op_.text, " breaks \"", constraint.name(), "\": ", constraint.expr(), why));
    }
    return absl::OkStatus();
  }

  const OpSchema& schema_;
  const manifest::v1::Op& proto_;
  std::map<std::string, std::string> values_;
  Op op_;
};

absl::StatusOr<Op> OpSchema::Parse(absl::string_view text) const { return OpParser(*this).Parse(text); }

}  // namespace rooftune

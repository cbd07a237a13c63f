#include "kernels/manifest_scope.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "costmodel/device_profile.h"
#include "costmodel/op.h"
#include "base/suggest.h"
#include "expr/inline.h"

namespace rooftune {
namespace {

std::string TextOf(const google::protobuf::Message& message, const std::string& field, int index) {
  const auto* descriptor = message.GetDescriptor()->FindFieldByName(field);
  const auto* reflection = message.GetReflection();
  return descriptor->is_repeated() ? reflection->GetRepeatedString(message, descriptor, index)
                                   : reflection->GetString(message, descriptor);
}

}  // namespace

ManifestScope ManifestScope::OfOperator(const manifest::v1::Op& op) {
  ManifestScope scope;
  for (const auto& [name, value] : DeviceNames(DeviceProfile())) scope.Add(name);
  for (int code = v1::DType_MIN + 1; code <= v1::DType_MAX; ++code) {
    if (v1::DType_IsValid(code)) scope.Add(v1::DType_Name(static_cast<v1::DType>(code)));
  }
  for (const auto& dim : op.dim()) scope.Add(dim.name());
  for (const auto& attribute : op.attribute()) {
    scope.Add(attribute.name());
    if (attribute.type() == manifest::v1::Attribute::CHAIN) {
      for (const std::string& name : ChainNames(attribute.name())) scope.Add(name);
    }
    if (attribute.type() != manifest::v1::Attribute::SYMBOL) continue;
    for (const auto& symbol : attribute.symbol()) {
      scope.Add(absl::AsciiStrToUpper(absl::StrCat(attribute.name(), "_", symbol.name())));
    }
  }
  for (const auto& let : op.let()) scope.Define(let.name(), scope.Inline(let.expr()));
  return scope;
}

std::set<std::string> ManifestScope::PlainNames() const {
  std::set<std::string> plain = names_;
  for (const auto& [name, text] : definitions_) plain.erase(name);
  return plain;
}

void ManifestScope::Define(const std::string& name, const std::string& text) {
  names_.insert(name);
  // Lets that double each other would grow without limit; one past the limit of an expression is refused where
  // it is used.
  definitions_[name] = text.substr(0, kMaxExpressionText + 1);
}

std::string ManifestScope::Inline(const std::string& text) const { return InlineNames(text, definitions_); }

absl::StatusOr<Quantity> ManifestScope::Compile(const Locator& at, const google::protobuf::Message& message,
                                                const std::string& field, int index) const {
  const std::string text = TextOf(message, field, index);
  if (text.empty()) return Quantity();
  const auto written = Expression::Parse(text);
  if (!written.ok()) {
    return at.Error(message, field, absl::StrCat(field, ": ", written.status().message()), index);
  }
  for (const std::string& name : written->names()) {
    if (Has(name)) continue;
    const std::vector<std::string> known(names_.begin(), names_.end());
    return at.Error(message, field, absl::StrCat(field, ": unknown name '", name, "'", DidYouMean(name, known)), index);
  }
  auto inlined = Expression::Parse(Inline(text));
  if (!inlined.ok()) {
    return at.Error(message, field, absl::StrCat(field, ": with its lets written out: ", inlined.status().message()),
                    index);
  }
  return Quantity(*std::move(inlined));
}

absl::StatusOr<Expression> ManifestScope::Require(const Locator& at, const google::protobuf::Message& message,
                                                  const std::string& field) const {
  RT_ASSIGN_OR_RETURN(Quantity quantity, Compile(at, message, field));
  if (!quantity.has_value()) return at.Error(message, field, absl::StrCat(field, " is missing"));
  return *std::move(quantity);
}

bool IsName(const std::string& text) {
  if (text.size() > 63) return false;
  const auto expression = Expression::Parse(text);
  return expression.ok() && expression->names().size() == 1 && expression->names()[0] == text;
}

}  // namespace rooftune

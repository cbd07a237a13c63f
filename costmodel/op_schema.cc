// OpSchema::Create: checks an op.txtpb and compiles its expressions, so that a mistake shows when it is loaded
// and not when somebody asks.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "costmodel/op_parsed.h"
#include "base/suggest.h"

namespace rooftune {
namespace {

constexpr int kMaxItems = 64;

bool IsIdentifier(absl::string_view name) {
  if (name.empty() || name.size() > 63 || !absl::ascii_islower(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_'; });
}

}  // namespace

// Collects the names that expressions may use and compiles them one after the other.
class OpSchemaCompiler {
 public:
  explicit OpSchemaCompiler(const manifest::v1::Op& proto) : proto_(proto) {}

  absl::StatusOr<std::shared_ptr<const OpSchema::Parsed>> Compile() {
    RT_RETURN_IF_ERROR(CheckKind());
    for (int code = v1::DType_MIN + 1; code <= v1::DType_MAX; ++code) {
      if (v1::DType_IsValid(code))
        RT_RETURN_IF_ERROR(AddConstant("dtype", v1::DType_Name(static_cast<v1::DType>(code)), code));
    }
    RT_RETURN_IF_ERROR(AddDims());
    RT_RETURN_IF_ERROR(AddAttributes());
    RT_RETURN_IF_ERROR(AddLets());
    for (const auto& c : proto_.constraint()) {
      RT_ASSIGN_OR_RETURN(Expression e, Required(absl::StrCat("constraint ", c.name()), c.expr()));
      parsed_->constraints.push_back(std::move(e));
    }
    RT_RETURN_IF_ERROR(AddTensors());
    for (const auto& s : proto_.scalar()) {
      RT_RETURN_IF_ERROR(AddName(absl::StrCat("scalar ", s.name()), s.name(), &tensor_names_));
      RT_ASSIGN_OR_RETURN(auto when, Optional(absl::StrCat("scalar ", s.name(), ".when"), s.when()));
      parsed_->scalar_whens.push_back(std::move(when));
    }
    RT_RETURN_IF_ERROR(AddWork());
    RT_ASSIGN_OR_RETURN(parsed_->accumulation_length, Optional("accumulation_length", proto_.accumulation_length()));
    return std::move(parsed_);
  }

 private:
  absl::Status Bad(absl::string_view field, absl::string_view what) const {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_OP_SCHEMA",
                 absl::StrCat("op ", proto_.kind(), ": ", field, ": ", what), {{"field", std::string(field)}});
  }

  absl::Status CheckKind() const {
    if (!IsIdentifier(proto_.kind())) return Bad("kind", "must be 1 to 63 of a-z, 0-9 and _");
    if (proto_.dim_size() > kMaxItems || proto_.attribute_size() > kMaxItems || proto_.tensor_size() > kMaxItems ||
        proto_.let_size() > kMaxItems || proto_.constraint_size() > kMaxItems || proto_.scalar_size() > kMaxItems) {
      return Bad("op", absl::StrCat("more than ", kMaxItems, " of one kind of field"));
    }
    if (proto_.dim_size() == 0) return Bad("dim", "is missing");
    return absl::OkStatus();
  }

  absl::Status AddName(const std::string& field, const std::string& name, std::set<std::string>* names) {
    if (!IsIdentifier(name)) return Bad(field, "a name is 1 to 63 of a-z, 0-9 and _");
    if (!names->insert(name).second) return Bad(field, "the name is taken");
    return absl::OkStatus();
  }

  absl::Status AddConstant(const std::string& field, const std::string& name, int64_t value) {
    if (!names_.insert(name).second) return Bad(field, absl::StrCat("the constant ", name, " is taken"));
    parsed_->constants[name] = value;
    return absl::OkStatus();
  }

  absl::Status AddDims() {
    for (const auto& dim : proto_.dim()) {
      const std::string field = absl::StrCat("dim ", dim.name());
      RT_RETURN_IF_ERROR(AddName(field, dim.name(), &names_));
      const int64_t min = std::max<int64_t>(dim.min(), 1);
      const int64_t max = dim.max() > 0 ? dim.max() : kDefaultDimMax;
      if (dim.min() < 0 || min > max) return Bad(field, "min and max are not a range of positive numbers");
      if (dim.default_value() != 0 && (dim.default_value() < min || dim.default_value() > max)) {
        return Bad(field, "the default is out of range");
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddAttributes() {
    for (const auto& attribute : proto_.attribute()) {
      const std::string field = absl::StrCat("attribute ", attribute.name());
      RT_RETURN_IF_ERROR(AddName(field, attribute.name(), &names_));
      RT_RETURN_IF_ERROR(AddAttributeNames(field, attribute));
      if (attribute.default_value().empty()) continue;
      const auto value = ParseAttributeValue(attribute, attribute.default_value());
      if (!value.ok()) return Bad(field, absl::StrCat("default: ", value.status().message()));
      if (value->text != attribute.default_value())
        return Bad(field, absl::StrCat("write the default as ", value->text));
    }
    return absl::OkStatus();
  }

  absl::Status AddAttributeNames(const std::string& field, const manifest::v1::Attribute& attribute) {
    switch (attribute.type()) {
      case manifest::v1::Attribute::INT:
        return attribute.min() > attribute.max() ? Bad(field, "min is above max") : absl::OkStatus();
      case manifest::v1::Attribute::SYMBOL:
        if (attribute.symbol_size() == 0) return Bad(field, "has no symbols");
        for (const auto& symbol : attribute.symbol()) {
          if (!IsIdentifier(symbol.name())) return Bad(field, "a symbol is 1 to 63 of a-z, 0-9 and _");
          const std::string constant = absl::AsciiStrToUpper(absl::StrCat(attribute.name(), "_", symbol.name()));
          RT_RETURN_IF_ERROR(AddConstant(field, constant, symbol.value()));
        }
        return absl::OkStatus();
      case manifest::v1::Attribute::DTYPE:
        for (const auto& symbol : attribute.symbol()) {
          if (ParseDType(symbol.name()) == v1::DTYPE_UNSPECIFIED)
            return Bad(field, absl::StrCat("unknown type ", symbol.name()));
        }
        return absl::OkStatus();
      case manifest::v1::Attribute::CHAIN:
        if (!chain_.empty()) return Bad(field, "a second chain is not supported");
        chain_ = attribute.name();
        for (const std::string& name : ChainNames(attribute.name())) {
          RT_RETURN_IF_ERROR(AddName(field, name, &names_));
        }
        return absl::OkStatus();
      default:
        return Bad(field, "has no type");
    }
  }

  absl::Status AddLets() {
    for (const auto& let : proto_.let()) {
      const std::string field = absl::StrCat("let ", let.name());
      // Compiled before its name is known: a let sees only those before it.
      RT_ASSIGN_OR_RETURN(Expression e, Required(field, let.expr()));
      RT_RETURN_IF_ERROR(AddName(field, let.name(), &names_));
      parsed_->lets.push_back(std::move(e));
    }
    return absl::OkStatus();
  }

  absl::Status AddTensors() {
    bool output = false;
    for (const auto& tensor : proto_.tensor()) {
      const std::string field = absl::StrCat("tensor ", tensor.name());
      RT_RETURN_IF_ERROR(AddName(field, tensor.name(), &tensor_names_));
      if (tensor.chain_inputs()) {
        if (chain_.empty()) return Bad(field, "chain_inputs needs a CHAIN attribute");
        for (int i = 0; i < kChainMaxInputs; ++i) {
          RT_RETURN_IF_ERROR(AddName(field, std::string(1, static_cast<char>('a' + i)), &tensor_names_));
        }
      }
      OpSchema::Parsed::Tensor parsed;
      if (tensor.role() == "input") parsed.role = v1::TensorSpec::INPUT;
      if (tensor.role() == "output") parsed.role = v1::TensorSpec::OUTPUT;
      if (tensor.role() == "inout") parsed.role = v1::TensorSpec::INOUT;
      if (parsed.role == v1::TensorSpec::ROLE_UNSPECIFIED) return Bad(field, "role must be input, output or inout");
      output = output || parsed.role != v1::TensorSpec::INPUT;
      RT_ASSIGN_OR_RETURN(parsed.dtype, Required(absl::StrCat(field, ".dtype"), tensor.dtype()));
      if (tensor.dim_size() == 0 || tensor.dim_size() > 8) return Bad(field, "must have 1 to 8 dims");
      for (const std::string& dim : tensor.dim()) {
        RT_ASSIGN_OR_RETURN(Expression e, Required(absl::StrCat(field, ".dim"), dim));
        parsed.dims.push_back(std::move(e));
      }
      RT_ASSIGN_OR_RETURN(parsed.when, Optional(absl::StrCat(field, ".when"), tensor.when()));
      RT_ASSIGN_OR_RETURN(parsed.fill_range, Optional(absl::StrCat(field, ".fill_range"), tensor.fill_range()));
      RT_ASSIGN_OR_RETURN(parsed.fill_total, Optional(absl::StrCat(field, ".fill_total"), tensor.fill_total()));
      RT_ASSIGN_OR_RETURN(parsed.fill_offsets, Optional(absl::StrCat(field, ".fill_offsets"), tensor.fill_offsets()));
      RT_ASSIGN_OR_RETURN(parsed.chain_skip, Optional(absl::StrCat(field, ".chain_skip"), tensor.chain_skip()));
      RT_ASSIGN_OR_RETURN(parsed.fill_divisor, Optional(absl::StrCat(field, ".fill_divisor"), tensor.fill_divisor()));
      if (tensor.fill_skip() < 0 || tensor.fill_skip() == 1) return Bad(field, "fill_skip is 0 or at least 2");
      parsed_->tensors.push_back(std::move(parsed));
    }
    if (!output) return Bad("tensor", "there is no output");
    return absl::OkStatus();
  }

  absl::Status AddWork() {
    const manifest::v1::OpWork& work = proto_.work();
    OpSchema::Parsed::WorkExprs& to = parsed_->work;
    RT_ASSIGN_OR_RETURN(to.tensor_ops, Optional("work.tensor_ops", work.tensor_ops()));
    RT_ASSIGN_OR_RETURN(to.tensor_dtype, Optional("work.tensor_dtype", work.tensor_dtype()));
    RT_ASSIGN_OR_RETURN(to.fp32_ops, Optional("work.fp32_ops", work.fp32_ops()));
    RT_ASSIGN_OR_RETURN(to.sfu_ops, Optional("work.sfu_ops", work.sfu_ops()));
    RT_ASSIGN_OR_RETURN(to.bytes_read, Optional("work.bytes_read", work.bytes_read()));
    RT_ASSIGN_OR_RETURN(to.bytes_written, Optional("work.bytes_written", work.bytes_written()));
    if (to.tensor_ops.has_value() != to.tensor_dtype.has_value()) {
      return Bad("work", "tensor_ops and tensor_dtype go together");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Expression> Required(const std::string& field, const std::string& text) const {
    absl::StatusOr<Expression> expression = Expression::Parse(text);
    if (!expression.ok()) return Bad(field, expression.status().message());
    for (const std::string& name : expression->names()) {
      if (names_.count(name) == 0) {
        const std::vector<std::string> known(names_.begin(), names_.end());
        return Bad(field, absl::StrCat("unknown name ", name, DidYouMean(name, known)));
      }
    }
    return expression;
  }

  absl::StatusOr<std::optional<Expression>> Optional(const std::string& field, const std::string& text) const {
    if (text.empty()) return std::optional<Expression>();
    RT_ASSIGN_OR_RETURN(Expression expression, Required(field, text));
    return std::optional<Expression>(std::move(expression));
  }

  const manifest::v1::Op& proto_;
  const std::shared_ptr<OpSchema::Parsed> parsed_ = std::make_shared<OpSchema::Parsed>();
  std::set<std::string> names_;
  std::set<std::string> tensor_names_;
  // Name of the CHAIN attribute.
  std::string chain_;
};

std::vector<std::string> ChainNames(const std::string& chain) {
  std::vector<std::string> names;
  for (const char* suffix : kChainNameSuffixes) names.push_back(absl::StrCat(chain, suffix));
  return names;
}

std::vector<std::string> ChainLists(const std::string& chain) {
  return {absl::StrCat(chain, "_axes"), absl::StrCat(chain, "_dtypes")};
}

absl::StatusOr<std::unique_ptr<OpSchema>> OpSchema::Create(manifest::v1::Op proto, std::string origin) {
  RT_ASSIGN_OR_RETURN(std::shared_ptr<const Parsed> parsed, OpSchemaCompiler(proto).Compile());
  // The constructor is private, which make_unique can't call.
  std::unique_ptr<OpSchema> schema(new OpSchema(std::move(proto), std::move(origin), std::move(parsed)));
  if (!schema->proto().example().empty()) {
    const absl::StatusOr<Op> example = schema->Parse(schema->proto().example());
    if (!example.ok()) return Annotate(example.status(), absl::StrCat("op ", schema->kind(), ": example"));
  }
  return schema;
}

OpSchema::OpSchema(manifest::v1::Op proto, std::string origin, std::shared_ptr<const Parsed> parsed)
    : proto_(std::move(proto)), origin_(std::move(origin)), parsed_(std::move(parsed)) {}

std::string OpSchema::Usage() const {
  std::string usage = kind();
  for (const auto& dim : proto_.dim()) {
    if (dim.default_value() != 0) {
      absl::StrAppend(&usage, " [", dim.name(), "=", dim.default_value(), "]");
    } else {
      absl::StrAppend(&usage, " ", dim.name(), "=");
    }
  }
  for (const auto& attribute : proto_.attribute()) {
    std::vector<std::string> choices;
    for (const auto& symbol : attribute.symbol()) choices.push_back(symbol.name());
    if (attribute.default_value().empty()) {
      absl::StrAppend(&usage, " ", attribute.name(), "=", absl::StrJoin(choices, "|"));
    } else {
      const std::string rest = choices.size() > 1 ? absl::StrCat(" (", absl::StrJoin(choices, "|"), ")") : "";
      absl::StrAppend(&usage, " [", attribute.name(), "=", attribute.default_value(), rest, "]");
    }
  }
  return usage;
}

}  // namespace rooftune

#include "kernels/reference_kernel.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "kernels/manifest_scope.h"

namespace rooftune {
namespace {

using manifest::v1::ArgSpec;
using worker::v1::ReferencePlan;

template <typename Repeated>
bool HasName(const Repeated& items, const std::string& name) {
  return std::any_of(items.begin(), items.end(), [&](const auto& item) { return item.name() == name; });
}

bool IsOutput(const manifest::v1::Op& op, const std::string& name) {
  return std::any_of(op.tensor().begin(), op.tensor().end(),
                     [&](const auto& tensor) { return tensor.name() == name && tensor.role() != "input"; });
}

absl::Status CheckArg(const manifest::v1::Op& op, const ManifestScope& scope, const Locator& at, const ArgSpec& arg) {
  switch (arg.kind_case()) {
    case ArgSpec::kTensor:
      if (HasName(op.tensor(), arg.tensor())) return absl::OkStatus();
      return at.Error(arg, "tensor", absl::StrCat("unknown tensor '", arg.tensor(), "'"));
    case ArgSpec::kScalar:
      if (HasName(op.scalar(), arg.scalar())) return absl::OkStatus();
      return at.Error(arg, "scalar", absl::StrCat("unknown scalar '", arg.scalar(), "'"));
    case ArgSpec::kInt32:
      return scope.Require(at, arg, "int32").status();
    case ArgSpec::kInt64:
      return scope.Require(at, arg, "int64").status();
    case ArgSpec::kReferenceValue:
      if (IsOutput(op, arg.reference_value())) return absl::OkStatus();
      return at.Error(arg, "reference_value", absl::StrCat("'", arg.reference_value(), "' is not an output"));
    case ArgSpec::kReferenceMagnitude:
      if (IsOutput(op, arg.reference_magnitude())) return absl::OkStatus();
      return at.Error(arg, "reference_magnitude", absl::StrCat("'", arg.reference_magnitude(), "' is not an output"));
    case ArgSpec::kWorkspace:
      return at.Error(arg, "workspace", "a reference kernel has no workspace");
    default:
      return at.Error(arg, "tensor", "an arg needs one of tensor, scalar, int32, int64, reference_*");
  }
}

// Arguments of one ArgSpec; none where it names what the instance does not have.
absl::Status AddArgs(const OpSchema& schema, const ArgSpec& arg, const Names& names,
                     const std::vector<OpTensorInstance>& tensors, const std::vector<v1::ScalarSpec>& scalars,
                     ReferencePlan* plan) {
  const auto exists = [&](const std::string& name) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& t) { return t.spec.name() == name; });
  };
  switch (arg.kind_case()) {
    case ArgSpec::kTensor: {
      const auto& declared = schema.proto().tensor();
      const bool list = std::any_of(declared.begin(), declared.end(),
                                    [&](const auto& t) { return t.name() == arg.tensor() && t.chain_inputs(); });
      std::string name = list ? "a" : arg.tensor();
      // A list stands for its tensors a, b, …; the first may be another's (`chain_skip`).
      if (list && !exists(name)) ++name[0];
      for (; exists(name); ++name[0]) {
        plan->add_argument()->set_tensor(name);
        if (!list) break;
      }
      return absl::OkStatus();
    }
    case ArgSpec::kScalar:
      if (HasName(scalars, arg.scalar())) plan->add_argument()->set_scalar(arg.scalar());
      return absl::OkStatus();
    case ArgSpec::kReferenceValue:
      if (exists(arg.reference_value())) plan->add_argument()->set_reference_value(arg.reference_value());
      return absl::OkStatus();
    case ArgSpec::kReferenceMagnitude:
      if (exists(arg.reference_magnitude())) plan->add_argument()->set_reference_magnitude(arg.reference_magnitude());
      return absl::OkStatus();
    default:
      break;
  }
  const bool wide = arg.kind_case() == ArgSpec::kInt64;
  RT_ASSIGN_OR_RETURN(const Expression expression, Expression::Parse(wide ? arg.int64() : arg.int32()));
  RT_ASSIGN_OR_RETURN(const int64_t value, expression.Eval(names));
  if (wide) {
    plan->add_argument()->set_int64(value);
    return absl::OkStatus();
  }
  if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
    return Error(absl::StatusCode::kOutOfRange, "OVERFLOW",
                 absl::StrCat(expression.text(), " is ", value, ", which does not fit an int32 argument"));
  }
  plan->add_argument()->set_int32(static_cast<int32_t>(value));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Extent(const std::string& text, const Names& names, int64_t most) {
  if (text.empty()) return 1;
  RT_ASSIGN_OR_RETURN(const Expression expression, Expression::Parse(text));
  RT_ASSIGN_OR_RETURN(const int64_t value, expression.Eval(names));
  if (value >= 1 && value <= most) return value;
  return Error(absl::StatusCode::kOutOfRange, "LAUNCH_GEOMETRY",
               absl::StrCat("reference kernel: ", text, " is ", value, ", not within 1 and ", most));
}

absl::StatusOr<std::vector<std::string>> Defines(const manifest::v1::OpReference& reference, const Op& op,
                                                 const Names& names) {
  std::vector<std::string> defines;
  for (const auto& define : reference.define()) {
    if (!define.list().empty()) {
      const auto list = op.lists.find(define.list());
      const std::vector<int64_t> codes = list == op.lists.end() ? std::vector<int64_t>() : list->second;
      defines.push_back(absl::StrCat(define.name(), "=", absl::StrJoin(codes, ",")));
      continue;
    }
    RT_ASSIGN_OR_RETURN(const Expression expression, Expression::Parse(define.expr()));
    RT_ASSIGN_OR_RETURN(const int64_t value, expression.Eval(names));
    defines.push_back(absl::StrCat(define.name(), "=", value));
  }
  std::sort(defines.begin(), defines.end());
  return defines;
}

}  // namespace

absl::Status CheckReference(const manifest::v1::Op& op, const Locator& at) {
  const manifest::v1::OpReference& reference = op.reference();
  const Locator in = at.Nested(op, "reference");
  if (!IsName(reference.symbol())) {
    return in.Error(reference, "symbol", absl::StrCat("'", reference.symbol(), "' is not the name of a kernel"));
  }
  const ManifestScope scope = ManifestScope::OfOperator(op);
  RT_RETURN_IF_ERROR(scope.Compile(in, reference, "grid_x").status());
  RT_RETURN_IF_ERROR(scope.Compile(in, reference, "block_x").status());
  for (int i = 0; i < reference.define_size(); ++i) {
    const auto& define = reference.define(i);
    const Locator where = in.Nested(reference, "define", i);
    if (!IsName(define.name())) return where.Error(define, "name", absl::StrCat("'", define.name(), "' is not a name"));
    if (define.expr().empty() == define.list().empty()) return where.Error(define, "name", "needs either expr or list");
    RT_RETURN_IF_ERROR(scope.Compile(where, define, "expr").status());
    const bool chain = std::any_of(op.attribute().begin(), op.attribute().end(), [&](const auto& attribute) {
      if (attribute.type() != manifest::v1::Attribute::CHAIN) return false;
      const std::vector<std::string> lists = ChainLists(attribute.name());
      return attribute.name() == define.list() || std::find(lists.begin(), lists.end(), define.list()) != lists.end();
    });
    if (!define.list().empty() && !chain) {
      return where.Error(define, "list", absl::StrCat("'", define.list(), "' is not a chain"));
    }
  }
  for (int i = 0; i < reference.arg_size(); ++i) {
    RT_RETURN_IF_ERROR(CheckArg(op, scope, in.Nested(reference, "arg", i), reference.arg(i)));
  }
  // Every output needs both, or nothing can be compared with it.
  for (const auto& tensor : op.tensor()) {
    const auto given = [&](const auto& get) {
      return std::any_of(reference.arg().begin(), reference.arg().end(),
                         [&](const ArgSpec& arg) { return get(arg) == tensor.name(); });
    };
    if (tensor.role() == "input") continue;
    if (!given([](const ArgSpec& arg) { return arg.reference_value(); }) ||
        !given([](const ArgSpec& arg) { return arg.reference_magnitude(); })) {
      return in.Error(
          reference, "symbol",
          absl::StrCat("output '", tensor.name(), "' needs an arg reference_value and one reference_magnitude"));
    }
  }
  return absl::OkStatus();
}

absl::Status LocateOpError(const absl::Status& status, const manifest::v1::Op& op, const Locator& at) {
  // OpSchema names the field as "tensor y.dtype", "work.sfu_ops" or "kind".
  const std::string named = ErrorMetadata(status)["field"];
  const std::string field = named.substr(0, named.find_first_of(" ."));
  const auto* descriptor = op.GetDescriptor()->FindFieldByName(field);
  if (descriptor == nullptr) return at.Error(op, "kind", status.message());
  if (!descriptor->is_repeated()) {
    if (field != "work" || named.size() <= field.size()) return at.Error(op, field, status.message());
    return at.Nested(op, field).Error(op.work(), named.substr(field.size() + 1), status.message());
  }
  const std::string rest = named.size() > field.size() ? named.substr(field.size() + 1) : "";
  const std::pair<std::string, std::string> item = absl::StrSplit(rest, absl::MaxSplits('.', 1));
  const auto* reflection = op.GetReflection();
  // The last of that name: of two, the second is at fault.
  for (int i = reflection->FieldSize(op, descriptor) - 1; i >= 0; --i) {
    const auto& message = reflection->GetRepeatedMessage(op, descriptor, i);
    const auto* name = message.GetDescriptor()->FindFieldByName("name");
    if (message.GetReflection()->GetString(message, name) != item.first) continue;
    return at.Nested(op, field, i).Error(message, item.second.empty() ? "name" : item.second, status.message());
  }
  return at.Error(op, field, status.message());
}

absl::StatusOr<TemplateLibrary::Reference> MakeReference(const OpSchema& schema, const Op& op,
                                                         const DeviceProfile& device,
                                                         const worker::v1::SourceFile& source,
                                                         const std::vector<worker::v1::SourceFile>& headers) {
  const manifest::v1::OpReference& spec = schema.proto().reference();
  Names names = op.names;
  for (const auto& [name, value] : DeviceNames(device)) names.emplace(name, value);
  TemplateLibrary::Reference reference;
  *reference.compile.mutable_source() = source;
  for (const auto& header : headers) *reference.compile.add_header() = header;
  RT_ASSIGN_OR_RETURN(const auto defines, Defines(spec, op, names));
  reference.compile.mutable_define()->Add(defines.begin(), defines.end());
  reference.compile.set_arch(ArchName(device.cc(), /*arch_specific=*/false));
  reference.compile.set_option_list_version(kOptionListVersion);
  reference.compile.add_symbol(spec.symbol());

  ReferencePlan& plan = reference.plan;
  plan.set_symbol(spec.symbol());
  plan.set_name(absl::StrCat(source.name(), "@", Sha256Hex(source.text()).substr(0, 8)));
  RT_ASSIGN_OR_RETURN(const int64_t grid_x, Extent(spec.grid_x(), names, std::numeric_limits<int32_t>::max()));
  RT_ASSIGN_OR_RETURN(const int64_t block_x, Extent(spec.block_x(), names, 1024));
  plan.set_grid_x(grid_x);
  plan.set_block_x(block_x);
  RT_ASSIGN_OR_RETURN(const auto tensors, schema.Tensors(op));
  const auto scalars = schema.Scalars(op);
  for (const auto& arg : spec.arg()) RT_RETURN_IF_ERROR(AddArgs(schema, arg, names, tensors, scalars, &plan));
  return reference;
}

}  // namespace rooftune

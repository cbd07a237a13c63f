#include "kernels/template_parsed.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/suggest.h"
#include "kernels/tensor_map.h"

namespace rooftune {
namespace {

using manifest::v1::ArgSpec;

constexpr int kMaxItems = 128;
constexpr int kMaxArgs = 64;

// "one of a, b, c", or "none" where there are no choices.
std::string Choices(const std::vector<std::string>& names) {
  return names.empty() ? "there are none" : absl::StrCat("there are ", absl::StrJoin(names, ", "));
}

template <typename Repeated>
std::vector<std::string> NamesOf(const Repeated& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(item.name());
  return names;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

// Goes through a manifest in an order in which every name is known when it is used.
class TemplateCompiler {
 public:
  TemplateCompiler(const manifest::v1::Template& manifest, const manifest::v1::Op& op, const Locator& at)
      : m_(manifest), op_(op), at_(at), scope_(ManifestScope::OfOperator(op)) {}

  absl::StatusOr<std::shared_ptr<const KernelTemplate::Parsed>> Run() {
    RT_RETURN_IF_ERROR(CheckSizes());
    for (const auto& dim : op_.dim()) parsed_->dims.insert(dim.name());
    RT_RETURN_IF_ERROR(AddTensorDims());
    ManifestScope device;
    for (const auto& [name, value] : DeviceNames(DeviceProfile())) device.Add(name);
    RT_ASSIGN_OR_RETURN(parsed_->arch, device.Compile(at_, m_, "arch"));
    RT_ASSIGN_OR_RETURN(parsed_->when, scope_.Compile(at_, m_, "when"));
    RT_RETURN_IF_ERROR(AddParams());
    RT_RETURN_IF_ERROR(AddLets());
    RT_RETURN_IF_ERROR(CheckSpace());
    RT_RETURN_IF_ERROR(CheckDefaults());
    RT_RETURN_IF_ERROR(AddDefines());
    RT_RETURN_IF_ERROR(AddLaunches());
    RT_RETURN_IF_ERROR(AddRest());
    return std::shared_ptr<const KernelTemplate::Parsed>(std::move(parsed_));
  }

 private:
  absl::Status AddTensorDims() {
    const auto add = [this](const std::string& text) -> absl::Status {
      if (parsed_->tensor_dims.count(text) > 0) return absl::OkStatus();
      RT_ASSIGN_OR_RETURN(Expression inlined, Expression::Parse(scope_.Inline(text)));
      parsed_->tensor_dims.emplace(text, std::move(inlined));
      return absl::OkStatus();
    };
    // An axis that an input of a chain does not have.
    RT_RETURN_IF_ERROR(add("1"));
    for (const auto& tensor : op_.tensor()) {
      for (const std::string& dim : tensor.dim()) RT_RETURN_IF_ERROR(add(dim));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSizes() const {
    if (!IsName(m_.id()) || m_.id() != absl::AsciiStrToLower(m_.id())) {
      return at_.Error(m_, "id", "id must be a lower-case identifier");
    }
    const std::pair<const char*, int> sizes[] = {
        {"param", m_.param_size()},           {"let", m_.let_size()},       {"define", m_.define_size()},
        {"constraint", m_.constraint_size()}, {"launch", m_.launch_size()}, {"precondition", m_.precondition_size()}};
    for (const auto& [field, size] : sizes) {
      if (size > kMaxItems)
        return at_.Error(m_, field, absl::StrCat("more than ", kMaxItems, " of ", field), kMaxItems);
    }
    if (m_.launch_size() == 0) return at_.Error(m_, "id", "there is no launch");
    return absl::OkStatus();
  }

  // `name` of a parameter or let.
  absl::Status CheckNewName(const Locator& at, const google::protobuf::Message& message,
                            const std::string& name) const {
    if (!IsName(name)) return at.Error(message, "name", absl::StrCat("'", name, "' is not a name"));
    if (parsed_->params.count(name) > 0 || lets_.count(name) > 0) {
      return at.Error(message, "name", absl::StrCat("'", name, "' is defined twice"));
    }
    if (scope_.Has(name)) {
      return at.Error(message, "name", absl::StrCat("'", name, "' is already a name of the operator or the device"));
    }
    return absl::OkStatus();
  }

  absl::Status AddParams() {
    for (int i = 0; i < m_.param_size(); ++i) {
      const auto& param = m_.param(i);
      const Locator at = at_.Nested(m_, "param", i);
      RT_RETURN_IF_ERROR(CheckNewName(at, param, param.name()));
      if (param.value_size() == 0) return at.Error(param, "name", absl::StrCat("'", param.name(), "' has no values"));
      std::set<int64_t> distinct;
      for (int v = 0; v < param.value_size(); ++v) {
        if (distinct.insert(param.value(v)).second) continue;
        return at.Error(param, "value", absl::StrCat("'", param.name(), "' has the value ", param.value(v), " twice"),
                        v);
      }
      parsed_->params.insert(param.name());
      spec_.params.push_back(param);
    }
    for (const std::string& name : parsed_->params) scope_.Add(name);
    return absl::OkStatus();
  }

  absl::Status AddLets() {
    for (int i = 0; i < m_.let_size(); ++i) {
      const auto& let = m_.let(i);
      const Locator at = at_.Nested(m_, "let", i);
      RT_RETURN_IF_ERROR(CheckNewName(at, let, let.name()));
      RT_ASSIGN_OR_RETURN(const Expression expression, scope_.Require(at, let, "expr"));
      scope_.Define(let.name(), expression.text());
      lets_.insert(let.name());
      spec_.lets.push_back(let);
    }
    return absl::OkStatus();
  }

  // Constraints and whens, and what the search space itself demands.
  absl::Status CheckSpace() {
    std::set<std::string> names;
    for (int i = 0; i < m_.constraint_size(); ++i) {
      const auto& constraint = m_.constraint(i);
      const Locator at = at_.Nested(m_, "constraint", i);
      if (constraint.name().empty()) return at.Error(constraint, "name", "a constraint needs a name to show");
      if (!names.insert(constraint.name()).second) {
        return at.Error(constraint, "name", absl::StrCat("a second constraint '", constraint.name(), "'"));
      }
      RT_RETURN_IF_ERROR(scope_.Require(at, constraint, "expr").status());
      spec_.constraints.push_back(constraint);
    }
    std::set<std::string> later = parsed_->params;
    for (int i = 0; i < m_.param_size(); ++i) {
      const auto& param = m_.param(i);
      const Locator at = at_.Nested(m_, "param", i);
      RT_ASSIGN_OR_RETURN(const Quantity when, scope_.Compile(at, param, "when"));
      for (const std::string& name : when.has_value() ? when->names() : std::vector<std::string>()) {
        if (later.count(name) == 0) continue;
        return at.Error(param, "when", absl::StrCat("when: uses '", name, "', which does not come before it"));
      }
      later.erase(param.name());
    }
    // Values do not matter here, names do.
    for (const std::string& name : scope_.PlainNames()) {
      if (parsed_->params.count(name) == 0) spec_.fixed[name] = 1;
    }
    for (const auto& let : op_.let()) spec_.fixed[let.name()] = 1;
    const absl::Status space = SearchSpace::Check(spec_);
    if (!space.ok()) return at_.Error(m_, "param", space.message());
    return absl::OkStatus();
  }

  absl::Status CheckDefaults() const {
    std::set<std::string> given;
    for (int i = 0; i < m_.default_config_size(); ++i) {
      const auto& value = m_.default_config(i);
      const Locator at = at_.Nested(m_, "default_config", i);
      const auto param =
          std::find_if(m_.param().begin(), m_.param().end(), [&](const auto& p) { return p.name() == value.name(); });
      if (param == m_.param().end()) {
        return at.Error(
            value, "name",
            absl::StrCat("unknown parameter '", value.name(), "'", DidYouMean(value.name(), NamesOf(m_.param()))));
      }
      if (!given.insert(value.name()).second) {
        return at.Error(value, "name", absl::StrCat("a second default of '", value.name(), "'"));
      }
      if (std::find(param->value().begin(), param->value().end(), value.value()) == param->value().end()) {
        return at.Error(value, "value",
                        absl::StrCat("the default ", value.value(), " is not a value of '", value.name(),
                                     "': ", absl::StrJoin(param->value(), ", ")));
      }
    }
    for (int i = 0; i < m_.param_size(); ++i) {
      if (given.count(m_.param(i).name()) > 0) continue;
      return at_.Nested(m_, "param", i)
          .Error(m_.param(i), "name", absl::StrCat("'", m_.param(i).name(), "' has no value in default_config"));
    }
    return absl::OkStatus();
  }

  absl::Status AddDefines() {
    std::set<std::string> names;
    std::vector<std::string> chains;
    for (const auto& attribute : op_.attribute()) {
      if (attribute.type() != manifest::v1::Attribute::CHAIN) continue;
      chains.push_back(attribute.name());
      for (const std::string& list : ChainLists(attribute.name())) chains.push_back(list);
    }
    for (int i = 0; i < m_.define_size(); ++i) {
      const auto& define = m_.define(i);
      const Locator at = at_.Nested(m_, "define", i);
      if (!IsName(define.name())) return at.Error(define, "name", absl::StrCat("'", define.name(), "' is not a name"));
      if (!names.insert(define.name()).second) {
        return at.Error(define, "name", absl::StrCat("'", define.name(), "' is defined twice"));
      }
      if (define.expr().empty() == define.list().empty()) {
        return at.Error(define, "name", absl::StrCat("'", define.name(), "' needs either expr or list"));
      }
      if (!define.list().empty() && !Contains(chains, define.list())) {
        return at.Error(
            define, "list",
            absl::StrCat("'", define.list(), "' is not a chain of operator ", op_.kind(), "; ", Choices(chains)));
      }
      RT_ASSIGN_OR_RETURN(Quantity value, scope_.Compile(at, define, "expr"));
      parsed_->defines.push_back({define.name(), std::move(value), define.list()});
    }
    return absl::OkStatus();
  }

  absl::Status AddLaunches() {
    for (int i = 0; i < m_.launch_size(); ++i) {
      const auto& launch = m_.launch(i);
      const Locator at = at_.Nested(m_, "launch", i);
      if (!IsName(launch.symbol())) {
        return at.Error(launch, "symbol", absl::StrCat("'", launch.symbol(), "' is not the name of a kernel"));
      }
      KernelTemplate::Parsed::Launch to;
      to.symbol = launch.symbol();
      to.cooperative = launch.cooperative();
      const std::pair<const char*, Quantity*> fields[] = {
          {"when", &to.when},        {"grid_x", &to.grid[0]},    {"grid_y", &to.grid[1]},
          {"grid_z", &to.grid[2]},   {"block_x", &to.block[0]},  {"block_y", &to.block[1]},
          {"block_z", &to.block[2]}, {"cluster_x", &to.cluster}, {"shared_bytes", &to.shared}};
      for (const auto& [field, quantity] : fields) {
        RT_ASSIGN_OR_RETURN(*quantity, scope_.Compile(at, launch, field));
      }
      if (launch.arg_size() > kMaxArgs) return at.Error(launch, "arg", absl::StrCat("more than ", kMaxArgs, " args"));
      for (int a = 0; a < launch.arg_size(); ++a) {
        RT_RETURN_IF_ERROR(AddArg(at.Nested(launch, "arg", a), launch.arg(a), to));
      }
      parsed_->launches.push_back(std::move(to));
    }
    return absl::OkStatus();
  }

  absl::Status AddArg(const Locator& at, const ArgSpec& arg, KernelTemplate::Parsed::Launch& to) {
    KernelTemplate::Parsed::Arg parsed{arg.kind_case(), "", {}, {}};
    const auto unknown = [&](const char* field, const std::string& name, const std::vector<std::string>& known) {
      return at.Error(arg, field,
                      absl::StrCat("operator ", op_.kind(), " has no ", field, " '", name, "'; ", Choices(known)));
    };
    switch (arg.kind_case()) {
      case ArgSpec::kTensor:
        parsed.name = arg.tensor();
        if (!Contains(NamesOf(op_.tensor()), arg.tensor()))
          return unknown("tensor", arg.tensor(), NamesOf(op_.tensor()));
        break;
      case ArgSpec::kScalar:
        parsed.name = arg.scalar();
        if (!Contains(NamesOf(op_.scalar()), arg.scalar()))
          return unknown("scalar", arg.scalar(), NamesOf(op_.scalar()));
        break;
      case ArgSpec::kInt32: {
        RT_ASSIGN_OR_RETURN(parsed.value, scope_.Require(at, arg, "int32"));
        break;
      }
      case ArgSpec::kInt64: {
        RT_ASSIGN_OR_RETURN(parsed.value, scope_.Require(at, arg, "int64"));
        break;
      }
      case ArgSpec::kWorkspace: {
        RT_ASSIGN_OR_RETURN(parsed.value, scope_.Require(at, arg, "workspace"));
        if (m_.workspace_bytes().empty()) return at.Error(arg, "workspace", "needs workspace_bytes");
        break;
      }
      case ArgSpec::kTensorMap: {
        parsed.name = arg.tensor_map().tensor();
        RT_ASSIGN_OR_RETURN(parsed.map, ParseTensorMap(arg.tensor_map(), op_, scope_, at.Nested(arg, "tensor_map")));
        break;
      }
      case ArgSpec::kReferenceValue:
        return at.Error(arg, "reference_value", "is for reference kernels only");
      case ArgSpec::kReferenceMagnitude:
        return at.Error(arg, "reference_magnitude", "is for reference kernels only");
      default:
        return at.Error(arg, "tensor", "an arg needs one of tensor, scalar, int32, int64, workspace and tensor_map");
    }
    to.args.push_back(std::move(parsed));
    return absl::OkStatus();
  }

  absl::Status AddRest() {
    if (m_.workspace_zero() && m_.workspace_zero_once()) {
      return at_.Error(m_, "workspace_zero_once", "beside workspace_zero: the workspace is zeroed once or each time");
    }
    RT_ASSIGN_OR_RETURN(parsed_->workspace, scope_.Compile(at_, m_, "workspace_bytes"));
    RT_ASSIGN_OR_RETURN(parsed_->threads, scope_.Compile(at_, m_, "threads"));
    RT_ASSIGN_OR_RETURN(parsed_->shared, scope_.Compile(at_, m_, "shared_bytes"));
    RT_ASSIGN_OR_RETURN(parsed_->registers, scope_.Compile(at_, m_, "registers"));
    RT_ASSIGN_OR_RETURN(parsed_->deterministic, scope_.Compile(at_, m_, "deterministic"));
    RT_RETURN_IF_ERROR(scope_.Compile(at_, m_, "tolerance_scale").status());
    for (int i = 0; i < m_.precondition_size(); ++i) {
      const auto& condition = m_.precondition(i);
      const Locator at = at_.Nested(m_, "precondition", i);
      if (condition.name().empty()) return at.Error(condition, "name", "a precondition needs a name to show");
      RT_ASSIGN_OR_RETURN(Expression expression, scope_.Require(at, condition, "expr"));
      parsed_->preconditions.push_back({condition.name(), std::move(expression)});
    }
    const Locator at = at_.Nested(m_, "cost");
    const auto& cost = m_.cost();
    if (!cost.pipe().empty() && !Contains({"tensor", "tensor_wgmma", "fp32"}, cost.pipe())) {
      return at.Error(cost, "pipe", "pipe must be \"tensor\", \"tensor_wgmma\" or \"fp32\"");
    }
    for (const char* field :
         {"tile_m", "tile_n", "tile_k", "stages", "split_k", "raster_group", "passes", "bytes_in_flight_per_thread",
          "share_a", "share_b", "tiles_in_flight", "batch", "m", "bits_b"}) {
      RT_ASSIGN_OR_RETURN(Quantity quantity, scope_.Compile(at, cost, field));
      if (quantity.has_value()) parsed_->cost.emplace(field, *std::move(quantity));
    }
    return absl::OkStatus();
  }

  const manifest::v1::Template& m_;
  const manifest::v1::Op& op_;
  const Locator at_;
  ManifestScope scope_;
  std::set<std::string> lets_;
  SearchSpaceSpec spec_;
  std::shared_ptr<KernelTemplate::Parsed> parsed_ = std::make_shared<KernelTemplate::Parsed>();
};

absl::StatusOr<std::shared_ptr<const KernelTemplate::Parsed>> KernelTemplate::Parsed::Make(
    const manifest::v1::Template& manifest, const manifest::v1::Op& op, const Locator& at) {
  return TemplateCompiler(manifest, op, at).Run();
}

}  // namespace rooftune

#include "kernels/plan_builder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "kernels/tensor_map.h"

namespace rooftune {
namespace {

using manifest::v1::ArgSpec;

constexpr int kPointerBytes = 8;
// CUDA's limits of a grid and of a non-portable cluster, the same on every architecture since sm_30 and sm_90.
constexpr int64_t kMaxGridX = 2147483647;
constexpr int64_t kMaxGridYz = 65535;
constexpr int64_t kMaxBlockZ = 64;
constexpr int64_t kMaxCluster = 16;

bool UsesAny(const Expression& expression, const std::set<std::string>& names) {
  return std::any_of(expression.names().begin(), expression.names().end(),
                     [&](const std::string& name) { return names.count(name) > 0; });
}

}  // namespace

PlanBuilder::PlanBuilder(const manifest::v1::Template& manifest, const KernelTemplate::Parsed& parsed,
                         const OpSchema& schema, const Op& op, const Config& config, const DeviceProfile& device)
    : manifest_(manifest), parsed_(parsed), schema_(schema), op_(op), config_(config), device_(device) {
  names_ = op.names;
  for (const auto& [name, value] : DeviceNames(device)) names_.emplace(name, value);
  for (const auto& [name, value] : config) names_.emplace(name, value);
}

absl::Status PlanBuilder::CheckConfig() const {
  const auto bad = [&](const std::string& param, absl::string_view what) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                 absl::StrCat("template ", manifest_.id(), ": ", what, " in ", ConfigToString(config_)),
                 {{"parameter", param}});
  };
  if (op_.kind != manifest_.op()) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                 absl::StrCat("template ", manifest_.id(), " is for operator ", manifest_.op(), ", not ", op_.kind));
  }
  for (const auto& [name, value] : config_) {
    if (parsed_.params.count(name) == 0) return bad(name, absl::StrCat("unknown parameter ", name));
  }
  for (const auto& param : manifest_.param()) {
    const auto given = config_.find(param.name());
    if (given == config_.end()) return bad(param.name(), absl::StrCat("missing parameter ", param.name()));
    if (std::find(param.value().begin(), param.value().end(), given->second) == param.value().end()) {
      return bad(param.name(),
                 absl::StrCat("value ", given->second, " of ", param.name(), " is not one of its values"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PlanBuilder::Value(const Quantity& quantity, int64_t fallback) const {
  if (!quantity.has_value()) return fallback;
  return quantity->Eval(names_);
}

absl::StatusOr<int64_t> PlanBuilder::Cost(const char* field, int64_t fallback) const {
  const auto expression = parsed_.cost.find(field);
  if (expression == parsed_.cost.end()) return fallback;
  RT_ASSIGN_OR_RETURN(const int64_t value, expression->second.Eval(names_));
  return std::max<int64_t>(value, 1);
}

absl::StatusOr<bool> PlanBuilder::Happens(const KernelTemplate::Parsed::Launch& launch) const {
  RT_ASSIGN_OR_RETURN(const int64_t when, Value(launch.when, 1));
  return when != 0;
}

absl::StatusOr<std::vector<std::string>> PlanBuilder::Symbols() const {
  std::vector<std::string> symbols;
  for (const auto& launch : parsed_.launches) {
    RT_ASSIGN_OR_RETURN(const bool happens, Happens(launch));
    if (happens && std::find(symbols.begin(), symbols.end(), launch.symbol) == symbols.end()) {
      symbols.push_back(launch.symbol);
    }
  }
  return symbols;
}

absl::StatusOr<std::vector<std::string>> PlanBuilder::Defines() const {
  std::vector<std::string> defines;
  for (const auto& define : parsed_.defines) {
    if (define.list.empty()) {
      RT_ASSIGN_OR_RETURN(const int64_t value, define.value->Eval(names_));
      defines.push_back(absl::StrCat(define.name, "=", value));
      continue;
    }
    const auto list = op_.lists.find(define.list);
    if (list == op_.lists.end()) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                   absl::StrCat(op_.text, " has no list ", define.list));
    }
    defines.push_back(absl::StrCat(define.name, "=", absl::StrJoin(list->second, ",")));
  }
  std::sort(defines.begin(), defines.end());
  return defines;
}

bool PlanBuilder::UsesDims(const Expression& expression) const { return UsesAny(expression, parsed_.dims); }

void PlanBuilder::Note(const Expression& expression) {
  for (const std::string& name : expression.names()) {
    if (parsed_.dims.count(name) > 0 || parsed_.params.count(name) > 0) continue;
    const auto value = names_.find(name);
    if (value != names_.end()) (*plan_.mutable_constant())[name] = value->second;
  }
}

absl::StatusOr<v1::IntExpr> PlanBuilder::Quantify(const Quantity& quantity, int64_t fallback) {
  v1::IntExpr result;
  RT_ASSIGN_OR_RETURN(const int64_t value, Value(quantity, fallback));
  result.set_value(value);
  result.set_expr(quantity.has_value() ? quantity->text() : absl::StrCat(fallback));
  if (quantity.has_value()) Note(*quantity);
  return result;
}

absl::Status PlanBuilder::AddArg(const KernelTemplate::Parsed::Arg& arg, v1::Launch* to) {
  const auto has_tensor = [&](const std::string& name) {
    return std::any_of(plan_.tensor().begin(), plan_.tensor().end(), [&](const auto& t) { return t.name() == name; });
  };
  v1::Argument argument;
  argument.set_size(kPointerBytes);
  switch (arg.kind) {
    case ArgSpec::kTensor: {
      const auto declared = std::find_if(schema_.proto().tensor().begin(), schema_.proto().tensor().end(),
                                         [&](const auto& t) { return t.name() == arg.name; });
      const bool list = declared != schema_.proto().tensor().end() && declared->chain_inputs();
      std::string name = list ? "a" : arg.name;
      // A list stands for its tensors a, b, …, the first of which may be another's (`chain_skip`); a tensor that does
      // not exist for this operator is left out.
      if (list && !has_tensor(name)) ++name[0];
      for (; has_tensor(name); ++name[0]) {
        argument.set_tensor(name);
        *to->add_argument() = argument;
        if (!list) break;
      }
      return absl::OkStatus();
    }
    case ArgSpec::kScalar:
      for (const auto& scalar : plan_.scalar()) {
        if (scalar.name() != arg.name) continue;
        argument.set_scalar(arg.name);
        argument.set_size(scalar.dtype() == v1::FP64 ? 8 : 4);
        *to->add_argument() = argument;
      }
      return absl::OkStatus();
    case ArgSpec::kWorkspace: {
      RT_ASSIGN_OR_RETURN(*argument.mutable_workspace_offset(), Quantify(arg.value, 0));
      *to->add_argument() = std::move(argument);
      return absl::OkStatus();
    }
    case ArgSpec::kTensorMap: {
      if (!has_tensor(arg.name)) return absl::OkStatus();
      argument.set_size(kTensorMapBytes);
      RT_RETURN_IF_ERROR(FillTensorMap(arg, argument.mutable_tensor_map()));
      *to->add_argument() = std::move(argument);
      return absl::OkStatus();
    }
    default: {
      RT_ASSIGN_OR_RETURN(*argument.mutable_integer(), Quantify(arg.value, 0));
      const int64_t value = argument.integer().value();
      if (arg.kind == ArgSpec::kInt32) {
        argument.set_size(4);
        if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
          return Error(absl::StatusCode::kOutOfRange, "OVERFLOW",
                       absl::StrCat("template ", manifest_.id(), ": ", argument.integer().expr(), " is ", value,
                                    ", which does not fit an int32 argument"));
        }
      }
      *to->add_argument() = std::move(argument);
      return absl::OkStatus();
    }
  }
}

absl::Status PlanBuilder::FillTensorMap(const KernelTemplate::Parsed::Arg& arg, v1::TensorMap* to) {
  to->set_tensor(arg.name);
  for (const auto& tensor : plan_.tensor()) {
    if (tensor.name() == arg.name) to->set_dtype(tensor.dtype());
  }
  const auto fill = [&](const std::vector<Expression>& from, auto* list) -> absl::Status {
    for (const Expression& expression : from) {
      RT_ASSIGN_OR_RETURN(*list->Add(), Quantify(expression, 0));
    }
    return absl::OkStatus();
  };
  RT_RETURN_IF_ERROR(fill(arg.map.dims, to->mutable_dim()));
  RT_RETURN_IF_ERROR(fill(arg.map.strides, to->mutable_stride_bytes()));
  RT_RETURN_IF_ERROR(fill(arg.map.box, to->mutable_box()));
  RT_RETURN_IF_ERROR(fill(arg.map.element_strides, to->mutable_element_stride()));
  while (to->element_stride_size() < to->dim_size()) {
    RT_ASSIGN_OR_RETURN(*to->add_element_stride(), Quantify(Quantity(), 1));
  }
  RT_ASSIGN_OR_RETURN(const int64_t swizzle, Value(arg.map.swizzle, 0));
  RT_ASSIGN_OR_RETURN(const int64_t interleave, Value(arg.map.interleave, 0));
  RT_ASSIGN_OR_RETURN(const int64_t l2_promotion, Value(arg.map.l2_promotion, 0));
  RT_ASSIGN_OR_RETURN(const int64_t oob_fill, Value(arg.map.oob_fill, 0));
  const absl::Status modes = SetTensorMapModes(swizzle, interleave, l2_promotion, oob_fill, to);
  const absl::Status valid = modes.ok() ? CheckTensorMap(*to) : modes;
  if (valid.ok()) return valid;
  return Error(absl::StatusCode::kOutOfRange, "LAUNCH_GEOMETRY",
               absl::StrCat("template ", manifest_.id(), ": tensor map of ", arg.name, ": ", valid.message(), " with ",
                            ConfigToString(config_)));
}

absl::Status PlanBuilder::CheckGeometry(const v1::Launch& launch) const {
  const auto bad = [&](absl::string_view what, int64_t value) {
    return Error(absl::StatusCode::kOutOfRange, "LAUNCH_GEOMETRY",
                 absl::StrCat("template ", manifest_.id(), ": ", launch.symbol(), ": ", what, " is ", value, " with ",
                              ConfigToString(config_)));
  };
  const auto within = [](const v1::IntExpr& quantity, int64_t most) {
    return quantity.value() >= 1 && quantity.value() <= most;
  };
  if (!within(launch.grid_x(), kMaxGridX)) return bad("grid_x", launch.grid_x().value());
  if (!within(launch.grid_y(), kMaxGridYz)) return bad("grid_y", launch.grid_y().value());
  if (!within(launch.grid_z(), kMaxGridYz)) return bad("grid_z", launch.grid_z().value());
  const int64_t max_threads = device_.threads_per_block_max() > 0 ? device_.threads_per_block_max() : 1024;
  if (!within(launch.block_x(), max_threads)) return bad("block_x", launch.block_x().value());
  if (!within(launch.block_y(), max_threads)) return bad("block_y", launch.block_y().value());
  if (!within(launch.block_z(), kMaxBlockZ)) return bad("block_z", launch.block_z().value());
  const int64_t threads = launch.block_x().value() * launch.block_y().value() * launch.block_z().value();
  if (threads > max_threads) return bad("threads of a block", threads);
  if (!within(launch.cluster_x(), kMaxCluster)) return bad("cluster_x", launch.cluster_x().value());
  if (launch.grid_x().value() % launch.cluster_x().value() != 0) {
    return bad("grid_x, no multiple of the cluster,", launch.grid_x().value());
  }
  const int64_t shared = launch.dynamic_shared_bytes().value();
  const int64_t max_shared = device_.shared_per_block_optin_bytes();
  if (shared < 0 || (max_shared > 0 && shared > max_shared)) return bad("shared memory of a block", shared);
  return absl::OkStatus();
}

absl::StatusOr<v1::Launch> PlanBuilder::MakeLaunch(const KernelTemplate::Parsed::Launch& launch) {
  v1::Launch to;
  to.set_symbol(launch.symbol);
  RT_ASSIGN_OR_RETURN(*to.mutable_grid_x(), Quantify(launch.grid[0], 1));
  RT_ASSIGN_OR_RETURN(*to.mutable_grid_y(), Quantify(launch.grid[1], 1));
  RT_ASSIGN_OR_RETURN(*to.mutable_grid_z(), Quantify(launch.grid[2], 1));
  RT_ASSIGN_OR_RETURN(*to.mutable_block_x(), Quantify(launch.block[0], 1));
  RT_ASSIGN_OR_RETURN(*to.mutable_block_y(), Quantify(launch.block[1], 1));
  RT_ASSIGN_OR_RETURN(*to.mutable_block_z(), Quantify(launch.block[2], 1));
  RT_ASSIGN_OR_RETURN(*to.mutable_cluster_x(), Quantify(launch.cluster, 1));
  RT_ASSIGN_OR_RETURN(*to.mutable_dynamic_shared_bytes(), Quantify(launch.shared, 0));
  to.set_cooperative(launch.cooperative);
  to.set_shared_opt_in(to.dynamic_shared_bytes().value() > kSharedWithoutOptIn);
  RT_RETURN_IF_ERROR(CheckGeometry(to));
  for (const auto& arg : launch.args) RT_RETURN_IF_ERROR(AddArg(arg, &to));
  return to;
}

absl::Status PlanBuilder::AddTensors() {
  RT_ASSIGN_OR_RETURN(const auto tensors, schema_.Tensors(op_));
  for (const auto& tensor : tensors) {
    v1::TensorSpec* to = plan_.add_tensor();
    *to = tensor.spec;
    for (auto& dim : *to->mutable_dim()) {
      const auto written = parsed_.tensor_dims.find(dim.expr());
      if (written == parsed_.tensor_dims.end()) {
        return absl::InternalError(absl::StrCat(op_.kind, " has no dim ", dim.expr()));
      }
      dim.set_expr(written->second.text());
      Note(written->second);
    }
  }
  for (const auto& scalar : schema_.Scalars(op_)) *plan_.add_scalar() = scalar;
  return absl::OkStatus();
}

void PlanBuilder::AddPrecondition(const std::string& name, const std::string& text) {
  v1::Precondition* condition = plan_.add_precondition();
  condition->set_name(name);
  condition->set_expr(text);
}

absl::Status PlanBuilder::AddPreconditions() {
  for (const auto& condition : parsed_.preconditions) {
    AddPrecondition(condition.name, condition.expression.text());
    Note(condition.expression);
  }
  // What depends on dims and is no longer open once compiled or planned.
  for (const auto& define : parsed_.defines) {
    if (!define.value.has_value() || !UsesDims(*define.value)) continue;
    RT_ASSIGN_OR_RETURN(const int64_t value, define.value->Eval(names_));
    AddPrecondition(absl::StrCat("compiled for ", define.name, "=", value),
                    absl::StrCat("(", define.value->text(), ") == ", value));
    Note(*define.value);
  }
  for (const auto& launch : parsed_.launches) {
    if (!launch.when.has_value() || !UsesDims(*launch.when)) continue;
    RT_ASSIGN_OR_RETURN(const bool happens, Happens(launch));
    AddPrecondition(absl::StrCat("planned ", happens ? "with " : "without ", launch.symbol),
                    absl::StrCat(happens ? "(" : "not (", launch.when->text(), ")"));
    Note(*launch.when);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::LaunchPlan> PlanBuilder::Plan() {
  plan_.set_op(op_.text);
  plan_.set_arch(ArchName(device_.cc(), manifest_.arch_specific()));
  plan_.set_template_id(manifest_.id());
  plan_.mutable_config()->insert(config_.begin(), config_.end());
  for (const auto& attribute : schema_.proto().attribute()) {
    const auto value = op_.names.find(attribute.name());
    if (value != op_.names.end()) (*plan_.mutable_constant())[value->first] = value->second;
  }
  RT_RETURN_IF_ERROR(AddTensors());
  for (const auto& launch : parsed_.launches) {
    RT_ASSIGN_OR_RETURN(const bool happens, Happens(launch));
    if (!happens) continue;
    RT_ASSIGN_OR_RETURN(*plan_.add_launch(), MakeLaunch(launch));
  }
  if (plan_.launch_size() == 0) {
    return Error(absl::StatusCode::kOutOfRange, "LAUNCH_GEOMETRY",
                 absl::StrCat("template ", manifest_.id(), " launches nothing with ", ConfigToString(config_)));
  }
  RT_ASSIGN_OR_RETURN(*plan_.mutable_workspace_bytes(), Quantify(parsed_.workspace, 0));
  if (plan_.workspace_bytes().value() < 0) {
    return Error(absl::StatusCode::kOutOfRange, "LAUNCH_GEOMETRY",
                 absl::StrCat("template ", manifest_.id(), ": workspace_bytes is ", plan_.workspace_bytes().value()));
  }
  plan_.set_workspace_init(plan_.workspace_bytes().value() == 0 ? v1::LaunchPlan::NONE
                           : manifest_.workspace_zero()         ? v1::LaunchPlan::ZERO
                           : manifest_.workspace_zero_once()    ? v1::LaunchPlan::ZERO_ONCE
                                                                : v1::LaunchPlan::NONE);
  RT_RETURN_IF_ERROR(AddPreconditions());
  RT_ASSIGN_OR_RETURN(const int64_t deterministic, Value(parsed_.deterministic, 0));
  plan_.set_deterministic(deterministic != 0);
  return std::move(plan_);
}

}  // namespace rooftune

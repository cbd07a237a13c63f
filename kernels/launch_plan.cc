// Launch plans after they are made: what the compiled binary adds, and for which operators one is valid.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "kernels/plan_builder.h"

namespace rooftune {
namespace {

absl::Status Mismatch(absl::string_view symbol, absl::string_view what) {
  return Error(absl::StatusCode::kFailedPrecondition, "ABI_MISMATCH", absl::StrCat("kernel ", symbol, ": ", what),
               {{"kernel", std::string(symbol)}});
}

std::string DescribeArgument(const v1::Argument& argument) {
  switch (argument.kind_case()) {
    case v1::Argument::kTensor:
      return absl::StrCat("tensor ", argument.tensor());
    case v1::Argument::kScalar:
      return absl::StrCat("scalar ", argument.scalar());
    case v1::Argument::kInteger:
      return absl::StrCat("integer ", argument.integer().expr());
    case v1::Argument::kWorkspaceOffset:
      return "workspace";
    case v1::Argument::kTensorMap:
      return absl::StrCat("tensor map of ", argument.tensor_map().tensor());
    default:
      return "nothing";
  }
}

absl::Status AttachKernel(const worker::v1::KernelInfo& kernel, v1::Launch& launch) {
  if (kernel.parameter_size() != launch.argument_size()) {
    return Mismatch(launch.symbol(), absl::StrCat("the binary has ", kernel.parameter_size(),
                                                  " parameters, the manifest ", launch.argument_size(), " arguments"));
  }
  std::set<int> seen;
  for (const auto& parameter : kernel.parameter()) {
    const int ordinal = parameter.ordinal();
    if (ordinal < 0 || ordinal >= launch.argument_size() || !seen.insert(ordinal).second) {
      return Mismatch(launch.symbol(), absl::StrCat("the binary numbers a parameter ", ordinal));
    }
    v1::Argument& argument = *launch.mutable_argument(ordinal);
    if (parameter.size() != argument.size()) {
      return Mismatch(launch.symbol(), absl::StrCat("argument ", ordinal, " (", DescribeArgument(argument), ") has ",
                                                    argument.size(), " bytes, in the binary ", parameter.size()));
    }
    argument.set_offset(parameter.offset());
  }
  const int64_t shared = launch.dynamic_shared_bytes().value() + kernel.resources().static_shared_bytes();
  launch.set_shared_opt_in(launch.dynamic_shared_bytes().value() > 0 && shared > kSharedWithoutOptIn);
  return absl::OkStatus();
}

// Words of an operator's text that are no dims; blanks separate only outside parentheses.
std::set<std::string> AttributeWords(const std::string& text, const Op& op) {
  std::set<std::string> words;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::string name(word.substr(0, word.find('=')));
    bool dim = false;
    for (const auto& [known, value] : op.dims) dim = dim || known == name;
    if (!dim) words.insert(std::string(word));
  }
  return words;
}

}  // namespace

const v1::Launch& MainLaunch(const v1::LaunchPlan& plan) {
  return *std::max_element(plan.launch().begin(), plan.launch().end(), [](const v1::Launch& a, const v1::Launch& b) {
    return a.dynamic_shared_bytes().value() < b.dynamic_shared_bytes().value();
  });
}

absl::Status AttachArtifact(const worker::v1::CompileResult& compiled, v1::LaunchPlan& plan) {
  v1::LaunchPlan attached = plan;
  for (v1::Launch& launch : *attached.mutable_launch()) {
    const worker::v1::KernelInfo* kernel = nullptr;
    for (const auto& candidate : compiled.kernel()) {
      if (candidate.symbol() == launch.symbol()) kernel = &candidate;
    }
    if (kernel == nullptr) return Mismatch(launch.symbol(), "is not in the binary");
    if (compiled.parameters_unknown()) continue;
    const absl::Status status = AttachKernel(*kernel, launch);
    if (!status.ok()) return status;
  }
  attached.set_artifact_digest(compiled.digest());
  plan.Swap(&attached);
  return absl::OkStatus();
}

absl::Status CheckPreconditions(const v1::LaunchPlan& plan, const Op& op) {
  const auto unmet = [&](absl::string_view name, absl::string_view what) {
    return Error(absl::StatusCode::kFailedPrecondition, "PRECONDITION",
                 absl::StrCat("the plan for '", plan.op(), "' does not serve '", op.text, "': ", what),
                 {{"precondition", std::string(name)}});
  };
  if (AttributeWords(plan.op(), op) != AttributeWords(op.text, op)) {
    return unmet("attributes", "they differ in more than dims");
  }
  Names names(plan.constant().begin(), plan.constant().end());
  for (const auto& [name, value] : plan.config()) names[name] = value;
  for (const auto& [name, value] : op.names) names[name] = value;
  for (const auto& precondition : plan.precondition()) {
    const auto expression = Expression::Parse(precondition.expr());
    if (!expression.ok()) return unmet(precondition.name(), expression.status().message());
    const auto value = expression->Eval(names);
    if (!value.ok()) return unmet(precondition.name(), value.status().message());
    if (*value == 0)
      return unmet(precondition.name(), absl::StrCat(precondition.name(), " (", precondition.expr(), ")"));
  }
  return absl::OkStatus();
}

}  // namespace rooftune

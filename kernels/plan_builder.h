// Evaluates a template's expressions for one operator, configuration and device.
#ifndef ROOFTUNE_KERNELS_PLAN_BUILDER_H_
#define ROOFTUNE_KERNELS_PLAN_BUILDER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/kernel_template.h"
#include "kernels/template_parsed.h"

namespace rooftune {

// Dynamic and static shared memory of a block without the opt-in attribute.
inline constexpr int64_t kSharedWithoutOptIn = 48 * 1024;

// One use: Begin, then what is wanted. Borrows everything it is given.
class PlanBuilder {
 public:
  PlanBuilder(const manifest::v1::Template& manifest, const KernelTemplate::Parsed& parsed, const OpSchema& schema,
              const Op& op, const Config& config, const DeviceProfile& device);

  // INVALID_ARGUMENT (BAD_CONFIG).
  absl::Status CheckConfig() const;

  absl::StatusOr<v1::LaunchPlan> Plan();
  // "NAME=VALUE", sorted.
  absl::StatusOr<std::vector<std::string>> Defines() const;
  // Of the launches that happen, in order, each once.
  absl::StatusOr<std::vector<std::string>> Symbols() const;
  // The value, or `fallback` where there is no expression.
  absl::StatusOr<int64_t> Value(const Quantity& quantity, int64_t fallback) const;
  // A field of the cost mapping, at least 1.
  absl::StatusOr<int64_t> Cost(const char* field, int64_t fallback) const;

 private:
  absl::StatusOr<bool> Happens(const KernelTemplate::Parsed::Launch& launch) const;
  bool UsesDims(const Expression& expression) const;
  // Notes the constants an expression uses.
  void Note(const Expression& expression);
  absl::StatusOr<v1::IntExpr> Quantify(const Quantity& quantity, int64_t fallback);
  absl::StatusOr<v1::Launch> MakeLaunch(const KernelTemplate::Parsed::Launch& launch);
  absl::Status AddArg(const KernelTemplate::Parsed::Arg& arg, v1::Launch* to);
  // OUT_OF_RANGE (LAUNCH_GEOMETRY) where a value is none that cuTensorMapEncodeTiled takes.
  absl::Status FillTensorMap(const KernelTemplate::Parsed::Arg& arg, v1::TensorMap* to);
  absl::Status CheckGeometry(const v1::Launch& launch) const;
  absl::Status AddTensors();
  absl::Status AddPreconditions();
  void AddPrecondition(const std::string& name, const std::string& text);

  const manifest::v1::Template& manifest_;
  const KernelTemplate::Parsed& parsed_;
  const OpSchema& schema_;
  const Op& op_;
  const Config& config_;
  const DeviceProfile& device_;
  Names names_;
  v1::LaunchPlan plan_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_PLAN_BUILDER_H_

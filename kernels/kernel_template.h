// A parameterised kernel: a folder with `template.txtpb` and `kernel.cuh`, checked once when it is loaded.
#ifndef ROOFTUNE_KERNELS_KERNEL_TEMPLATE_H_
#define ROOFTUNE_KERNELS_KERNEL_TEMPLATE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "costmodel/device_profile.h"
#include "costmodel/op.h"
#include "costmodel/predictor.h"
#include "kernels/candidate.h"
#include "kernels/search_space.h"
#include "rooftune/v1/launch_plan.pb.h"

namespace rooftune {

// Texts of one template.
struct TemplateFiles {
  // Folder, for messages and as origin ("built-in" for embedded ones).
  std::string origin;
  std::string manifest;  // template.txtpb
  std::string kernel;    // kernel.cuh
  // Headers it may include by name: rooftune's own (kernels/templates/common/*.cuh) and its folder's.
  std::vector<worker::v1::SourceFile> headers;
};

// Immutable, thread-safe.
class KernelTemplate {
 public:
  // INVALID_ARGUMENT: "<origin>/template.txtpb:LINE:COLUMN: what". Every expression is parsed and its
  // names are checked against the operator's schema, the parameters and the device names.
  static absl::StatusOr<std::unique_ptr<KernelTemplate>> Create(TemplateFiles files, const OpCatalog& catalog);

  const std::string& id() const { return manifest_.id(); }
  const std::string& op_kind() const { return manifest_.op(); }
  const manifest::v1::Template& manifest() const { return manifest_; }
  const TemplateFiles& files() const { return files_; }
  // Digest of manifest, sources and headers (128 bits, hex).
  const std::string& revision() const { return revision_; }

  // True if its arch predicate and its `when` hold.
  bool Supports(const Op& op, const DeviceProfile& device) const;
  absl::StatusOr<SearchSpace> Space(const Op& op, const DeviceProfile& device) const;
  // Why a configuration is no valid point of that space, found without enumerating it; empty if it is one. "template
  // NAME does not support …" counts, too.
  std::string WhyRejected(const Op& op, const Config& config, const DeviceProfile& device) const;
  // The declared default if it is a valid point, else the valid point nearest to it (fewest changed
  // parameters, first in order). NOT_FOUND (EMPTY_SPACE) with the rejection counts if there is none.
  absl::StatusOr<Config> DefaultConfig(const Op& op, const DeviceProfile& device) const;

  // Everything NVRTC needs. The architecture is the device's ("sm_90", or "sm_90a" if arch_specific).
  absl::StatusOr<worker::v1::CompileRequest> CompileInput(const Op& op, const Config& config,
                                                          const DeviceProfile& device) const;
  // The recipe without artifact digest and parameter offsets (AttachArtifact adds those). Its expressions use
  // dims, parameters and `constant` only (attributes are constants), and its preconditions also say what was
  // compiled in or left out for these dims. This and Analyse: INVALID_ARGUMENT (BAD_CONFIG) unless the
  // configuration gives every parameter one of its values; OUT_OF_RANGE where a quantity does not exist or
  // (LAUNCH_GEOMETRY) the device can't launch it.
  absl::StatusOr<v1::LaunchPlan> Plan(const Op& op, const Config& config, const DeviceProfile& device) const;
  // What the cost model needs of a configuration, and the manifest's static estimates, for pruning before compiling:
  // threads and shared memory are the main launch's where it has none, registers are 0 then.
  struct Analysis {
    MappedConfig mapped;
    v1::Resources resources;
  };
  absl::StatusOr<Analysis> Analyse(const Op& op, const Config& config, const DeviceProfile& device) const;

 private:
  friend class TemplateCompiler;
  friend class PlanBuilder;
  struct Parsed;
  SearchSpaceSpec SpaceSpec(const Op& op, const DeviceProfile& device) const;
  KernelTemplate(TemplateFiles files, manifest::v1::Template manifest, const OpSchema* schema, std::string revision,
                 std::shared_ptr<const Parsed> parsed);

  const TemplateFiles files_;
  const manifest::v1::Template manifest_;
  const OpSchema* const schema_;
  const std::string revision_;
  const std::shared_ptr<const Parsed> parsed_;
};

// The launch that the others prepare or finish: the one with the most dynamic shared memory, the first of equals. The
// plan has a launch.
const v1::Launch& MainLaunch(const v1::LaunchPlan& plan);

// Puts digest and parameter offsets of the compiled kernels into the plan, and checks that every argument
// has the size that the cubin says. FAILED_PRECONDITION (ABI_MISMATCH) naming kernel and argument if not.
absl::Status AttachArtifact(const worker::v1::CompileResult& compiled, v1::LaunchPlan& plan);

// FAILED_PRECONDITION naming the first precondition of the plan that the operator does not meet.
absl::Status CheckPreconditions(const v1::LaunchPlan& plan, const Op& op);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_KERNEL_TEMPLATE_H_

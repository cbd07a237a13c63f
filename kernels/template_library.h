// All templates and operators a daemon knows: the built-in ones and those of --template-dir folders.
#ifndef ROOFTUNE_KERNELS_TEMPLATE_LIBRARY_H_
#define ROOFTUNE_KERNELS_TEMPLATE_LIBRARY_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel_template.h"

namespace rooftune {

struct TemplateFolder;

// A template that could not be loaded.
struct BrokenTemplate {
  std::string id;      // its folder's name
  std::string origin;  // folder
  std::string error;   // with line and column
};

// Immutable, thread-safe.
class TemplateLibrary {
 public:
  // `dirs` are searched for folders that hold template.txtpb and/or op.txtpb, at most two levels down; a
  // later folder overrides a built-in of the same id. A broken template does not fail the load: it is
  // listed. NOT_FOUND if a folder does not exist.
  static absl::StatusOr<std::unique_ptr<TemplateLibrary>> Load(const std::vector<std::string>& dirs);

  const OpCatalog& ops() const { return ops_; }
  std::vector<const KernelTemplate*> templates() const;
  const KernelTemplate* Find(absl::string_view id) const;
  const std::vector<BrokenTemplate>& broken() const { return broken_; }
  // Templates that implement the operator on the device, by id.
  std::vector<const KernelTemplate*> For(const Op& op, const DeviceProfile& device) const;

  // Compile input and launch of the operator's naive reference kernel. NOT_FOUND (NO_REFERENCE) if its
  // op.txtpb has none.
  struct Reference {
    worker::v1::CompileRequest compile;
    worker::v1::ReferencePlan plan;
  };
  absl::StatusOr<Reference> ReferenceOf(const Op& op, const DeviceProfile& device) const;

 private:
  TemplateLibrary() = default;
  // Adds the operator that a folder declares, if it does.
  absl::Status AddOp(const TemplateFolder& folder);

  OpCatalog ops_;
  std::vector<std::unique_ptr<KernelTemplate>> templates_;
  std::vector<BrokenTemplate> broken_;
  struct ReferenceSource {
    worker::v1::SourceFile source;
    std::vector<worker::v1::SourceFile> headers;
  };
  // By operator kind.
  std::map<std::string, ReferenceSource> references_;
};

// Compile input of the harness' own kernels (kernels/templates/common/support.cuh: fill, compare, copy, flush,
// ceilings).
worker::v1::CompileRequest SupportKernels(const DeviceProfile& device);

// What the worker needs to set up a problem, except the compiled binaries. Fills op, tensors, scalars,
// tolerance, reference plan and cpu_check_elements.
absl::StatusOr<worker::v1::PrepareRequest> MakePrepare(const TemplateLibrary& library, const Op& op,
                                                       const DeviceProfile& device, uint64_t seed);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_TEMPLATE_LIBRARY_H_

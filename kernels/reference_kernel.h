// Compile input and launch of an operator's naive reference kernel.
#ifndef ROOFTUNE_KERNELS_REFERENCE_KERNEL_H_
#define ROOFTUNE_KERNELS_REFERENCE_KERNEL_H_

#include <vector>

#include "kernels/manifest_parser.h"
#include "kernels/template_library.h"

namespace rooftune {

// INVALID_ARGUMENT with line and column if the `reference` of an op.txtpb names what the operator does not have.
absl::Status CheckReference(const manifest::v1::Op& op, const Locator& at);

// The same kind of error as OpSchema::Create's `status`, with the line and column of the field it names.
absl::Status LocateOpError(const absl::Status& status, const manifest::v1::Op& op, const Locator& at);

// OUT_OF_RANGE if the operator is too large for one launch.
absl::StatusOr<TemplateLibrary::Reference> MakeReference(const OpSchema& schema, const Op& op,
                                                         const DeviceProfile& device,
                                                         const worker::v1::SourceFile& source,
                                                         const std::vector<worker::v1::SourceFile>& headers);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_REFERENCE_KERNEL_H_

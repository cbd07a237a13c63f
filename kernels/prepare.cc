// The problem that the worker sets up before any candidate.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "kernels/host_reference.h"
#include "kernels/template_library.h"

namespace rooftune {
absl::StatusOr<worker::v1::PrepareRequest> MakePrepare(const TemplateLibrary& library, const Op& op,
                                                       const DeviceProfile& device, uint64_t seed) {
  const OpSchema* schema = library.ops().Find(op.kind);
  if (schema == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, "UNKNOWN_OP", absl::StrCat("unknown operator ", op.kind));
  }
  worker::v1::PrepareRequest request;
  request.set_op(op.text);
  request.set_seed(seed);
  RT_ASSIGN_OR_RETURN(auto reference, library.ReferenceOf(op, device));
  *request.mutable_reference() = std::move(reference.plan);
  RT_ASSIGN_OR_RETURN(const auto tensors, schema->Tensors(op));
  for (const OpTensorInstance& tensor : tensors) {
    worker::v1::ProblemTensor* to = request.add_tensor();
    *to->mutable_spec() = tensor.spec;
    to->set_elements(tensor.elements);
    to->set_bytes(tensor.bytes);
    if (tensor.spec.role() == v1::TensorSpec::OUTPUT) continue;
    to->mutable_fill()->set_mean(tensor.fill_mean);
    to->mutable_fill()->set_stddev(tensor.fill_stddev);
    to->mutable_fill()->set_range(tensor.fill_range);
    to->mutable_fill()->set_distinct(tensor.fill_distinct);
    to->mutable_fill()->set_skip(tensor.fill_skip);
    to->mutable_fill()->set_total(tensor.fill_total);
    to->mutable_fill()->set_offsets(tensor.fill_offsets);
  }
  for (const auto& scalar : schema->Scalars(op)) *request.add_scalar() = scalar;
  RT_ASSIGN_OR_RETURN(const Work work, schema->ComputeWork(op));
  // No memory holds more.
  constexpr Int128 kMost = Int128{1} << 62;
  request.set_bytes_read(static_cast<int64_t>(std::min(work.bytes_read, kMost)));
  request.set_bytes_written(static_cast<int64_t>(std::min(work.bytes_written, kMost)));
  RT_ASSIGN_OR_RETURN(const int64_t length, schema->AccumulationLength(op));
  request.mutable_tolerance()->set_accumulation_length(length);
  request.mutable_tolerance()->set_scale(1);
  request.set_cpu_check_elements(HostCheckElements(op.kind, length));
  return request;
}

}  // namespace rooftune

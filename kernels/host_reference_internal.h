// Pieces of the CPU references: one file an operator family.
#ifndef ROOFTUNE_KERNELS_HOST_REFERENCE_INTERNAL_H_
#define ROOFTUNE_KERNELS_HOST_REFERENCE_INTERNAL_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/generate.h"
#include "kernels/host_reference.h"

namespace rooftune::host_reference_internal {

// An instance with everything its inputs are made from.
struct Problem {
  Op op;
  uint64_t seed = 0;
  // The position in this list is the tensor's number in the generator.
  std::vector<OpTensorInstance> tensors;
  std::map<std::string, double> scalars;

  // Element of tensor number `tensor`.
  double Input(int tensor, int64_t index) const;
  // -1 if the instance has no such tensor.
  int Find(absl::string_view name) const;
  // INVALID_ARGUMENT unless `tensor` is an output that has all `indices`.
  absl::Status CheckOutput(const std::string& tensor, const std::vector<int64_t>& indices) const;
  int64_t Name(const std::string& name) const { return op.names.at(name); }
};

std::unique_ptr<HostReference> MakeGemm(Problem problem);
std::unique_ptr<HostReference> MakeSoftmax(Problem problem);
std::unique_ptr<HostReference> MakeRmsnorm(Problem problem);
std::unique_ptr<HostReference> MakeElementwise(Problem problem);
std::unique_ptr<HostReference> MakeCrossEntropy(Problem problem);
std::unique_ptr<HostReference> MakeRope(Problem problem);
std::unique_ptr<HostReference> MakePermute(Problem problem);
std::unique_ptr<HostReference> MakeReduce(Problem problem);

}  // namespace rooftune::host_reference_internal

#endif  // ROOFTUNE_KERNELS_HOST_REFERENCE_INTERNAL_H_

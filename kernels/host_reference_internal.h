// Pieces of the CPU references: one file an operator family.
#ifndef ROOFTUNE_KERNELS_HOST_REFERENCE_INTERNAL_H_
#define ROOFTUNE_KERNELS_HOST_REFERENCE_INTERNAL_H_

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/chain.h"
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
  // Largest magnitude of a row that is quantised: of FP8 E4M3, or of INT8's symmetric range; 0 = it is not.
  double QuantLimit() const { return Name("quant") == 0 ? 0 : Name("quant") == Name("QUANT_FP8_E4M3") ? 448 : 127; }
  // Of an attribute that not every kind of the family has.
  int64_t NameOr(const std::string& name, int64_t missing) const {
    const auto found = op.names.find(name);
    return found == op.names.end() ? missing : found->second;
  }
};

// Calls `row_begins(row)` whenever the row changes, then `element(index)` for each index.
template <typename RowBegins, typename Element>
std::vector<ReferenceValue> ByRows(const std::vector<int64_t>& indices, int64_t columns, RowBegins row_begins,
                                   Element element) {
  // Sorted so that every row is computed once, whatever the order asked for.
  std::vector<size_t> order(indices.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return indices[a] < indices[b]; });
  std::vector<ReferenceValue> values(indices.size());
  int64_t current = -1;
  for (const size_t i : order) {
    const int64_t row = indices[i] / columns;
    if (row != current) row_begins(row);
    current = row;
    values[i] = element(indices[i]);
  }
  return values;
}

// Of outputs that have one element a row, made of all of it: so many of `count` as take a few times as long as `count`
// elements of whole rows.
inline int RowsOfCheck(int count) { return std::max(1, count / 32); }

// The activation that an operator's attribute ("act", "pre") names. A magnitude stays that of the terms: no activation
// enlarges an error by more than 1.13.
class Activation {
 public:
  Activation(const Problem& p, const std::string& attribute);
  double operator()(double value) const;

 private:
  std::optional<ChainOp> op_;
};

std::unique_ptr<HostReference> MakeGemm(Problem problem);
std::unique_ptr<HostReference> MakeGemmWq(Problem problem);
std::unique_ptr<HostReference> MakeMoeGemm(Problem problem);
std::unique_ptr<HostReference> MakeSoftmax(Problem problem);
std::unique_ptr<HostReference> MakeNorm(Problem problem, bool center);
std::unique_ptr<HostReference> MakeGlu(Problem problem);
std::unique_ptr<HostReference> MakeElementwise(Problem problem);
std::unique_ptr<HostReference> MakeCrossEntropy(Problem problem);
std::unique_ptr<HostReference> MakeRope(Problem problem);
std::unique_ptr<HostReference> MakePermute(Problem problem);
std::unique_ptr<HostReference> MakeContiguous(Problem problem);
std::unique_ptr<HostReference> MakeReduce(Problem problem);
std::unique_ptr<HostReference> MakeQuantize(Problem problem);
std::unique_ptr<HostReference> MakeDequantize(Problem problem);

}  // namespace rooftune::host_reference_internal

#endif  // ROOFTUNE_KERNELS_HOST_REFERENCE_INTERNAL_H_

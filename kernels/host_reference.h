// The CPU's double-precision reference of the built-in operators: says what single output elements must be.
#ifndef ROOFTUNE_KERNELS_HOST_REFERENCE_H_
#define ROOFTUNE_KERNELS_HOST_REFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "costmodel/op.h"

namespace rooftune {

struct ReferenceValue {
  double value = 0;
  // Sum of |terms|: what rounding errors scale with.
  double magnitude = 0;
};

// Computes expected output elements from generated inputs. Stateless beside its operator.
class HostReference {
 public:
  virtual ~HostReference() = default;
  // Expected values of output `tensor` at flat `indices`.
  virtual absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                               const std::vector<int64_t>& indices) const = 0;
  // Elements of an output tensor to check where `count` are usual: fewer where each takes a whole row.
  virtual int CheckCount(const std::string& /*tensor*/, int count) const { return count; }
};

// NOT_FOUND (NO_REFERENCE) for kinds without one (declared operators). `scalars` are the runtime scalars' values.
absl::StatusOr<std::unique_ptr<HostReference>> MakeHostReference(const OpSchema& schema, const Op& op, uint64_t seed,
                                                                 const std::map<std::string, double>& scalars);
bool HasHostReference(const std::string& kind);
// Output elements to recompute on the CPU so that it takes about a second; 0 where there is no reference or where a
// single element takes longer.
int HostCheckElements(const std::string& kind, int64_t accumulation_length);

// Up to `count` flat indices of a tensor of these dims: all corners, tails of every dimension, and a
// seeded spread; grouped in few rows so that row operators stay cheap. Sorted, unique.
std::vector<int64_t> CheckIndices(const std::vector<int64_t>& dims, int count, uint64_t seed);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_HOST_REFERENCE_H_

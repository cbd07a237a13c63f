#include <array>
#include <utility>

#include "base/status_macros.h"
#include "kernels/host_reference_internal.h"

namespace rooftune::host_reference_internal {
namespace {

constexpr int kAxes = 8;

class Permute : public HostReference {
 public:
  explicit Permute(Problem problem) : p_(std::move(problem)) {
    std::array<int64_t, kAxes> extent, stride;
    int64_t size = 1;
    for (int i = kAxes; i-- > 0;) {
      extent[i] = p_.Name("d" + std::to_string(i));
      stride[i] = size;
      size *= extent[i];
    }
    for (int i = 0; i < kAxes; ++i) {
      const int64_t axis = p_.Name("axis" + std::to_string(i));
      extent_[i] = extent[axis];
      stride_[i] = stride[axis];
    }
  }

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    const int x = p_.Find("x");
    std::vector<ReferenceValue> values;
    values.reserve(indices.size());
    for (int64_t index : indices) {
      int64_t from = 0;
      for (int i = kAxes; i-- > 0; index /= extent_[i]) from += index % extent_[i] * stride_[i];
      // A copy has no rounding.
      values.push_back({p_.Input(x, from), 0});
    }
    return values;
  }

 private:
  const Problem p_;
  // Of the axes of y: extent, and distance of neighbours in x.
  std::array<int64_t, kAxes> extent_, stride_;
};

class Contiguous : public HostReference {
 public:
  explicit Contiguous(Problem problem) : p_(std::move(problem)) {
    for (size_t i = 0; i < extent_.size(); ++i) {
      extent_[i] = p_.Name("d" + std::to_string(i));
      stride_[i] = p_.Name("s" + std::to_string(i));
    }
  }

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    std::vector<ReferenceValue> values;
    values.reserve(indices.size());
    for (int64_t index : indices) {
      int64_t from = 0;
      for (size_t i = extent_.size(); i-- > 0; index /= extent_[i]) from += index % extent_[i] * stride_[i];
      values.push_back({p_.Input(p_.Find("x"), from), 0});
    }
    return values;
  }

 private:
  const Problem p_;
  std::array<int64_t, 5> extent_, stride_;
};

}  // namespace

std::unique_ptr<HostReference> MakeContiguous(Problem problem) {
  return std::make_unique<Contiguous>(std::move(problem));
}
std::unique_ptr<HostReference> MakePermute(Problem problem) { return std::make_unique<Permute>(std::move(problem)); }

}  // namespace rooftune::host_reference_internal

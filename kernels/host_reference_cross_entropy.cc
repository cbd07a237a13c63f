#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "kernels/host_reference_internal.h"

namespace rooftune::host_reference_internal {
namespace {

class CrossEntropy : public HostReference {
 public:
  explicit CrossEntropy(Problem problem)
      : p_(std::move(problem)),
        vocab_(p_.Name("vocab")),
        logits_(p_.Name("grad") == 1 ? p_.Find("dlogits") : p_.Find("logits")),
        targets_(p_.Find("targets")),
        scale_(p_.Name("grad") == 1 ? p_.scalars.at("grad_scale") : 0) {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    const bool loss = tensor == "loss";
    std::map<int64_t, Row> rows;
    std::vector<ReferenceValue> values;
    values.reserve(indices.size());
    for (const int64_t index : indices) {
      const int64_t row = loss ? index : index / vocab_;
      const auto [at, is_new] = rows.try_emplace(row);
      if (is_new) at->second = Sum(row);
      values.push_back(loss ? Loss(row, at->second) : Gradient(index, at->second));
    }
    return values;
  }

 private:
  struct Row {
    double maximum = -std::numeric_limits<double>::infinity();
    double sum = 0;  // of exp(x - maximum)
    int64_t target = 0;
  };

  // One pass: the sum is rescaled when a larger element turns up, so that no row has to be stored.
  Row Sum(int64_t row) const {
    Row r;
    for (int64_t j = 0; j < vocab_; ++j) {
      const double x = p_.Input(logits_, row * vocab_ + j);
      if (x > r.maximum) {
        r.sum *= std::exp(r.maximum - x);
        r.maximum = x;
      }
      r.sum += std::exp(x - r.maximum);
    }
    r.target = static_cast<int64_t>(p_.Input(targets_, row));
    return r;
  }

  bool Counts(const Row& r) const { return r.target >= 0 && r.target < vocab_; }

  ReferenceValue Loss(int64_t row, const Row& r) const {
    if (!Counts(r)) return {0, 0};
    const double at_target = p_.Input(logits_, row * vocab_ + r.target);
    const double log_sum = std::log(r.sum);
    // A relative error of the sum is an absolute one of its logarithm: the 1.
    return {r.maximum + log_sum - at_target, 1 + std::fabs(r.maximum) + std::fabs(log_sum) + std::fabs(at_target)};
  }

  ReferenceValue Gradient(int64_t index, const Row& r) const {
    if (!Counts(r)) return {0, 0};
    const double p = std::exp(p_.Input(logits_, index) - r.maximum) / r.sum;
    const double hot = index % vocab_ == r.target ? 1 : 0;
    return {(p - hot) * scale_, (p + hot) * std::fabs(scale_)};
  }

  const Problem p_;
  const int64_t vocab_;
  // Tensor numbers.
  const int logits_, targets_;
  const double scale_;
};

}  // namespace

std::unique_ptr<HostReference> MakeCrossEntropy(Problem problem) {
  return std::make_unique<CrossEntropy>(std::move(problem));
}

}  // namespace rooftune::host_reference_internal

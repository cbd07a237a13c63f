#include <cmath>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "kernels/host_reference_internal.h"

namespace rooftune::host_reference_internal {
namespace {

class Reduce : public HostReference {
 public:
  explicit Reduce(Problem problem)
      : p_(std::move(problem)),
        cols_(p_.Name("cols")),
        terms_(p_.Name("terms")),
        by_column_(p_.Name("axis") == p_.Name("AXIS_COL")),
        kind_(p_.Name("kind")),
        x_(p_.Find("x")) {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    std::vector<ReferenceValue> values;
    values.reserve(indices.size());
    for (const int64_t output : indices) values.push_back(tensor == "variance" ? Variance(output) : Value(output));
    return values;
  }

 private:
  struct Sums {
    double sum = 0, size = 0, squares = 0;
    double maximum = -std::numeric_limits<double>::infinity();
    int64_t first = 0;  // place of the first largest
  };

  double Element(int64_t output, int64_t i) const {
    return p_.Input(x_, by_column_ ? i * cols_ + output : output * cols_ + i);
  }

  Sums Sum(int64_t output) const {
    Sums s;
    for (int64_t i = 0; i < terms_; ++i) {
      const double x = Element(output, i);
      s.sum += x;
      s.size += std::fabs(x);
      s.squares += x * x;
      if (x > s.maximum) {
        s.maximum = x;
        s.first = i;
      }
    }
    return s;
  }

  ReferenceValue Value(int64_t output) const {
    const Sums s = Sum(output);
    const double terms = static_cast<double>(terms_);
    if (kind_ == p_.Name("KIND_SUM")) return {s.sum, s.size};
    if (kind_ == p_.Name("KIND_MAX")) return {s.maximum, std::fabs(s.maximum)};
    if (kind_ == p_.Name("KIND_ARGMAX")) return {static_cast<double>(s.first), 0};
    return {s.sum / terms, s.size / terms};
  }

  // In two passes: one would lose the digits that mean² and mean(x²) have in common.
  ReferenceValue Variance(int64_t output) const {
    const Sums s = Sum(output);
    const double terms = static_cast<double>(terms_);
    const double mean = s.sum / terms;
    double spread = 0;
    for (int64_t i = 0; i < terms_; ++i) spread += (Element(output, i) - mean) * (Element(output, i) - mean);
    return {spread / terms, s.squares / terms + mean * mean};
  }

  const Problem p_;
  const int64_t cols_, terms_;
  const bool by_column_;
  const int64_t kind_;
  const int x_;
};

}  // namespace

std::unique_ptr<HostReference> MakeReduce(Problem problem) { return std::make_unique<Reduce>(std::move(problem)); }

}  // namespace rooftune::host_reference_internal

// Row operators (softmax, rmsnorm) and elementwise chains.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "costmodel/chain.h"
#include "kernels/host_reference_internal.h"

namespace rooftune::host_reference_internal {
namespace {

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

class Softmax : public HostReference {
 public:
  explicit Softmax(Problem problem) : p_(std::move(problem)), columns_(p_.Name("cols")), x_(p_.Find("x")) {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    double maximum = 0, sum = 0;
    const auto row_begins = [&](int64_t row) {
      maximum = -std::numeric_limits<double>::infinity();
      sum = 0;
      // One pass: the sum is rescaled when a larger element turns up, so that no row has to be stored.
      for (int64_t j = 0; j < columns_; ++j) {
        const double x = p_.Input(x_, row * columns_ + j);
        if (x > maximum) {
          sum *= std::exp(maximum - x);
          maximum = x;
        }
        sum += std::exp(x - maximum);
      }
    };
    return ByRows(indices, columns_, row_begins, [&](int64_t index) {
      const double y = std::exp(p_.Input(x_, index) - maximum) / sum;
      return ReferenceValue{y, y};
    });
  }

 private:
  const Problem p_;
  const int64_t columns_;
  const int x_;
};

class Rmsnorm : public HostReference {
 public:
  explicit Rmsnorm(Problem problem)
      : p_(std::move(problem)),
        columns_(p_.Name("cols")),
        x_(p_.Find("x")),
        residual_(p_.Find("residual")),
        weight_(p_.Find("weight")) {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    if (tensor == "residual_out") {
      std::vector<ReferenceValue> values;
      values.reserve(indices.size());
      for (const int64_t index : indices) {
        values.push_back({Summed(index), std::fabs(p_.Input(x_, index)) + std::fabs(p_.Input(residual_, index))});
      }
      return values;
    }
    double scale = 0;
    const auto row_begins = [&](int64_t row) {
      double squares = 0;
      for (int64_t j = 0; j < columns_; ++j) {
        const double s = Summed(row * columns_ + j);
        squares += s * s;
      }
      scale = 1.0 / std::sqrt(squares / static_cast<double>(columns_) + p_.scalars.at("eps"));
    };
    return ByRows(indices, columns_, row_begins, [&](int64_t index) {
      const double y = Summed(index) * scale * p_.Input(weight_, index % columns_);
      return ReferenceValue{y, std::fabs(y)};
    });
  }

 private:
  // The normalised tensor: x, or x + residual rounded to dtype (added in fp32, as the definition says).
  double Summed(int64_t index) const {
    const double x = p_.Input(x_, index);
    if (residual_ < 0) return x;
    const float sum = static_cast<float>(x) + static_cast<float>(p_.Input(residual_, index));
    return RoundToDType(sum, p_.tensors[x_].spec.dtype());
  }

  const Problem p_;
  const int64_t columns_;
  const int x_, residual_, weight_;
};

class Elementwise : public HostReference {
 public:
  explicit Elementwise(Problem problem)
      : p_(std::move(problem)), program_(p_.op.lists.at("chain")), inputs_(static_cast<int>(p_.Name("chain_inputs"))) {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    std::vector<ReferenceValue> values;
    values.reserve(indices.size());
    double inputs[kChainMaxInputs] = {};
    for (const int64_t index : indices) {
      // The inputs are the first tensors of the instance.
      for (int t = 0; t < inputs_; ++t) inputs[t] = p_.Input(t, index);
      const ChainValue v = EvalChain(program_, inputs);
      values.push_back({v.value, v.magnitude});
    }
    return values;
  }

 private:
  const Problem p_;
  const std::vector<int64_t> program_;
  const int inputs_;
};

}  // namespace

std::unique_ptr<HostReference> MakeSoftmax(Problem problem) { return std::make_unique<Softmax>(std::move(problem)); }
std::unique_ptr<HostReference> MakeRmsnorm(Problem problem) { return std::make_unique<Rmsnorm>(std::move(problem)); }
std::unique_ptr<HostReference> MakeElementwise(Problem problem) {
  return std::make_unique<Elementwise>(std::move(problem));
}

}  // namespace rooftune::host_reference_internal

// Softmax, gated linear units and elementwise chains.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "costmodel/chain.h"
#include "kernels/host_reference_internal.h"

namespace rooftune::host_reference_internal {
namespace {

// Softmax and log-softmax of t = scale·x + mask over the columns that a row attends to.
class Softmax : public HostReference {
 public:
  explicit Softmax(Problem problem)
      : p_(std::move(problem)),
        rows_(p_.Name("rows")),
        columns_(p_.Name("cols")),
        x_(p_.Find("x")),
        mask_(p_.Find("mask")),
        log_(p_.Name("log") == 1),
        causal_(p_.Name("causal") == 1) {
    const auto scale = p_.scalars.find("scale");
    scaled_ = scale != p_.scalars.end();
    if (scaled_) scale_ = scale->second;
  }

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    double maximum = 0, sum = 0;
    const auto row_begins = [&](int64_t row) {
      maximum = -std::numeric_limits<double>::infinity();
      sum = 0;
      // One pass: the sum is rescaled when a larger element turns up, so that no row has to be stored.
      for (int64_t j = 0; j < Attended(row); ++j) {
        const double t = Term(row * columns_ + j);
        if (t > maximum) {
          sum *= std::exp(maximum - t);
          maximum = t;
        }
        sum += std::exp(t - maximum);
      }
    };
    return ByRows(indices, columns_, row_begins, [&](int64_t index) { return Element(index, maximum, sum); });
  }

 private:
  int64_t Attended(int64_t row) const { return causal_ ? row + 1 + columns_ - rows_ : columns_; }

  double Term(int64_t index) const {
    const double x = scale_ * p_.Input(x_, index);
    return mask_ < 0 ? x : x + p_.Input(mask_, index);
  }

  ReferenceValue Element(int64_t index, double maximum, double sum) const {
    if (index % columns_ >= Attended(index / columns_)) {
      return {log_ ? -std::numeric_limits<double>::infinity() : 0.0, 0.0};
    }
    const double t = Term(index);
    if (log_) {
      const double log_sum = std::log(sum);
      // The sum's rounding is an absolute error of its logarithm.
      return {t - maximum - log_sum, std::fabs(t) + std::fabs(maximum) + std::fabs(log_sum) + 1};
    }
    const double y = std::exp(t - maximum) / sum;
    // t made by arithmetic carries the rounding of its size into the exponent.
    const bool rounded = (scaled_ || mask_ >= 0) && y > 0;
    return {y, rounded ? y * (1 + std::fabs(t) + std::fabs(maximum)) : y};
  }

  const Problem p_;
  const int64_t rows_, columns_;
  const int x_, mask_;
  const bool log_, causal_;
  bool scaled_ = false;
  double scale_ = 1;
};

// act(gate) · up, or that over the scale of its row.
class Glu : public HostReference {
 public:
  explicit Glu(Problem problem)
      : p_(std::move(problem)),
        columns_(p_.Name("cols")),
        packed_(p_.Name("packed") == 1),
        silu_(p_.Name("act") == p_.Name("ACT_SILU")),
        limit_(p_.QuantLimit()) {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    ReferenceValue scale;
    const bool scales = tensor == "scale";
    return ByRows(
        indices, scales ? 1 : columns_,
        [&](int64_t row) {
          scale = limit_ == 0 ? ReferenceValue{1, 0} : Scale(row);
        },
        [&](int64_t index) { return scales ? scale : Over(Element(index), scale); });
  }

  int CheckCount(const std::string& tensor, int count) const override {
    return tensor == "scale" ? RowsOfCheck(count) : count;
  }

 private:
  ReferenceValue Element(int64_t index) const {
    // Packed: the row's gate half, then its up half.
    const int64_t at = index + index / columns_ * columns_;
    const double gate = packed_ ? p_.Input(0, at) : p_.Input(0, index);
    const double up = packed_ ? p_.Input(0, at + columns_) : p_.Input(1, index);
    // Both are gate / (1 + e^−z); the tanh form of GELU has z = 2·√(2/π)·(g + 0.044715·g³).
    const double z = silu_ ? gate : 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate);
    const double y = gate / (1.0 + std::exp(-z)) * up;
    // The rounding of z scales with its size and moves the exponential by as much, relatively.
    return {y, std::fabs(y) * (1 + std::fabs(z))};
  }

  ReferenceValue Scale(int64_t row) const {
    ReferenceValue scale;
    for (int64_t j = 0; j < columns_; ++j) {
      const ReferenceValue y = Element(row * columns_ + j);
      scale.value = std::max(scale.value, std::fabs(y.value) / limit_);
      scale.magnitude = std::max(scale.magnitude, y.magnitude / limit_);
    }
    return scale;
  }

  // The scale's own error moves every element of the row by as much, relatively.
  static ReferenceValue Over(const ReferenceValue& y, const ReferenceValue& scale) {
    if (scale.value == 0) return {};
    const double value = y.value / scale.value;
    return {value, y.magnitude / scale.value + std::fabs(value) * scale.magnitude / scale.value};
  }

  const Problem p_;
  const int64_t columns_;
  const bool packed_, silu_;
  const double limit_;
};

class Elementwise : public HostReference {
 public:
  explicit Elementwise(Problem problem)
      : p_(std::move(problem)),
        program_(p_.op.lists.at("chain")),
        axes_(p_.op.lists.at("chain_axes")),
        extent_{p_.Name("n"), p_.Name("d1"), p_.Name("d2"), p_.Name("d3")} {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    std::vector<ReferenceValue> values;
    values.reserve(indices.size());
    double inputs[kChainMaxInputs] = {};
    for (const int64_t index : indices) {
      // The inputs are the first tensors of the instance.
      for (size_t t = 0; t < axes_.size(); ++t) inputs[t] = p_.Input(static_cast<int>(t), Offset(axes_[t], index));
      const ChainValue v = EvalChain(program_, inputs);
      values.push_back({v.value, v.magnitude});
    }
    return values;
  }

 private:
  // Where an input that has these axes holds what the result's element number `index` needs.
  int64_t Offset(int64_t axes, int64_t index) const {
    int64_t offset = 0, stride = 1;
    for (int axis = kChainMaxAxes; axis-- > 0; index /= extent_[axis]) {
      if ((axes >> axis & 1) == 0) continue;
      offset += index % extent_[axis] * stride;
      stride *= extent_[axis];
    }
    return offset;
  }

  const Problem p_;
  const std::vector<int64_t> program_, axes_;
  const std::array<int64_t, kChainMaxAxes> extent_;
};

}  // namespace

std::unique_ptr<HostReference> MakeSoftmax(Problem problem) { return std::make_unique<Softmax>(std::move(problem)); }
std::unique_ptr<HostReference> MakeGlu(Problem problem) { return std::make_unique<Glu>(std::move(problem)); }
std::unique_ptr<HostReference> MakeElementwise(Problem problem) {
  return std::make_unique<Elementwise>(std::move(problem));
}

}  // namespace rooftune::host_reference_internal

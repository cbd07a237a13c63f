// RMS norm and LayerNorm.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "kernels/host_reference_internal.h"

namespace rooftune::host_reference_internal {
namespace {

class Norm : public HostReference {
 public:
  Norm(Problem problem, bool center)
      : p_(std::move(problem)),
        columns_(p_.Name("cols")),
        x_(p_.Find("x")),
        residual_(p_.Find("residual")),
        weight_(p_.Find("weight")),
        bias_(p_.Find("bias")),
        center_(center),
        pre_(p_, "pre"),
        act_(p_, "act"),
        limit_(p_.QuantLimit()) {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    if (tensor == "residual_out") {
      std::vector<ReferenceValue> values;
      values.reserve(indices.size());
      for (const int64_t index : indices) {
        values.push_back({Normalised(index), std::fabs(p_.Input(x_, index)) + std::fabs(p_.Input(residual_, index))});
      }
      return values;
    }
    Row row;
    if (tensor == "scale") {
      return ByRows(
          indices, 1, [&](int64_t number) { row = RowOf(number); },
          [&](int64_t) {
            return ReferenceValue{row.scale, row.largest_magnitude / limit_};
          });
    }
    return ByRows(
        indices, columns_, [&](int64_t number) { row = RowOf(number); },
        [&](int64_t index) { return limit_ == 0 ? Element(row, index) : Quantised(row, index); });
  }

  int CheckCount(const std::string& tensor, int count) const override {
    return tensor == "scale" ? RowsOfCheck(count) : count;
  }

 private:
  // What the elements of a row share.
  struct Row {
    double mean = 0;
    // What errors of the mean scale with: sums of differences from about the mean, and 8 units in the last place of the
    // mean itself, in which the row's length, which the bound multiplies this with, has no part.
    double around = 0;
    double factor = 0;  // 1 / √(variance + eps)
    // With 8-bit output: the largest magnitude of an element, and the scale.
    double largest_magnitude = 0;
    double scale = 0;
  };

  // The tensor that is normalised: pre(x), or pre of x + residual, which is added in fp32 and rounded to dtype, as the
  // definition says.
  double Normalised(int64_t index) const {
    const double x = p_.Input(x_, index);
    if (residual_ < 0) return pre_(x);
    const float sum = static_cast<float>(x) + static_cast<float>(p_.Input(residual_, index));
    return pre_(RoundToDType(sum, p_.tensors[x_].spec.dtype()));
  }

  Row RowOf(int64_t number) const {
    const double count = static_cast<double>(columns_);
    Row row;
    for (int64_t j = 0; center_ && j < columns_; ++j) {
      row.mean += Normalised(number * columns_ + j) / count;
    }
    if (center_) row.around = std::fabs(row.mean) * 8 / (8 + 4 * std::sqrt(count));
    double squares = 0;
    for (int64_t j = 0; j < columns_; ++j) {
      const double difference = Normalised(number * columns_ + j) - row.mean;
      squares += difference * difference;
      if (center_) row.around += std::fabs(difference) / count;
    }
    row.factor = 1.0 / std::sqrt(squares / count + p_.scalars.at("eps"));
    for (int64_t j = 0; limit_ != 0 && j < columns_; ++j) {
      const ReferenceValue y = Element(row, number * columns_ + j);
      row.scale = std::max(row.scale, std::fabs(y.value) / limit_);
      row.largest_magnitude = std::max(row.largest_magnitude, y.magnitude);
    }
    return row;
  }

  ReferenceValue Element(const Row& row, int64_t index) const {
    const double h = Normalised(index);
    const double weight = p_.Input(weight_, index % columns_);
    const double bias = bias_ < 0 ? 0 : p_.Input(bias_, index % columns_);
    const double y = (h - row.mean) * row.factor * weight + bias;
    // The mean's error enters every element.
    const double magnitude = (std::fabs(h - row.mean) + row.around) * row.factor * std::fabs(weight) + std::fabs(bias);
    return {act_(y), magnitude};
  }

  ReferenceValue Quantised(const Row& row, int64_t index) const {
    if (row.scale == 0) return {};
    const ReferenceValue y = Element(row, index);
    const double value = y.value / row.scale;
    // The scale's own error moves every element of the row by as much, relatively.
    return {value, y.magnitude / row.scale + std::fabs(value) * row.largest_magnitude / (row.scale * limit_)};
  }

  const Problem p_;
  const int64_t columns_;
  const int x_, residual_, weight_, bias_;
  const bool center_;
  const Activation pre_, act_;
  const double limit_;
};

}  // namespace

std::unique_ptr<HostReference> MakeNorm(Problem problem, bool center) {
  return std::make_unique<Norm>(std::move(problem), center);
}

}  // namespace rooftune::host_reference_internal

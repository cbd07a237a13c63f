// Quantisation with scales of tensors, rows, blocks and groups, and back.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "kernels/host_reference_internal.h"

namespace rooftune::host_reference_internal {
namespace {

// How the scales lie: one for `group_rows` rows and `group` columns.
class Grid {
 public:
  explicit Grid(const Problem& p)
      : rows_(p.Name("rows")),
        cols_(p.Name("cols")),
        group_rows_(p.Name("group_rows")),
        group_(p.Name("group")),
        column_(p.Name("scale_layout") == p.Name("SCALE_LAYOUT_COL")) {}

  int64_t cols() const { return cols_; }
  // Number of the scale of an element.
  int64_t ScaleOf(int64_t index) const {
    const int64_t row = index / cols_ / group_rows_, column = index % cols_ / group_;
    return column_ ? column * Padded() + row : row * Groups() + column;
  }
  // The rectangle of elements of a scale; empty in the padding.
  struct Part {
    int64_t first_row, end_row, first_column, end_column;
  };
  Part PartOf(int64_t scale) const {
    const int64_t row = (column_ ? scale % Padded() : scale / Groups()) * group_rows_;
    const int64_t column = (column_ ? scale / Padded() : scale % Groups()) * group_;
    return {row, std::min(row + group_rows_, rows_), column, std::min(column + group_, cols_)};
  }

 private:
  int64_t Padded() const { return (rows_ + 3) / 4 * 4; }
  int64_t Groups() const { return (cols_ + group_ - 1) / group_; }

  const int64_t rows_, cols_, group_rows_, group_;
  const bool column_;
};

class Quantize : public HostReference {
 public:
  explicit Quantize(Problem problem)
      : p_(std::move(problem)),
        grid_(p_),
        given_(p_.Find("scale")),
        pow2_(p_.Name("scale_pow2") == 1),
        limit_(static_cast<double>(p_.Name("limit"))) {
    // Integers reach one further down.
    const int64_t type = p_.Name("qtype");
    lowest_ = type == p_.Name("INT8") || type == p_.Name("INT4") ? -limit_ - 1 : -limit_;
  }

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    std::map<int64_t, double> scales;
    const auto scale_of = [&](int64_t number) {
      const auto [at, is_new] = scales.try_emplace(number);
      if (is_new) at->second = given_ >= 0 ? p_.Input(given_, 0) : Scale(number);
      return at->second;
    };
    std::vector<ReferenceValue> values;
    values.reserve(indices.size());
    for (const int64_t index : indices) {
      if (tensor == "scales") {
        const double scale = scale_of(index);
        values.push_back({scale, scale});
        continue;
      }
      const double scale = scale_of(grid_.ScaleOf(index));
      const double exact = scale > 0 ? p_.Input(kX, index) / scale : 0;
      values.push_back({std::clamp(exact, lowest_, limit_), std::fabs(exact)});
    }
    return values;
  }

 private:
  static constexpr int kX = 0;

  double Scale(int64_t number) const {
    const Grid::Part part = grid_.PartOf(number);
    if (part.first_row >= part.end_row) return 0;
    double largest = p_.scalars.at("amax_floor");
    for (int64_t row = part.first_row; row < part.end_row; ++row) {
      for (int64_t column = part.first_column; column < part.end_column; ++column) {
        largest = std::max(largest, std::fabs(p_.Input(kX, row * grid_.cols() + column)));
      }
    }
    if (!pow2_) return largest / limit_;
    double scale = 0x1p-126;
    while (scale * limit_ < largest) scale *= 2;
    return scale;
  }

  const Problem p_;
  const Grid grid_;
  const int given_;
  const bool pow2_;
  const double limit_;
  double lowest_ = 0;
};

class Dequantize : public HostReference {
 public:
  explicit Dequantize(Problem problem) : p_(std::move(problem)), grid_(p_) {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    std::vector<ReferenceValue> values;
    values.reserve(indices.size());
    for (const int64_t index : indices) {
      const double y = p_.Input(0, index) * p_.Input(1, grid_.ScaleOf(index));
      values.push_back({y, std::fabs(y)});
    }
    return values;
  }

 private:
  const Problem p_;
  const Grid grid_;
};

}  // namespace

std::unique_ptr<HostReference> MakeQuantize(Problem problem) { return std::make_unique<Quantize>(std::move(problem)); }
std::unique_ptr<HostReference> MakeDequantize(Problem problem) {
  return std::make_unique<Dequantize>(std::move(problem));
}

}  // namespace rooftune::host_reference_internal

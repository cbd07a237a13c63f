#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "costmodel/chain.h"
#include "kernels/host_reference_internal.h"

namespace rooftune::host_reference_internal {
namespace {

// Elements of K held at a time: bounds memory for any K, and keeps the rows in cache.
constexpr int64_t kDepth = 2048;

class Gemm : public HostReference {
 public:
  explicit Gemm(Problem problem)
      : p_(std::move(problem)),
        m_(p_.Name("m")),
        n_(p_.Name("n")),
        k_(p_.Name("k")),
        a_transposed_(p_.Name("layout") == p_.Name("LAYOUT_TN") || p_.Name("layout") == p_.Name("LAYOUT_TT")),
        b_transposed_(p_.Name("layout") == p_.Name("LAYOUT_NT") || p_.Name("layout") == p_.Name("LAYOUT_TT")),
        a_(p_.Find("a")),
        b_(p_.Find("b")),
        c_(p_.Find("c")),
        scale_a_(p_.Find("scale_a")),
        scale_b_(p_.Find("scale_b")),
        scale_rows_(p_.Name("scale") == p_.Name("SCALE_ROW")),
        blocks_k_(p_.Name("scale") == p_.Name("SCALE_BLOCK128") ? (k_ + 127) / 128 : 0),
        bias_(p_.Find("bias")) {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    // Rows of A (batch·m + row) and columns of B (batch·n + column) in use, and each element's places among them.
    std::map<int64_t, size_t> rows, columns;
    for (const int64_t index : indices) {
      rows.emplace(RowOf(index), 0);
      columns.emplace(ColumnOf(index), 0);
    }
    size_t next = 0;
    for (auto& [row, place] : rows) place = next++;
    next = 0;
    for (auto& [column, place] : columns) place = next++;
    std::vector<ReferenceValue> sums(indices.size());
    std::vector<double> a(rows.size() * kDepth), b(columns.size() * kDepth);
    for (int64_t k = 0; k < k_; k += kDepth) {
      const int64_t depth = std::min(kDepth, k_ - k);
      for (const auto& [row, place] : rows) FillA(row, k, depth, &a[place * kDepth]);
      for (const auto& [column, place] : columns) FillB(column, k, depth, &b[place * kDepth]);
      for (size_t i = 0; i < indices.size(); ++i) {
        AddProducts(&a[rows.at(RowOf(indices[i])) * kDepth], &b[columns.at(ColumnOf(indices[i])) * kDepth], depth,
                    &sums[i]);
      }
    }
    for (size_t i = 0; i < indices.size(); ++i) sums[i] = Epilogue(sums[i], indices[i]);
    return sums;
  }

 private:
  int64_t RowOf(int64_t index) const { return index / n_; }
  int64_t ColumnOf(int64_t index) const { return index / n_ / m_ * n_ + index % n_; }

  void FillA(int64_t row, int64_t k, int64_t depth, double* out) const {
    const int64_t batch = row / m_, i = row % m_;
    for (int64_t j = 0; j < depth; ++j) {
      out[j] = p_.Input(a_, batch * m_ * k_ + (a_transposed_ ? (k + j) * m_ + i : i * k_ + k + j));
      if (blocks_k_ > 0) out[j] *= p_.Input(scale_a_, i * blocks_k_ + (k + j) / 128);
    }
  }

  void FillB(int64_t column, int64_t k, int64_t depth, double* out) const {
    const int64_t batch = column / n_, i = column % n_;
    for (int64_t j = 0; j < depth; ++j) {
      out[j] = p_.Input(b_, batch * n_ * k_ + (b_transposed_ ? i * k_ + k + j : (k + j) * n_ + i));
      if (blocks_k_ > 0) out[j] *= p_.Input(scale_b_, i / 128 * blocks_k_ + (k + j) / 128);
    }
  }

  static void AddProducts(const double* a, const double* b, int64_t depth, ReferenceValue* sum) {
    double value = sum->value, magnitude = sum->magnitude;
    for (int64_t j = 0; j < depth; ++j) {
      const double product = a[j] * b[j];
      value += product;
      magnitude += std::fabs(product);
    }
    *sum = {value, magnitude};
  }

  ReferenceValue Epilogue(ReferenceValue sum, int64_t index) const {
    double alpha = p_.scalars.at("alpha");
    if (scale_a_ >= 0 && blocks_k_ == 0) alpha *= p_.Input(scale_a_, scale_rows_ ? index / n_ : 0);
    if (scale_b_ >= 0 && blocks_k_ == 0) alpha *= p_.Input(scale_b_, scale_rows_ ? index % n_ : 0);
    ReferenceValue r = {alpha * sum.value, std::fabs(alpha) * sum.magnitude};
    const auto add = [&r](double term) {
      r.value += term;
      r.magnitude += std::fabs(term);
    };
    if (c_ >= 0) add(p_.scalars.at("beta_value") * p_.Input(c_, index));
    if (bias_ >= 0) add(p_.Input(bias_, index % n_));
    // The magnitude stays that of the terms: no activation enlarges an error by more than 1.13.
    const ChainValue operands[3] = {{r.value, r.magnitude}, {}, {}};
    const int64_t act = p_.Name("act");
    if (act == p_.Name("ACT_RELU")) r.value = ApplyChainOp(ChainOp::kRelu, operands).value;
    if (act == p_.Name("ACT_GELU")) r.value = ApplyChainOp(ChainOp::kGelu, operands).value;
    if (act == p_.Name("ACT_SILU")) r.value = ApplyChainOp(ChainOp::kSilu, operands).value;
    return r;
  }

  const Problem p_;
  const int64_t m_, n_, k_;
  const bool a_transposed_, b_transposed_;
  // Tensor numbers; -1 where the instance has none.
  const int a_, b_, c_, scale_a_, scale_b_;
  const bool scale_rows_;
  const int64_t blocks_k_;  // 0 unless scales are of blocks
  const int bias_;
};

}  // namespace

std::unique_ptr<HostReference> MakeGemm(Problem problem) { return std::make_unique<Gemm>(std::move(problem)); }

}  // namespace rooftune::host_reference_internal

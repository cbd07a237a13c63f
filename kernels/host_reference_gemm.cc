#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "kernels/host_reference_internal.h"

namespace rooftune::host_reference_internal {
namespace {

// Elements of K held at a time: bounds memory for any K, and keeps the rows in cache.
constexpr int64_t kDepth = 2048;

// Σ a·b for every index and Σ |a·b|. `row_of` and `column_of` give the vectors that an index needs;
// `fill_a(row, k, depth, out)` and `fill_b(column, k, depth, out)` give elements k and up of one.
template <typename RowOf, typename ColumnOf, typename FillA, typename FillB>
std::vector<ReferenceValue> SumProducts(const std::vector<int64_t>& indices, int64_t length, RowOf row_of,
                                        ColumnOf column_of, FillA fill_a, FillB fill_b) {
  // The vectors in use, and each one's place among them.
  std::map<int64_t, size_t> rows, columns;
  for (const int64_t index : indices) {
    rows.emplace(row_of(index), 0);
    columns.emplace(column_of(index), 0);
  }
  size_t next = 0;
  for (auto& [row, place] : rows) place = next++;
  next = 0;
  for (auto& [column, place] : columns) place = next++;
  std::vector<ReferenceValue> sums(indices.size());
  std::vector<double> a(rows.size() * kDepth), b(columns.size() * kDepth);
  for (int64_t k = 0; k < length; k += kDepth) {
    const int64_t depth = std::min(kDepth, length - k);
    for (const auto& [row, place] : rows) fill_a(row, k, depth, &a[place * kDepth]);
    for (const auto& [column, place] : columns) fill_b(column, k, depth, &b[place * kDepth]);
    for (size_t i = 0; i < indices.size(); ++i) {
      const double* const x = &a[rows.at(row_of(indices[i])) * kDepth];
      const double* const y = &b[columns.at(column_of(indices[i])) * kDepth];
      for (int64_t j = 0; j < depth; ++j) {
        const double product = x[j] * y[j];
        sums[i].value += product;
        sums[i].magnitude += std::fabs(product);
      }
    }
  }
  return sums;
}

class Gemm : public HostReference {
 public:
  explicit Gemm(Problem problem)
      : p_(std::move(problem)),
        m_(p_.Name("m")),
        n_(p_.Name("n")),
        k_(p_.Name("k")),
        a_transposed_(p_.Name("layout") == p_.Name("LAYOUT_TN") || p_.Name("layout") == p_.Name("LAYOUT_TT")),
        b_transposed_(p_.Name("layout") == p_.Name("LAYOUT_NT") || p_.Name("layout") == p_.Name("LAYOUT_TT")),
        pitch_a_(Pitch("lda", a_transposed_ ? m_ : k_)),
        pitch_b_(Pitch("ldb", b_transposed_ ? k_ : n_)),
        a_(p_.Find("a")),
        b_(p_.Find("b")),
        c_(p_.Find("c")),
        scale_a_(p_.Find("scale_a")),
        scale_b_(p_.Find("scale_b")),
        scale_rows_(p_.Name("scale") == p_.Name("SCALE_ROW")),
        blocks_k_(p_.Name("scale") == p_.Name("SCALE_BLOCK128") ? (k_ + 127) / 128 : 0),
        act_(p_, "act"),
        scale_d_(p_.Find("scale_d")),
        bias_(p_.Find("bias")) {
    // As gemm.op.txtpb has it: 8-bit results are clamped to the range of their type.
    if (scale_d_ < 0) return;
    const int64_t out = p_.Name("out");
    limit_ = out == p_.Name("OUT_FP8_E4M3") ? 448 : out == p_.Name("OUT_FP8_E5M2") ? 57344 : 127;
    lowest_ = out == p_.Name("OUT_INT8") ? -128 : -limit_;
  }

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    // Rows of A (batch·m + row) and columns of B (batch·n + column).
    std::vector<ReferenceValue> sums = SumProducts(
        indices, k_, [this](int64_t index) { return index / n_; },
        [this](int64_t index) { return index / n_ / m_ * n_ + index % n_; },
        [this](int64_t row, int64_t k, int64_t depth, double* out) { FillA(row, k, depth, out); },
        [this](int64_t column, int64_t k, int64_t depth, double* out) { FillB(column, k, depth, out); });
    for (size_t i = 0; i < indices.size(); ++i) sums[i] = Epilogue(sums[i], indices[i]);
    return sums;
  }

 private:
  int64_t Pitch(const char* attribute, int64_t packed) const {
    const int64_t pitch = p_.Name(attribute);
    return pitch > 0 ? pitch : packed;
  }

  void FillA(int64_t row, int64_t k, int64_t depth, double* out) const {
    const int64_t batch = row / m_, i = row % m_;
    for (int64_t j = 0; j < depth; ++j) {
      out[j] = p_.Input(a_, batch * (a_transposed_ ? k_ : m_) * pitch_a_ +
                                (a_transposed_ ? (k + j) * pitch_a_ + i : i * pitch_a_ + k + j));
      if (blocks_k_ > 0) out[j] *= p_.Input(scale_a_, i * blocks_k_ + (k + j) / 128);
    }
  }

  void FillB(int64_t column, int64_t k, int64_t depth, double* out) const {
    const int64_t batch = column / n_, i = column % n_;
    for (int64_t j = 0; j < depth; ++j) {
      out[j] = p_.Input(b_, batch * (b_transposed_ ? n_ : k_) * pitch_b_ +
                                (b_transposed_ ? i * pitch_b_ + k + j : (k + j) * pitch_b_ + i));
      if (blocks_k_ > 0) out[j] *= p_.Input(scale_b_, i / 128 * blocks_k_ + (k + j) / 128);
    }
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
    r.value = act_(r.value);
    if (scale_d_ < 0) return r;
    const double scale = p_.Input(scale_d_, 0);
    return {std::clamp(r.value * scale, lowest_, limit_), r.magnitude * std::fabs(scale)};
  }

  const Problem p_;
  const int64_t m_, n_, k_;
  const bool a_transposed_, b_transposed_;
  const int64_t pitch_a_, pitch_b_;
  // Tensor numbers; -1 where the instance has none.
  const int a_, b_, c_, scale_a_, scale_b_;
  const bool scale_rows_;
  const int64_t blocks_k_;  // 0 unless scales are of blocks
  const Activation act_;
  const int scale_d_, bias_;
  double limit_ = 0, lowest_ = 0;
};

// Weights of 4 or 8 bits; the layout is in costmodel/ops/gemm_wq.op.txtpb.
class GemmWq : public HostReference {
 public:
  explicit GemmWq(Problem problem)
      : p_(std::move(problem)),
        n_(p_.Name("n")),
        k_(p_.Name("k")),
        bits_(p_.Name("weight")),
        groups_(p_.Name("groups")),
        x_(p_.Find("x")),
        w_(p_.Find("w")),
        scales_(p_.Find("scales")),
        zeros_(p_.Find("zeros")),
        bias_(p_.Find("bias")),
        act_(p_, "act") {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    std::vector<ReferenceValue> sums = SumProducts(
        indices, k_, [this](int64_t index) { return index / n_; }, [this](int64_t index) { return index % n_; },
        [this](int64_t row, int64_t k, int64_t depth, double* out) {
          for (int64_t j = 0; j < depth; ++j) out[j] = p_.Input(x_, row * k_ + k + j);
        },
        [this](int64_t column, int64_t k, int64_t depth, double* out) { FillWeights(column, k, depth, out); });
    for (size_t i = 0; i < indices.size(); ++i) {
      if (bias_ >= 0) {
        const double bias = p_.Input(bias_, indices[i] % n_);
        sums[i].value += bias;
        sums[i].magnitude += std::fabs(bias);
      }
      sums[i].value = act_(sums[i].value);
    }
    return sums;
  }

 private:
  void FillWeights(int64_t row, int64_t k, int64_t depth, double* out) const {
    const int64_t group = k_ / groups_;
    int64_t current = -1;
    double scale = 0, zero = 0;
    for (int64_t j = 0; j < depth; ++j) {
      const int64_t part = row * groups_ + (k + j) / group;
      if (part != current) {
        scale = p_.Input(scales_, part);
        zero = zeros_ >= 0 ? p_.Input(zeros_, part) : bits_ == 4 ? 8 : 0;
        current = part;
      }
      out[j] = (Code(row * k_ + k + j) - zero) * scale;
    }
  }

  double Code(int64_t element) const {
    if (bits_ == 8) return p_.Input(w_, element);
    const int byte = static_cast<int>(p_.Input(w_, element / 2)) & 0xFF;
    return element % 2 == 0 ? byte & 15 : byte >> 4;
  }

  const Problem p_;
  const int64_t n_, k_, bits_, groups_;
  // Tensor numbers; -1 where the instance has none.
  const int x_, w_, scales_, zeros_, bias_;
  const Activation act_;
};

// Ragged groups of rows, each with its expert's matrix; costmodel/ops/moe_gemm.op.txtpb.
class MoeGemm : public HostReference {
 public:
  explicit MoeGemm(Problem problem)
      : p_(std::move(problem)),
        n_(p_.Name("n")),
        k_(p_.Name("k")),
        masked_(p_.Name("layout") == p_.Name("LAYOUT_MASKED")),
        blocks_k_((k_ + 127) / 128),
        x_(p_.Find("x")),
        w_(p_.Find("w")),
        scale_x_(p_.Find("scale_x")),
        scale_w_(p_.Find("scale_w")),
        weights_(p_.Find("weights")),
        before_(p_.Find("y_masked")) {
    const int groups = p_.Find("groups"), slots = p_.Find("slots");
    for (int64_t e = 0; e < p_.tensors[groups].elements; ++e) {
      groups_.push_back(static_cast<int64_t>(p_.Input(groups, e)));
    }
    if (slots < 0) return;
    const bool gather = p_.Name("gather") == 1, scatter = p_.Name("scatter") == 1;
    sorted_.resize(p_.Name("m"));
    source_.resize(p_.Name("m"));
    for (int64_t t = 0; t < p_.Name("m"); ++t) {
      const int64_t slot = static_cast<int64_t>(p_.Input(slots, t)), row = scatter ? slot : t;
      sorted_[row] = t;
      source_[row] = gather ? slot / p_.Name("topk") : t;
    }
  }

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    // Rows that are computed; the others keep what they held.
    std::vector<int64_t> computed;
    for (const int64_t index : indices) {
      if (ExpertOf(index / n_) >= 0) computed.push_back(index);
    }
    const std::vector<ReferenceValue> sums = SumProducts(
        computed, k_, [this](int64_t index) { return SourceOf(index / n_); },
        [this](int64_t index) { return ExpertOf(index / n_) * n_ + index % n_; },
        [this](int64_t row, int64_t k, int64_t depth, double* out) {
          for (int64_t j = 0; j < depth; ++j) {
            out[j] = p_.Input(x_, row * k_ + k + j);
            if (scale_x_ >= 0) out[j] *= p_.Input(scale_x_, row * blocks_k_ + (k + j) / 128);
          }
        },
        [this](int64_t column, int64_t k, int64_t depth, double* out) {
          const int64_t block = column / n_ * ((n_ + 127) / 128) + column % n_ / 128;
          for (int64_t j = 0; j < depth; ++j) {
            out[j] = p_.Input(w_, column * k_ + k + j);
            if (scale_w_ >= 0) out[j] *= p_.Input(scale_w_, block * blocks_k_ + (k + j) / 128);
          }
        });
    std::vector<ReferenceValue> values;
    auto sum = sums.begin();
    for (const int64_t index : indices) {
      if (ExpertOf(index / n_) < 0) {
        const double kept = p_.Input(before_, index);
        values.push_back({kept, std::fabs(kept)});
        continue;
      }
      const double factor = weights_ >= 0 ? p_.Input(weights_, index / n_) : 1;
      values.push_back({factor * sum->value, std::fabs(factor) * sum->magnitude});
      ++sum;
    }
    return values;
  }

 private:
  // The expert of a row of y; -1 if the row is not computed.
  int64_t ExpertOf(int64_t row) const {
    if (masked_) {
      const int64_t rows_max = p_.Name("rows_max"), expert = row / rows_max;
      return row % rows_max < groups_[expert] ? expert : -1;
    }
    const int64_t t = sorted_.empty() ? row : sorted_[row];
    return std::upper_bound(groups_.begin(), groups_.end(), t) - groups_.begin() - 1;
  }
  // Its row of x.
  int64_t SourceOf(int64_t row) const { return source_.empty() ? row : source_[row]; }

  const Problem p_;
  const int64_t n_, k_;
  const bool masked_;
  const int64_t blocks_k_;
  // Tensor numbers; -1 where the instance has none.
  const int x_, w_, scale_x_, scale_w_, weights_, before_;
  // Offsets, or counts where masked.
  std::vector<int64_t> groups_;
  // Of every row of y, where rows are gathered or scattered: its place among the sorted rows, and its row of x.
  std::vector<int64_t> sorted_, source_;
};

}  // namespace

std::unique_ptr<HostReference> MakeGemm(Problem problem) { return std::make_unique<Gemm>(std::move(problem)); }
std::unique_ptr<HostReference> MakeMoeGemm(Problem problem) { return std::make_unique<MoeGemm>(std::move(problem)); }
std::unique_ptr<HostReference> MakeGemmWq(Problem problem) { return std::make_unique<GemmWq>(std::move(problem)); }

}  // namespace rooftune::host_reference_internal

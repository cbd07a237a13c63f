// Rotary position embedding, and the paged cache that it writes.
#include <cmath>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "kernels/host_reference_internal.h"

namespace rooftune::host_reference_internal {
namespace {

class Rope : public HostReference {
 public:
  explicit Rope(Problem problem)
      : p_(std::move(problem)),
        head_dim_(p_.Name("head_dim")),
        row_(p_.Name("heads_kv") * head_dim_),
        interleaved_(p_.Name("style") == p_.Name("STYLE_INTERLEAVED")) {
    const std::string suffix = p_.Name("inplace") == 1 ? "_inout" : "";
    q_ = p_.Find("q" + suffix);
    k_ = p_.Find("k" + suffix);
    const int slots = p_.Find("slots");
    for (int64_t token = 0; slots >= 0 && token < p_.Name("tokens"); ++token) {
      const int64_t slot = static_cast<int64_t>(p_.Input(slots, token));
      if (slot >= 0) token_of_[slot] = token;
    }
  }

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    std::vector<ReferenceValue> values;
    values.reserve(indices.size());
    for (const int64_t index : indices) {
      if (tensor == "k_cache" || tensor == "v_cache") {
        values.push_back(Cached(p_.Find(tensor), index, tensor == "k_cache"));
      } else {
        const bool is_q = tensor[0] == 'q';
        values.push_back(Rotated(is_q ? q_ : k_, index, is_q ? p_.Name("heads_q") * head_dim_ : row_));
      }
    }
    return values;
  }

 private:
  // Of an element in its head. The first of a pair has its partner behind it.
  struct Place {
    int64_t pair = 0;
    int64_t to_partner = 0;
  };
  Place PlaceOf(int64_t i) const {
    const int64_t half = head_dim_ / 2;
    if (interleaved_) return {i / 2, i % 2 == 0 ? 1 : -1};
    return {i % half, i < half ? half : -half};
  }

  ReferenceValue Rotated(int in, int64_t index, int64_t per_token) const {
    const Place place = PlaceOf(index % head_dim_);
    const int64_t angle = index / per_token * (head_dim_ / 2) + place.pair;
    const double own = p_.Input(in, index) * p_.Input(p_.Find("cos"), angle);
    const double other = p_.Input(in, index + place.to_partner) * p_.Input(p_.Find("sin"), angle);
    return {place.to_partner > 0 ? own - other : own + other, std::fabs(own) + std::fabs(other)};
  }

  // Element of a cache, which was there before or is a token's.
  ReferenceValue Cached(int cache, int64_t index, bool is_k) const {
    const auto token = token_of_.find(index / row_);
    const bool written = token != token_of_.end();
    const int64_t from = written ? token->second * row_ + index % row_ : index;
    if (written && is_k) return Rotated(k_, from, row_);
    const double value = p_.Input(written ? p_.Find("v") : cache, from);
    return {value, std::fabs(value)};
  }

  const Problem p_;
  const int64_t head_dim_;
  // Elements of k of one token.
  const int64_t row_;
  const bool interleaved_;
  // Tensor numbers.
  int q_ = 0, k_ = 0;
  std::map<int64_t, int64_t> token_of_;
};

}  // namespace

std::unique_ptr<HostReference> MakeRope(Problem problem) { return std::make_unique<Rope>(std::move(problem)); }

}  // namespace rooftune::host_reference_internal

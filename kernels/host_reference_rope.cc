#include <cmath>
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
        interleaved_(p_.Name("style") == p_.Name("STYLE_INTERLEAVED")) {}

  absl::StatusOr<std::vector<ReferenceValue>> Evaluate(const std::string& tensor,
                                                       const std::vector<int64_t>& indices) const override {
    RT_RETURN_IF_ERROR(p_.CheckOutput(tensor, indices));
    const bool is_q = tensor == "q_out";
    const int in = p_.Find(is_q ? "q" : "k"), cos = p_.Find("cos"), sin = p_.Find("sin");
    const int64_t per_token = p_.Name(is_q ? "heads_q" : "heads_kv") * head_dim_;
    std::vector<ReferenceValue> values;
    values.reserve(indices.size());
    for (const int64_t index : indices) {
      const Place place = PlaceOf(index % head_dim_);
      const int64_t angle = index / per_token * (head_dim_ / 2) + place.pair;
      const double own = p_.Input(in, index) * p_.Input(cos, angle);
      const double other = p_.Input(in, index + place.to_partner) * p_.Input(sin, angle);
      values.push_back({place.to_partner > 0 ? own - other : own + other, std::fabs(own) + std::fabs(other)});
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

  const Problem p_;
  const int64_t head_dim_;
  const bool interleaved_;
};

}  // namespace

std::unique_ptr<HostReference> MakeRope(Problem problem) { return std::make_unique<Rope>(std::move(problem)); }

}  // namespace rooftune::host_reference_internal

// The valid configurations of a template for one operator on one device.
//
// Constraints are checked as soon as the last name they use is bound, so that whole subtrees are cut:
// spaces of 10^8 points enumerate in about a second. Order: the first parameter varies slowest. A let that has no
// value (division by zero, overflow) rejects the point as a broken constraint does.
#ifndef ROOFTUNE_KERNELS_SEARCH_SPACE_H_
#define ROOFTUNE_KERNELS_SEARCH_SPACE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/manifest/v1/manifest.pb.h"
#include "expr/expression.h"
#include "kernels/candidate.h"

namespace rooftune {

struct SearchSpaceSpec {
  std::vector<manifest::v1::Param> params;
  std::vector<manifest::v1::Let> lets;
  std::vector<manifest::v1::Constraint> constraints;
  // Everything else that expressions see: op dims and attributes, device limits.
  Names fixed;
};

// Immutable, thread-safe.
class SearchSpace {
 public:
  // Enumerates. INVALID_ARGUMENT for an expression that does not parse or names something unknown, for more than
  // 64 parameters or 256 values of one; RESOURCE_EXHAUSTED (SPACE_TOO_LARGE) past `max_valid` valid points.
  static absl::StatusOr<SearchSpace> Create(const SearchSpaceSpec& spec, int64_t max_valid = 2'000'000);
  // Only the checks of Create that come before enumerating; values of `fixed` do not matter.
  static absl::Status Check(const SearchSpaceSpec& spec);

  // Product of the value counts, saturating at INT64_MAX.
  int64_t total_points() const { return total_points_; }
  int64_t size() const { return static_cast<int64_t>(points_.size() / (params_.empty() ? 1 : params_.size())); }
  // `index` in [0, size()).
  Config At(int64_t index) const;
  // -1 if the configuration is not a valid point.
  int64_t IndexOf(const Config& config) const;
  // The valid point that differs from `config` in the fewest parameters, first in order; -1 if there is none.
  int64_t Nearest(const Config& config) const;
  // Points rejected, by constraint name: "arithmetic" for values that do not exist, "when PARAM" for the points
  // left out because a parameter does not exist there. size() and these add up to total_points().
  const std::map<std::string, int64_t>& rejected() const { return rejected_; }
  // Name of the first constraint a configuration breaks (in the order they are checked, as in rejected()),
  // "unknown parameter …", "missing parameter …" or "value …" for a malformed one, or empty if it is valid.
  std::string WhyRejected(const Config& config) const;
  // The same without enumerating: for one question about a large space. Errors of Check.
  static absl::StatusOr<std::string> WhyRejected(const SearchSpaceSpec& spec, const Config& config);

 private:
  struct Compiled;
  class Enumerator;
  std::shared_ptr<const Compiled> compiled_;
  std::vector<std::string> params_;
  std::vector<std::vector<int64_t>> values_;
  // Positions into values_, one byte each, params_.size() a point.
  std::vector<uint8_t> points_;
  int64_t total_points_ = 0;
  std::map<std::string, int64_t> rejected_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_SEARCH_SPACE_H_

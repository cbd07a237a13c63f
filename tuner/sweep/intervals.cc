#include "tuner/sweep/intervals.h"

#include <algorithm>

namespace rooftune {
namespace {

// Sorted, without overlaps and empty ones.
Intervals Merged(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end());
  Intervals merged;
  for (const auto& [begin, end] : intervals) {
    if (end <= begin) continue;
    if (merged.empty() || begin > merged.back().second) {
      merged.emplace_back(begin, end);
    } else {
      merged.back().second = std::max(merged.back().second, end);
    }
  }
  return merged;
}

}  // namespace

absl::Duration Covered(Intervals intervals) {
  absl::Duration total;
  for (const auto& [begin, end] : Merged(std::move(intervals))) total += end - begin;
  return total;
}

absl::Duration CoveredByBoth(Intervals a, Intervals b) {
  a = Merged(std::move(a));
  b = Merged(std::move(b));
  absl::Duration total;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const absl::Time begin = std::max(a[i].first, b[j].first);
    const absl::Time end = std::min(a[i].second, b[j].second);
    if (end > begin) total += end - begin;
    ++(a[i].second < b[j].second ? i : j);
  }
  return total;
}

}  // namespace rooftune

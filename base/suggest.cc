#include "base/suggest.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace rooftune {

int EditDistance(absl::string_view a, absl::string_view b) {
  // Messages need no more, and hostile words must not cost quadratic time.
  constexpr size_t kMaxLength = 64;
  a = a.substr(0, kMaxLength);
  b = b.substr(0, kMaxLength);
  std::vector<int> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, row);
  }
  return previous[b.size()];
}

std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates) {
  int best = std::max<int>(1, static_cast<int>(word.size()) / 3) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    const int distance = EditDistance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string DidYouMean(absl::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace rooftune

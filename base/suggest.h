// "Did you mean …?" for misspelled words.
#ifndef ROOFTUNE_BASE_SUGGEST_H_
#define ROOFTUNE_BASE_SUGGEST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace rooftune {

// Insertions, deletions, substitutions and swaps of neighbours between two words; only the first 64 characters count.
int EditDistance(absl::string_view a, absl::string_view b);

// The candidate nearest to `word`, or empty if none is near enough (a third of its length, at least one edit).
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

// "; did you mean <nearest>?" or empty.
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace rooftune

#endif  // ROOFTUNE_BASE_SUGGEST_H_

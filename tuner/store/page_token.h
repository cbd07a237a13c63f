// Opaque page tokens: the position after which a listing goes on, bound to the listing and its filter.
#ifndef ROOFTUNE_TUNER_STORE_PAGE_TOKEN_H_
#define ROOFTUNE_TUNER_STORE_PAGE_TOKEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rooftune {

// `listing` names the listing and holds its filter: a token is good for that one alone. URL-safe.
std::string EncodePageToken(const std::string& listing, absl::Span<const int64_t> numbers,
                            const std::string& text = "");

struct PagePosition {
  std::vector<int64_t> numbers;
  std::string text;
};
// INVALID_ARGUMENT (BAD_PAGE_TOKEN) unless `token` was made for this listing with `count` numbers.
absl::StatusOr<PagePosition> DecodePageToken(const std::string& token, const std::string& listing, size_t count);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_PAGE_TOKEN_H_

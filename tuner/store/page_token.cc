#include "tuner/store/page_token.h"

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "base/sha256.h"

namespace rooftune {
namespace {

// First field of every token; another layout gets another number.
constexpr char kVersion[] = "1";
constexpr char kSeparator = '\n';

// Ties position and listing together; finds damage, keeps nobody out (tokens grant nothing).
std::string Check(const std::string& listing, absl::string_view body) {
  return Fingerprint().Add(listing).Add(body).Key().substr(0, 12);
}

absl::Status BadToken() {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_PAGE_TOKEN",
               "the page token is damaged or from another listing: start again without one");
}

}  // namespace

std::string EncodePageToken(const std::string& listing, absl::Span<const int64_t> numbers, const std::string& text) {
  const std::string body = absl::StrCat(absl::StrJoin(numbers, ","), "\n", text);
  return absl::WebSafeBase64Escape(absl::StrCat(kVersion, "\n", Check(listing, body), "\n", body));
}

absl::StatusOr<PagePosition> DecodePageToken(const std::string& token, const std::string& listing, size_t count) {
  std::string plain;
  if (!absl::WebSafeBase64Unescape(token, &plain)) return BadToken();
  const std::vector<std::string> fields = absl::StrSplit(plain, absl::MaxSplits(kSeparator, 3));
  if (fields.size() != 4 || fields[0] != kVersion) return BadToken();
  if (fields[1] != Check(listing, absl::StrCat(fields[2], "\n", fields[3]))) return BadToken();
  PagePosition position;
  position.text = fields[3];
  if (!fields[2].empty()) {
    for (const absl::string_view part : absl::StrSplit(fields[2], ',')) {
      int64_t number = 0;
      if (!absl::SimpleAtoi(part, &number)) return BadToken();
      position.numbers.push_back(number);
    }
  }
  if (position.numbers.size() != count) return BadToken();
  return position;
}

}  // namespace rooftune

#include "server/rpc_status.h"

#include "base/error.h"
#include "google/rpc/error_details.pb.h"

namespace rooftune {
namespace {

// The details travel in base64 (4/3) beside the message, percent-encoded (up to 3×); with these limits the
// sum stays below 8 KiB even for texts without a single ASCII letter.
constexpr size_t kMaxMessage = 1024;
constexpr size_t kMaxFact = 512;
constexpr size_t kMaxFacts = 1536;
constexpr int kRetryAfterSeconds = 1;

// Length of the valid UTF-8 sequence at the start of `text`, 0 if there is none. Overlong forms and
// surrogates are not told apart from valid ones further than their first byte allows.
size_t SequenceLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t length = 0;
  if (byte(0) < 0x80)
    length = 1;
  else if (byte(0) >= 0xc2 && byte(0) < 0xe0)
    length = 2;
  else if (byte(0) >= 0xe0 && byte(0) < 0xf0)
    length = 3;
  else if (byte(0) >= 0xf0 && byte(0) < 0xf5)
    length = 4;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (length == 3 && ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f))) return 0;
  if (length == 4 && ((byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f))) return 0;
  return length;
}

}  // namespace

std::string CleanText(absl::string_view text, size_t max_bytes) {
  static constexpr absl::string_view kMore = "…";
  std::string clean;
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (clean.size() + (length == 0 ? 1 : length) > max_bytes) {
      while (clean.size() + kMore.size() > max_bytes && !clean.empty()) {
        // Back over one whole character.
        while (!clean.empty() && (static_cast<unsigned char>(clean.back()) & 0xc0) == 0x80) clean.pop_back();
        if (!clean.empty()) clean.pop_back();
      }
      return max_bytes < kMore.size() ? clean : clean + std::string(kMore);
    }
    // NUL ends C strings in some clients.
    if (length == 0 || text[0] == '\0') {
      clean += '?';
      text.remove_prefix(1);
    } else {
      clean.append(text.data(), length);
      text.remove_prefix(length);
    }
  }
  return clean;
}

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status rpc;
  if (status.ok()) return rpc;
  rpc.set_code(static_cast<int>(status.code()));
  rpc.set_message(CleanText(status.message(), kMaxMessage));
  google::rpc::ErrorInfo info;
  info.set_domain(kErrorDomain);
  info.set_reason(CleanText(ErrorReason(status), 63));
  size_t bytes = 0;
  for (const auto& [key, value] : ErrorMetadata(status)) {
    const std::string clean = CleanText(value, kMaxFact);
    bytes += key.size() + clean.size();
    if (bytes > kMaxFacts) break;
    (*info.mutable_metadata())[CleanText(key, 64)] = clean;
  }
  rpc.add_details()->PackFrom(info);
  if (status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kResourceExhausted) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(kRetryAfterSeconds);
    rpc.add_details()->PackFrom(retry);
  }
  return rpc;
}

}  // namespace rooftune

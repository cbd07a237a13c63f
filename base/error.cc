#include "base/error.h"

#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace rooftune {
namespace {

constexpr char kReasonUrl[] = "rooftune.reason";
constexpr char kMetadataUrl[] = "rooftune.metadata";

}  // namespace

absl::Status Error(absl::StatusCode code, absl::string_view reason, absl::string_view message,
                   const std::map<std::string, std::string>& metadata) {
  absl::Status status(code, message);
  status.SetPayload(kReasonUrl, absl::Cord(reason));
  if (!metadata.empty()) {
    // Key and value lines alternate; NUL separates, as it can't occur in either.
    std::string packed;
    for (const auto& [key, value] : metadata) absl::StrAppend(&packed, key, std::string(1, '\0'), value, std::string(1, '\0'));
    status.SetPayload(kMetadataUrl, absl::Cord(packed));
  }
  return status;
}

std::string ErrorReason(const absl::Status& status) {
  const auto reason = status.GetPayload(kReasonUrl);
  if (reason.has_value()) return std::string(*reason);
  return absl::StatusCodeToString(status.code());
}

std::map<std::string, std::string> ErrorMetadata(const absl::Status& status) {
  std::map<std::string, std::string> metadata;
  const auto packed = status.GetPayload(kMetadataUrl);
  if (!packed.has_value()) return metadata;
  const std::vector<std::string> parts = absl::StrSplit(std::string(*packed), '\0');
  for (size_t i = 0; i + 1 < parts.size(); i += 2) metadata[parts[i]] = parts[i + 1];
  return metadata;
}

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { annotated.SetPayload(url, payload); });
  return annotated;
}

}  // namespace rooftune

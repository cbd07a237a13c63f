// Errors that carry a machine-readable reason beside the status code. The server turns the reason into
// google.rpc.ErrorInfo, the CLI into advice. Reasons are UPPER_SNAKE and listed in docs/errors.md.
#ifndef ROOFTUNE_BASE_ERROR_H_
#define ROOFTUNE_BASE_ERROR_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rooftune {

// A status of `code` with a reason and optional facts for programs ("field", "nearest", …).
absl::Status Error(absl::StatusCode code, absl::string_view reason, absl::string_view message,
                   const std::map<std::string, std::string>& metadata = {});

// The reason, or the code's name where none was given.
std::string ErrorReason(const absl::Status& status);

// The facts given to Error().
std::map<std::string, std::string> ErrorMetadata(const absl::Status& status);

// The same error with `context: ` before its message; keeps reason and facts.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

}  // namespace rooftune

#endif  // ROOFTUNE_BASE_ERROR_H_

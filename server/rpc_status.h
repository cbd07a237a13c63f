// The one way from absl::Status to google.rpc.Status: every error carries an ErrorInfo.
#ifndef ROOFTUNE_SERVER_RPC_STATUS_H_
#define ROOFTUNE_SERVER_RPC_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace rooftune {

inline constexpr char kErrorDomain[] = "rooftune";

// Code, message and one ErrorInfo (domain "rooftune", the reason, the facts); RetryInfo as well where
// trying again later can help. Texts are cut and made valid UTF-8 so that all of it fits the 8 KiB of
// metadata that gRPC clients accept by default.
google::rpc::Status ToRpcStatus(const absl::Status& status);

// `text` as valid UTF-8 of at most `max_bytes`, "…" at the end if it was cut.
std::string CleanText(absl::string_view text, size_t max_bytes);

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_RPC_STATUS_H_

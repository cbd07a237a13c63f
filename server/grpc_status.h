// absl::Status → grpc::Status with google.rpc details.
#ifndef ROOFTUNE_SERVER_GRPC_STATUS_H_
#define ROOFTUNE_SERVER_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace rooftune {

grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_GRPC_STATUS_H_

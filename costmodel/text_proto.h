// Text protos with errors that say where.
#ifndef ROOFTUNE_COSTMODEL_TEXT_PROTO_H_
#define ROOFTUNE_COSTMODEL_TEXT_PROTO_H_

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace rooftune {

// Replaces `message` by what `text` says. INVALID_ARGUMENT (BAD_TEXT_PROTO): "<origin>:LINE:COLUMN: what", both
// counted from 1.
absl::Status ParseTextProto(const std::string& text, const std::string& origin, google::protobuf::Message* message);

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_TEXT_PROTO_H_

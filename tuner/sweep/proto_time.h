// absl::Time ↔ google.protobuf.Timestamp.
#ifndef ROOFTUNE_TUNER_SWEEP_PROTO_TIME_H_
#define ROOFTUNE_TUNER_SWEEP_PROTO_TIME_H_

#include <google/protobuf/timestamp.pb.h>

#include "absl/time/time.h"

namespace rooftune {

inline google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp proto;
  const int64_t nanos = absl::ToUnixNanos(time);
  proto.set_seconds(nanos / 1'000'000'000);
  proto.set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
  return proto;
}

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_PROTO_TIME_H_

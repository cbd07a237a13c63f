// Length-prefixed frames (see rooftune/worker/v1/worker.proto) over a file descriptor.
#ifndef ROOFTUNE_TUNER_WIRE_FRAME_H_
#define ROOFTUNE_TUNER_WIRE_FRAME_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

inline constexpr int kWorkerProtocol = 1;
inline constexpr uint32_t kMaxFrameBytes = 64u << 20;

// Blocks until written or, on a socket, until `deadline`. UNAVAILABLE if the peer is gone, INVALID_ARGUMENT
// past kMaxFrameBytes, DEADLINE_EXCEEDED. After an error the stream may hold half a frame: drop it.
absl::Status WriteFrame(int fd, const worker::v1::Frame& frame, absl::Time deadline = absl::InfiniteFuture());

// Waits until `deadline` for a whole frame. DEADLINE_EXCEEDED; UNAVAILABLE at end of stream; DATA_LOSS for a
// length or content that is no frame. After any error the stream may stand inside a frame: drop it.
absl::StatusOr<worker::v1::Frame> ReadFrame(int fd, absl::Time deadline);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WIRE_FRAME_H_

#include "tuner/wire/frame.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file_util.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// A hostile length must not make us reserve memory that never arrives.
constexpr size_t kReadStep = 1 << 20;

// Waits until `fd` is ready for `events`. A hang-up counts as ready: the following call then tells the reason.
absl::Status WaitReady(int fd, short events, absl::Time deadline) {
  while (true) {
    int timeout_ms = -1;
    if (deadline != absl::InfiniteFuture()) {
      const absl::Duration left = deadline - absl::Now();
      // Rounded up, or the last fraction of a millisecond would spin.
      timeout_ms = static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 0, INT_MAX));
      if (left <= absl::ZeroDuration()) timeout_ms = 0;
    }
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, timeout_ms);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "waiting for a frame");
    if (ready == 0 && absl::Now() >= deadline) return absl::DeadlineExceededError("no whole frame before the deadline");
  }
}

// Reads `size` bytes onto the end of `out`; fewer at end of stream.
absl::Status ReadUpTo(int fd, size_t size, absl::Time deadline, std::string* out) {
  const size_t end = out->size() + size;
  while (out->size() < end) {
    RT_RETURN_IF_ERROR(WaitReady(fd, POLLIN, deadline));
    const size_t old = out->size();
    out->resize(std::min(end, old + kReadStep));
    const ssize_t got = read(fd, out->data() + old, out->size() - old);
    const int error = errno;
    out->resize(old + (got > 0 ? got : 0));
    if (got == 0) return absl::OkStatus();
    if (got > 0 || error == EINTR || error == EAGAIN) continue;
    if (error == ECONNRESET) return absl::UnavailableError("the peer reset the stream");
    return ErrnoStatus(error, "reading a frame");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFrame(int fd, const worker::v1::Frame& frame, absl::Time deadline) {
  const size_t size = frame.ByteSizeLong();
  if (size > kMaxFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame of ", size, " bytes is larger than the limit of ", kMaxFrameBytes, " bytes"));
  }
  std::string data(4, '\0');
  for (int i = 0; i < 4; ++i) data[i] = static_cast<char>(size >> (8 * i));
  if (!frame.AppendToString(&data)) return absl::InvalidArgumentError("frame can't be serialized");
  bool is_socket = true;
  for (size_t done = 0; done < data.size();) {
    // A peer that died must be an error here, not a SIGPIPE of the whole daemon.
    ssize_t sent = is_socket ? send(fd, data.data() + done, data.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT)
                             : write(fd, data.data() + done, data.size() - done);
    if (sent >= 0) {
      done += sent;
    } else if (errno == ENOTSOCK && is_socket) {
      is_socket = false;
    } else if (errno == EAGAIN) {
      RT_RETURN_IF_ERROR(WaitReady(fd, POLLOUT, deadline));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return absl::UnavailableError("the peer closed the stream");
    } else if (errno != EINTR) {
      return ErrnoStatus(errno, "writing a frame");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<worker::v1::Frame> ReadFrame(int fd, absl::Time deadline) {
  std::string header;
  RT_RETURN_IF_ERROR(ReadUpTo(fd, 4, deadline, &header));
  if (header.empty()) return absl::UnavailableError("end of stream");
  if (header.size() < 4) return absl::UnavailableError("end of stream inside a frame's length");
  uint32_t size = 0;
  for (int i = 0; i < 4; ++i) size |= uint32_t{static_cast<unsigned char>(header[i])} << (8 * i);
  if (size > kMaxFrameBytes) {
    return absl::DataLossError(absl::StrCat("frame length of ", size, " is over the limit of ", kMaxFrameBytes));
  }
  std::string body;
  RT_RETURN_IF_ERROR(ReadUpTo(fd, size, deadline, &body));
  if (body.size() < size) return absl::UnavailableError("end of stream inside a frame");
  worker::v1::Frame frame;
  if (!frame.ParseFromString(body)) return absl::DataLossError("content is not a worker frame");
  return frame;
}

}  // namespace rooftune

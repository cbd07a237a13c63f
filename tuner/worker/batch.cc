#include "tuner/worker/batch.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "tuner/wire/frame.h"

namespace rooftune {
namespace {

// Copies frames until end of stream, which is OK here.
absl::Status Copy(int from, int to) {
  while (true) {
    const auto frame = ReadFrame(from, absl::InfiniteFuture());
    if (!frame.ok()) {
      const bool end =
          frame.status().code() == absl::StatusCode::kUnavailable && frame.status().message() == "end of stream";
      return end ? absl::OkStatus() : frame.status();
    }
    const absl::Status written = WriteFrame(to, *frame);
    if (!written.ok()) return written;
  }
}

}  // namespace

int RunBatch(const std::string& file, int out_fd, const std::function<int(int fd)>& role) {
  const int in_fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  int pair[2] = {-1, -1};
  if (in_fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    LogError("can't open ", file, ": ", strerror(errno));
    return 2;
  }
  absl::Status fed, collected;
  std::thread feeder([&] {
    fed = Copy(in_fd, pair[0]);
    shutdown(pair[0], SHUT_WR);
  });
  std::thread collector([&] { collected = Copy(pair[0], out_fd); });
  const int code = role(pair[1]);
  // Wakes both threads, also when the role ended before its input.
  close(pair[1]);
  feeder.join();
  collector.join();
  close(pair[0]);
  close(in_fd);
  if (!fed.ok()) LogError("batch input ", file, ": ", std::string(fed.message()));
  if (!collected.ok()) LogError("batch output: ", std::string(collected.message()));
  if (code != 0) return code;
  return fed.ok() && collected.ok() ? 0 : 1;
}

}  // namespace rooftune

#include "tuner/wire/output_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace rooftune {
namespace {

constexpr size_t kTailBytes = 4096;
constexpr size_t kLineBytes = 1024;
constexpr int kMaxLines = 1000;
// After Stop(), a child's heir that floods the pipe must not keep us: at most what a pipe can hold.
constexpr size_t kDrainBytes = 1 << 20;

// What is printed may be anything; the log and proto strings take text only.
std::string Printable(absl::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if ((c < ' ' && c != '\n' && c != '\t') || c > '~') c = '?';
  }
  return out;
}

}  // namespace

OutputPump::OutputPump(int pipe_fd, std::string log_prefix)
    : pipe_fd_(pipe_fd), log_prefix_(std::move(log_prefix)), stop_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  fcntl(pipe_fd_, F_SETFL, fcntl(pipe_fd_, F_GETFL) | O_NONBLOCK);
  absl::MutexLock lock(&stop_mutex_);
  thread_ = std::thread([this] { Loop(); });
}

OutputPump::~OutputPump() {
  Stop();
  close(pipe_fd_);
  if (stop_fd_ >= 0) close(stop_fd_);
}

void OutputPump::Stop() {
  absl::MutexLock lock(&stop_mutex_);
  if (!thread_.joinable()) return;
  stopping_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_fd_, &one, sizeof one);
  thread_.join();
}

std::string OutputPump::Tail() const {
  absl::MutexLock lock(&mutex_);
  return Printable(tail_);
}

void OutputPump::Loop() {
  char buffer[16384];
  size_t drained = 0;
  while (true) {
    // Asked before reading, so that what was printed before Stop() is still taken.
    const bool stopping = stopping_;
    const ssize_t got = read(pipe_fd_, buffer, sizeof buffer);
    if (got > 0) {
      Take(absl::string_view(buffer, got));
      if (stopping && (drained += got) > kDrainBytes) break;
      continue;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR) || stopping) break;
    pollfd entries[2] = {{pipe_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    poll(entries, 2, -1);
  }
  if (!line_.empty()) LogLines("\n");
}

void OutputPump::Take(absl::string_view text) {
  {
    absl::MutexLock lock(&mutex_);
    tail_.append(text.data(), text.size());
    if (tail_.size() > kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  }
  LogLines(text);
}

void OutputPump::LogLines(absl::string_view text) {
  for (const char c : text) {
    if (lines_ > kMaxLines) return;
    if (c != '\n' && line_.size() < kLineBytes) {
      line_.push_back(c);
      continue;
    }
    if (++lines_ > kMaxLines) {
      LogWarning(log_prefix_, "printed more than ", kMaxLines, " lines; the rest is not logged");
    } else {
      LogInfo(log_prefix_, Printable(line_));
    }
    line_.clear();
    if (c != '\n') line_.push_back(c);
  }
}

}  // namespace rooftune

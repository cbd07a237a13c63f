// Copies what a child process prints into the log, and keeps the end of it for messages.
#ifndef ROOFTUNE_TUNER_WIRE_OUTPUT_PUMP_H_
#define ROOFTUNE_TUNER_WIRE_OUTPUT_PUMP_H_

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace rooftune {

// Thread-safe. Limits, because a child may print for ever: the tail holds 4 KiB, and after 1000 lines only the
// tail goes on.
class OutputPump {
 public:
  // Owns `pipe_fd`, the reading end, and reads it on a thread of its own until end of file or Stop().
  OutputPump(int pipe_fd, std::string log_prefix);
  ~OutputPump();
  OutputPump(const OutputPump&) = delete;
  OutputPump& operator=(const OutputPump&) = delete;

  // Takes what has been printed so far, then ends the thread, even if someone still holds the pipe open.
  void Stop();
  // The last 4 KiB, printable ASCII and line ends only.
  std::string Tail() const;

 private:
  void Loop();
  void Take(absl::string_view text);
  void LogLines(absl::string_view text);

  const int pipe_fd_;
  const std::string log_prefix_;
  int stop_fd_ = -1;  // eventfd that wakes the thread
  std::atomic<bool> stopping_{false};
  // Used by the thread alone.
  std::string line_;
  int lines_ = 0;
  mutable absl::Mutex mutex_;
  std::string tail_ ABSL_GUARDED_BY(mutex_);
  absl::Mutex stop_mutex_;
  std::thread thread_ ABSL_GUARDED_BY(stop_mutex_);
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WIRE_OUTPUT_PUMP_H_

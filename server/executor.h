// A fixed number of threads behind a bounded queue: what gRPC's own few threads must not do.
#ifndef ROOFTUNE_SERVER_EXECUTOR_H_
#define ROOFTUNE_SERVER_EXECUTOR_H_

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace rooftune {

// Thread-safe.
class Executor {
 public:
  Executor(std::string name, int threads, size_t max_queued);
  // Stops.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // RESOURCE_EXHAUSTED (SERVER_BUSY) if the queue is full, UNAVAILABLE (DRAINING) after Stop. `task` runs
  // exactly once if and only if this returns OK.
  absl::Status Post(std::function<void()> task);

  // Runs what is queued, then ends the threads. Not to be called from a task.
  void Stop();

 private:
  void Loop();

  const std::string name_;
  const size_t max_queued_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_EXECUTOR_H_

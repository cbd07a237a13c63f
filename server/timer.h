// One thread that calls functions later.
#ifndef ROOFTUNE_SERVER_TIMER_H_
#define ROOFTUNE_SERVER_TIMER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace rooftune {

// Thread-safe.
class Timer {
 public:
  Timer();
  // Drops what is still waiting.
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Calls `fn` once on the timer's thread after `delay`; it must not block. Returns a handle for Cancel().
  uint64_t RunAfter(absl::Duration delay, std::function<void()> fn);
  // No effect if it ran already or is running now.
  void Cancel(uint64_t handle);

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  void Loop();

  absl::Mutex mutex_;
  absl::CondVar changed_;
  // By due time, then handle. Steady: a step of the wall clock must not fire or hold back anything.
  std::map<std::pair<TimePoint, uint64_t>, std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, TimePoint> due_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_handle_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_TIMER_H_

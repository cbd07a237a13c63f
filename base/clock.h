// Time as a dependency, so that tests run on a fake one.
#ifndef ROOFTUNE_BASE_CLOCK_H_
#define ROOFTUNE_BASE_CLOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace rooftune {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;
  // Blocks for `duration` of this clock's time.
  virtual void Sleep(absl::Duration duration) = 0;

  // The system's clock; never destroyed.
  static Clock& Real();
};

// Stands still unless told; Sleep() moves it on at once.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'700'000'000)) : now_(start) {}
  absl::Time Now() override;
  void Sleep(absl::Duration duration) override { Advance(duration); }
  void Advance(absl::Duration duration);

 private:
  absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

// The system's clock, put forward by whatever anybody slept: waiting costs nothing, and time goes on by itself.
class SkippingClock : public Clock {
 public:
  absl::Time Now() override;
  void Sleep(absl::Duration duration) override;

 private:
  absl::Mutex mutex_;
  absl::Duration skipped_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

}  // namespace rooftune

#endif  // ROOFTUNE_BASE_CLOCK_H_

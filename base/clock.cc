#include "base/clock.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace rooftune {
namespace {

class RealClock : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
  void Sleep(absl::Duration duration) override { absl::SleepFor(duration); }
};

}  // namespace

Clock& Clock::Real() {
  static RealClock& clock = *new RealClock;
  return clock;
}

absl::Time FakeClock::Now() {
  absl::MutexLock lock(&mutex_);
  return now_;
}

absl::Time SkippingClock::Now() {
  absl::MutexLock lock(&mutex_);
  return absl::Now() + skipped_;
}

void SkippingClock::Sleep(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  skipped_ += std::max(duration, absl::ZeroDuration());
}

void FakeClock::Advance(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  now_ += duration;
}

}  // namespace rooftune

#include "server/timer.h"

#include <algorithm>

namespace rooftune {

Timer::Timer() : thread_([this] { Loop(); }) {}

Timer::~Timer() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

uint64_t Timer::RunAfter(absl::Duration delay, std::function<void()> fn) {
  // A wait of a day is as good as any longer one and can't overflow the clock.
  const absl::Duration bounded = std::min(std::max(delay, absl::ZeroDuration()), absl::Hours(24));
  const TimePoint due = std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(bounded);
  absl::MutexLock lock(&mutex_);
  const uint64_t handle = next_handle_++;
  waiting_[{due, handle}] = std::move(fn);
  due_[handle] = due;
  changed_.Signal();
  return handle;
}

void Timer::Cancel(uint64_t handle) {
  std::function<void()> dropped;  // destroyed outside the lock: it may own anything
  absl::MutexLock lock(&mutex_);
  const auto it = due_.find(handle);
  if (it == due_.end()) return;
  auto entry = waiting_.find({it->second, handle});
  dropped = std::move(entry->second);
  waiting_.erase(entry);
  due_.erase(it);
}

void Timer::Loop() {
  mutex_.Lock();
  while (!stopping_) {
    if (waiting_.empty()) {
      changed_.Wait(&mutex_);
      continue;
    }
    const auto first = waiting_.begin();
    const auto wait = first->first.first - std::chrono::steady_clock::now();
    if (wait > std::chrono::steady_clock::duration::zero()) {
      changed_.WaitWithTimeout(&mutex_, absl::FromChrono(wait));
      continue;
    }
    std::function<void()> fn = std::move(first->second);
    due_.erase(first->first.second);
    waiting_.erase(first);
    mutex_.Unlock();
    fn();
    fn = nullptr;
    mutex_.Lock();
  }
  mutex_.Unlock();
}

}  // namespace rooftune

#include "server/sweep_feed.h"

#include <utility>

#include "absl/time/clock.h"
#include "google/protobuf/util/time_util.h"
#include "server/sweep_hub.h"

namespace rooftune {

void SweepFeed::OnChange(const v1::Sweep& sweep) {
  {
    absl::MutexLock lock(&mutex_);
    // The first state is read after subscribing, so a change may overtake it.
    if (newest_.has_value() && (IsTerminal(newest_->state()) || sweep.update_time() < newest_->update_time())) return;
    newest_ = sweep;
    dirty_ = true;
  }
  Step();
}

void SweepFeed::OnWritten(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok && !end_.has_value()) end_ = absl::CancelledError("the client went away");
  }
  Step();
}

void SweepFeed::Finish(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (!end_.has_value()) end_ = status;
  }
  Step();
}

void SweepFeed::Schedule(absl::Duration delay) {
  if (timer_handle_ != 0) timer_.Cancel(timer_handle_);
  // Weak: a feed whose call is over must not be kept alive by its heartbeat.
  timer_handle_ = timer_.RunAfter(delay, [weak = weak_from_this()] {
    if (const auto feed = weak.lock()) {
      {
        absl::MutexLock lock(&feed->mutex_);
        feed->timer_handle_ = 0;
      }
      feed->Step();
    }
  });
}

// Does the one thing that is due: finish, write, or wait.
void SweepFeed::Step() {
  std::optional<v1::Sweep> message;
  std::optional<absl::Status> end;
  {
    absl::MutexLock lock(&mutex_);
    if (writing_ || finished_) return;
    if (sent_last_ && !end_.has_value()) end_ = absl::OkStatus();
    if (end_.has_value()) {
      finished_ = true;
      end = end_;
      if (timer_handle_ != 0) timer_.Cancel(timer_handle_);
    } else if (newest_.has_value()) {
      const absl::Time now = absl::Now();
      const absl::Time due = last_write_ + (dirty_ ? options_.min_interval : options_.heartbeat);
      if (now < due) {
        Schedule(due - now);
        return;
      }
      message = newest_;
      dirty_ = false;
      writing_ = true;
      last_write_ = now;
      sent_last_ = IsTerminal(message->state());
    }
  }
  if (end.has_value()) sink_.finish(*end);
  if (message.has_value()) sink_.write(*message, [self = shared_from_this()](bool ok) { self->OnWritten(ok); });
}

}  // namespace rooftune

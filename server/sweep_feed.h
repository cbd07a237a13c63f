// Paces what one watcher of a sweep is sent: not too often, not too rarely, the newest state only.
#ifndef ROOFTUNE_SERVER_SWEEP_FEED_H_
#define ROOFTUNE_SERVER_SWEEP_FEED_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "rooftune/v1/records.pb.h"
#include "server/timer.h"

namespace rooftune {

// Thread-safe. One message is under way at a time; changes that come meanwhile replace each other.
class SweepFeed : public std::enable_shared_from_this<SweepFeed> {
 public:
  struct Options {
    absl::Duration min_interval = absl::Milliseconds(100);
    // Idle connections are cut by proxies and a silent daemon looks dead.
    absl::Duration heartbeat = absl::Seconds(15);
  };
  struct Sink {
    // Sends one message and calls `written` when it is sent, or with false when it can't be.
    std::function<void(const v1::Sweep&, std::function<void(bool ok)> written)> write;
    // Called once, after the last message: OK when the sweep ended.
    std::function<void(const absl::Status&)> finish;
  };
  SweepFeed(Timer& timer, Options options, Sink sink) : timer_(timer), options_(options), sink_(std::move(sink)) {}

  // A new state; older ones than what was seen already are dropped.
  void OnChange(const v1::Sweep& sweep);
  // Ends the feed once the message under way is sent.
  void Finish(const absl::Status& status);

 private:
  void OnWritten(bool ok);
  void Step();
  void Schedule(absl::Duration delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Timer& timer_;
  const Options options_;
  const Sink sink_;
  absl::Mutex mutex_;
  std::optional<v1::Sweep> newest_ ABSL_GUARDED_BY(mutex_);
  bool dirty_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool sent_last_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_write_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t timer_handle_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_SWEEP_FEED_H_

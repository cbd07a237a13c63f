// Tells whoever watches a sweep that it changed.
#ifndef ROOFTUNE_SERVER_SWEEP_HUB_H_
#define ROOFTUNE_SERVER_SWEEP_HUB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "rooftune/v1/records.pb.h"

namespace rooftune {

// Thread-safe.
class SweepHub {
 public:
  struct Watcher {
    // Called on the thread of the change; must not block.
    std::function<void(const v1::Sweep&)> on_change;
    // The daemon drains: no further change will be reported.
    std::function<void(const absl::Status&)> on_close;
  };

  explicit SweepHub(size_t max_watchers) : max_watchers_(max_watchers) {}

  // RESOURCE_EXHAUSTED (TOO_MANY_WATCHERS), UNAVAILABLE (DRAINING) after Close. A watcher may be called once more while
  // Unsubscribe runs, so it owns what it needs.
  absl::StatusOr<uint64_t> Subscribe(const std::string& sweep, Watcher watcher);
  void Unsubscribe(uint64_t id);

  void Notify(const v1::Sweep& sweep);
  // Ends all watchers with UNAVAILABLE (DRAINING).
  void Close();
  size_t watchers() const;

 private:
  using WatcherPtr = std::shared_ptr<const Watcher>;
  const size_t max_watchers_;
  mutable absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::map<uint64_t, WatcherPtr>> by_name_ ABSL_GUARDED_BY(mutex_);
};

// True for states that a sweep does not leave by itself.
bool IsTerminal(v1::SweepState state);

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_SWEEP_HUB_H_

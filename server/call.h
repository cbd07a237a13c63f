// What an RPC's logic needs to know of the call, without gRPC.
#ifndef ROOFTUNE_SERVER_CALL_H_
#define ROOFTUNE_SERVER_CALL_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace rooftune {

// Receives an answer, once, on any thread.
template <typename T>
using Done = std::function<void(absl::StatusOr<T>)>;

// Tells running work that nobody waits for its answer any more. Thread-safe.
class CallToken {
 public:
  bool cancelled() const {
    absl::MutexLock lock(&mutex_);
    return cancelled_;
  }
  // Runs what OnCancel was given, once.
  void Cancel() {
    std::vector<std::function<void()>> handlers;
    {
      absl::MutexLock lock(&mutex_);
      cancelled_ = true;
      handlers.swap(handlers_);
    }
    for (const auto& handler : handlers) handler();
  }
  // Runs at once if the call is already cancelled. Must not block.
  void OnCancel(std::function<void()> handler) {
    {
      absl::MutexLock lock(&mutex_);
      if (!cancelled_) {
        handlers_.push_back(std::move(handler));
        return;
      }
    }
    handler();
  }

 private:
  mutable absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> handlers_ ABSL_GUARDED_BY(mutex_);
};
using CallPtr = std::shared_ptr<CallToken>;

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_CALL_H_

// Work that many callers want at once is done once.
#ifndef ROOFTUNE_SERVER_SINGLE_FLIGHT_H_
#define ROOFTUNE_SERVER_SINGLE_FLIGHT_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/call.h"
#include "server/executor.h"

namespace rooftune {

// Thread-safe. Nothing is remembered once a run has ended: a failure is shared by those who waited for it and
// a later call tries again.
template <typename T>
class SingleFlight {
 public:
  // Runs `work` on `executor` unless a run of this key is under way; `done` gets the result of that run. If the
  // executor refuses, all who wait get its error.
  void Do(const std::string& key, Executor& executor, std::function<absl::StatusOr<T>()> work, Done<T> done) {
    {
      absl::MutexLock lock(&state_->mutex);
      std::vector<Done<T>>& waiters = state_->waiters[key];
      waiters.push_back(std::move(done));
      if (waiters.size() > 1) return;
    }
    const auto state = state_;
    const absl::Status posted = executor.Post([state, key, work = std::move(work)] { Finish(*state, key, work()); });
    if (!posted.ok()) Finish(*state, key, posted);
  }

 private:
  struct State {
    absl::Mutex mutex;
    std::map<std::string, std::vector<Done<T>>> waiters ABSL_GUARDED_BY(mutex);
  };
  static void Finish(State& state, const std::string& key, const absl::StatusOr<T>& result) {
    std::vector<Done<T>> waiters;
    {
      absl::MutexLock lock(&state.mutex);
      waiters.swap(state.waiters[key]);
      state.waiters.erase(key);
    }
    for (const Done<T>& waiter : waiters) waiter(result);
  }
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_SINGLE_FLIGHT_H_

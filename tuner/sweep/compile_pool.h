// Threads that compile ahead of the lanes. Shared by all sweeps of one compiler.
#ifndef ROOFTUNE_TUNER_SWEEP_COMPILE_POOL_H_
#define ROOFTUNE_TUNER_SWEEP_COMPILE_POOL_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace rooftune {

// Thread-safe. Tasks must own what they use: they may outlive the sweep that submitted them.
class CompilePool {
 public:
  explicit CompilePool(int threads);
  // Drops what has not started and waits for what has.
  ~CompilePool();
  void Submit(std::function<void()> task);

 private:
  void Work();

  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_COMPILE_POOL_H_

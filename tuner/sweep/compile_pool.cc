#include "tuner/sweep/compile_pool.h"

#include <utility>

namespace rooftune {

CompilePool::CompilePool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

CompilePool::~CompilePool() {
  // What is dropped may answer somebody: not under the lock.
  std::deque<std::function<void()>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    dropped.swap(tasks_);
  }
  for (std::thread& thread : threads_) thread.join();
}

void CompilePool::Submit(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (!closing_) tasks_.push_back(std::move(task));
}

void CompilePool::Work() {
  while (true) {
    std::function<void()> task;
    {
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closing_ || !tasks_.empty(); };
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&ready));
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace rooftune

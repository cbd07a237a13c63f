#include "server/executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace rooftune {

Executor::Executor(std::string name, int threads, size_t max_queued) : name_(std::move(name)), max_queued_(max_queued) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

Executor::~Executor() { Stop(); }

absl::Status Executor::Post(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return Error(absl::StatusCode::kUnavailable, "DRAINING", "the daemon is shutting down");
  if (queue_.size() >= max_queued_) {
    return Error(absl::StatusCode::kResourceExhausted, "SERVER_BUSY",
                 absl::StrCat("all ", threads_.size(), " threads for ", name_, " are busy and ", queue_.size(),
                              " calls wait; try again later"));
  }
  queue_.push_back(std::move(task));
  return absl::OkStatus();
}

void Executor::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Executor::Loop() {
  while (true) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); };
      mutex_.Await(absl::Condition(&ready));
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace rooftune

#include "server/sweep_hub.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace rooftune {
namespace {

absl::Status Draining() { return Error(absl::StatusCode::kUnavailable, "DRAINING", "the daemon is shutting down"); }

}  // namespace

absl::StatusOr<uint64_t> SweepHub::Subscribe(const std::string& sweep, Watcher watcher) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return Draining();
  if (names_.size() >= max_watchers_) {
    return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_WATCHERS",
                 absl::StrCat(names_.size(), " calls already wait for sweeps; try again later or poll GetSweep"));
  }
  const uint64_t id = next_id_++;
  names_[id] = sweep;
  by_name_[sweep][id] = std::make_shared<const Watcher>(std::move(watcher));
  return id;
}

void SweepHub::Unsubscribe(uint64_t id) {
  WatcherPtr dropped;  // destroyed after the lock is released
  absl::MutexLock lock(&mutex_);
  const auto name = names_.find(id);
  if (name == names_.end()) return;
  const auto group = by_name_.find(name->second);
  dropped = group->second[id];
  group->second.erase(id);
  if (group->second.empty()) by_name_.erase(group);
  names_.erase(name);
}

void SweepHub::Notify(const v1::Sweep& sweep) {
  std::vector<WatcherPtr> watchers;
  {
    absl::MutexLock lock(&mutex_);
    const auto group = by_name_.find(sweep.name());
    if (group == by_name_.end()) return;
    for (const auto& [id, watcher] : group->second) watchers.push_back(watcher);
  }
  for (const WatcherPtr& watcher : watchers) watcher->on_change(sweep);
}

void SweepHub::Close() {
  std::map<std::string, std::map<uint64_t, WatcherPtr>> groups;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    groups.swap(by_name_);
    names_.clear();
  }
  for (const auto& [name, group] : groups) {
    for (const auto& [id, watcher] : group) watcher->on_close(Draining());
  }
}

size_t SweepHub::watchers() const {
  absl::MutexLock lock(&mutex_);
  return names_.size();
}

bool IsTerminal(v1::SweepState state) { return state == v1::DONE || state == v1::FAILED || state == v1::CANCELLED; }

}  // namespace rooftune

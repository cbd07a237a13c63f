// Everything of SweepCore that waits without holding a thread.
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "server/sweep_core.h"

namespace rooftune {
namespace {

using google::longrunning::Operation;

constexpr absl::Duration kMaxWait = absl::Hours(24);

// Several sweeps that one call waits for.
struct Wait {
  absl::Mutex mutex;
  std::set<std::string> open ABSL_GUARDED_BY(mutex);
  std::vector<uint64_t> subscriptions ABSL_GUARDED_BY(mutex);
  std::function<void(absl::Status)> done ABSL_GUARDED_BY(mutex);

  // The callback, for whoever comes first.
  std::function<void(absl::Status)> Take() {
    absl::MutexLock lock(&mutex);
    return std::exchange(done, nullptr);
  }
};

void End(ServerContext& context, const std::shared_ptr<Wait>& wait, const absl::Status& status) {
  auto done = wait->Take();
  if (done == nullptr) return;
  std::vector<uint64_t> subscriptions;
  {
    absl::MutexLock lock(&wait->mutex);
    subscriptions.swap(wait->subscriptions);
  }
  for (const uint64_t id : subscriptions) context.hub.Unsubscribe(id);
  // Not on the lane's thread: the callback reads and compiles.
  const absl::Status posted = context.work.Post([done, status] { done(status); });
  if (!posted.ok()) done(posted);
}

void Ended(ServerContext& context, const std::shared_ptr<Wait>& wait, const std::string& sweep) {
  {
    absl::MutexLock lock(&wait->mutex);
    wait->open.erase(sweep);
    if (!wait->open.empty()) return;
  }
  End(context, wait, absl::OkStatus());
}

}  // namespace

void SweepCore::WaitForAll(const std::vector<std::string>& sweeps, const CallPtr& call,
                           std::function<void(absl::Status)> done) {
  auto wait = std::make_shared<Wait>();
  {
    absl::MutexLock lock(&wait->mutex);
    wait->open = {sweeps.begin(), sweeps.end()};
    wait->done = std::move(done);
  }
  ServerContext& context = context_;
  call->OnCancel([&context, weak = std::weak_ptr<Wait>(wait)] {
    if (const auto wait = weak.lock()) End(context, wait, absl::CancelledError("nobody waits any more"));
  });
  const std::set<std::string> names(sweeps.begin(), sweeps.end());
  for (const std::string& name : names) {
    SweepHub::Watcher watcher;
    watcher.on_change = [&context, wait, name](const v1::Sweep& sweep) {
      if (IsTerminal(sweep.state())) Ended(context, wait, name);
    };
    watcher.on_close = [&context, wait](const absl::Status& status) { End(context, wait, status); };
    const absl::StatusOr<uint64_t> id = context_.hub.Subscribe(name, std::move(watcher));
    if (!id.ok()) return End(context_, wait, id.status());
    {
      absl::MutexLock lock(&wait->mutex);
      wait->subscriptions.push_back(*id);
      if (wait->done == nullptr)
        wait->subscriptions.pop_back();
      else
        continue;
    }
    context_.hub.Unsubscribe(*id);  // ended meanwhile
    return;
  }
  // What ended before the subscription is never reported.
  for (const std::string& name : names) {
    const absl::StatusOr<v1::Sweep> sweep = context_.sweeps->Get(name);
    if (!sweep.ok()) return End(context_, wait, sweep.status());
    if (IsTerminal(sweep->state())) Ended(context_, wait, name);
  }
  if (names.empty()) End(context_, wait, absl::OkStatus());
}

std::shared_ptr<SweepFeed> SweepCore::Watch(const v1::WatchSweepRequest& request, const CallPtr& call,
                                            SweepFeed::Options options, SweepFeed::Sink sink) {
  auto feed = std::make_shared<SweepFeed>(context_.timer, options, std::move(sink));
  const absl::Status named = ResourceId(request.name(), "sweeps/").status();
  if (!named.ok()) {
    feed->Finish(named);
    return feed;
  }
  SweepHub::Watcher watcher;
  watcher.on_change = [feed](const v1::Sweep& sweep) { feed->OnChange(sweep); };
  watcher.on_close = [feed](const absl::Status& status) { feed->Finish(status); };
  const absl::StatusOr<uint64_t> id = context_.hub.Subscribe(request.name(), std::move(watcher));
  if (!id.ok()) {
    feed->Finish(id.status());
    return feed;
  }
  ServerContext& context = context_;
  call->OnCancel([&context, id = *id] { context.hub.Unsubscribe(id); });
  const absl::Status posted = context_.reads.Post([&context, feed, name = request.name()] {
    const absl::StatusOr<v1::Sweep> sweep = context.sweeps->Get(name);
    if (sweep.ok())
      feed->OnChange(*sweep);
    else
      feed->Finish(sweep.status());
  });
  if (!posted.ok()) feed->Finish(posted);
  return feed;
}

void SweepCore::WaitOperation(const google::longrunning::WaitOperationRequest& request, const CallPtr& call,
                              Done<Operation> done) {
  // Whoever comes first of: the end, the timeout, the cancellation.
  struct Once {
    std::atomic<bool> used{false};
    Done<Operation> done;
    void Call(const absl::StatusOr<Operation>& result) {
      if (!used.exchange(true)) done(result);
    }
  };
  auto once = std::make_shared<Once>();
  once->done = std::move(done);
  absl::Duration timeout = kMaxWait;
  if (request.has_timeout()) {
    timeout = absl::Seconds(request.timeout().seconds()) + absl::Nanoseconds(request.timeout().nanos());
    if (timeout < absl::ZeroDuration()) {
      return once->Call(Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", "timeout must not be negative",
                              {{"field", "timeout"}}));
    }
  }
  // Known at all? Also the answer of a timeout of zero.
  google::longrunning::GetOperationRequest get;
  get.set_name(request.name());
  const absl::StatusOr<Operation> now = GetOperation(get);
  if (!now.ok() || now->done() || timeout == absl::ZeroDuration()) return once->Call(now);

  auto inner = std::make_shared<CallToken>();  // ends the wait on a timeout as well
  call->OnCancel([inner] { inner->Cancel(); });
  const uint64_t timer = context_.timer.RunAfter(timeout, [inner] { inner->Cancel(); });
  const auto answer = [this, once, get, timer](const absl::Status&) {
    context_.timer.Cancel(timer);
    once->Call(GetOperation(get));
  };
  if (!CalibrationTable::Owns(request.name())) {
    return WaitForAll({absl::StrCat("sweeps/", request.name().substr(11))}, inner, answer);
  }
  inner->OnCancel([this, answer] {
    if (!context_.reads.Post([answer] { answer(absl::OkStatus()); }).ok()) answer(absl::OkStatus());
  });
  const absl::Status waiting =
      calibrations_.OnceDone(request.name(), [answer](const Operation&) { answer(absl::OkStatus()); });
  if (!waiting.ok()) once->Call(waiting);
}

}  // namespace rooftune

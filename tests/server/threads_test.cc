// Executor, timer, single flight, hub and feed.
#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "base/error.h"
#include "google/protobuf/util/time_util.h"
#include "server/executor.h"
#include "server/single_flight.h"
#include "server/sweep_feed.h"
#include "server/sweep_hub.h"
#include "server/timer.h"

namespace rooftune {
namespace {

v1::Sweep MakeSweep(v1::SweepState state, int64_t time) {
  v1::Sweep sweep;
  sweep.set_name("sweeps/a");
  sweep.set_state(state);
  *sweep.mutable_update_time() = google::protobuf::util::TimeUtil::SecondsToTimestamp(time);
  return sweep;
}

TEST(Executor, RefusesWhenFullAndAfterStop) {
  Executor executor("tests", 1, 2);
  absl::Notification started, release;
  std::atomic<int> ran{0};
  ASSERT_TRUE(executor
                  .Post([&] {
                    started.Notify();
                    release.WaitForNotification();
                  })
                  .ok());
  started.WaitForNotification();
  ASSERT_TRUE(executor.Post([&] { ++ran; }).ok());
  ASSERT_TRUE(executor.Post([&] { ++ran; }).ok());
  const absl::Status full = executor.Post([&] { ++ran; });
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(full), "SERVER_BUSY");
  release.Notify();
  executor.Stop();
  EXPECT_EQ(ran, 2) << "what was accepted runs, what was refused does not";
  EXPECT_EQ(ErrorReason(executor.Post([] {})), "DRAINING");
}

TEST(Timer, RunsInOrderOfTimeAndCancels) {
  Timer timer;
  absl::Mutex mutex;
  std::string order;
  absl::Notification done;
  const auto add = [&](const char* text) {
    return [&, text] {
      absl::MutexLock lock(&mutex);
      order += text;
    };
  };
  timer.RunAfter(absl::Milliseconds(30), [&] { done.Notify(); });
  timer.RunAfter(absl::Milliseconds(20), add("c"));
  const uint64_t cancelled = timer.RunAfter(absl::Milliseconds(10), add("b"));
  timer.RunAfter(absl::Milliseconds(1), add("a"));
  timer.Cancel(cancelled);
  timer.Cancel(cancelled);
  done.WaitForNotification();
  absl::MutexLock lock(&mutex);
  EXPECT_EQ(order, "ac");
}

TEST(SingleFlight, OneRunForAllWhoWaitAndAnotherLater) {
  Executor executor("tests", 2, 10);
  SingleFlight<int> flights;
  absl::Notification release;
  std::atomic<int> runs{0}, failures{0};
  const auto work = [&]() -> absl::StatusOr<int> {
    ++runs;
    release.WaitForNotification();
    return absl::InternalError("broken");
  };
  for (int i = 0; i < 50; ++i) flights.Do("key", executor, work, [&](const auto& r) { failures += r.ok() ? 0 : 1; });
  release.Notify();
  executor.Stop();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(failures, 50);

  Executor second("tests", 1, 10);
  int value = 0;
  flights.Do(
      "key", second, []() -> absl::StatusOr<int> { return 7; }, [&](const auto& r) { value = *r; });
  second.Stop();
  EXPECT_EQ(value, 7) << "a failure is not remembered";
}

TEST(SingleFlight, TellsAllWhenTheExecutorRefuses) {
  Executor executor("tests", 1, 10);
  executor.Stop();
  SingleFlight<int> flights;
  std::string reason;
  flights.Do(
      "key", executor, []() -> absl::StatusOr<int> { return 1; },
      [&](const auto& r) { reason = ErrorReason(r.status()); });
  EXPECT_EQ(reason, "DRAINING");
}

TEST(SweepHub, TellsWatchersOfTheSweepOnlyAndHasALimit) {
  SweepHub hub(2);
  int a = 0, b = 0;
  std::string closed;
  const SweepHub::Watcher watcher{[&](const v1::Sweep&) { ++a; },
                                  [&](const absl::Status& s) { closed += ErrorReason(s); }};
  const auto first = hub.Subscribe("sweeps/a", watcher);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(hub.Subscribe("sweeps/b", {[&](const v1::Sweep&) { ++b; }, [](const absl::Status&) {}}).ok());
  EXPECT_EQ(ErrorReason(hub.Subscribe("sweeps/a", watcher).status()), "TOO_MANY_WATCHERS");
  hub.Notify(MakeSweep(v1::RUNNING, 1));
  EXPECT_EQ(a, 1);
  EXPECT_EQ(b, 0);
  hub.Unsubscribe(*first);
  hub.Notify(MakeSweep(v1::RUNNING, 2));
  EXPECT_EQ(a, 1);
  ASSERT_TRUE(hub.Subscribe("sweeps/a", watcher).ok());
  hub.Close();
  EXPECT_EQ(closed, "DRAINING");
  EXPECT_EQ(hub.watchers(), 0u);
  EXPECT_EQ(ErrorReason(hub.Subscribe("sweeps/a", watcher).status()), "DRAINING");
}

// Collects what a feed sends; writes end at once unless held.
struct Collector {
  absl::Mutex mutex;
  std::vector<v1::SweepState> states ABSL_GUARDED_BY(mutex);
  std::vector<std::function<void(bool)>> held ABSL_GUARDED_BY(mutex);
  bool hold = false;
  absl::Notification finished;
  absl::Status status;

  SweepFeed::Sink Sink() {
    return {[this](const v1::Sweep& sweep, std::function<void(bool)> written) {
              {
                absl::MutexLock lock(&mutex);
                states.push_back(sweep.state());
                if (hold) {
                  held.push_back(std::move(written));
                  return;
                }
              }
              written(true);
            },
            [this](const absl::Status& s) {
              status = s;
              finished.Notify();
            }};
  }
  std::vector<v1::SweepState> Seen() {
    absl::MutexLock lock(&mutex);
    return states;
  }
};

TEST(SweepFeed, SendsTheNewestOfChangesThatComeTooFastAndEnds) {
  Timer timer;
  Collector collector;
  auto feed = std::make_shared<SweepFeed>(timer, SweepFeed::Options{absl::Milliseconds(20), absl::Seconds(100)},
                                          collector.Sink());
  feed->OnChange(MakeSweep(v1::QUEUED, 1));
  for (int i = 0; i < 100; ++i) feed->OnChange(MakeSweep(v1::RUNNING, 2 + i));
  feed->OnChange(MakeSweep(v1::DONE, 200));
  collector.finished.WaitForNotification();
  EXPECT_TRUE(collector.status.ok());
  EXPECT_EQ(collector.Seen(), (std::vector<v1::SweepState>{v1::QUEUED, v1::DONE}));
}

TEST(SweepFeed, AnOlderStateNeverFollowsANewerOne) {
  Timer timer;
  Collector collector;
  auto feed = std::make_shared<SweepFeed>(timer, SweepFeed::Options{absl::ZeroDuration(), absl::Seconds(100)},
                                          collector.Sink());
  feed->OnChange(MakeSweep(v1::RUNNING, 5));
  feed->OnChange(MakeSweep(v1::QUEUED, 4));
  feed->OnChange(MakeSweep(v1::DONE, 6));
  feed->OnChange(MakeSweep(v1::RUNNING, 7));
  collector.finished.WaitForNotification();
  EXPECT_EQ(collector.Seen(), (std::vector<v1::SweepState>{v1::RUNNING, v1::DONE}));
}

TEST(SweepFeed, RepeatsItselfWhenNothingChanges) {
  Timer timer;
  Collector collector;
  auto feed = std::make_shared<SweepFeed>(timer, SweepFeed::Options{absl::ZeroDuration(), absl::Milliseconds(2)},
                                          collector.Sink());
  feed->OnChange(MakeSweep(v1::RUNNING, 1));
  const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(collector.mutex) { return collector.states.size() >= 4; };
  {
    absl::MutexLock lock(&collector.mutex);
    EXPECT_TRUE(collector.mutex.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(10)));
  }
  feed->Finish(absl::OkStatus());
  collector.finished.WaitForNotification();
}

TEST(SweepFeed, KeepsOneMessageUnderWayAndEndsWhenTheClientIsGone) {
  Timer timer;
  Collector collector;
  collector.hold = true;
  auto feed = std::make_shared<SweepFeed>(timer, SweepFeed::Options{absl::ZeroDuration(), absl::Seconds(100)},
                                          collector.Sink());
  feed->OnChange(MakeSweep(v1::QUEUED, 1));
  feed->OnChange(MakeSweep(v1::RUNNING, 2));
  feed->OnChange(MakeSweep(v1::CONFIRMING, 3));
  EXPECT_EQ(collector.Seen().size(), 1u);
  std::function<void(bool)> written;
  {
    absl::MutexLock lock(&collector.mutex);
    written = collector.held[0];
  }
  written(false);
  collector.finished.WaitForNotification();
  EXPECT_EQ(collector.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(collector.Seen().size(), 1u);
}

}  // namespace
}  // namespace rooftune

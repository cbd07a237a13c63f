#include "tuner/run/worker_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/file_util.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;

class WorkerRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    log_ = absl::StrCat(::testing::TempDir(), "/fake_worker_", getpid(), "_",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::remove(log_.c_str());
  }
  void TearDown() override { std::remove(log_.c_str()); }

  std::unique_ptr<WorkerRunner> Make(const std::string& start = "", bool spare = false) {
    WorkerRunner::Options options;
    options.worker_path = FAKE_RUN_WORKER;
    options.env = {absl::StrCat("FAKE_LOG=", log_), absl::StrCat("FAKE_START=", start)};
    options.spare = spare;
    auto runner = WorkerRunner::Create(options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  }
  int Starts() const {
    const auto log = ReadFile(log_);
    return log.ok() ? static_cast<int>(log->size()) : 0;
  }
  static absl::StatusOr<worker::v1::PrepareResult> Prepare(Runner& runner, const std::string& op = "op") {
    worker::v1::PrepareRequest request;
    request.set_op(op);
    return runner.Prepare(request);
  }
  static void PrepareOk(Runner& runner) {
    const auto result = Prepare(runner);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->outcome(), v1::OK) << result->message();
  }
  static absl::StatusOr<worker::v1::RunResult> Run(Runner& runner, const std::string& what, int timeout_ms = 0) {
    worker::v1::RunRequest request;
    request.mutable_plan()->set_template_id(what);
    request.set_timeout_ms(timeout_ms);
    return runner.Run(request);
  }
  static worker::v1::RaceRequest RaceOf(const std::vector<std::string>& entrants) {
    worker::v1::RaceRequest request;
    for (const std::string& what : entrants) {
      request.add_entrant()->mutable_candidate()->mutable_plan()->set_template_id(what);
    }
    request.set_timeout_ms(1);
    return request;
  }

  std::string log_;
};

TEST_F(WorkerRunnerTest, RefusesToRunWithoutAProblem) {
  auto runner = Make();
  EXPECT_EQ(Run(*runner, "ok").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runner->Race(RaceOf({"ok"})).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Starts(), 0);
}

TEST_F(WorkerRunnerTest, KeepsOneProcess) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto first = Run(*runner, "ok");
  const auto second = Run(*runner, "ok");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->message(), second->message());
  EXPECT_THAT(first->message(), HasSubstr("prepared=op"));
  EXPECT_EQ(Starts(), 1);
}

TEST_F(WorkerRunnerTest, D1_ChargesACrashToItsRequestAlone) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto crashed = Run(*runner, "crash");
  ASSERT_TRUE(crashed.ok()) << crashed.status();
  EXPECT_EQ(crashed->outcome(), v1::CRASHED);
  EXPECT_THAT(crashed->message(), HasSubstr("last words"));
  const auto next = Run(*runner, "ok");
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->outcome(), v1::OK);
  // The problem was set up again without being asked.
  EXPECT_THAT(next->message(), HasSubstr("prepared=op"));
  EXPECT_EQ(Starts(), 2);
}

TEST_F(WorkerRunnerTest, SaysHowAWorkerEnded) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto result = Run(*runner, "exit");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->outcome(), v1::CRASHED);
  EXPECT_THAT(result->message(), HasSubstr("9"));
}

TEST_F(WorkerRunnerTest, D4_KillsAHangButNotBeforeASecond) {
  auto runner = Make();
  PrepareOk(*runner);
  const absl::Time start = absl::Now();
  const auto hung = Run(*runner, "hang", 1);
  ASSERT_TRUE(hung.ok()) << hung.status();
  EXPECT_EQ(hung->outcome(), v1::TIMEOUT);
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(990));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_EQ(Run(*runner, "ok")->outcome(), v1::OK);
}

TEST_F(WorkerRunnerTest, TakesNonsenseForACrash) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto result = Run(*runner, "garbage");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome(), v1::CRASHED);
  EXPECT_THAT(result->message(), HasSubstr("nonsense"));
  EXPECT_EQ(Run(*runner, "ok")->outcome(), v1::OK);
}

TEST_F(WorkerRunnerTest, ChargesNothingToARequestThatWasNotBegun) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto result = Run(*runner, "die-before-begin-once");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome(), v1::OK);
  EXPECT_EQ(Starts(), 2);
}

TEST_F(WorkerRunnerTest, D2_GivesTheDeviceUpAfterThreeTries) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto result = Run(*runner, "die-before-begin");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome(), v1::DEVICE_LOST);
  EXPECT_EQ(Starts(), 3);
}

TEST_F(WorkerRunnerTest, D1_KeepsTheOutcomeOfAFaultThatEndsTheWorker) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto fault = Run(*runner, "fault");
  ASSERT_TRUE(fault.ok());
  EXPECT_EQ(fault->outcome(), v1::OUT_OF_BOUNDS);
  EXPECT_EQ(fault->cuda_error(), 700);
  const auto next = Run(*runner, "ok");
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->outcome(), v1::OK);
  EXPECT_EQ(Starts(), 2);
}

TEST_F(WorkerRunnerTest, PassesARefusalOn) {
  auto runner = Make();
  PrepareOk(*runner);
  const absl::Status status = Run(*runner, "refuse").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not like this"));
}

TEST_F(WorkerRunnerTest, SaysWhyThereIsNoGpu) {
  auto runner = Make("no-device");
  const absl::Status status = Prepare(*runner).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrorReason(status), "NO_GPU");
  EXPECT_THAT(std::string(status.message()), HasSubstr("no CUDA device 0"));
}

TEST_F(WorkerRunnerTest, RefusesAnotherProtocol) {
  auto runner = Make("old");
  EXPECT_EQ(Prepare(*runner).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(WorkerRunnerTest, SaysThatTheWorkerIsMissing) {
  WorkerRunner::Options options;
  options.worker_path = "/nowhere/rooftune-worker";
  auto runner = WorkerRunner::Create(options);
  ASSERT_TRUE(runner.ok());
  const absl::Status status = Prepare(**runner).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/rooftune-worker"));
}

TEST_F(WorkerRunnerTest, AFailedProblemLeavesNone) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto failed = Prepare(*runner, "too big");
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(failed->outcome(), v1::OUT_OF_MEMORY);
  EXPECT_EQ(Run(*runner, "ok").status().code(), absl::StatusCode::kFailedPrecondition);
  const auto crashed = Prepare(*runner, "crash");
  ASSERT_TRUE(crashed.ok());
  EXPECT_EQ(crashed->outcome(), v1::CRASHED);
  PrepareOk(*runner);
}

TEST_F(WorkerRunnerTest, CalibratingForgetsTheProblemOfTheProcessOnly) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto calibrated = runner->Calibrate({});
  ASSERT_TRUE(calibrated.ok());
  EXPECT_EQ(calibrated->outcome(), v1::OK);
  EXPECT_THAT(Run(*runner, "ok")->message(), HasSubstr("prepared=op"));
}

TEST_F(WorkerRunnerTest, ASpareTakesOver) {
  auto runner = Make("", /*spare=*/true);
  PrepareOk(*runner);
  EXPECT_THAT(Run(*runner, "ok")->message(), HasSubstr("standby=0"));
  EXPECT_EQ(Run(*runner, "crash")->outcome(), v1::CRASHED);
  EXPECT_THAT(Run(*runner, "ok")->message(), HasSubstr("standby=1"));
}

TEST_F(WorkerRunnerTest, InterruptEndsACallAndNotTheNext) {
  auto runner = Make();
  PrepareOk(*runner);
  absl::StatusOr<worker::v1::RunResult> hung = absl::UnknownError("not run");
  absl::Notification done;
  std::thread lane([&] {
    hung = Run(*runner, "hang", 60'000);
    done.Notify();
  });
  // Before the call has begun Interrupt() does nothing, so that it is repeated.
  while (!done.WaitForNotificationWithTimeout(absl::Milliseconds(1))) runner->Interrupt();
  lane.join();
  EXPECT_EQ(hung.status().code(), absl::StatusCode::kCancelled) << hung.status();
  EXPECT_EQ(Run(*runner, "ok")->outcome(), v1::OK);
}

TEST_F(WorkerRunnerTest, RacesInOrder) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto race = runner->Race(RaceOf({"ok", "ok"}));
  ASSERT_TRUE(race.ok()) << race.status();
  EXPECT_EQ(race->outcome(), v1::OK);
  ASSERT_EQ(race->result_size(), 2);
  EXPECT_EQ(race->result(0).outcome(), v1::OK);
  EXPECT_EQ(Starts(), 1);
}

TEST_F(WorkerRunnerTest, D1_ARaceGoesOnWithoutWhoKilledTheWorker) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto race = runner->Race(RaceOf({"ok", "crash", "ok", "hang", "fault", "ok"}));
  ASSERT_TRUE(race.ok()) << race.status();
  EXPECT_EQ(race->outcome(), v1::OK);
  ASSERT_EQ(race->result_size(), 6);
  const v1::Outcome expected[] = {v1::OK, v1::CRASHED, v1::OK, v1::TIMEOUT, v1::OUT_OF_BOUNDS, v1::OK};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(race->result(i).outcome(), expected[i]) << i;
  EXPECT_EQ(Starts(), 4);
}

TEST_F(WorkerRunnerTest, ARaceOfTheDoomedEnds) {
  auto runner = Make();
  PrepareOk(*runner);
  const auto race = runner->Race(RaceOf({"crash", "fault"}));
  ASSERT_TRUE(race.ok()) << race.status();
  EXPECT_EQ(race->result(0).outcome(), v1::CRASHED);
  EXPECT_EQ(race->result(1).outcome(), v1::OUT_OF_BOUNDS);
}

TEST_F(WorkerRunnerTest, D4_AnUnkillableWorkerPutsTheDeviceInQuarantineUntilItEnds) {
  WorkerRunner::Options options;
  options.worker_path = FAKE_RUN_WORKER;
  options.env = {absl::StrCat("FAKE_LOG=", log_), "FAKE_START="};
  bool stuck = true;
  // A process that hangs in the driver ends when the driver lets it, whatever signal it got.
  options.await_end = [&](Subprocess& worker, absl::Time deadline, ExitInfo* exit) {
    return !stuck && worker.Wait(std::max(deadline, absl::Now() + absl::Seconds(10)), exit);
  };
  auto runner = *WorkerRunner::Create(options);
  PrepareOk(*runner);
  const auto hung = Run(*runner, "hang", 1);
  ASSERT_TRUE(hung.ok()) << hung.status();
  EXPECT_EQ(hung->outcome(), v1::TIMEOUT);
  for (int i = 0; i < 2; ++i) {
    const auto next = Run(*runner, "ok");
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(next->outcome(), v1::DEVICE_LOST);
    EXPECT_THAT(next->message(), HasSubstr("in quarantine: process"));
    EXPECT_THAT(next->message(), HasSubstr("reset the GPU"));
  }
  EXPECT_EQ(Prepare(*runner)->outcome(), v1::DEVICE_LOST);
  EXPECT_EQ(runner->Idle().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Starts(), 1) << "nothing else is started on it";
  stuck = false;
  PrepareOk(*runner);
  EXPECT_EQ(Run(*runner, "ok")->outcome(), v1::OK);
  EXPECT_EQ(runner->Counters().at("quarantines"), 1);
  EXPECT_EQ(runner->Counters().at("worker_starts"), 2);
}

TEST_F(WorkerRunnerTest, AsksWhoElseComputes) {
  auto runner = Make();
  const auto idle = runner->Idle();
  ASSERT_TRUE(idle.ok()) << idle.status();
  EXPECT_EQ(idle->busy_processes(), 2);
  auto absent = Make("no-device");
  EXPECT_EQ(ErrorReason(absent->Idle().status()), "NO_GPU");
}

}  // namespace
}  // namespace rooftune

// Sweeps on fake devices. Names start with the scenario of the failure they guard against.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "tests/tuner/sweep/sweep_fixture.h"

namespace rooftune {
namespace {

// 20 µs and more, least at block 256, vec 8.
constexpr char kTimes[] = "profile: 'h200-sxm' name: 'test' time_ns: '20000 + 10*abs(block - 256) + 1000*abs(vec - 8)' ";

TEST_F(SweepTest, CrownsTheFastestAndRecordsEverything) {
  Start(absl::StrCat(kTimes, "baseline_us { key: 'copy' value: 25 }"));
  const v1::Sweep sweep = RunSweep(Spec(1000, v1::EXHAUSTIVE));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_EQ(sweep.evidence(), v1::MEASURED);
  const auto trials = Trials(sweep.name());
  EXPECT_EQ(static_cast<int>(trials.size()), sweep.progress().planned());
  ASSERT_GE(sweep.record_size(), 1);
  const auto record = store_.GetRecord(sweep.record(0));
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->config().at("block"), 256);
  EXPECT_EQ(record->config().at("vec"), 8);
  EXPECT_EQ(record->evidence(), v1::MEASURED);
  EXPECT_DOUBLE_EQ(record->measurement().median_us(), 20);
  ASSERT_EQ(record->baseline_size(), 1);
  EXPECT_EQ(record->baseline(0).name(), "copy");
  EXPECT_EQ(record->plan().artifact_digest(), record->artifact_digest());
  EXPECT_TRUE(artifacts_->Get(record->artifact_digest()).ok());
  EXPECT_GE(published_, 1);
}

TEST_F(SweepTest, L4_ARacerWhoseBitsDifferIsRecordedAsSuch) {
  edit_race_ = [](worker::v1::RaceResult& race) {
    race.mutable_result(0)->mutable_verification()->set_nondeterministic(true);
  };
  Start(kTimes);
  const v1::Sweep sweep = RunSweep(Spec(1000, v1::EXHAUSTIVE));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  ASSERT_GE(sweep.record_size(), 2);
  int unsteady = 0;
  for (const std::string& name : sweep.record()) {
    const auto record = store_.GetRecord(name);
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_TRUE(record->verification().passed());
    unsteady += record->verification().nondeterministic();
  }
  EXPECT_EQ(unsteady, 1);
}

TEST_F(SweepTest, G4_BudgetIsExact) {
  Start(kTimes);
  const v1::Sweep sweep = RunSweep(Spec(7));
  EXPECT_EQ(sweep.progress().finished(), 7);
  EXPECT_EQ(Trials(sweep.name()).size(), 7u);
}

TEST_F(SweepTest, D1_OneCrashCostsOneCandidate) {
  Start(absl::StrCat(kTimes, "rule { phase: RUN when: 'run == 6' outcome: CRASHED message: 'sticky' }"));
  const v1::Sweep sweep = RunSweep(Spec(20));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  const auto trials = Trials(sweep.name());
  const auto crashed = [](const v1::Trial& trial) { return trial.outcome() == v1::CRASHED; };
  EXPECT_EQ(std::count_if(trials.begin(), trials.end(), crashed), 1);
  EXPECT_EQ(std::count_if(trials.begin(), trials.end(), [](const v1::Trial& t) { return t.outcome() == v1::OK; }), 19);
}

TEST_F(SweepTest, C1_FastAndWrongNeverWins) {
  // Everything but vec 2 is wrong, and ten times faster.
  Start("profile: 'h200-sxm' name: 'test' time_ns: '20000 if vec == 2 else 2000' "
        "rule { phase: RUN when: 'vec != 2' outcome: WRONG_RESULT message: 'wrong' }");
  const v1::Sweep sweep = RunSweep(Spec(1000, v1::EXHAUSTIVE));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_EQ(sweep.progress().best_config().at("vec"), 2);
  for (const v1::Trial& trial : Trials(sweep.name())) {
    if (trial.config().at("vec") != 2) {
      EXPECT_LT(trial.evidence(), v1::VERIFIED);
    }
  }
}

TEST_F(SweepTest, B6_TimesBelowTheFloorNeverWin) {
  // 4 MiB can't move in a nanosecond, nor in nothing, nor in less.
  Start("profile: 'h200-sxm' name: 'test' time_ns: '20000 if block == 64 else (1 if block == 128 else (0 if block == 256 else -5000))'");
  const v1::Sweep sweep = RunSweep(Spec(1000, v1::EXHAUSTIVE));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_EQ(sweep.progress().best_config().at("block"), 64);
  for (const v1::Trial& trial : Trials(sweep.name())) {
    EXPECT_EQ(trial.outcome(), trial.config().at("block") == 64 ? v1::OK : v1::IMPLAUSIBLE);
  }
}

TEST_F(SweepTest, E4_NothingLeftFailsWithReasons) {
  Start(absl::StrCat(kTimes, "rule { phase: COMPILE when: 'RT_BLOCK > 0' outcome: COMPILE_FAILED message: 'ptxas is out of sorts' }"));
  const v1::Sweep sweep = RunSweep(Spec(5));
  EXPECT_EQ(sweep.state(), v1::FAILED);
  EXPECT_NE(sweep.message().find("COMPILE_FAILED: 5"), std::string::npos) << sweep.message();
  EXPECT_NE(sweep.message().find("ptxas is out of sorts"), std::string::npos) << sweep.message();
  EXPECT_EQ(sweep.record_size(), 0);
}

TEST_F(SweepTest, E4_OneSampleOfEachReason) {
  Start(absl::StrCat(
      kTimes,
      "rule { phase: COMPILE when: 'RT_BLOCK == 64' outcome: COMPILE_FAILED message: 'ptxas is out of sorts' }"
      "rule { phase: RUN when: 'block == 128' outcome: OUT_OF_BOUNDS message: 'an illegal address' }"
      "rule { phase: RUN outcome: WRONG_RESULT message: '17 of 1000 elements are wrong' }"));
  const v1::Sweep sweep = RunSweep(Spec(1000, v1::EXHAUSTIVE));
  EXPECT_EQ(sweep.state(), v1::FAILED);
  for (const char* part : {"COMPILE_FAILED (sweeps/", "ptxas is out of sorts", "OUT_OF_BOUNDS (sweeps/",
                           "an illegal address", "WRONG_RESULT (sweeps/", "17 of 1000 elements are wrong"}) {
    EXPECT_NE(sweep.message().find(part), std::string::npos) << part << " is not in " << sweep.message();
  }
  for (const auto& [outcome, count] : sweep.progress().outcome()) {
    EXPECT_NE(sweep.message().find(absl::StrCat(outcome, ": ", count)), std::string::npos) << sweep.message();
  }
}

TEST_F(SweepTest, ModelledDeviceStopsAtCompiled) {
  Start(kTimes, /*modelled=*/true);
  const v1::Sweep sweep = RunSweep(Spec(8, v1::MODEL));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_EQ(sweep.evidence(), v1::COMPILED);
  const auto record = store_.GetRecord(sweep.record(0));
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->evidence(), v1::COMPILED);
  EXPECT_FALSE(record->has_measurement());
  EXPECT_GT(record->prediction().time_us(), 0);
}

TEST_F(SweepTest, G2_CancelKeepsAndResumeMeasuresTheRest) {
  Start(absl::StrCat(kTimes, "rule { phase: RUN when: 'run == 5' delay_s: 60 }"));
  const auto started = manager_->Start(Spec(12), "");
  ASSERT_TRUE(started.ok());
  while (Trials(started->name()).size() < 5) absl::SleepFor(absl::Milliseconds(2));
  const absl::Time begin = absl::Now();
  const auto cancelled = manager_->Cancel(started->name());
  ASSERT_TRUE(cancelled.ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2));
  EXPECT_EQ(cancelled->state(), v1::CANCELLED);
  EXPECT_EQ(Trials(started->name()).size(), 5u);

  Start(kTimes);
  ASSERT_TRUE(manager_->Resume(started->name()).ok());
  const v1::Sweep done = Await(started->name());
  ASSERT_EQ(done.state(), v1::DONE) << done.message();
  EXPECT_EQ(done.progress().finished(), 12);
  EXPECT_EQ(Trials(started->name()).size(), 12u);
  // Seven new candidates, then the race; nothing that was finished ran again on its own.
  std::set<std::string> configs;
  for (const v1::Trial& trial : Trials(started->name())) configs.insert(ConfigToString({trial.config().begin(), trial.config().end()}));
  EXPECT_EQ(configs.size(), 12u);
}

TEST_F(SweepTest, RestartedDaemonResumesByItself) {
  Start(absl::StrCat(kTimes, "rule { phase: RUN when: 'run == 4' delay_s: 60 }"));
  const auto started = manager_->Start(Spec(9), "");
  ASSERT_TRUE(started.ok());
  while (Trials(started->name()).size() < 4) absl::SleepFor(absl::Milliseconds(2));
  Start(kTimes);  // shuts the first manager down in mid-run
  const v1::Sweep done = Await(started->name());
  ASSERT_EQ(done.state(), v1::DONE) << done.message();
  EXPECT_EQ(Trials(started->name()).size(), 9u);
}

TEST_F(SweepTest, D2_LostDeviceFailsTheSweepNotTheCandidates) {
  Start(absl::StrCat(kTimes, "lose_after_runs: 3 lost_calls: 1000"));
  const v1::Sweep sweep = RunSweep(Spec(10));
  EXPECT_EQ(sweep.state(), v1::FAILED);
  EXPECT_NE(sweep.message().find("stopped answering"), std::string::npos) << sweep.message();
  for (const v1::Trial& trial : Trials(sweep.name())) EXPECT_EQ(trial.outcome(), v1::OK);
  EXPECT_EQ(manager_->Devices()[0].state(), v1::Device::UNAVAILABLE);
  Start(kTimes);
  ASSERT_TRUE(manager_->Resume(sweep.name()).ok());
  EXPECT_EQ(Await(sweep.name()).state(), v1::DONE);
}

TEST_F(SweepTest, K3_RecordStaysUnlessBeatenBeyondNoise) {
  Start(kTimes);
  const v1::Sweep first = RunSweep(Spec(1000, v1::EXHAUSTIVE));
  ASSERT_EQ(first.state(), v1::DONE);
  const v1::Sweep second = RunSweep(Spec(5));
  ASSERT_EQ(second.state(), v1::DONE) << second.message();
  ASSERT_EQ(second.record_size(), 1);
  EXPECT_EQ(second.record(0), first.record(0));
  EXPECT_NE(second.message().find("it stays"), std::string::npos) << second.message();
}

TEST_F(SweepTest, RequestIdIsIdempotent) {
  Start(kTimes);
  const auto first = manager_->Start(Spec(3), "id-1");
  ASSERT_TRUE(first.ok());
  const auto again = manager_->Start(Spec(3), "id-1");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(first->name(), again->name());
  const auto other = manager_->Start(Spec(4), "id-1");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(other.status()), "REQUEST_ID_REUSED");
  Await(first->name());
}

TEST_F(SweepTest, RefusesBadSpecs) {
  Start(kTimes);
  const auto code = [&](auto change) {
    v1::SweepSpec spec = Spec(3);
    change(spec);
    return manager_->Start(spec, "").status().code();
  };
  EXPECT_EQ(code([](auto& s) { s.set_max_trials(-1); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& s) { s.set_time_budget_s(-1); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& s) { s.set_run_timeout_ms(10); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& s) { s.set_op("nonsense n=1"); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& s) { s.add_template_id("nonsense"); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& s) { s.set_device("cuda:9"); }), absl::StatusCode::kNotFound);
}

TEST_F(SweepTest, StoreThatFillsUpFailsTheSweepAndTheManagerLives) {
  Start(kTimes);
  store_.FailWrite(6, absl::ResourceExhaustedError("disk full"));
  const v1::Sweep sweep = RunSweep(Spec(10));
  EXPECT_EQ(sweep.state(), v1::FAILED);
  EXPECT_NE(sweep.message().find("disk full"), std::string::npos) << sweep.message();
  EXPECT_EQ(RunSweep(Spec(4)).state(), v1::DONE);
}

TEST_F(SweepTest, CalibrationIsForRealDevices) {
  Start(kTimes, /*modelled=*/true);
  EXPECT_EQ(ErrorReason(manager_->Calibrate("model:h200-sxm").status()), "NOT_A_GPU");
}

}  // namespace
}  // namespace rooftune

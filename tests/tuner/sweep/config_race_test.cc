// Given configurations tried and raced without a sweep, and what a replay says of a stored trial.
#include <gmock/gmock.h>

#include "absl/synchronization/notification.h"
#include "base/error.h"
#include "tests/tuner/sweep/sweep_fixture.h"
#include "tuner/sweep/measure_policy.h"
#include "tuner/sweep/replay.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;

constexpr char kTimes[] =
    "profile: 'h200-sxm' name: 'test' time_ns: '20000 + 10*abs(block - 256) + 1000*abs(vec - 8)' ";

class ConfigRaceTest : public SweepTest {
 protected:
  static v1::RaceConfigsRequest Request(const std::vector<Config>& configs) {
    v1::RaceConfigsRequest request;
    request.set_op(kOp);
    for (const Config& config : configs) request.add_entrant()->mutable_config()->insert(config.begin(), config.end());
    return request;
  }
  absl::StatusOr<v1::RaceConfigsResponse> Race(const v1::RaceConfigsRequest& request) {
    absl::Notification answered;
    absl::StatusOr<v1::RaceConfigsResponse> answer = absl::UnknownError("no answer");
    manager_->RaceConfigs(
        request, [] { return false; },
        [&](auto result) {
          answer = std::move(result);
          answered.Notify();
        });
    EXPECT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(30)));
    return answer;
  }
};

TEST_F(ConfigRaceTest, TriesOneConfigurationAndStoresNothing) {
  Start(kTimes);
  const auto tried = Race(Request({{{"block", 128}, {"vec", 8}}}));
  ASSERT_TRUE(tried.ok()) << tried.status();
  ASSERT_EQ(tried->trial_size(), 1);
  const v1::Trial& trial = tried->trial(0);
  EXPECT_EQ(trial.outcome(), v1::OK) << trial.message();
  EXPECT_EQ(trial.evidence(), v1::MEASURED);
  EXPECT_DOUBLE_EQ(trial.measurement().median_us(), 20 + 1.28);
  EXPECT_EQ(trial.config().at("block"), 128);
  EXPECT_GT(trial.config().size(), 1u) << "the rest is the default configuration";
  EXPECT_TRUE(trial.verification().passed());
  EXPECT_GT(trial.prediction().time_us(), 0);
  EXPECT_TRUE(trial.name().empty());
  EXPECT_TRUE(store_.ListSweeps(std::nullopt, 10, "")->items.empty());
  EXPECT_TRUE(store_.ListRecords({}, 10, "")->items.empty());
}

TEST_F(ConfigRaceTest, RacesSeveralInTheirOrder) {
  Start(absl::StrCat(kTimes, "rule { phase: RUN when: 'block == 512' outcome: WRONG_RESULT message: 'wrong' }"));
  const auto raced =
      Race(Request({{{"block", 512}, {"vec", 8}}, {{"block", 256}, {"vec", 8}}, {{"block", 64}, {"vec", 8}}}));
  ASSERT_TRUE(raced.ok()) << raced.status();
  ASSERT_EQ(raced->trial_size(), 3);
  EXPECT_EQ(raced->trial(0).outcome(), v1::WRONG_RESULT);
  EXPECT_LT(raced->trial(0).evidence(), v1::VERIFIED);
  EXPECT_DOUBLE_EQ(raced->trial(1).measurement().median_us(), 20);
  EXPECT_DOUBLE_EQ(raced->trial(2).measurement().median_us(), 20 + 1.92);
  EXPECT_GT(raced->bounds().floor_us(), 0);
}

TEST_F(ConfigRaceTest, ACompileFailureIsATrial) {
  Start(absl::StrCat(kTimes, "rule { phase: COMPILE when: 'RT_BLOCK == 128' outcome: COMPILE_FAILED message: 'no' }"));
  const auto raced = Race(Request({{{"block", 128}}, {{"block", 256}, {"vec", 8}}}));
  ASSERT_TRUE(raced.ok()) << raced.status();
  EXPECT_EQ(raced->trial(0).outcome(), v1::COMPILE_FAILED);
  EXPECT_EQ(raced->trial(0).message(), "no");
  EXPECT_EQ(raced->trial(1).outcome(), v1::OK);
}

TEST_F(ConfigRaceTest, ModelledDevicesStopAtCompiled) {
  Start(kTimes, /*modelled=*/true);
  const auto tried = Race(Request({{}}));
  ASSERT_TRUE(tried.ok()) << tried.status();
  EXPECT_EQ(tried->trial(0).evidence(), v1::COMPILED);
  EXPECT_FALSE(tried->trial(0).has_measurement());
}

TEST_F(ConfigRaceTest, RefusesWhatIsNoConfiguration) {
  Start(kTimes);
  const auto reason = [&](const v1::RaceConfigsRequest& request) { return ErrorReason(Race(request).status()); };
  EXPECT_EQ(reason(Request({})), "BAD_SPEC");
  EXPECT_EQ(reason(Request(std::vector<Config>(33))), "BAD_SPEC");
  const auto bad = Race(Request({{{"block", 100}}}));
  EXPECT_EQ(ErrorReason(bad.status()), "BAD_CONFIG");
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("block"));
  EXPECT_EQ(reason(Request({{{"blocks", 128}}})), "BAD_CONFIG");
  auto request = Request({{}});
  request.mutable_entrant(0)->set_template_id("softmax");
  EXPECT_EQ(reason(request), "WRONG_TEMPLATE");
  request = Request({{}});
  request.set_device("cuda:9");
  EXPECT_EQ(reason(request), "UNKNOWN_DEVICE");
}

TEST_F(ConfigRaceTest, LosingTheDeviceIsNotTheConfigurationsFault) {
  Start(absl::StrCat(kTimes, "lose_after_runs: 1 lost_calls: 1"));
  ASSERT_TRUE(Race(Request({{}})).ok());
  EXPECT_FALSE(Race(Request({{}})).ok());
  EXPECT_TRUE(Race(Request({{}})).ok()) << "back again, without a restart";
}

TEST_F(ConfigRaceTest, WhoeverWaitsAtShutdownIsAnswered) {
  Start(absl::StrCat(kTimes, "rule { phase: RUN when: 'run == 0' delay_s: 60 }"));
  const auto sweep = manager_->Start(Spec(3), "");
  ASSERT_TRUE(sweep.ok());
  absl::Notification answered;
  absl::Status answer;
  manager_->RaceConfigs(
      Request({{}}), [] { return false; },
      [&](auto result) {
        answer = result.status();
        answered.Notify();
      });
  manager_->Shutdown();
  ASSERT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(5)));
  EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ConfigRaceTest, WhatNobodyWaitsForIsNotRun) {
  Start(kTimes);
  absl::Notification answered;
  manager_->RaceConfigs(
      Request({{}}), [] { return true; },
      [&](auto result) {
        EXPECT_TRUE(absl::IsCancelled(result.status())) << result.status();
        answered.Notify();
      });
  ASSERT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_EQ(runner_->runs(), 0);
}

v1::Trial Timed(double median, double low, double high) {
  v1::Trial trial;
  trial.set_outcome(v1::OK);
  trial.mutable_measurement()->set_median_us(median);
  trial.mutable_measurement()->set_ci_low_us(low);
  trial.mutable_measurement()->set_ci_high_us(high);
  return trial;
}

TEST(CompareReplayTest, B11_IntervalsDecide) {
  struct Case {
    v1::Trial before, after;
    bool agrees;
  };
  v1::Trial wrong;
  wrong.set_outcome(v1::WRONG_RESULT);
  const Case cases[] = {
      {Timed(100, 99, 101), Timed(101.5, 100.5, 102), true},
      {Timed(100, 99.9, 100.1), Timed(100.9, 100.8, 101), true},  // within the stop rule's 1 % together
      {Timed(100, 99.9, 100.1), Timed(101.2, 101.1, 101.3), false},
      {Timed(2, 1.99, 2.01), Timed(2.4, 2.39, 2.41), true},  // half a microsecond
      {Timed(2, 1.99, 2.01), Timed(2.6, 2.59, 2.61), false},
      {Timed(100, 99, 101), wrong, false},
      {wrong, wrong, true},
  };
  for (const Case& c : cases) {
    const auto response = CompareReplay(c.before, c.after);
    EXPECT_EQ(response.agrees(), c.agrees) << c.before.ShortDebugString() << " / " << c.after.ShortDebugString();
    EXPECT_TRUE(response.difference().empty());
  }
  EXPECT_DOUBLE_EQ(CompareReplay(Timed(100, 99, 101), Timed(150, 149, 151)).ratio(), 1.5);
  EXPECT_EQ(CompareReplay(wrong, wrong).ratio(), 0);
}

TEST(BeatsAttainableTest, FlagsWhatIsMoreThanThreePercentBelow) {
  v1::Bounds bounds;
  bounds.set_attainable_us(100);
  bounds.set_attainable_source("calibration 2026-11-29");
  const auto flagged = [&](double us, v1::L2State l2, v1::Outcome outcome = v1::OK) {
    v1::Trial trial;
    trial.set_outcome(outcome);
    trial.mutable_measurement()->set_median_us(us);
    trial.mutable_measurement()->set_l2(l2);
    FlagBeatsAttainable(bounds, trial);
    EXPECT_EQ(trial.beats_attainable(), !trial.message().empty());
    return trial.beats_attainable();
  };
  EXPECT_TRUE(flagged(96.9, v1::COLD));
  EXPECT_FALSE(flagged(97.1, v1::COLD));
  EXPECT_FALSE(flagged(50, v1::WARM)) << "the bound is one of memory";
  EXPECT_FALSE(flagged(50, v1::COLD, v1::WRONG_RESULT));
  bounds.set_attainable_us(0);
  EXPECT_FALSE(flagged(50, v1::COLD));
}

}  // namespace
}  // namespace rooftune

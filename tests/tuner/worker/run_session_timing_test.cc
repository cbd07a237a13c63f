// How a session times candidates, and when it gives one up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/time.h"
#include "base/clock.h"
#include "tests/tuner/worker/run_session_fixture.h"
#include "tuner/worker/run_timer.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;

TEST_F(RunSessionTest, VerifiesAndTimesARightKernel) {
  PrepareOk();
  const auto result = session_->Run(Candidate("right", true));
  EXPECT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_TRUE(result.verification().passed());
  EXPECT_EQ(result.verification().elements(), kElements);
  EXPECT_GE(result.verification().cpu_checked_elements(), 500);
  EXPECT_EQ(result.verification().reference(), "elementwise/reference.cuh@test");
  EXPECT_NEAR(result.measurement().median_us(), 50, 1e-3);
  EXPECT_EQ(result.measurement().l2(), v1::COLD);
  EXPECT_EQ(result.measurement().buffer_sets(), 256);
  // 2 ms hold 40 of the 256 sets: they are used in seven graphs.
  EXPECT_EQ(result.measurement().launches_per_sample(), 36);
  EXPECT_NEAR(result.measurement().sm_clock_mhz(), 1980, 1);
  // So small a problem stays in the L2 unless it is flushed.
  EXPECT_GE(cuda_.launches["rt_flush_read"], result.measurement().sample_us_size());
}

TEST_F(RunSessionTest, WarmUsesTheSameBuffersAndNoFlush) {
  PrepareOk();
  auto request = Candidate("right", true);
  request.mutable_options()->set_l2(v1::WARM);
  const auto result = session_->Run(request);
  EXPECT_EQ(result.outcome(), v1::OK);
  EXPECT_EQ(result.measurement().buffer_sets(), 1);
  EXPECT_EQ(result.measurement().launches_per_sample(), 40);
  EXPECT_EQ(cuda_.launches["rt_flush_read"], 0);
}

TEST_F(RunSessionTest, ThrottledBurstsAreThrownAway) {
  PrepareOk();
  auto request = Candidate("right", true);
  request.mutable_options()->set_min_samples(5);
  // One good burst teaches the clock, the next fell by 20 %.
  cuda_.clocks_mhz = {1980, 1980, 1980, 1600, 1980};
  request.mutable_options()->set_target_absolute_ci_us(1e-9);
  request.mutable_options()->set_burst_ms(0.001);
  const auto result = session_->Run(request);
  EXPECT_EQ(result.outcome(), v1::OK);
  EXPECT_EQ(result.measurement().discarded_samples(), 1);
  EXPECT_EQ(result.measurement().sample_us_size(), 5);
}

// Says what it is told, and lets time pass between the readings around a burst.
class ScriptedMonitor : public GpuMonitor {
 public:
  GpuReading Read() override {
    ++reads;
    if (reads % 2 == 0 && (busy_bursts < 0 || reads / 2 <= busy_bursts)) clock.Advance(absl::Seconds(1));
    return reading;
  }
  int64_t EnergyMj() override {
    if (energy_mj < 0) return -1;
    // 20 ms a look; the counter moves with every other one.
    clock.Advance(absl::Milliseconds(20));
    if (++energy_reads % 2 == 0) energy_mj = total_mj();
    return energy_mj;
  }
  GpuReading reading = {412, 51, 0x4, 1};
  std::function<int64_t()> total_mj;
  int64_t energy_mj = -1;
  int energy_reads = 0;
  FakeClock clock;
  int busy_bursts = 0;  // so many bursts take a second of wall time; negative = all
  int reads = 0;
};

TEST_F(RunSessionTest, B3_ContendedBurstsAreThrownAwayAndCounted) {
  ScriptedMonitor monitor;
  monitor.busy_bursts = 2;
  session_ = std::make_unique<RunSession>(*context_, RunSession::Surroundings{&monitor, &monitor.clock});
  PrepareOk();
  const auto result = session_->Run(Candidate("right", true));
  EXPECT_EQ(result.outcome(), v1::OK) << result.message();
  const auto& m = result.measurement();
  EXPECT_TRUE(m.contended());
  EXPECT_GT(m.contended_samples(), 0);
  EXPECT_EQ(m.discarded_samples(), m.contended_samples());
  EXPECT_EQ(m.foreign_processes(), 1);
  EXPECT_EQ(m.power_w(), 412);
  EXPECT_EQ(m.temperature_c(), 51);
  EXPECT_EQ(m.throttle_reasons(), 4u);
  EXPECT_NEAR(m.median_us(), 50, 1e-3);
}

TEST_F(RunSessionTest, B3_AFullyContendedMeasurementIsNoTime) {
  ScriptedMonitor monitor;
  monitor.busy_bursts = -1;
  session_ = std::make_unique<RunSession>(*context_, RunSession::Surroundings{&monitor, &monitor.clock});
  PrepareOk();
  const auto result = session_->Run(Candidate("right", true));
  EXPECT_EQ(result.outcome(), v1::TOO_NOISY);
  EXPECT_THAT(result.message(), HasSubstr("contended: 1 other processes"));
  EXPECT_EQ(result.measurement().sample_us_size(), 0);
  // A race ends too, and says the same of each.
  const auto race = session_->Race(RaceOf({"right", "right"}), [](int) {});
  EXPECT_EQ(race.result(0).outcome(), v1::TOO_NOISY);
  EXPECT_EQ(race.result(1).outcome(), v1::TOO_NOISY);
  // With nobody else on the GPU a slow host is no reason to doubt.
  monitor.reading.foreign_processes = 0;
  EXPECT_EQ(session_->Run(Candidate("right", true)).outcome(), v1::OK);
}

TEST_F(RunSessionTest, EnergyIsThatOfTheLaunchesInItsWindows) {
  ScriptedMonitor monitor;
  monitor.reading.foreign_processes = 0;
  monitor.energy_mj = 1'000'000;
  // Three millijoules a launch.
  monitor.total_mj = [&] { return 1'000'000 + int64_t{3} * cuda_.launches["right"]; };
  session_ = std::make_unique<RunSession>(*context_, RunSession::Surroundings{&monitor, &monitor.clock});
  PrepareOk();
  auto request = Candidate("right", true);
  EXPECT_EQ(session_->Run(request).measurement().energy_uj(), 0) << "only on request";
  request.mutable_options()->set_energy(true);
  const auto result = session_->Run(request);
  ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_EQ(result.energy_error(), "");
  const auto& m = result.measurement();
  EXPECT_NEAR(m.energy_uj(), 3000, 1e-6);
  EXPECT_NEAR(m.energy_low_uj(), 3000, 1e-6);
  EXPECT_NEAR(m.energy_high_uj(), 3000, 1e-6);
  EXPECT_GT(m.energy_launches(), 1000);
  // In a race each candidate has its own.
  cuda_.kernels["left"] = AddKernel(Right);
  worker::v1::RaceRequest race = RaceOf({"right", "left"});
  race.mutable_options()->set_energy(true);
  monitor.total_mj = [&] {
    return 1'000'000 + int64_t{3} * cuda_.launches["right"] + int64_t{7} * cuda_.launches["left"];
  };
  const auto raced = session_->Race(race, [](int) {});
  ASSERT_EQ(raced.outcome(), v1::OK) << raced.message();
  EXPECT_NEAR(raced.result(0).measurement().energy_uj(), 3000, 1e-6);
  EXPECT_NEAR(raced.result(1).measurement().energy_uj(), 7000, 1e-6);
}

TEST_F(RunSessionTest, EnergyThatCantBeHadIsSaid) {
  ScriptedMonitor monitor;
  monitor.reading.foreign_processes = 0;
  session_ = std::make_unique<RunSession>(*context_, RunSession::Surroundings{&monitor, &monitor.clock});
  PrepareOk();
  auto request = Candidate("right", true);
  request.mutable_options()->set_energy(true);
  const auto none = session_->Run(request);
  EXPECT_EQ(none.outcome(), v1::OK);
  EXPECT_THAT(none.energy_error(), HasSubstr("NVML does not count it"));
  EXPECT_GT(none.measurement().median_us(), 0);
  monitor.energy_mj = 5;
  monitor.total_mj = [] { return int64_t{5}; };
  EXPECT_THAT(session_->Run(request).energy_error(), HasSubstr("does not move under load"));
  // A candidate that was given up is not loaded for seconds.
  request.mutable_options()->set_abandon_above_us(10);
  const int before = cuda_.launches["right"];
  EXPECT_EQ(session_->Run(request).energy_error(), "");
  EXPECT_LT(cuda_.launches["right"] - before, 2000);
}

// Alone or in a race: what another kernel left of these buffers in the L2 must not serve this one.
TEST_F(RunSessionTest, B1_EveryBurstOnRotatedBuffersBeginsWithAFlush) {
  auto support = SupportModule::Create(*context_, Request().support_cubin());
  ASSERT_TRUE(support.ok()) << support.status();
  auto flush = DeviceBuffer::Create(*context_, 4096);
  auto data = DeviceBuffer::Create(*context_, 4096);
  ASSERT_TRUE(flush.ok() && data.ok());
  TimedWork work;
  work.sets = 2;
  work.rotation = Rotation::kCold;
  work.flush = flush->ptr();
  work.flush_bytes = flush->size();
  work.enqueue = [&](int) { return (*support)->Poison(data->ptr(), 64); };
  cuda_.duration_us["rt_poison"] = 100;
  FakeClock clock;
  double highest_mhz = 0;
  const TimerContext context = {*context_, **support, nullptr, clock, highest_mhz};
  auto timer = KernelTimer::Create(context, work, {});
  ASSERT_TRUE(timer.ok()) << timer.status();
  ASSERT_TRUE((*timer)->WarmUp().ok());
  EXPECT_EQ(cuda_.launches["rt_flush_read"], 0);
  for (int bursts = 1; bursts <= 3; ++bursts) {
    ASSERT_TRUE((*timer)->Burst(1).ok());
    EXPECT_EQ(cuda_.launches["rt_flush_read"], bursts);
  }
}

TEST_F(RunSessionTest, B2_TheFlushIsNotTimed) {
  PrepareOk();
  cuda_.duration_us["rt_flush_read"] = 60;
  cuda_.duration_us["right"] = 5;
  const auto result = session_->Run(Candidate("right", true));
  ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_GT(cuda_.launches["rt_flush_read"], 0);
  EXPECT_NEAR(result.measurement().median_us(), 5, 1e-3);
}

TEST_F(RunSessionTest, B7_ShortKernelsAreTimedManyToAGraph) {
  PrepareOk();
  cuda_.duration_us["right"] = 2;
  auto request = Candidate("right", true);
  request.mutable_options()->set_l2(v1::WARM);
  const auto result = session_->Run(request);
  EXPECT_EQ(result.measurement().timing(), v1::GRAPH);
  EXPECT_EQ(result.measurement().launches_per_sample(), 300);
}

TEST_F(RunSessionTest, G5_TheSlowCostLittleOfTheGpu) {
  PrepareOk();
  cuda_.kernels["slow"] = cuda_.kernels["right"];
  cuda_.duration_us["slow"] = 100 * cuda_.duration_us["right"];
  ASSERT_EQ(session_->Run(Candidate("right", true)).outcome(), v1::OK);
  auto request = Candidate("slow", true);
  request.mutable_options()->set_abandon_above_us(150);
  for (int i = 0; i < 9; ++i) {
    const auto result = session_->Run(request);
    ASSERT_EQ(result.outcome(), v1::OK);
    EXPECT_THAT(result.message(), HasSubstr("abandoned"));
    EXPECT_NEAR(result.measurement().median_us(), 5000, 1);
  }
  const double good_us = cuda_.launches["right"] * cuda_.duration_us["right"];
  // One launch each is the verification's.
  const double slow_us = (cuda_.launches["slow"] - 9) * cuda_.duration_us["slow"];
  EXPECT_LE(slow_us, 3 * good_us) << cuda_.launches["slow"] << " and " << cuda_.launches["right"] << " launches";
}

TEST_F(RunSessionTest, C4_InPlaceInputsAreRestoredBeforeEachBurst) {
  auto request = InPlaceRequest();
  request.set_l2(v1::WARM);
  ASSERT_EQ(session_->Prepare(request).outcome(), v1::OK);
  // Adds to what it finds.
  float largest = 0, step = 0;
  cuda_.kernels["add"] = AddKernel([&](const float* a, const float*, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] += a[i];
    step = std::abs(a[0]);
    largest = std::max(largest, std::abs(y[0]));
  });
  cuda_.duration_us["add"] = 50;
  auto run = Candidate("add", true);
  run.set_verify(false);
  run.mutable_options()->set_l2(v1::WARM);
  // Bursts of 32 samples, the most there are: the fake's samples take the host no time.
  run.mutable_options()->set_min_samples(200);
  run.mutable_options()->set_max_samples(200);
  run.mutable_options()->set_target_absolute_ci_us(1e-9);
  const auto result = session_->Run(run);
  ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_GT(cuda_.launches["add"], 6000);
  // What one burst adds, with its untimed replay and the warm-up; not what all add.
  EXPECT_LT(largest, 1500 * step + 4);
  EXPECT_GT(step, 0.01);
}

TEST_F(RunSessionTest, GivesUpOnTheSlowAndDoubtsTheImpossible) {
  PrepareOk();
  auto request = Candidate("right", true);
  request.mutable_options()->set_abandon_above_us(40);
  const auto slow = session_->Run(request);
  EXPECT_EQ(slow.outcome(), v1::OK);
  EXPECT_LE(slow.measurement().sample_us_size(), 3);
  EXPECT_THAT(slow.message(), HasSubstr("abandoned"));
  request.mutable_options()->set_abandon_above_us(60);
  EXPECT_GE(session_->Run(request).measurement().sample_us_size(), 7);
  request.mutable_options()->set_floor_us(51);
  EXPECT_EQ(session_->Run(request).outcome(), v1::IMPLAUSIBLE);
}

// A launch by itself takes longer than in a graph; of a short kernel it says nothing.
TEST_F(RunSessionTest, ShortKernelsAreGivenUpByTheirGraphsOnly) {
  PrepareOk();
  cuda_.duration_us["right"] = 9;
  auto request = Candidate("right", true);
  request.mutable_options()->set_abandon_above_us(2.5);
  // However slow the host: the length of a sample, which a burst is planned by, is seen on its clock.
  request.mutable_options()->set_burst_ms(1000);
  const auto slow = session_->Run(request);
  EXPECT_EQ(slow.outcome(), v1::OK);
  EXPECT_THAT(slow.message(), HasSubstr("abandoned after 3 samples"));
  EXPECT_EQ(slow.measurement().timing(), v1::GRAPH);
}

}  // namespace
}  // namespace rooftune

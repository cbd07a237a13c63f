#include "tuner/worker/run_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace rooftune {
namespace {

TEST(MedianTest, OfOddEvenAndNone) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({9, 1, 5, 7}), 6);
}

TEST(MedianInterval95Test, UsesTheRanksOfTheBinomialDistribution) {
  // Tabulated ranks of the 95 % interval: n = 6 → 1, 9 → 2, 20 → 6, 100 → 40 (from 1, both sides).
  const struct {
    int n;
    int rank;
  } kCases[] = {{6, 1}, {8, 1}, {9, 2}, {12, 3}, {20, 6}, {50, 18}, {100, 40}};
  for (const auto& c : kCases) {
    std::vector<double> samples;
    for (int i = c.n; i >= 1; --i) samples.push_back(i);
    const Interval interval = MedianInterval95(samples);
    EXPECT_EQ(interval.low, c.rank) << c.n;
    EXPECT_EQ(interval.high, c.n + 1 - c.rank) << c.n;
  }
}

TEST(MedianInterval95Test, FewSamplesGiveTheirRange) {
  const Interval interval = MedianInterval95({4, 2, 8});
  EXPECT_EQ(interval.low, 2);
  EXPECT_EQ(interval.high, 8);
  EXPECT_EQ(MedianInterval95({}).high, 0);
}

TEST(MedianInterval95Test, CoversTheTrueMedianOfASkewedDistribution) {
  std::mt19937 random(7);
  std::exponential_distribution<double> skewed(1);
  int covered = 0;
  constexpr int kRuns = 2000;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> samples;
    for (int i = 0; i < 25; ++i) samples.push_back(skewed(random));
    const Interval interval = MedianInterval95(samples);
    covered += interval.low <= std::log(2.0) && std::log(2.0) <= interval.high;
  }
  EXPECT_GE(covered, kRuns * 0.94);
  EXPECT_LE(covered, kRuns * 0.985);
}

TEST(MedianInterval95Test, ManySamplesDoNotUnderflow) {
  std::vector<double> samples;
  for (int i = 1; i <= 2000; ++i) samples.push_back(i);
  const Interval interval = MedianInterval95(samples);
  EXPECT_NEAR(interval.low, 956, 2);
  EXPECT_NEAR(interval.high, 1045, 2);
}

worker::v1::MeasureOptions Options(int min, int max, double relative, double absolute) {
  worker::v1::MeasureOptions options;
  options.set_min_samples(min);
  options.set_max_samples(max);
  options.set_target_relative_ci(relative);
  options.set_target_absolute_ci_us(absolute);
  return WithDefaults(options);
}

TEST(WithDefaultsTest, FillsWhatIsMissingAndBoundsTheRest) {
  const auto options = WithDefaults({});
  EXPECT_EQ(options.l2(), v1::COLD);
  EXPECT_EQ(options.clock(), v1::COOL);
  EXPECT_LE(options.min_samples(), options.max_samples());
  EXPECT_EQ(Options(50, 10, 0, 0).min_samples(), 10);
  EXPECT_EQ(Options(5, 1'000'000, 0, 0).max_samples(), 1000);
}

TEST(EnoughSamplesTest, StopsOnEitherTarget) {
  const std::vector<double> tight = {100, 100.2, 100.4, 100.1, 100.3, 100.2, 100.2};
  EXPECT_TRUE(EnoughSamples(tight, Options(7, 100, 0.01, 1e-9)));
  EXPECT_FALSE(EnoughSamples(tight, Options(7, 100, 0.001, 1e-9)));
  EXPECT_TRUE(EnoughSamples(tight, Options(7, 100, 0.001, 0.5)));
  EXPECT_FALSE(EnoughSamples(tight, Options(8, 100, 0.01, 0.5)));
  EXPECT_TRUE(EnoughSamples(tight, Options(3, 7, 1e-9, 1e-9)));
  EXPECT_FALSE(EnoughSamples({}, Options(1, 5, 1, 1)));
}

TEST(ClockGateTest, RejectsABurstThatFellBelowTheClock) {
  ClockGate gate;
  EXPECT_TRUE(gate.Accept(1980, 1980));
  EXPECT_TRUE(gate.Accept(1980, 1950));
  EXPECT_FALSE(gate.Accept(1980, 1800));
  EXPECT_FALSE(gate.Accept(1800, 1980));
  EXPECT_TRUE(gate.Accept(1965, 1980));
  EXPECT_EQ(gate.reference_mhz(), 1980);
}

TEST(ClockGateTest, AKernelThatCostsItsOwnClockIsComparedWithItself) {
  ClockGate gate(1980);
  EXPECT_TRUE(gate.Accept(1980, 1880));
  EXPECT_TRUE(gate.Accept(1975, 1900));
  // Lower than it was cool, or left behind by others.
  EXPECT_FALSE(gate.Accept(1980, 1800));
  EXPECT_FALSE(gate.Accept(1880, 1880));
  EXPECT_TRUE(gate.Accept(1980, 1890));
}

TEST(ClockGateTest, FollowsACardThatCannotHoldItsClock) {
  ClockGate gate;
  EXPECT_TRUE(gate.Accept(1980, 1980));
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(gate.Accept(1500, 1480)) << i;
  EXPECT_TRUE(gate.Accept(1500, 1480));
  EXPECT_TRUE(gate.Accept(1490, 1480));
  // And back up.
  EXPECT_TRUE(gate.Accept(1980, 1980));
  EXPECT_FALSE(gate.Accept(1500, 1480));
}

TEST(ClockGateTest, AnUnreadClockSaysNothing) {
  ClockGate gate;
  EXPECT_TRUE(gate.Accept(0, 0));
  EXPECT_TRUE(gate.Accept(1980, 0));
  EXPECT_TRUE(gate.Accept(0, 1980));
}

int Executions(const std::vector<ReplayChunk>& chunks) {
  int sum = 0;
  for (const ReplayChunk& chunk : chunks) sum += chunk.count;
  return sum;
}

TEST(PlanReplaysTest, ShortKernelsFillAGraph) {
  const auto warm = PlanReplays(2, 1, 1, Rotation::kNone);
  ASSERT_EQ(warm.size(), 1u);
  EXPECT_EQ(warm[0].count, 300);
  // A multiple of the sets, at most 300 nodes.
  const auto cold = PlanReplays(2, 2, 64, Rotation::kCold);
  ASSERT_EQ(cold.size(), 1u);
  EXPECT_EQ(cold[0].count, 128);
}

TEST(PlanReplaysTest, AFlushedGraphUsesEverySetOnce) {
  EXPECT_EQ(PlanReplays(2, 1, 64, Rotation::kFlushed)[0].count, 64);
  EXPECT_EQ(PlanReplays(2, 1, 1, Rotation::kFlushed)[0].count, 1);
}

TEST(PlanReplaysTest, LongKernelsStillMeetEverySetBeforeAnyAgain) {
  for (const double us : {1.0, 90.0, 700.0, 5e3, 1e6}) {
    for (const int sets : {1, 2, 5, 64}) {
      for (const int nodes : {1, 7, 400}) {
        const auto chunks = PlanReplays(us, nodes, sets, Rotation::kCold);
        if (chunks.size() > 1) {
          EXPECT_EQ(Executions(chunks), sets);
        }
        std::set<int> seen;
        int at = 0;
        for (const ReplayChunk& chunk : chunks) {
          EXPECT_GE(chunk.count, 1);
          EXPECT_EQ(chunk.first_set, chunks.size() > 1 ? at : 0);
          for (int i = 0; i < chunk.count; ++i) seen.insert((chunk.first_set + i) % sets);
          at += chunk.count;
          if (chunk.count > 1) {
            EXPECT_LE(chunk.count * nodes, 300);
          }
        }
        EXPECT_EQ(static_cast<int>(seen.size()), sets) << us << " " << sets << " " << nodes;
      }
    }
  }
}

TEST(SummarizeTest, Verdicts) {
  v1::Measurement m;
  auto options = Options(1, 100, 0.01, 0.5);
  EXPECT_EQ(Summarize({10, 10, 10, 10, 10, 10}, options, false, &m).outcome, v1::OK);
  EXPECT_EQ(m.median_us(), 10);
  EXPECT_EQ(m.sample_us_size(), 6);
  options.set_floor_us(11);
  EXPECT_EQ(Summarize({10, 10, 10, 10, 10, 10}, options, false, &m).outcome, v1::IMPLAUSIBLE);
  options.set_floor_us(9);
  EXPECT_EQ(Summarize({10, 10, 10, 10, 10, 10}, options, false, &m).outcome, v1::OK);
  EXPECT_EQ(Summarize({0, 0, 0}, options, false, &m).outcome, v1::IMPLAUSIBLE);
  EXPECT_EQ(Summarize({-1}, options, false, &m).outcome, v1::IMPLAUSIBLE);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Summarize({nan}, options, false, &m).outcome, v1::IMPLAUSIBLE);
  EXPECT_EQ(Summarize({}, options, false, &m).outcome, v1::TOO_NOISY);
}

TEST(SummarizeTest, NoiseCountsOnlyBeyondAFifthAndNotForTheAbandoned) {
  v1::Measurement m;
  const auto options = Options(1, 100, 0.01, 0.5);
  const std::vector<double> noisy = {80, 90, 100, 110, 120, 130};
  EXPECT_EQ(Summarize(noisy, options, false, &m).outcome, v1::TOO_NOISY);
  EXPECT_EQ(Summarize(noisy, options, true, &m).outcome, v1::OK);
  // 15 %: reported, not refused.
  EXPECT_EQ(Summarize({93, 95, 100, 100, 105, 108}, options, false, &m).outcome, v1::OK);
  EXPECT_EQ(m.ci_low_us(), 93);
  EXPECT_EQ(m.ci_high_us(), 108);
  // 0.4 us of 1 us is within the absolute target.
  EXPECT_EQ(Summarize({0.8, 1.0, 1.0, 1.0, 1.0, 1.2}, options, false, &m).outcome, v1::OK);
}

}  // namespace
}  // namespace rooftune

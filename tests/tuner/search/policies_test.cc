#include "tuner/search/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Limits of compute capability 9.0 (CUDA programming guide, table of technical specifications).
DeviceProfile Device() {
  DeviceProfile device;
  device.set_cc(90);
  device.set_sm_count(132);
  device.set_shared_per_sm_bytes(228 << 10);
  device.set_shared_per_block_optin_bytes(227 << 10);
  device.set_shared_reserved_per_block_bytes(1 << 10);
  device.set_shared_allocation_granularity(128);
  device.set_registers_per_sm(65536);
  device.set_registers_per_thread_max(255);
  device.set_register_allocation_granularity(256);
  device.set_threads_per_sm(2048);
  device.set_threads_per_block_max(1024);
  device.set_blocks_per_sm_max(32);
  return device;
}

v1::Resources Need(int threads, int registers, int static_shared = 0, int dynamic_shared = 0) {
  v1::Resources resources;
  resources.set_threads_per_block(threads);
  resources.set_registers_per_thread(registers);
  resources.set_static_shared_bytes(static_shared);
  resources.set_dynamic_shared_bytes(dynamic_shared);
  return resources;
}

TEST(PruneStaticTest, E1_NamesTheLimitThatIsPassed) {
  struct Case {
    v1::Resources resources;
    std::optional<std::string> reason;
  };
  const Case cases[] = {
      {Need(1024, 64, 0, 227 << 10), std::nullopt},
      {Need(128, 0, 13 << 10, 227 << 10), "shared memory 240 KiB > 227 KiB"},
      {Need(128, 0, 0, (227 << 10) + 16), "shared memory 227.0 KiB > 227 KiB"},
      {Need(1056, 0), "threads per block 1056 > 1024"},
      {Need(128, 256), "registers per thread 256 > 255"},
      {Need(512, 129), "registers per block 66048 > 65536"},
      {Need(0, 0), std::nullopt},
  };
  for (const Case& c : cases) EXPECT_EQ(PruneStatic(c.resources, Device()), c.reason) << c.resources.DebugString();
}

TEST(PruneStaticTest, UnknownLimitsDoNotPrune) {
  EXPECT_EQ(PruneStatic(Need(4096, 300, 1 << 20), DeviceProfile()), std::nullopt);
}

TEST(JudgeCompiledTest, E3_SpillLimit) {
  struct Case {
    int stores, loads, limit;
    v1::Outcome outcome;
  };
  for (const Case& c : {Case{0, 0, 0, v1::OK}, Case{4, 0, 0, v1::SPILLS}, Case{0, 4, 0, v1::SPILLS},
                        Case{32, 32, 64, v1::OK}, Case{33, 32, 64, v1::SPILLS}, Case{9000, 9000, -1, v1::OK}}) {
    v1::Resources resources = Need(128, 128);
    resources.set_spill_store_bytes(c.stores);
    resources.set_spill_load_bytes(c.loads);
    const CompiledVerdict verdict = JudgeCompiled(resources, c.limit, Device());
    EXPECT_EQ(verdict.outcome, c.outcome) << c.stores << " " << c.loads << " limit " << c.limit;
    EXPECT_EQ(verdict.message.empty(), c.outcome == v1::OK);
  }
}

TEST(JudgeCompiledTest, WhatDoesNotFitIsRejectedBeforeSpills) {
  v1::Resources resources = Need(128, 64, 0, 228 << 10);
  resources.set_spill_store_bytes(100);
  const CompiledVerdict verdict = JudgeCompiled(resources, 0, Device());
  EXPECT_EQ(verdict.outcome, v1::CONSTRAINT);
  EXPECT_THAT(verdict.message, HasSubstr("shared memory"));
}

TEST(JudgeCompiledTest, RoundingOfRegistersIsLeftToTheOccupancyRules) {
  // 1024 threads × 64 registers fill the SM exactly.
  EXPECT_EQ(JudgeCompiled(Need(1024, 64), 0, Device()).outcome, v1::OK);
  EXPECT_EQ(JudgeCompiled(Need(1024, 65), 0, Device()).outcome, v1::CONSTRAINT);
}

TEST(ShouldStopTest, G4_BudgetsAreExact) {
  struct Case {
    StopState state;
    bool stop;
  };
  const Case cases[] = {
      {{.started = 15, .max_trials = 16}, false},
      {{.started = 16, .max_trials = 16}, true},
      {{.started = 1000, .max_trials = 0, .elapsed_s = 1e9, .time_budget_s = 0}, false},
      {{.elapsed_s = 9.999, .time_budget_s = 10}, false},
      {{.elapsed_s = 10, .time_budget_s = 10}, true},
      {{.cancelled = true}, true},
      {{.device_lost = true}, true},
  };
  for (const Case& c : cases) EXPECT_EQ(ShouldStop(c.state), c.stop) << c.state.started << " " << c.state.elapsed_s;
}

v1::Measurement Time(double median, double low, double high) {
  v1::Measurement measurement;
  measurement.set_median_us(median);
  measurement.set_ci_low_us(low);
  measurement.set_ci_high_us(high);
  return measurement;
}

v1::Trial TrialOf(v1::Outcome outcome, double median, double low, double high) {
  v1::Trial trial;
  trial.set_outcome(outcome);
  *trial.mutable_measurement() = Time(median, low, high);
  return trial;
}

TEST(SelectFinalistsTest, TakesOverlapsAndTheMarginBestFirst) {
  const std::vector<v1::Trial> trials = {
      TrialOf(v1::OK, 110, 109, 111),         // clear loser
      TrialOf(v1::OK, 102.9, 102.5, 103),     // apart, but within 3 %
      TrialOf(v1::OK, 100, 99, 101),          // best
      TrialOf(v1::OK, 120, 100.5, 140),       // noisy: reaches down to the best one's upper end
      TrialOf(v1::WRONG_RESULT, 50, 49, 51),  // fast and wrong
      TrialOf(v1::OK, std::nan(""), 0, 0),    // no time
      TrialOf(v1::OK, 0, 0, 0),
      v1::Trial(),
  };
  EXPECT_THAT(SelectFinalists(trials, 10), ElementsAre(2, 1, 3));
  EXPECT_THAT(SelectFinalists(trials, 2), ElementsAre(2, 1));
  EXPECT_THAT(SelectFinalists(trials, 0), IsEmpty());
  EXPECT_THAT(SelectFinalists({}, 4), IsEmpty());
}

RaceEntry Entry(double median, double low, double high, int64_t workspace = 0, int64_t shared = 0) {
  return {
      .measurement = Time(median, low, high), .outcome = v1::OK, .workspace_bytes = workspace, .shared_bytes = shared};
}

TEST(JudgeRaceTest, ClearWinner) {
  const RaceVerdict verdict = JudgeRace({Entry(12, 11.5, 12.5), Entry(10, 9.5, 10.5, 1 << 20)});
  EXPECT_EQ(verdict.winner, 1);
  EXPECT_THAT(verdict.ties, IsEmpty());
  EXPECT_FALSE(verdict.keep_incumbent);
}

TEST(JudgeRaceTest, TiesGoToTheSmallerFootprint) {
  // All overlap the fastest, 0; 3 does not.
  const std::vector<RaceEntry> entries = {Entry(10, 9.5, 10.5, 100, 10), Entry(10.2, 9.9, 10.6, 0, 30),
                                          Entry(10.3, 10, 10.7, 0, 20), Entry(11, 10.6, 11.5)};
  const RaceVerdict verdict = JudgeRace(entries);
  EXPECT_EQ(verdict.winner, 2);
  EXPECT_THAT(verdict.ties, ElementsAre(0, 1));
}

TEST(JudgeRaceTest, EqualFootprintGoesToTheFirst) {
  EXPECT_EQ(JudgeRace({Entry(10.1, 9, 11), Entry(10, 9, 11)}).winner, 0);
}

RaceEntry Rounds(RaceEntry entry, std::vector<double> round_us) {
  entry.round_us = std::move(round_us);
  return entry;
}

TEST(BeatsTest, PairsSeeThroughWhatDriftsForBoth) {
  // A card that warms up: the intervals of the two overlap, but in every round one is 1 % faster.
  const std::vector<double> fast = {10, 10.2, 10.4, 10.6, 10.8, 11, 11.2};
  std::vector<double> slow;
  for (const double us : fast) slow.push_back(us * 1.01);
  const RaceEntry a = Rounds(Entry(10.6, 10, 11.2), fast);
  const RaceEntry b = Rounds(Entry(10.7, 10.1, 11.3), slow);
  EXPECT_TRUE(Beats(a, b));
  EXPECT_FALSE(Beats(b, a));
  EXPECT_FALSE(Beats(a, a));
  EXPECT_THAT(JudgeRace({b, a}).ties, IsEmpty());
}

TEST(BeatsTest, OneRoundTheOtherWayIsATieOfSix) {
  const RaceEntry a = Rounds(Entry(10, 9.9, 10.1), {10, 10, 10, 10, 10, 10});
  const RaceEntry b = Rounds(Entry(10.3, 10.2, 10.4), {10.3, 10.3, 10.3, 10.3, 10.3, 9.9});
  EXPECT_FALSE(Beats(a, b));
  EXPECT_FALSE(Beats(b, a));
  // Nine more rounds: two of 15 are not enough to doubt it.
  RaceEntry longer_a = a, longer_b = b;
  longer_a.round_us.resize(15, 10);
  longer_b.round_us.resize(15, 10.3);
  EXPECT_TRUE(Beats(longer_a, longer_b));
}

TEST(BeatsTest, AThousandthIsNothing) {
  EXPECT_FALSE(Beats(Rounds(Entry(10, 10, 10), std::vector<double>(9, 10)),
                     Rounds(Entry(10.005, 10.005, 10.005), std::vector<double>(9, 10.005))));
}

TEST(BeatsTest, TooFewPairsLeaveItToTheIntervals) {
  // Rounds that only one of them has are no pairs.
  const RaceEntry a = Rounds(Entry(10, 9.5, 10.5), {10, 0, 10, 10, 10, 10, 10});
  const RaceEntry b = Rounds(Entry(11, 10.4, 11.5), {11, 11, 0, 11, 11, 11, 11, 11});
  EXPECT_FALSE(Beats(a, b));
  EXPECT_TRUE(Beats(a, Rounds(Entry(11, 10.6, 11.5), b.round_us)));
  // By energy there are no pairs.
  RaceEntry thrifty = Rounds(Entry(20, 20, 20), std::vector<double>(9, 20));
  thrifty.measurement.set_energy_uj(1);
  RaceEntry hungry = Rounds(Entry(10, 10, 10), std::vector<double>(9, 10));
  hungry.measurement.set_energy_uj(2);
  EXPECT_TRUE(Beats(thrifty, hungry, v1::ENERGY));
  EXPECT_FALSE(Beats(thrifty, hungry, v1::TIME));
}

RaceEntry Vendor(double median, double low, double high, bool incumbent = false) {
  RaceEntry entry = Entry(median, low, high);
  entry.vendor = true;
  entry.incumbent = incumbent;
  return entry;
}

TEST(JudgeProvidersTest, TheLibraryServesOnlyBeyondNoise) {
  // Clearly faster than both templates, whose tie goes to the smaller footprint.
  ProviderVerdict verdict =
      JudgeProviders({Entry(10, 9.9, 10.1, 100), Entry(10.1, 10, 10.2), Vendor(12, 11, 13), Vendor(9, 8.9, 9.1)}, false);
  EXPECT_EQ(verdict.served, 3);
  EXPECT_EQ(verdict.best_template, 1);
  EXPECT_EQ(verdict.best_vendor, 3);
  EXPECT_TRUE(verdict.ties.empty());
  // Overlapping the fastest template, though not the tie's winner: a kernel of ours needs no library.
  verdict = JudgeProviders({Entry(10, 9.9, 10.1, 100), Entry(10.1, 10.05, 10.2), Vendor(9.95, 9.9, 9.99)}, false);
  EXPECT_EQ(verdict.served, 1);
  EXPECT_THAT(verdict.ties, testing::ElementsAre(0));
  // What is served now is displaced beyond noise only.
  verdict = JudgeProviders({Entry(10, 9.9, 10.1), Vendor(10.1, 10, 10.2, true)}, true);
  EXPECT_EQ(verdict.served, 1);
  verdict = JudgeProviders({Entry(9, 8.9, 9.1), Vendor(10.1, 10, 10.2, true)}, true);
  EXPECT_EQ(verdict.served, 0);
}

TEST(JudgeProvidersTest, OneKindAlone) {
  RaceEntry failed = Vendor(1, 1, 1);
  failed.outcome = v1::WRONG_RESULT;
  ProviderVerdict verdict = JudgeProviders({Entry(10, 9, 11), failed}, false);
  EXPECT_EQ(verdict.served, 0);
  EXPECT_EQ(verdict.best_vendor, -1);
  verdict = JudgeProviders({failed, Vendor(10, 9, 11)}, false);
  EXPECT_EQ(verdict.served, 1);
  EXPECT_EQ(verdict.best_template, -1);
  EXPECT_EQ(JudgeProviders({}, false).served, -1);
}

TEST(JudgeProvidersTest, IncumbentsDefendTheirKind) {
  RaceEntry old = Entry(10, 9.8, 10.2);
  old.incumbent = true;
  // The new template is no gain, the library's new algorithm is.
  const ProviderVerdict verdict =
      JudgeProviders({Entry(9.9, 9.7, 10.1), old, Vendor(8, 7.9, 8.1), Vendor(9, 8.9, 9.1, true)}, true);
  EXPECT_EQ(verdict.best_template, 1);
  EXPECT_EQ(verdict.best_vendor, 2);
  EXPECT_EQ(verdict.served, 2);
}

TEST(JudgeRaceTest, WrongOrUnmeasuredEntrantsCannotWin) {
  std::vector<RaceEntry> entries = {Entry(1, 1, 1), Entry(10, 9, 11), RaceEntry()};
  entries[0].outcome = v1::WRONG_RESULT;
  EXPECT_EQ(JudgeRace(entries).winner, 1);
  EXPECT_EQ(JudgeRace({RaceEntry()}).winner, -1);
  EXPECT_EQ(JudgeRace({}).winner, -1);
}

TEST(JudgeRaceTest, IncumbentStaysUnlessClearlyBeaten) {
  struct Case {
    RaceEntry challenger, incumbent;
    bool keep;
  };
  for (Case c :
       {Case{Entry(9, 8.8, 9.2), Entry(10, 9.8, 10.2), false}, Case{Entry(9, 8.8, 9.8), Entry(10, 9.8, 10.2), true},
        Case{Entry(11, 10.8, 11.2), Entry(10, 9.8, 10.2), true}, Case{Entry(9, 8, 9), RaceEntry(), false}}) {
    c.incumbent.incumbent = true;
    EXPECT_EQ(JudgeRace({c.challenger, c.incumbent}).keep_incumbent, c.keep)
        << c.challenger.measurement.DebugString() << c.incumbent.measurement.DebugString();
  }
}

TEST(RunDeadlineTest, Bounds) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(RunDeadlineMs(0, 0), 2000);
  EXPECT_EQ(RunDeadlineMs(1000, 0), 4000);
  EXPECT_EQ(RunDeadlineMs(1e5, 0), 30'000) << "0.1 s an operator";
  EXPECT_EQ(RunDeadlineMs(5e6, 0), 100'000) << "5 s an operator: 20 launches";
  EXPECT_EQ(RunDeadlineMs(infinite, 0), 600'000);
  EXPECT_EQ(RunDeadlineMs(std::nan(""), 0), 2000);
  EXPECT_EQ(RunDeadlineMs(5000, 10), 1000) << "never under a trap's report";
  EXPECT_EQ(RunDeadlineMs(5000, 7000), 7000);
}

OpFacts Gemm(int64_t m, int64_t n, const char* dtype) { return {"gemm", {{"m", m}, {"n", n}}, {{"dtype", dtype}}}; }

TEST(ShapeDistanceTest, SumsDoublings) {
  EXPECT_EQ(ShapeDistance(Gemm(8, 8, "bf16"), Gemm(8, 8, "bf16")), 0);
  EXPECT_EQ(ShapeDistance(Gemm(8, 8, "bf16"), Gemm(16, 2, "bf16")), 3);
  EXPECT_EQ(ShapeDistance(Gemm(16, 2, "bf16"), Gemm(8, 8, "bf16")), 3) << "symmetric";
  EXPECT_EQ(ShapeDistance(Gemm(8, 8, "bf16"), Gemm(8, 8, "fp16")), std::nullopt);
  EXPECT_EQ(ShapeDistance(Gemm(8, 8, "bf16"), {"softmax", {{"m", 8}, {"n", 8}}, {{"dtype", "bf16"}}}), std::nullopt);
  EXPECT_EQ(ShapeDistance(Gemm(8, 8, "bf16"), Gemm(0, 8, "bf16")), std::nullopt);
  EXPECT_EQ(ShapeDistance({"x", {{"m", 1}}, {}}, {"x", {{"k", 1}}, {}}), std::nullopt);
}

v1::Environment Env(const char* driver, const char* nvrtc) {
  v1::Environment environment;
  environment.set_driver(driver);
  environment.set_nvrtc(nvrtc);
  return environment;
}

TEST(MatchEnvironmentTest, BranchAndMajorMinorDecide) {
  struct Case {
    v1::Environment record, wanted;
    bool newer;
    v1::Match match;
    size_t differences;
  };
  const Case cases[] = {
      {Env("580.159.04", "13.0"), Env("580.95.05", "13.0.88"), false, v1::EXACT, 0},
      {Env("575.1", "13.0"), Env("580.1", "13.0"), false, v1::ENVIRONMENT_DIFFERS, 1},
      {Env("580.1", "12.9"), Env("580.1", "13.0"), false, v1::ENVIRONMENT_DIFFERS, 1},
      {Env("580.1", "13.0"), Env("580.1", "13.0"), true, v1::ENVIRONMENT_DIFFERS, 1},
      {Env("575.1", "12.9"), Env("580.1", "13.0"), true, v1::ENVIRONMENT_DIFFERS, 3},
      {Env("", "13.0"), Env("", "13.0"), false, v1::EXACT, 0},
  };
  for (const Case& c : cases) {
    std::vector<std::pair<std::string, std::string>> difference;
    EXPECT_EQ(MatchEnvironment(c.record, c.wanted, c.newer, &difference), c.match);
    EXPECT_EQ(difference.size(), c.differences);
    EXPECT_EQ(MatchEnvironment(c.record, c.wanted, c.newer, nullptr), c.match);
  }
  std::vector<std::pair<std::string, std::string>> difference;
  MatchEnvironment(Env("575.1", "13.0"), Env("580.1", "13.0"), false, &difference);
  EXPECT_THAT(difference, ElementsAre(Pair("driver", "575.1 → 580.1")));
}

v1::Measurement TimeAndEnergy(double us, double uj, double spread = 0.001) {
  v1::Measurement m;
  m.set_median_us(us);
  m.set_ci_low_us(us * (1 - spread));
  m.set_ci_high_us(us * (1 + spread));
  if (uj <= 0) return m;
  m.set_energy_uj(uj);
  m.set_energy_low_uj(uj * (1 - spread));
  m.set_energy_high_uj(uj * (1 + spread));
  return m;
}

TEST(ObjectiveTest, EnergyAndItsProductChooseOthersThanTime) {
  // Fastest, thriftiest, best product, and one whose energy is not known.
  const std::vector<v1::Measurement> measured = {TimeAndEnergy(10, 900), TimeAndEnergy(30, 300), TimeAndEnergy(12, 400),
                                                 TimeAndEnergy(5, 0)};
  std::vector<RaceEntry> entries;
  std::vector<v1::Trial> trials;
  for (const v1::Measurement& m : measured) {
    entries.emplace_back().measurement = m;
    trials.emplace_back().set_outcome(v1::OK);
    *trials.back().mutable_measurement() = m;
  }
  EXPECT_EQ(JudgeRace(entries).winner, 3);
  EXPECT_EQ(JudgeRace(entries, v1::ENERGY).winner, 1);
  EXPECT_EQ(JudgeRace(entries, v1::ENERGY_DELAY).winner, 2);
  EXPECT_EQ(SelectFinalists(trials, 5, v1::ENERGY), std::vector<int>({1}));
  EXPECT_EQ(SelectFinalists(trials, 1, v1::ENERGY_DELAY), std::vector<int>({2}));
  EXPECT_FALSE(ScoreOf(measured[3], v1::ENERGY).usable());
  EXPECT_DOUBLE_EQ(ScoreOf(measured[2], v1::ENERGY_DELAY).value, 12 * 400);
  EXPECT_EQ(ScoreOf(measured[0], v1::OBJECTIVE_UNSPECIFIED).value, 10);
}

TEST(ObjectiveTest, EnergiesThatOverlapAreATieOfTheSmallerFootprint) {
  std::vector<RaceEntry> entries(2);
  entries[0].measurement = TimeAndEnergy(10, 300, 0.02);
  entries[0].workspace_bytes = 4096;
  entries[1].measurement = TimeAndEnergy(20, 303, 0.02);
  EXPECT_EQ(JudgeRace(entries, v1::TIME).winner, 0);
  const RaceVerdict verdict = JudgeRace(entries, v1::ENERGY);
  EXPECT_EQ(verdict.winner, 1);
  EXPECT_EQ(verdict.ties, std::vector<int>({0}));
}

}  // namespace
}  // namespace rooftune

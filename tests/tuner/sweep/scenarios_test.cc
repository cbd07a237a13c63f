// Failures that autotuners had in the field, on fake devices. Names start with the scenario they guard against;
// docs/testing.md lists them all.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "kernels/candidate.h"
#include "tests/tuner/sweep/sweep_fixture.h"
#include "tuner/compile/caching_compiler.h"
#include "tuner/search/policies.h"
#include "tuner/sweep/planner.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;

constexpr char kTimes[] =
    "profile: 'h200-sxm' name: 'test' time_ns: '20000 + 10*abs(block - 256) + 1000*abs(vec - 8)' ";

using ScenarioTest = SweepTest;

std::string ConfigOf(const v1::Trial& trial) { return ConfigToString({trial.config().begin(), trial.config().end()}); }

// Notices calls that overlap.
class JealousRunner : public Runner {
 public:
  JealousRunner(std::unique_ptr<Runner> inner, std::atomic<int>& overlaps)
      : inner_(std::move(inner)), overlaps_(overlaps) {}
  absl::StatusOr<worker::v1::PrepareResult> Prepare(const worker::v1::PrepareRequest& request) override {
    return Alone([&] { return inner_->Prepare(request); });
  }
  absl::StatusOr<worker::v1::VendorResult> ListVendor(const worker::v1::VendorRequest& request) override {
    return Alone([&] { return inner_->ListVendor(request); });
  }
  absl::StatusOr<worker::v1::RunResult> Run(const worker::v1::RunRequest& request) override {
    return Alone([&] { return inner_->Run(request); });
  }
  absl::StatusOr<worker::v1::RunResult> RunBaseline(const worker::v1::BaselineRequest& request) override {
    return Alone([&] { return inner_->RunBaseline(request); });
  }
  absl::StatusOr<worker::v1::RaceResult> Race(const worker::v1::RaceRequest& request) override {
    return Alone([&] { return inner_->Race(request); });
  }
  absl::StatusOr<worker::v1::CalibrateResult> Calibrate(const worker::v1::CalibrateRequest& request) override {
    return Alone([&] { return inner_->Calibrate(request); });
  }
  absl::StatusOr<worker::v1::IdleResult> Idle() override {
    return Alone([&] { return inner_->Idle(); });
  }
  void Interrupt() override { inner_->Interrupt(); }

 private:
  template <typename Call>
  auto Alone(Call call) -> decltype(call()) {
    if (busy_.exchange(true)) ++overlaps_;
    auto result = call();
    busy_ = false;
    return result;
  }
  const std::unique_ptr<Runner> inner_;
  std::atomic<int>& overlaps_;
  std::atomic<bool> busy_{false};
};

TEST_F(ScenarioTest, B3_SweepsOfOneDeviceNeverMeasureAtTheSameTime) {
  std::atomic<int> overlaps{0};
  wrap_runner = [&](std::unique_ptr<Runner> inner) {
    return std::make_unique<JealousRunner>(std::move(inner), overlaps);
  };
  Start(absl::StrCat(kTimes, "rule { phase: RUN delay_s: 0.001 }"));
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) {
    const auto sweep = manager_->Start(Spec(10), "");
    ASSERT_TRUE(sweep.ok()) << sweep.status();
    names.push_back(sweep->name());
  }
  for (const std::string& name : names) EXPECT_EQ(Await(name).state(), v1::DONE);
  EXPECT_EQ(overlaps, 0);
  manager_.reset();
}

TEST_F(ScenarioTest, B3_AFullyContendedSweepEndsWithThatReason) {
  Start(absl::StrCat(kTimes,
                     "rule { phase: RUN outcome: TOO_NOISY message: 'contended: 2 other processes hold the GPU' }"));
  const v1::Sweep sweep = RunSweep(Spec(4));
  EXPECT_EQ(sweep.state(), v1::FAILED);
  EXPECT_THAT(sweep.message(), HasSubstr("TOO_NOISY: 4"));
  EXPECT_THAT(sweep.message(), HasSubstr("contended: 2 other processes"));
  EXPECT_EQ(sweep.record_size(), 0);
}

// As a sweep does it: screening of all, then a race of the finalists.
int CrownOne(const std::vector<double>& true_us, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto measure = [&](double us, int samples) {
    std::normal_distribution<double> noise(1, 0.02);
    std::vector<double> times;
    for (int i = 0; i < samples; ++i) times.push_back(us * noise(random));
    std::sort(times.begin(), times.end());
    // Ranks of the 95 % interval of the median by the normal approximation.
    const int low = std::max(0, static_cast<int>((samples - 1.96 * std::sqrt(samples)) / 2));
    v1::Measurement m;
    m.set_median_us(times[static_cast<size_t>(samples / 2)]);
    m.set_ci_low_us(times[static_cast<size_t>(low)]);
    m.set_ci_high_us(times[static_cast<size_t>(samples - 1 - low)]);
    return m;
  };
  std::vector<int> order(true_us.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<v1::Trial> trials;
  for (const int i : order) {
    v1::Trial& trial = trials.emplace_back();
    trial.set_outcome(v1::OK);
    *trial.mutable_measurement() = measure(true_us[static_cast<size_t>(i)], 11);
  }
  const std::vector<int> finalists = SelectFinalists(trials, 5);
  std::vector<RaceEntry> entries;
  for (const int f : finalists) {
    RaceEntry& entry = entries.emplace_back();
    entry.measurement = measure(true_us[static_cast<size_t>(order[static_cast<size_t>(f)])], 61);
    // The slower, the smaller: ties are decided for the worse one here.
    entry.workspace_bytes = 1000 - order[static_cast<size_t>(f)];
  }
  const int winner = JudgeRace(entries).winner;
  return winner < 0 ? -1 : order[static_cast<size_t>(finalists[static_cast<size_t>(winner)])];
}

TEST(ScenarioPolicyTest, B4_RegretUnderNoiseStaysBelowAPercent) {
  std::vector<double> true_us = {100, 100.4, 100.9};
  for (int i = 0; i < 60; ++i) true_us.push_back(103 + i);
  double regret = 0, worst = 0;
  constexpr int kSweeps = 200;
  for (uint64_t seed = 1; seed <= kSweeps; ++seed) {
    const int winner = CrownOne(true_us, seed);
    ASSERT_GE(winner, 0);
    const double here = true_us[static_cast<size_t>(winner)] / 100 - 1;
    regret += here / kSweeps;
    worst = std::max(worst, here);
  }
  EXPECT_LE(regret, 0.01);
  EXPECT_LE(worst, 0.05);
}

TEST_F(ScenarioTest, B4_TheRecordCarriesSamplesDispersionAndTies) {
  // Three configurations are alike, the others clearly slower.
  Start(
      "profile: 'h200-sxm' name: 'test' noise: 0.001 seed: 3 "
      "time_ns: '20000 if vec == 8 and block in (128, 256, 512) else 30000'");
  const v1::Sweep sweep = RunSweep(Spec(1000, v1::EXHAUSTIVE));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  const auto record = store_.GetRecord(sweep.record(0));
  ASSERT_TRUE(record.ok());
  EXPECT_GE(record->measurement().sample_us_size(), 9);
  EXPECT_LT(record->measurement().ci_low_us(), record->measurement().ci_high_us());
  EXPECT_GE(record->tie_size(), 1);
  for (const std::string& name : record->tie()) {
    EXPECT_NE(name, record->trial());
    EXPECT_THAT(name, HasSubstr("/trials/"));
  }
}

TEST_F(ScenarioTest, B6_NothingButNonsenseFailsTheSweep) {
  for (const char* time_ns : {"0", "-1000", "1"}) {
    Start(absl::StrCat("profile: 'h200-sxm' name: 'test' time_ns: '", time_ns, "'"));
    const v1::Sweep sweep = RunSweep(Spec(3));
    EXPECT_EQ(sweep.state(), v1::FAILED) << time_ns;
    EXPECT_THAT(sweep.message(), HasSubstr("IMPLAUSIBLE: 3"));
    EXPECT_EQ(sweep.record_size(), 0);
    EXPECT_EQ(sweep.progress().best_us(), 0);
  }
}

TEST_F(ScenarioTest, B9_EveryTrialHasItsOwnTime) {
  Start("profile: 'h200-sxm' name: 'test' time_ns: '1000000'");
  v1::SweepSpec spec = Spec(50);
  spec.set_op("gemm m=4096 n=4096 k=4096 dtype=bf16");
  const v1::Sweep sweep = RunSweep(spec);
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  const auto trials = Trials(sweep.name());
  ASSERT_EQ(trials.size(), 50u);
  for (const v1::Trial& trial : trials) EXPECT_DOUBLE_EQ(trial.measurement().median_us(), 1000);
}

TEST_F(ScenarioTest, C1_TheFirstBeingWrongCondemnsNobody) {
  std::set<std::string> wrong;
  // The default configuration always runs first.
  for (const uint64_t seed : {1, 2, 3}) {
    Start(absl::StrCat(kTimes, "rule { phase: RUN when: 'block == 256' outcome: WRONG_RESULT message: 'wrong' }"));
    v1::SweepSpec spec = Spec(1000);
    spec.set_seed(seed);
    const v1::Sweep sweep = RunSweep(spec);
    ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
    EXPECT_NE(sweep.progress().best_config().at("block"), 256);
    std::set<std::string> here;
    for (const v1::Trial& trial : Trials(sweep.name())) {
      EXPECT_EQ(trial.outcome(), trial.config().at("block") == 256 ? v1::WRONG_RESULT : v1::OK);
      if (trial.outcome() == v1::WRONG_RESULT) here.insert(ConfigOf(trial));
    }
    EXPECT_FALSE(here.empty());
    if (!wrong.empty()) {
      EXPECT_EQ(here, wrong) << "another order, other verdicts";
    }
    wrong = here;
  }
}

TEST_F(ScenarioTest, D4_D5_LimitsOfTheRequestHold) {
  Start(absl::StrCat(kTimes,
                     "rule { phase: RUN when: 'run == 1' delay_s: 60 } "
                     "rule { phase: COMPILE when: 'RT_BLOCK == 64' delay_s: 60 }"));
  v1::SweepSpec spec = Spec(1000, v1::EXHAUSTIVE);
  spec.set_compile_timeout_ms(100);
  spec.set_run_timeout_ms(1000);
  const absl::Time begin = absl::Now();
  const v1::Sweep sweep = RunSweep(spec);
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  EXPECT_EQ(sweep.spec().compile_timeout_ms(), 100);
  EXPECT_EQ(sweep.spec().run_timeout_ms(), 1000);
  int hung = 0;
  for (const v1::Trial& trial : Trials(sweep.name())) {
    hung += trial.outcome() == v1::TIMEOUT;
    if (trial.config().at("block") == 64) {
      EXPECT_EQ(trial.outcome(), v1::COMPILE_TIMEOUT);
      EXPECT_THAT(trial.message(), HasSubstr("100 ms"));
    }
  }
  EXPECT_EQ(hung, 1);
  spec.set_compile_timeout_ms(1);
  EXPECT_EQ(manager_->Start(spec, "").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ScenarioTest, D7_ACompilerThatDiesCostsItsCandidateOnly) {
  Start(absl::StrCat(kTimes, "rule { phase: COMPILE when: 'RT_BLOCK == 128' outcome: CRASHED message: 'SIGABRT' }"));
  const v1::Sweep sweep = RunSweep(Spec(1000, v1::EXHAUSTIVE));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  for (const v1::Trial& trial : Trials(sweep.name())) {
    const bool dies = trial.config().at("block") == 128;
    EXPECT_EQ(trial.outcome(), dies ? v1::CRASHED : v1::OK) << ConfigOf(trial);
    if (dies) {
      EXPECT_EQ(trial.message(), "SIGABRT");
    }
  }
}

TEST_F(ScenarioTest, E1_SharedMemoryPrunesBeforeCompiling) {
  // Ada consumer cards allow 99 KiB a block, Hopper 227 KiB.
  const std::string op = "gemm m=4096 n=4096 k=4096 dtype=bf16";
  const auto pruned = [&](const char* device) {
    // One template for both: Hopper has others besides.
    const auto plan = MakePlan(*library_, op, *profiles_.ById(device), nullptr, {"gemm_mma"});
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::map<std::string, int64_t> reasons;
    for (const auto& [reason, count] : plan->pruned) {
      if (reason.find("shared") != std::string::npos) reasons[reason] = count;
    }
    for (const SearchPoint& point : plan->points) {
      const auto& source = *plan->templates[static_cast<size_t>(point.template_index)];
      const v1::Resources resources = source.Analyse(plan->op, plan->ConfigOf(point), *profiles_.ById(device))->resources;
      EXPECT_LE(resources.static_shared_bytes() + resources.dynamic_shared_bytes(),
                profiles_.ById(device)->shared_per_block_optin_bytes());
    }
    int64_t sum = 0;
    for (const auto& [reason, count] : reasons) sum += count;
    EXPECT_GT(sum, 0) << "every prune has its reason";
    return std::make_pair(sum, plan->valid_points);
  };
  const auto ada = pruned("rtx-4090");
  const auto hopper = pruned("h200-sxm");
  EXPECT_GT(ada.first, hopper.first);
}

TEST_F(ScenarioTest, E3_AFailedCompileIsStoredAndTheSweepGoesOn) {
  Start(absl::StrCat(
      kTimes,
      "rule { phase: COMPILE when: 'RT_BLOCK == 512' outcome: COMPILE_FAILED message: 'ptxas: too many registers' }"));
  const v1::Sweep sweep = RunSweep(Spec(1000, v1::EXHAUSTIVE));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  for (const v1::Trial& trial : Trials(sweep.name())) {
    if (trial.config().at("block") != 512) continue;
    EXPECT_EQ(trial.outcome(), v1::COMPILE_FAILED);
    EXPECT_EQ(trial.message(), "ptxas: too many registers");
  }
}

// Borrows the compiler that the fixture owns.
class Borrowed : public Compiler {
 public:
  explicit Borrowed(Compiler& inner) : inner_(inner) {}
  absl::StatusOr<std::string> NvrtcVersion() override { return inner_.NvrtcVersion(); }
  absl::StatusOr<worker::v1::CompileResult> Compile(const worker::v1::CompileRequest& request) override {
    return inner_.Compile(request);
  }
  int parallelism() const override { return inner_.parallelism(); }

 private:
  Compiler& inner_;
};

TEST_F(ScenarioTest, G3_AFailureIsNotCompiledAgainForAnotherShape) {
  wrap_compiler = [](Compiler& inner) {
    return std::make_unique<CachingCompiler>(std::make_unique<Borrowed>(inner), CompileKey);
  };
  Start(absl::StrCat(kTimes, "rule { phase: COMPILE when: 'RT_BLOCK == 512' outcome: COMPILE_FAILED message: 'no' }"));
  ASSERT_EQ(RunSweep(Spec(1000, v1::EXHAUSTIVE)).state(), v1::DONE);
  const int after_first = compiler_->compiles();
  v1::SweepSpec other = Spec(1000, v1::EXHAUSTIVE);
  other.set_op("elementwise n=2097152 dtype=bf16 chain=relu(add(a,b))");
  const v1::Sweep second = RunSweep(other);
  ASSERT_EQ(second.state(), v1::DONE) << second.message();
  EXPECT_GT(second.progress().outcome().at("COMPILE_FAILED"), 0);
  EXPECT_EQ(compiler_->compiles(), after_first) << "all of it had been compiled before";
  manager_.reset();
}

TEST_F(ScenarioTest, G4_NoMoreThanWhatIsThere) {
  Start(kTimes);
  const v1::Sweep sweep = RunSweep(Spec(100'000));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_EQ(sweep.progress().planned(), sweep.progress().finished());
  EXPECT_LE(sweep.progress().finished(), sweep.progress().valid_points());
}

TEST_F(ScenarioTest, G6_AWarmStoreCompilesAndRunsNothing) {
  Start(kTimes);
  const v1::Sweep sweep = RunSweep(Spec(10));
  ASSERT_EQ(sweep.state(), v1::DONE);
  Start(kTimes);
  EXPECT_EQ(manager_->Get(sweep.name())->record(0), sweep.record(0));
  EXPECT_TRUE(artifacts_->Get(store_.GetRecord(sweep.record(0))->artifact_digest()).ok());
  manager_->Shutdown();
  EXPECT_EQ(compiler_->compiles(), 0);
  EXPECT_EQ(runner_->runs(), 0);
}

TEST_F(ScenarioTest, G7_AFullStoreFailsTheSweepAndItGoesOnWhenThereIsSpace) {
  Start(absl::StrCat(kTimes, "rule { phase: RUN delay_s: 0.002 }"));
  const auto started = manager_->Start(Spec(20), "");
  ASSERT_TRUE(started.ok());
  while (Trials(started->name()).size() < 3) absl::SleepFor(absl::Milliseconds(1));
  store_.FailWrite(1, Error(absl::StatusCode::kResourceExhausted, "DISK_FULL", "no space left"), /*onwards=*/true);
  // Its end can't be stored either; whoever watches is told all the same.
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (manager_->Devices()[0].state() == v1::Device::BUSY && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
  const auto kept = Trials(started->name()).size();
  EXPECT_LT(kept, 20u);
  EXPECT_GE(kept, 3u);
  store_.ClearFailures();
  Start(kTimes);  // takes up what is unfinished
  const v1::Sweep done = Await(started->name());
  ASSERT_EQ(done.state(), v1::DONE) << done.message();
  const auto trials = Trials(started->name());
  EXPECT_EQ(trials.size(), 20u);
  std::set<std::string> configs;
  for (const v1::Trial& trial : trials) configs.insert(ConfigOf(trial));
  EXPECT_EQ(configs.size(), 20u);
}

// Loses a binary as an artifact limit would, right before the race needs it.
class ForgetfulArtifacts : public ArtifactStore {
 public:
  absl::StatusOr<std::string> Put(absl::string_view data) override {
    ++puts;
    return inner_->Put(data);
  }
  absl::StatusOr<std::string> Get(const std::string& digest) override {
    if (lost.insert(digest).second) return absl::NotFoundError("evicted");
    return inner_->Get(digest);
  }
  std::set<std::string> lost;
  int puts = 0;

 private:
  const std::unique_ptr<ArtifactStore> inner_ = ArtifactStore::InMemory();
};

TEST_F(ScenarioTest, G7_ABinaryThatMadeRoomIsCompiledAgainForTheRace) {
  auto artifacts = std::make_unique<ForgetfulArtifacts>();
  ForgetfulArtifacts* const forgetful = artifacts.get();
  artifacts_ = std::move(artifacts);
  Start(kTimes);
  const v1::Sweep sweep = RunSweep(Spec(20));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_FALSE(forgetful->lost.empty());
  EXPECT_GT(forgetful->puts, 20);
  manager_.reset();
}

TEST_F(ScenarioTest, AnObjectiveWithoutACounterEndsAtOnce) {
  Start(kTimes);
  v1::SweepSpec spec = Spec(20);
  spec.set_objective(v1::ENERGY_DELAY);
  const v1::Sweep sweep = RunSweep(spec);
  EXPECT_EQ(sweep.state(), v1::FAILED);
  EXPECT_THAT(sweep.message(), HasSubstr("does not count energy"));
  EXPECT_LE(runner_->runs(), 1);
  spec.set_run_timeout_ms(2000);
  EXPECT_THAT(manager_->Start(spec, "").status().message(), HasSubstr("where energy is measured"));
}

}  // namespace
}  // namespace rooftune

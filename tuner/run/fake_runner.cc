#include "tuner/run/fake_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

constexpr int kSamples = 15;
// 1-based ranks of the 95 % interval of the median of 15 samples (binomial: 4th and 12th).
constexpr int kLowRank = 4, kHighRank = 12;
constexpr int64_t kVendorVersion = 130100;
constexpr int64_t kVendorWorkspaceBytes = int64_t{1} << 20;
constexpr absl::Duration kPoll = absl::Milliseconds(5);

// Integer words of an operator's text.
void AddOpWords(const std::string& op, Names& names) {
  for (const absl::string_view word : absl::StrSplit(op, ' ', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    int64_t value = 0;
    if (parts.size() == 2 && absl::SimpleAtoi(parts[1], &value)) names[parts[0]] = value;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<FakeRunner>> FakeRunner::Create(const device::v1::FakeScript& script, Clock& clock) {
  std::vector<Rule> rules;
  for (const auto& rule : script.rule()) {
    if (rule.phase() != device::v1::FakeRule::RUN) continue;
    Rule parsed{rule, std::nullopt};
    if (!rule.when().empty()) {
      RT_ASSIGN_OR_RETURN(parsed.when, Expression::Parse(rule.when()));
    }
    rules.push_back(std::move(parsed));
  }
  std::unique_ptr<FakeRunner> runner(new FakeRunner(script, std::move(rules), clock));
  if (!script.time_ns().empty()) {
    RT_ASSIGN_OR_RETURN(runner->time_, Expression::Parse(script.time_ns()));
  }
  if (!script.vendor_time_ns().empty()) {
    RT_ASSIGN_OR_RETURN(runner->vendor_time_, Expression::Parse(script.vendor_time_ns()));
  }
  if (!script.energy_uj().empty()) {
    RT_ASSIGN_OR_RETURN(runner->energy_, Expression::Parse(script.energy_uj()));
  }
  return runner;
}

absl::Status FakeRunner::Pass(double seconds) {
  if (script_.virtual_time()) {
    clock_.Sleep(absl::Seconds(seconds));
    return interrupted_.exchange(false) ? absl::CancelledError("interrupted") : absl::OkStatus();
  }
  const absl::Time end = absl::Now() + absl::Seconds(seconds);
  while (absl::Now() < end && !interrupted_) absl::SleepFor(std::min(kPoll, end - absl::Now()));
  if (interrupted_.exchange(false)) return absl::CancelledError("interrupted");
  return absl::OkStatus();
}

bool FakeRunner::Lost() {
  if (script_.lose_after_runs() == 0 || runs_ < script_.lose_after_runs() || lost_calls_ >= script_.lost_calls()) return false;
  ++lost_calls_;
  return true;
}

absl::StatusOr<worker::v1::PrepareResult> FakeRunner::Prepare(const worker::v1::PrepareRequest& request) {
  interrupted_ = false;
  ++prepares_;
  worker::v1::PrepareResult result;
  op_ = request.op();
  result.set_outcome(Lost() ? v1::DEVICE_LOST : v1::OK);
  result.set_cpu_checked_elements(request.cpu_check_elements());
  result.set_buffer_sets(1);
  return result;
}

void FakeRunner::Measure(double true_us, double energy_uj, const worker::v1::MeasureOptions& options,
                         worker::v1::RunResult& result) {
  auto& m = *result.mutable_measurement();
  std::normal_distribution<double> noise(0, script_.noise());
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) samples.push_back(true_us * (1 + noise(random_)));
  std::sort(samples.begin(), samples.end());
  m.mutable_sample_us()->Add(samples.begin(), samples.end());
  m.set_median_us(samples[kSamples / 2]);
  m.set_ci_low_us(samples[kLowRank - 1]);
  m.set_ci_high_us(samples[kHighRank - 1]);
  m.set_launches_per_sample(1);
  m.set_buffer_sets(1);
  m.set_l2(options.l2());
  m.set_clock(options.clock());
  m.set_timing(v1::GRAPH);
  launches_ += kSamples;
  if (script_.virtual_time() && true_us > 0) clock_.Sleep(absl::Microseconds(true_us * kSamples));
  if (options.energy() && energy_uj > 0) {
    m.set_energy_uj(energy_uj);
    m.set_energy_low_uj(energy_uj * (1 - script_.noise()));
    m.set_energy_high_uj(energy_uj * (1 + script_.noise()));
    m.set_energy_launches(kSamples);
  } else if (options.energy()) {
    result.set_energy_error("the device does not count energy");
  }
  if (!std::isfinite(m.median_us()) || m.median_us() <= 0 || m.median_us() < options.floor_us()) {
    result.set_outcome(v1::IMPLAUSIBLE);
    result.set_message(absl::StrCat("median ", m.median_us(), " us is below the floor of ", options.floor_us(), " us"));
  }
}

absl::StatusOr<worker::v1::VendorResult> FakeRunner::ListVendor(const worker::v1::VendorRequest& request) {
  worker::v1::VendorResult result;
  if (Lost()) {
    result.set_outcome(v1::DEVICE_LOST);
    result.set_message("scripted loss of the device");
    return result;
  }
  const bool fails = script_.vendor_outcome() != v1::OUTCOME_UNSPECIFIED && script_.vendor_outcome() != v1::OK;
  if (fails || script_.vendor_algorithms() == 0) {
    result.set_outcome(fails ? script_.vendor_outcome() : v1::NOT_RUN);
    result.set_message(fails ? "scripted failure of the library" : "the script has no library");
    return result;
  }
  const int64_t version = script_.vendor_version() > 0 ? script_.vendor_version() : kVendorVersion;
  result.set_outcome(v1::OK);
  result.set_version(absl::StrCat("fake ", version));
  for (int i = 0; i < std::min(script_.vendor_algorithms(), request.max_algorithms()); ++i) {
    v1::LaunchPlan& plan = *result.add_plan();
    plan.set_op(op_);
    plan.set_template_id("cublaslt");
    plan.set_deterministic(true);
    (*plan.mutable_config())["algo"] = i;
    plan.mutable_workspace_bytes()->set_value(i % 2 == 1 ? kVendorWorkspaceBytes : 0);
    v1::CublasLtMatmul::Algorithm& algorithm = *plan.mutable_cublaslt()->mutable_algorithm();
    algorithm.set_opaque(absl::StrCat("fake algorithm ", i));
    algorithm.set_id(i);
    algorithm.set_heuristic_rank(i);
    algorithm.set_heuristic_workspace_bytes(request.workspace_bytes());
    plan.mutable_cublaslt()->set_library_version(version);
  }
  return result;
}

absl::StatusOr<worker::v1::RunResult> FakeRunner::Run(const worker::v1::RunRequest& request) {
  worker::v1::RunResult result;
  if (Lost()) {
    result.set_outcome(v1::DEVICE_LOST);
    result.set_message("scripted loss of the device");
    return result;
  }
  Names names(request.plan().config().begin(), request.plan().config().end());
  AddOpWords(request.plan().op(), names);
  const bool of_library = request.plan().has_cublaslt();
  names["run"] = runs_++;
  names["vendor"] = of_library ? 1 : 0;
  result.set_outcome(v1::OK);
  for (const Rule& rule : rules_) {
    if (rule.when) {
      const auto holds = rule.when->Eval(names);
      if (!holds.ok() || *holds == 0) continue;
    }
    const double limit_s = request.timeout_ms() > 0 ? request.timeout_ms() / 1e3 : 1e9;
    RT_RETURN_IF_ERROR(Pass(std::min(rule.rule.delay_s(), limit_s)));
    if (rule.rule.delay_s() > limit_s) {
      result.set_outcome(v1::TIMEOUT);
      result.set_message(absl::StrCat("not finished after ", request.timeout_ms(), " ms"));
      return result;
    }
    if (rule.rule.outcome() == v1::OUTCOME_UNSPECIFIED || rule.rule.outcome() == v1::OK) continue;
    result.set_outcome(rule.rule.outcome());
    result.set_message(rule.rule.message());
    return result;
  }
  if (request.verify()) {
    auto& v = *result.mutable_verification();
    v.set_reference("fake");
    v.set_tolerance("scripted");
    v.set_passed(true);
  }
  double time_ns = 1e6;
  if (const auto& time = of_library ? vendor_time_ : time_) {
    RT_ASSIGN_OR_RETURN(const int64_t value, time->Eval(names));
    time_ns = static_cast<double>(value);
  }
  double energy_uj = 0;
  if (energy_) {
    RT_ASSIGN_OR_RETURN(const int64_t value, energy_->Eval(names));
    energy_uj = static_cast<double>(value);
  }
  if (request.measure()) Measure(time_ns / 1e3, energy_uj, request.options(), result);
  return result;
}

absl::StatusOr<worker::v1::IdleResult> FakeRunner::Idle() {
  worker::v1::IdleResult result;
  if (script_.busy_polls() >= 0 && idle_polls_ >= script_.busy_polls()) return result;
  ++idle_polls_;
  result.set_busy_processes(1);
  result.set_message("scripted: another process computes");
  return result;
}

std::map<std::string, int64_t> FakeRunner::Counters() const {
  return {{"runs", runs_}, {"launches", launches_}, {"prepares", prepares_}};
}

absl::StatusOr<worker::v1::RunResult> FakeRunner::RunBaseline(const worker::v1::BaselineRequest& request) {
  worker::v1::RunResult result;
  const auto it = script_.baseline_us().find(request.name());
  if (it == script_.baseline_us().end()) {
    result.set_outcome(v1::NOT_RUN);
    result.set_message(absl::StrCat("the script has no baseline ", request.name()));
    return result;
  }
  result.set_outcome(v1::OK);
  result.set_version("fake");
  Measure(it->second, 0, request.options(), result);
  // Nobody is chosen by a baseline's energy.
  result.clear_energy_error();
  return result;
}

absl::StatusOr<worker::v1::RaceResult> FakeRunner::Race(const worker::v1::RaceRequest& request) {
  worker::v1::RaceResult result;
  result.set_outcome(v1::OK);
  for (const auto& entrant : request.entrant()) {
    if (entrant.has_baseline()) {
      RT_ASSIGN_OR_RETURN(*result.add_result(), RunBaseline(entrant.baseline()));
    } else {
      RT_ASSIGN_OR_RETURN(*result.add_result(), Run(entrant.candidate()));
    }
    worker::v1::RunResult& last = *result.mutable_result(result.result_size() - 1);
    std::vector<double> samples(last.measurement().sample_us().begin(), last.measurement().sample_us().end());
    std::shuffle(samples.begin(), samples.end(), random_);
    last.mutable_round_us()->Add(samples.begin(), samples.end());  // one sample a round
  }
  return result;
}

absl::StatusOr<worker::v1::CalibrateResult> FakeRunner::Calibrate(const worker::v1::CalibrateRequest&) {
  worker::v1::CalibrateResult result;
  result.set_outcome(v1::NOT_RUN);
  result.set_message("a fake device has no ceilings to measure");
  return result;
}

}  // namespace rooftune

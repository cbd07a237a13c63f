// The vendor's library in a sweep: its algorithms are trials like others, only that nothing is compiled.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tuner/sweep/measure_policy.h"
#include "tuner/sweep/proto_time.h"
#include "tuner/sweep/sweep_run.h"

namespace rooftune {
namespace {

// cuBLASLt's heuristic rarely has more than a dozen for a product; frameworks that tune ask for 8 to 64.
constexpr int kMaxAlgorithms = 32;
constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;
constexpr int kListTimeoutMs = 20'000;
// Wall time of the whole stage. Compiling goes on meanwhile, and a candidate takes 0.05 to 0.5 s.
constexpr double kBudgetS = 12;
constexpr double kShareOfBudget = 0.25;
// After so many crashes and hangs nobody else is tried: each costs a new process.
constexpr int kMaxFaults = 3;
// The first execution of a call is timed without a graph, so that the library's own work on the host is part of it:
// some 40 µs on an H200's host (2026-11-29). A short product must not be given up for it.
constexpr double kHostUs = 150;
// Beside the deadline of a candidate, for the windows of load around the energy counter.
constexpr int kEnergyMs = 10'000;
constexpr int kMaxVendorFinalists = 2;
constexpr size_t kMessageLimit = 4096;

bool IsFault(v1::Outcome outcome) { return outcome == v1::TIMEOUT || outcome == v1::CRASHED; }

// Names an algorithm across restarts and sweeps.
std::string AlgorithmKey(const v1::CublasLtMatmul& matmul) {
  return absl::StrCat(matmul.library_version(), "/", matmul.algorithm().opaque());
}

bool IsFirstChoice(const v1::CublasLtMatmul& matmul) {
  return matmul.algorithm().heuristic_rank() == 0 && matmul.algorithm().heuristic_workspace_bytes() > 0;
}

v1::Baseline BaselineOf(const std::string& name, const v1::LaunchPlan& plan, const RaceEntry& entry) {
  const v1::CublasLtMatmul::Algorithm& algorithm = plan.cublaslt().algorithm();
  v1::Baseline line;
  line.set_name(name);
  line.set_version(absl::StrCat("cublasLt ", plan.cublaslt().library_version()));
  line.set_outcome(entry.outcome);
  line.set_message(absl::StrCat("algorithm ", algorithm.id(), " tile ", algorithm.tile(), " stages ",
                                algorithm.stages(), " split-K ", algorithm.split_k(), " cluster ",
                                algorithm.cluster_shape(), ", place ", algorithm.heuristic_rank(),
                                " of the heuristic, ", plan.workspace_bytes().value(), " bytes of workspace"));
  if (entry.measurement.median_us() > 0) *line.mutable_measurement() = entry.measurement;
  return line;
}

}  // namespace

absl::Status SweepRun::RunVendor(const v1::LaunchPlan& plan, v1::Trial* trial) {
  trial->set_index(next_index_++);
  trial->set_name(absl::StrCat(sweep_.name(), "/trials/", trial->index()));
  trial->set_op(plan_->op.text);
  trial->set_device_key(context_.backend.device_key);
  trial->set_provider(v1::CUBLASLT);
  trial->set_template_id(plan.template_id());
  trial->set_template_revision(absl::StrCat(plan.cublaslt().library_version()));
  *trial->mutable_config() = plan.config();
  *trial->mutable_cublaslt() = plan.cublaslt();
  *trial->mutable_environment() = context_.backend.environment;
  double best_us = 0;
  for (const v1::Trial& other : vendor_trials_) {
    const double us = other.measurement().median_us();
    if (other.outcome() == v1::OK && us > 0 && (best_us == 0 || us < best_us)) best_us = us;
  }
  const absl::Status idle = AwaitIdleDevice();
  if (absl::IsCancelled(idle)) {
    trial->set_outcome(v1::NOT_RUN);
    return absl::OkStatus();
  }
  RT_RETURN_IF_ERROR(idle);
  worker::v1::RunRequest request;
  *request.mutable_plan() = plan;
  request.set_verify(true);
  request.set_measure(true);
  *request.mutable_options() = ScreeningOptions(sweep_.spec(), plan_->bounds, best_us);
  if (best_us > 0) {
    auto& options = *request.mutable_options();
    options.set_abandon_above_us(std::max(options.abandon_above_us(), best_us + kHostUs));
  }
  request.set_timeout_ms(RunDeadlineMs(2 * plan_->bounds.attainable_us(), sweep_.spec().run_timeout_ms()) +
                         (NeedsEnergy(Objective()) && sweep_.spec().run_timeout_ms() == 0 ? kEnergyMs : 0));
  const absl::Time begin = context_.clock.Now();
  const auto ran = context_.backend.runner->Run(request);
  running_.emplace_back(begin, context_.clock.Now());
  trial->set_run_ms(absl::ToDoubleMilliseconds(context_.clock.Now() - begin));
  if (absl::IsCancelled(ran.status())) {
    trial->set_outcome(v1::NOT_RUN);
    return absl::OkStatus();
  }
  RT_RETURN_IF_ERROR(ran.status());
  trial->set_outcome(ran->outcome());
  trial->set_message(ran->message().substr(0, kMessageLimit));
  peak_bytes_ = std::max(peak_bytes_, ran->peak_bytes());
  if (ran->has_verification()) *trial->mutable_verification() = ran->verification();
  if (ran->has_measurement()) *trial->mutable_measurement() = ran->measurement();
  if (ran->outcome() == v1::OK && ran->verification().passed()) {
    trial->set_evidence(ran->has_measurement() ? v1::MEASURED : v1::VERIFIED);
  }
  FlagBeatsAttainable(plan_->bounds, *trial);
  return absl::OkStatus();
}

absl::Status SweepRun::SearchVendor() {
  if (sweep_.spec().no_vendor() || plan_->op.kind != "gemm" || Stop()) return absl::OkStatus();
  const absl::Time begin = context_.clock.Now();
  const auto spent_s = [&] { return absl::ToDoubleSeconds(context_.clock.Now() - begin); };
  worker::v1::VendorRequest request;
  request.set_max_algorithms(kMaxAlgorithms);
  request.set_workspace_bytes(kWorkspaceBytes);
  request.set_timeout_ms(kListTimeoutMs);
  const auto listed = context_.backend.runner->ListVendor(request);
  if (absl::IsCancelled(listed.status())) return absl::OkStatus();
  RT_RETURN_IF_ERROR(listed.status());
  if (listed->outcome() != v1::OK) {
    device_lost_ = listed->outcome() == v1::DEVICE_LOST;
    if (device_lost_) device_message_ = listed->message();
    vendor_note_ =
        absl::StrCat("no algorithms of cuBLASLt (", v1::Outcome_Name(listed->outcome()), "): ", listed->message());
    if (IsFault(listed->outcome())) LogWarning(sweep_.name(), ": ", vendor_note_);
    return absl::OkStatus();
  }
  const double asked_s = sweep_.spec().time_budget_s();
  const double budget_s = asked_s > 0 ? std::min(kBudgetS, kShareOfBudget * asked_s) : kBudgetS;
  int faults = 0;
  for (const v1::LaunchPlan& plan : listed->plan()) {
    const std::string key = AlgorithmKey(plan.cublaslt());
    if (vendor_plans_.size() >= static_cast<size_t>(kMaxAlgorithms) || !vendor_plans_.emplace(key, plan).second)
      continue;
    const auto same = [&](const v1::Trial& trial) { return AlgorithmKey(trial.cublaslt()) == key; };
    if (std::any_of(vendor_trials_.begin(), vendor_trials_.end(), same)) continue;  // of an earlier start
    if (Stop() || faults >= kMaxFaults || spent_s() > budget_s) break;
    v1::Trial trial;
    RT_RETURN_IF_ERROR(RunVendor(plan, &trial));
    if (trial.outcome() == v1::NOT_RUN) break;
    if (trial.outcome() == v1::DEVICE_LOST) {
      device_lost_ = true;
      device_message_ = trial.message();
      break;
    }
    if (IsFault(trial.outcome())) ++faults;
    *trial.mutable_create_time() = ToProto(context_.clock.Now());
    RT_RETURN_IF_ERROR(context_.store.PutTrial(trial));
    sweep_.set_evidence(std::max(sweep_.evidence(), trial.evidence()));
    vendor_trials_.push_back(std::move(trial));
  }
  Spend("vendor", begin);
  return Save(false);
}

void SweepRun::AddVendorRacers(std::vector<Racer>& racers) const {
  std::vector<int> chosen = SelectFinalists(vendor_trials_, kMaxVendorFinalists, Objective());
  for (size_t i = 0; i < vendor_trials_.size(); ++i) {
    const v1::Trial& trial = vendor_trials_[i];
    const bool known = std::find(chosen.begin(), chosen.end(), static_cast<int>(i)) != chosen.end();
    if (trial.outcome() == v1::OK && IsFirstChoice(trial.cublaslt()) && !known) chosen.push_back(static_cast<int>(i));
  }
  for (const int index : chosen) {
    const v1::Trial& trial = vendor_trials_[static_cast<size_t>(index)];
    // A resumed sweep may find another version of the library: what it does not offer any more can't be run.
    const auto plan = vendor_plans_.find(AlgorithmKey(trial.cublaslt()));
    if (plan == vendor_plans_.end()) continue;
    Racer& racer = racers.emplace_back();
    racer.trial = &trial;
    racer.plan = plan->second;
  }
}

void SweepRun::AddVendorBaselines(const std::vector<Racer>& racers, const std::vector<RaceEntry>& entries, int best) {
  for (size_t i = 0; i < racers.size(); ++i) {
    if (racers[i].is_vendor() && IsFirstChoice(racers[i].plan.cublaslt())) {
      *sweep_.add_baseline() = BaselineOf("cublaslt_first", racers[i].plan, entries[i]);
      break;
    }
  }
  if (best < 0) return;
  const auto index = static_cast<size_t>(best);
  *sweep_.add_baseline() = BaselineOf("cublaslt_best", racers[index].plan, entries[index]);
}

}  // namespace rooftune

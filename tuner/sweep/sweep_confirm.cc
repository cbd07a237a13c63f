// The end of a sweep: who is served.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "tuner/sweep/measure_policy.h"
#include "tuner/sweep/proto_time.h"
#include "tuner/sweep/sweep_run.h"

namespace rooftune {
namespace {

constexpr int kMaxFinalists = 5;
// Records kept for a key: callers whose preconditions the first does not meet get the next.
constexpr size_t kMaxRecords = 3;
constexpr int kRaceRounds = 6;
constexpr int kRaceTimeoutMsPerEntrant = 30'000;

worker::v1::RaceRequest MakeRace(const std::vector<SweepRun::Racer>& racers, const std::string& baseline,
                                 const worker::v1::MeasureOptions& options) {
  worker::v1::RaceRequest race;
  race.set_rounds(kRaceRounds);
  *race.mutable_options() = options;
  for (const SweepRun::Racer& racer : racers) {
    auto& candidate = *race.add_entrant()->mutable_candidate();
    *candidate.mutable_plan() = racer.plan;
    candidate.set_cubin(racer.cubin);
    candidate.set_digest(racer.plan.artifact_digest());
    candidate.set_verify(true);
    candidate.set_measure(true);
    *candidate.mutable_options() = options;
    candidate.set_timeout_ms(kRaceTimeoutMsPerEntrant);
  }
  if (!baseline.empty()) {
    auto& entrant = *race.add_entrant()->mutable_baseline();
    entrant.set_name(baseline);
    *entrant.mutable_options() = options;
    entrant.set_timeout_ms(kRaceTimeoutMsPerEntrant);
  }
  race.set_timeout_ms(kRaceTimeoutMsPerEntrant * std::max(1, race.entrant_size()));
  return race;
}

}  // namespace

absl::StatusOr<v1::LaunchPlan> SweepRun::PlanOf(const v1::Trial& trial) {
  const auto known = plans_.find(trial.index());
  if (known != plans_.end()) return known->second;
  const KernelTemplate* source = context_.library.Find(trial.template_id());
  if (source == nullptr || source->revision() != trial.template_revision()) {
    return Error(absl::StatusCode::kFailedPrecondition, "TEMPLATE_CHANGED",
                 absl::StrCat("template ", trial.template_id(), " changed since ", trial.name(), " was measured; start a new sweep"));
  }
  const Config config(trial.config().begin(), trial.config().end());
  RT_ASSIGN_OR_RETURN(v1::LaunchPlan plan, source->Plan(plan_->op, config, context_.backend.profile));
  RT_ASSIGN_OR_RETURN(auto request, source->CompileInput(plan_->op, config, context_.backend.profile));
  RT_ASSIGN_OR_RETURN(const auto compiled, context_.backend.compiler->Compile(request));
  if (compiled.digest() != trial.artifact_digest()) {
    return Error(absl::StatusCode::kFailedPrecondition, "ENVIRONMENT_CHANGED",
                 absl::StrCat(trial.name(), " compiles to other bytes now; start a new sweep"));
  }
  RT_RETURN_IF_ERROR(AttachArtifact(compiled, plan));
  return plan;
}

absl::StatusOr<std::string> SweepRun::CubinOf(const v1::Trial& trial) {
  absl::StatusOr<std::string> stored = context_.artifacts.Get(trial.artifact_digest());
  const KernelTemplate* source = context_.library.Find(trial.template_id());
  if (!absl::IsNotFound(stored.status()) || source == nullptr) return stored;
  const Config config(trial.config().begin(), trial.config().end());
  RT_ASSIGN_OR_RETURN(const auto request, source->CompileInput(plan_->op, config, context_.backend.profile));
  RT_ASSIGN_OR_RETURN(const auto compiled, context_.backend.compiler->Compile(request));
  if (compiled.digest() != trial.artifact_digest()) return stored;
  RT_RETURN_IF_ERROR(context_.artifacts.Put(compiled.cubin()).status());
  return compiled.cubin();
}

absl::StatusOr<v1::TuningRecord> SweepRun::RecordOf(const v1::Trial& trial, int rank) {
  v1::TuningRecord record;
  record.set_name(absl::StrCat("records/", Fingerprint().Add(sweep_.name()).Add(trial.name()).Key().substr(0, 16)));
  record.set_op(plan_->op.text);
  record.set_device_key(context_.backend.device_key);
  record.set_target_key(TargetKey(plan_->op.text, context_.backend.device_key, Objective()));
  record.set_objective(Objective());
  *record.mutable_environment() = context_.backend.environment;
  record.set_provider(v1::TEMPLATE);
  record.set_template_id(trial.template_id());
  record.set_template_revision(trial.template_revision());
  *record.mutable_config() = trial.config();
  RT_ASSIGN_OR_RETURN(*record.mutable_plan(), PlanOf(trial));
  record.set_artifact_digest(trial.artifact_digest());
  RT_ASSIGN_OR_RETURN(const std::string cubin, CubinOf(trial));
  record.set_artifact_bytes(static_cast<int64_t>(cubin.size()));
  record.set_evidence(trial.evidence());
  if (trial.has_measurement()) *record.mutable_measurement() = trial.measurement();
  if (trial.has_verification()) *record.mutable_verification() = trial.verification();
  *record.mutable_resources() = trial.resources();
  *record.mutable_bounds() = plan_->bounds;
  *record.mutable_prediction() = trial.prediction();
  record.set_beats_attainable(trial.beats_attainable());
  record.set_peak_bytes(peak_bytes_);
  record.set_sweep(sweep_.name());
  record.set_trial(trial.name());
  record.set_rank(rank);
  *record.mutable_create_time() = ToProto(context_.clock.Now());
  return record;
}

absl::Status SweepRun::Publish(std::vector<v1::TuningRecord> records) {
  const auto generation = context_.store.PublishRecords(records);
  if (absl::IsFailedPrecondition(generation.status())) {
    sweep_.set_message(absl::StrCat("not published: ", std::string(generation.status().message())));
    return absl::OkStatus();
  }
  // Names derive from sweep and trial: they exist if an earlier start published and died before it could say so.
  const bool published_before = absl::IsAlreadyExists(generation.status());
  if (!published_before) RT_RETURN_IF_ERROR(generation.status());
  sweep_.clear_record();
  for (v1::TuningRecord& record : records) {
    if (!published_before) record.set_from_generation(*generation);
    sweep_.add_record(record.name());
  }
  if (!published_before && context_.on_publish) context_.on_publish(records, *generation);
  return absl::OkStatus();
}

absl::Status SweepRun::ConfirmCompiled() {
  std::vector<const v1::Trial*> compiled;
  for (const v1::Trial& trial : trials_) {
    if (trial.outcome() == v1::OK) compiled.push_back(&trial);
  }
  std::stable_sort(compiled.begin(), compiled.end(), [](const v1::Trial* a, const v1::Trial* b) {
    return a->prediction().time_us() < b->prediction().time_us();
  });
  std::vector<v1::TuningRecord> records;
  for (size_t i = 0; i < std::min(compiled.size(), kMaxRecords); ++i) {
    RT_ASSIGN_OR_RETURN(records.emplace_back(), RecordOf(*compiled[i], static_cast<int>(i)));
  }
  return Publish(std::move(records));
}

std::optional<v1::TuningRecord> SweepRun::Incumbent() {
  RecordFilter filter;
  filter.target_key = TargetKey(plan_->op.text, context_.backend.device_key, Objective());
  filter.min_evidence = v1::MEASURED;
  const auto page = context_.store.ListRecords(filter, 10, "");
  if (!page.ok()) return std::nullopt;
  const KernelTemplate* source = nullptr;
  for (const v1::TuningRecord& record : page->items) {
    if (record.rank() != 0 || record.provider() != v1::TEMPLATE) continue;
    // A record of another template revision or toolchain is no rival: it will be replaced.
    source = context_.library.Find(record.template_id());
    if (source == nullptr || source->revision() != record.template_revision()) continue;
    if (EnvironmentKey(record.environment()) != EnvironmentKey(context_.backend.environment)) continue;
    return record;
  }
  return std::nullopt;
}

absl::Status SweepRun::AddRacer(const v1::Trial& trial, bool is_default, std::vector<Racer>& racers) {
  for (const Racer& racer : racers) {
    if (racer.trial == &trial) return absl::OkStatus();
  }
  Racer racer;
  racer.trial = &trial;
  racer.is_default = is_default;
  RT_ASSIGN_OR_RETURN(racer.plan, PlanOf(trial));
  RT_ASSIGN_OR_RETURN(racer.cubin, CubinOf(trial));
  racers.push_back(std::move(racer));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SweepRun::Racer>> SweepRun::CollectRacers(const std::optional<v1::TuningRecord>& incumbent) {
  const auto is_default = [&](const v1::Trial& trial) {
    const KernelTemplate* source = context_.library.Find(trial.template_id());
    const auto config = source->DefaultConfig(plan_->op, context_.backend.profile);
    return config.ok() && *config == Config(trial.config().begin(), trial.config().end());
  };
  std::vector<Racer> racers;
  for (const int index : SelectFinalists(trials_, kMaxFinalists, Objective())) {
    const v1::Trial& trial = trials_[static_cast<size_t>(index)];
    RT_RETURN_IF_ERROR(AddRacer(trial, is_default(trial), racers));
  }
  if (racers.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOTHING_MEASURED", "no candidate has a usable measurement");
  }
  for (const v1::Trial& trial : trials_) {
    if (trial.outcome() == v1::OK && trial.has_measurement() && is_default(trial)) {
      RT_RETURN_IF_ERROR(AddRacer(trial, true, racers));
    }
  }
  if (!incumbent) return racers;
  for (Racer& racer : racers) {
    racer.is_incumbent = racer.plan.artifact_digest() == incumbent->artifact_digest() &&
                         racer.trial->template_id() == incumbent->template_id();
    if (racer.is_incumbent) return racers;
  }
  const auto cubin = context_.artifacts.Get(incumbent->artifact_digest());
  if (!cubin.ok()) {
    LogWarning(incumbent->name(), " can't defend itself: ", cubin.status().ToString());
    return racers;
  }
  Racer& racer = racers.emplace_back();
  racer.plan = incumbent->plan();
  racer.cubin = *cubin;
  racer.is_incumbent = true;
  return racers;
}

absl::StatusOr<worker::v1::RaceResult> SweepRun::RunRace(const std::vector<Racer>& racers) {
  const bool is_gemm = plan_->templates[0]->manifest().cost().cost_class() == manifest::v1::TILE_GEMM;
  const std::string baseline = sweep_.spec().no_baselines() ? "" : BaselineFor(is_gemm, plan_->bounds);
  const absl::Time begin = context_.clock.Now();
  RT_ASSIGN_OR_RETURN(auto race, context_.backend.runner->Race(
                                     MakeRace(racers, baseline, RaceOptions(sweep_.spec(), plan_->bounds))));
  Spend("confirm", begin);
  if (race.outcome() != v1::OK || race.result_size() < static_cast<int>(racers.size())) {
    return Error(absl::StatusCode::kUnavailable, "RACE_FAILED",
                 absl::StrCat("the finalists could not be raced (", v1::Outcome_Name(race.outcome()), "): ", race.message()));
  }
  if (!baseline.empty() && race.result_size() > static_cast<int>(racers.size())) {
    const auto& result = race.result(static_cast<int>(racers.size()));
    v1::Baseline& line = *sweep_.add_baseline();
    line.set_name(baseline);
    line.set_version(result.version());
    line.set_outcome(result.outcome());
    line.set_message(result.message());
    if (result.has_measurement()) *line.mutable_measurement() = result.measurement();
  }
  return race;
}

absl::Status SweepRun::ConfirmMeasured() {
  const std::optional<v1::TuningRecord> incumbent = Incumbent();
  sweep_.clear_baseline();
  RT_ASSIGN_OR_RETURN(const std::vector<Racer> racers, CollectRacers(incumbent));
  const absl::Status idle = AwaitIdleDevice();
  if (absl::IsCancelled(idle)) return absl::OkStatus();
  RT_RETURN_IF_ERROR(idle);
  RT_ASSIGN_OR_RETURN(const worker::v1::RaceResult race, RunRace(racers));
  std::vector<RaceEntry> entries;
  for (size_t i = 0; i < racers.size(); ++i) {
    const auto& result = race.result(static_cast<int>(i));
    RaceEntry& entry = entries.emplace_back();
    entry.outcome = result.outcome();
    entry.measurement = result.measurement();
    entry.nondeterministic = result.verification().nondeterministic();
    entry.workspace_bytes = racers[i].plan.workspace_bytes().value();
    entry.shared_bytes = racers[i].plan.launch(0).dynamic_shared_bytes().value();
    entry.incumbent = racers[i].is_incumbent;
    peak_bytes_ = std::max(peak_bytes_, result.peak_bytes());
  }
  const RaceVerdict verdict = JudgeRace(entries, Objective());
  if (verdict.winner < 0) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOTHING_MEASURED", "no finalist could be measured again");
  }
  const auto winner = static_cast<size_t>(verdict.winner);
  sweep_.mutable_progress()->set_best_us(entries[winner].measurement.median_us());
  if (incumbent && (verdict.keep_incumbent || racers[winner].trial == nullptr)) {
    sweep_.add_record(incumbent->name());
    sweep_.set_message("no gain over the current record beyond noise; it stays");
    return absl::OkStatus();
  }
  if (racers[winner].is_default) sweep_.set_message("the default configuration is the best found");
  return PublishRace(racers, entries, verdict);
}

absl::Status SweepRun::PublishRace(const std::vector<Racer>& racers, const std::vector<RaceEntry>& entries,
                                   const RaceVerdict& verdict) {
  const auto winner = static_cast<size_t>(verdict.winner);
  double default_us = 0;
  std::vector<size_t> order;
  for (size_t i = 0; i < racers.size(); ++i) {
    const double time_us = entries[i].measurement.median_us();
    if (entries[i].outcome != v1::OK || !ScoreOf(entries[i].measurement, Objective()).usable()) continue;
    if (racers[i].is_default && (default_us == 0 || time_us < default_us)) default_us = time_us;
    if (racers[i].trial != nullptr) order.push_back(i);
  }
  // The winner first (it may be within noise of a faster one), then by time.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if ((a == winner) != (b == winner)) return a == winner;
    return ScoreOf(entries[a].measurement, Objective()).value < ScoreOf(entries[b].measurement, Objective()).value;
  });
  if (order.size() > kMaxRecords) order.resize(kMaxRecords);
  std::vector<v1::TuningRecord> records;
  for (const size_t i : order) {
    RT_ASSIGN_OR_RETURN(v1::TuningRecord record, RecordOf(*racers[i].trial, static_cast<int>(records.size())));
    *record.mutable_measurement() = entries[i].measurement;
    record.set_beats_attainable(BeatsAttainable(entries[i].measurement, plan_->bounds));
    if (i == winner) {
      for (const int tied : verdict.ties) {
        const v1::Trial* trial = racers[static_cast<size_t>(tied)].trial;
        if (trial != nullptr) record.add_tie(trial->name());
      }
    }
    if (entries[i].nondeterministic) record.mutable_verification()->set_nondeterministic(true);
    record.set_default_us(default_us);
    *record.mutable_baseline() = sweep_.baseline();
    records.push_back(std::move(record));
  }
  auto& progress = *sweep_.mutable_progress();
  progress.set_best_template(records[0].template_id());
  *progress.mutable_best_config() = records[0].config();
  return Publish(std::move(records));
}

}  // namespace rooftune

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

worker::v1::RaceRequest MakeRace(const std::vector<SweepRun::Racer>& racers, const std::vector<std::string>& baselines,
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
  for (const std::string& baseline : baselines) {
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
  if (trial.provider() == v1::CUBLASLT) {
    for (const auto& [key, plan] : vendor_plans_) {
      if (plan.cublaslt().algorithm().opaque() == trial.cublaslt().algorithm().opaque()) return plan;
    }
    return absl::InternalError(absl::StrCat(trial.name(), " is of no algorithm that the library offers"));
  }
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
  record.set_provider(trial.provider() == v1::CUBLASLT ? v1::CUBLASLT : v1::TEMPLATE);
  record.set_template_id(trial.template_id());
  record.set_template_revision(trial.template_revision());
  *record.mutable_config() = trial.config();
  RT_ASSIGN_OR_RETURN(*record.mutable_plan(), PlanOf(trial));
  if (!trial.artifact_digest().empty()) {
    record.set_artifact_digest(trial.artifact_digest());
    RT_ASSIGN_OR_RETURN(const std::string cubin, CubinOf(trial));
    record.set_artifact_bytes(static_cast<int64_t>(cubin.size()));
  }
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

SweepRun::Incumbents SweepRun::FindIncumbents() {
  RecordFilter filter;
  filter.target_key = TargetKey(plan_->op.text, context_.backend.device_key, Objective());
  filter.min_evidence = v1::MEASURED;
  Incumbents found;
  const auto page = context_.store.ListRecords(filter, 10, "");
  if (!page.ok()) return found;
  const v1::TuningRecord* best_template = nullptr;
  for (const v1::TuningRecord& record : page->items) {
    // A record of another template revision or toolchain is no rival: it will be replaced.
    const bool same_environment = EnvironmentKey(record.environment()) == EnvironmentKey(context_.backend.environment);
    if (record.provider() == v1::CUBLASLT && record.rank() == 0 && same_environment) found.vendor = record;
    if (record.provider() != v1::TEMPLATE) continue;
    if (best_template == nullptr || record.rank() < best_template->rank()) best_template = &record;
  }
  if (best_template == nullptr) return found;
  const KernelTemplate* const source = context_.library.Find(best_template->template_id());
  if (source == nullptr || source->revision() != best_template->template_revision()) return found;
  if (EnvironmentKey(best_template->environment()) != EnvironmentKey(context_.backend.environment)) return found;
  found.best_template = *best_template;
  return found;
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

void SweepRun::AddIncumbent(const v1::TuningRecord& record, std::vector<Racer>& racers) {
  for (Racer& racer : racers) {
    const bool same = record.provider() == v1::CUBLASLT
                          ? racer.plan.cublaslt().algorithm().opaque() == record.plan().cublaslt().algorithm().opaque()
                          : racer.plan.artifact_digest() == record.artifact_digest();
    if (!same || racer.plan.template_id() != record.template_id()) continue;
    racer.incumbent = &record;
    return;
  }
  Racer racer;
  racer.incumbent = &record;
  racer.plan = record.plan();
  if (!record.artifact_digest().empty()) {
    const auto cubin = context_.artifacts.Get(record.artifact_digest());
    if (!cubin.ok()) {
      LogWarning(record.name(), " can't defend itself: ", cubin.status().ToString());
      return;
    }
    racer.cubin = *cubin;
  }
  racers.push_back(std::move(racer));
}

absl::StatusOr<std::vector<SweepRun::Racer>> SweepRun::CollectRacers(const Incumbents& incumbents) {
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
  for (const v1::Trial& trial : trials_) {
    if (trial.outcome() == v1::OK && trial.has_measurement() && is_default(trial)) {
      RT_RETURN_IF_ERROR(AddRacer(trial, true, racers));
    }
  }
  AddVendorRacers(racers);
  if (racers.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOTHING_MEASURED", "no candidate has a usable measurement");
  }
  if (incumbents.best_template) AddIncumbent(*incumbents.best_template, racers);
  if (incumbents.vendor) AddIncumbent(*incumbents.vendor, racers);
  return racers;
}

absl::StatusOr<worker::v1::RaceResult> SweepRun::RunRace(const std::vector<Racer>& racers) {
  const bool is_gemm = plan_->templates[0]->manifest().cost().cost_class() == manifest::v1::TILE_GEMM;
  std::vector<std::string> baselines;
  if (!sweep_.spec().no_baselines()) baselines = BaselinesFor(is_gemm, plan_->bounds);
  // The library's first choice is among the racers where its algorithms were tried.
  if (!vendor_plans_.empty()) baselines.erase(std::remove(baselines.begin(), baselines.end(), "cublaslt_first"), baselines.end());
  const absl::Time begin = context_.clock.Now();
  RT_ASSIGN_OR_RETURN(auto race, context_.backend.runner->Race(
                                     MakeRace(racers, baselines, RaceOptions(sweep_.spec(), plan_->bounds))));
  Spend("confirm", begin);
  if (race.outcome() != v1::OK || race.result_size() < static_cast<int>(racers.size())) {
    return Error(absl::StatusCode::kUnavailable, "RACE_FAILED",
                 absl::StrCat("the finalists could not be raced (", v1::Outcome_Name(race.outcome()), "): ", race.message()));
  }
  for (size_t i = 0; i < baselines.size(); ++i) {
    const auto at = static_cast<int>(racers.size() + i);
    if (at >= race.result_size()) break;
    const auto& result = race.result(at);
    v1::Baseline& line = *sweep_.add_baseline();
    line.set_name(baselines[i]);
    line.set_version(result.version());
    line.set_outcome(result.outcome());
    line.set_message(result.message());
    if (result.has_measurement()) *line.mutable_measurement() = result.measurement();
  }
  return race;
}

absl::Status SweepRun::ConfirmMeasured() {
  const Incumbents incumbents = FindIncumbents();
  sweep_.clear_baseline();
  RT_ASSIGN_OR_RETURN(const std::vector<Racer> racers, CollectRacers(incumbents));
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
    if (racers[i].plan.launch_size() > 0) {
      entry.shared_bytes = MainLaunch(racers[i].plan).dynamic_shared_bytes().value();
    }
    entry.incumbent = racers[i].incumbent != nullptr;
    entry.vendor = racers[i].is_vendor();
    entry.round_us.assign(result.round_us().begin(), result.round_us().end());
    peak_bytes_ = std::max(peak_bytes_, result.peak_bytes());
  }
  const ProviderVerdict verdict = JudgeProviders(entries, incumbents.vendor.has_value(), Objective());
  if (verdict.served < 0) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOTHING_MEASURED", "no finalist could be measured again");
  }
  if (!sweep_.spec().no_baselines()) AddVendorBaselines(racers, entries, verdict.best_vendor);
  const Racer& served = racers[static_cast<size_t>(verdict.served)];
  sweep_.mutable_progress()->set_best_us(entries[static_cast<size_t>(verdict.served)].measurement.median_us());
  const bool same_template =
      verdict.best_template < 0 || racers[static_cast<size_t>(verdict.best_template)].incumbent != nullptr;
  if (served.incumbent != nullptr && same_template) {
    sweep_.add_record(served.incumbent->name());
    if (served.is_vendor() && verdict.best_template >= 0) {
      sweep_.add_record(racers[static_cast<size_t>(verdict.best_template)].incumbent->name());
    }
    sweep_.set_message("no gain over the current record beyond noise; it stays");
    return absl::OkStatus();
  }
  if (served.is_vendor()) {
    sweep_.set_message("cuBLASLt is faster than every template tried; the best template is kept beside it");
  } else if (served.is_default) {
    sweep_.set_message("the default configuration is the best found");
  } else {
    sweep_.set_message(vendor_note_);
  }
  return PublishRace(racers, entries, verdict);
}

absl::StatusOr<v1::TuningRecord> SweepRun::RacerRecord(const Racer& racer, const RaceEntry& entry, int rank) {
  v1::TuningRecord record;
  if (racer.trial != nullptr) {
    RT_ASSIGN_OR_RETURN(record, RecordOf(*racer.trial, rank));
  } else {
    // Records never change: what stays beside something new gets a name of its own.
    record = *racer.incumbent;
    record.set_name(absl::StrCat("records/", Fingerprint().Add(sweep_.name()).Add(record.trial()).Key().substr(0, 16)));
    record.set_sweep(sweep_.name());
    record.set_rank(rank);
    *record.mutable_create_time() = ToProto(context_.clock.Now());
  }
  *record.mutable_measurement() = entry.measurement;
  record.set_beats_attainable(BeatsAttainable(entry.measurement, plan_->bounds));
  if (entry.nondeterministic) record.mutable_verification()->set_nondeterministic(true);
  record.clear_tie();
  *record.mutable_baseline() = sweep_.baseline();
  return record;
}

absl::Status SweepRun::PublishRace(const std::vector<Racer>& racers, const std::vector<RaceEntry>& entries,
                                   const ProviderVerdict& verdict) {
  const auto served = static_cast<size_t>(verdict.served);
  double default_us = 0;
  std::vector<size_t> order;
  for (size_t i = 0; i < racers.size(); ++i) {
    const double time_us = entries[i].measurement.median_us();
    if (entries[i].outcome != v1::OK || !ScoreOf(entries[i].measurement, Objective()).usable()) continue;
    if (racers[i].is_default && (default_us == 0 || time_us < default_us)) default_us = time_us;
    // Of the library only what is served is a record; earlier records only if they are the best of their kind.
    const auto at = static_cast<int>(i);
    const bool chosen = at == verdict.served || at == verdict.best_template;
    if (chosen || (racers[i].trial != nullptr && !racers[i].is_vendor())) order.push_back(i);
  }
  // The served one first, then the best template (either may be within noise of a faster one), then by time.
  const auto place = [&](size_t i) {
    return i == served ? 0 : static_cast<int>(i) == verdict.best_template ? 1 : 2;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (place(a) != place(b)) return place(a) < place(b);
    return ScoreOf(entries[a].measurement, Objective()).value < ScoreOf(entries[b].measurement, Objective()).value;
  });
  if (order.size() > kMaxRecords) order.resize(kMaxRecords);
  std::vector<v1::TuningRecord> records;
  for (const size_t i : order) {
    RT_ASSIGN_OR_RETURN(v1::TuningRecord record, RacerRecord(racers[i], entries[i], static_cast<int>(records.size())));
    if (i == served) {
      for (const int tied : verdict.ties) {
        const v1::Trial* trial = racers[static_cast<size_t>(tied)].trial;
        if (trial != nullptr) record.add_tie(trial->name());
      }
    }
    record.set_default_us(default_us);
    records.push_back(std::move(record));
  }
  auto& progress = *sweep_.mutable_progress();
  progress.set_best_template(records[0].template_id());
  *progress.mutable_best_config() = records[0].config();
  return Publish(std::move(records));
}

}  // namespace rooftune

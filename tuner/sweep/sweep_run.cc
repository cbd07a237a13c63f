#include "tuner/sweep/sweep_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tuner/sweep/await_idle.h"
#include "tuner/sweep/describe_trial.h"
#include "tuner/sweep/measure_policy.h"
#include "tuner/sweep/prepare_device.h"
#include "tuner/sweep/proto_time.h"

namespace rooftune {
namespace {

constexpr int kDefaultMaxTrials = 64;
constexpr int kDefaultCompileTimeoutMs = 30'000;
constexpr size_t kMessageLimit = 4096;
// Beside a candidate's deadline, for the windows of load around the energy counter.
constexpr int kEnergyMs = 10'000;
// Of each reason for which candidates failed, in the message of a sweep of which nothing is left.
constexpr size_t kSampleLimit = 300;
constexpr absl::Duration kSaveInterval = absl::Milliseconds(100);
// How often a waiting lane looks whether it should stop.
constexpr absl::Duration kPoll = absl::Milliseconds(50);

std::string Shorten(std::string text) {
  if (text.size() > kMessageLimit) text.resize(kMessageLimit);
  return text;
}

// Names a point of the whole search across restarts.
std::string PointKey(const std::string& template_id, const Config& config) {
  return absl::StrCat(template_id, "/", ConfigToString(config));
}

}  // namespace

bool HasGpu(const Backend& backend) { return backend.runner != nullptr; }

SweepRun::SweepRun(SweepContext context, v1::Sweep sweep) : context_(std::move(context)), sweep_(std::move(sweep)) {}

void SweepRun::Spend(const char* what, absl::Time since) {
  (*sweep_.mutable_progress()->mutable_spent_s())[what] += absl::ToDoubleSeconds(context_.clock.Now() - since);
}

v1::Objective SweepRun::Objective() const { return sweep_.spec().objective(); }

bool SweepRun::Stop() const { return context_.cancelled || context_.stopping; }

absl::Status SweepRun::Save(bool force) {
  const absl::Time now = context_.clock.Now();
  if (!force && now - saved_ < kSaveInterval) return absl::OkStatus();
  saved_ = now;
  *sweep_.mutable_update_time() = ToProto(now);
  RT_RETURN_IF_ERROR(context_.store.PutSweep(sweep_));
  if (context_.on_change) context_.on_change(sweep_);
  return absl::OkStatus();
}

absl::Status SweepRun::SetState(v1::SweepState state) {
  sweep_.set_state(state);
  return Save(true);
}

void SweepRun::Execute() {
  started_ = context_.clock.Now();
  const absl::Status status = Run();
  if (context_.stopping && !context_.cancelled) return;  // the next start resumes it
  *sweep_.mutable_end_time() = ToProto(context_.clock.Now());
  if (context_.cancelled) {
    sweep_.set_message("cancelled; what was measured is kept");
    sweep_.set_state(v1::CANCELLED);
  } else if (!status.ok()) {
    sweep_.set_message(std::string(status.message()));
    sweep_.set_state(v1::FAILED);
    LogWarning(sweep_.name(), " failed: ", std::string(status.message()));
  } else {
    sweep_.set_state(v1::DONE);
  }
  const absl::Status saved = Save(true);
  if (!saved.ok()) {
    LogError(sweep_.name(), ": its end could not be stored: ", saved.ToString());
    if (context_.on_change) context_.on_change(sweep_);
  }
}

absl::Status SweepRun::Run() {
  RT_RETURN_IF_ERROR(SetState(v1::PLANNING));
  if (!context_.backend.unavailable.empty()) {
    return Error(absl::StatusCode::kUnavailable, "DEVICE_UNAVAILABLE", context_.backend.unavailable);
  }
  const absl::Time begin = context_.clock.Now();
  RT_RETURN_IF_ERROR(MakeStrategyAndPlan());
  RT_RETURN_IF_ERROR(LoadFinished());
  Spend("plan", begin);
  RT_RETURN_IF_ERROR(SetState(v1::RUNNING));
  if (HasGpu(context_.backend)) {
    const absl::Status ready = SetUpDevice();
    if (absl::IsCancelled(ready) && Stop()) return absl::OkStatus();
    RT_RETURN_IF_ERROR(ready);
    // While the first candidates compile.
    RT_RETURN_IF_ERROR(FillPipeline());
    RT_RETURN_IF_ERROR(SearchVendor());
  }
  if (!device_lost_) RT_RETURN_IF_ERROR(Search());
  if (Stop()) return absl::OkStatus();
  if (device_lost_) {
    return Error(absl::StatusCode::kUnavailable, "DEVICE_LOST",
                 absl::StrCat("the device stopped answering (", device_message_, "); resume with `rooftune sweep resume ",
                              sweep_.name(), "`"));
  }
  return Confirm();
}

absl::Status SweepRun::MakeStrategyAndPlan() {
  const v1::SweepSpec& spec = sweep_.spec();
  const auto calibration = context_.store.GetCalibration(context_.backend.device_key);
  if (calibration.ok()) calibration_ = *calibration;
  const std::vector<std::string> ids(spec.template_id().begin(), spec.template_id().end());
  RT_ASSIGN_OR_RETURN(plan_, MakePlan(context_.library, spec.op(), context_.backend.profile,
                                      calibration_ ? &*calibration_ : nullptr, ids));
  if (spec.top_predicted() > 0) KeepBestPredicted(spec.top_predicted(), *plan_);
  *sweep_.mutable_bounds() = plan_->bounds;
  auto& progress = *sweep_.mutable_progress();
  progress.Clear();
  progress.set_space_points(plan_->space_points);
  progress.set_valid_points(plan_->valid_points);
  progress.mutable_pruned()->insert(plan_->pruned.begin(), plan_->pruned.end());
  const int max_trials = spec.max_trials() > 0 ? spec.max_trials() : kDefaultMaxTrials;
  progress.set_planned(static_cast<int>(std::min<int64_t>(max_trials, static_cast<int64_t>(plan_->points.size()))));
  const auto kind = spec.strategy() == v1::STRATEGY_KIND_UNSPECIFIED ? v1::MODEL : spec.strategy();
  RT_ASSIGN_OR_RETURN(strategy_, MakeStrategy(kind, plan_->points, spec.seed()));
  return absl::OkStatus();
}

absl::Status SweepRun::LoadFinished() {
  std::string token;
  do {
    RT_ASSIGN_OR_RETURN(auto page, context_.store.ListTrials({sweep_.name(), v1::OUTCOME_UNSPECIFIED}, 1000, token));
    for (v1::Trial& trial : page.items) {
      next_index_ = std::max(next_index_, trial.index() + 1);
      if (trial.outcome() == v1::DEVICE_LOST || trial.outcome() == v1::NOT_RUN) continue;
      if (trial.provider() == v1::CUBLASLT) {
        vendor_trials_.push_back(std::move(trial));
        continue;
      }
      trials_.push_back(trial);
      Count(trial);
      finished_.emplace(PointKey(trial.template_id(), {trial.config().begin(), trial.config().end()}), std::move(trial));
    }
    token = page.next_token;
  } while (!token.empty());
  return absl::OkStatus();
}

absl::Status SweepRun::AwaitIdleDevice() {
  if (!context_.backend.policy.idle_only) return absl::OkStatus();
  const absl::Time begin = context_.clock.Now();
  const std::string before = sweep_.message();
  const absl::Status idle = AwaitIdle(
      context_.backend, context_.clock, [this] { return Stop(); },
      [this](const std::string& reason) {
        sweep_.set_message(reason);
        const absl::Status saved = Save(true);
        if (!saved.ok()) LogWarning(sweep_.name(), ": ", saved.message());
      });
  sweep_.set_message(before);
  Spend("busy", begin);
  return idle;
}

absl::Status SweepRun::SetUpDevice() {
  RT_RETURN_IF_ERROR(AwaitIdleDevice());
  const absl::Time begin = context_.clock.Now();
  const v1::SweepSpec& spec = sweep_.spec();
  const absl::Status status = PrepareDevice(context_.library, context_.backend, plan_->op, spec.seed(), spec.l2());
  Spend("prepare", begin);
  return status;
}

absl::StatusOr<SweepRun::Candidate> SweepRun::NewCandidate(int64_t position) {
  const SearchPoint& point = plan_->points[static_cast<size_t>(position)];
  const KernelTemplate& source = *plan_->templates[static_cast<size_t>(point.template_index)];
  const Config config = plan_->ConfigOf(point);
  Candidate candidate;
  candidate.position = position;
  v1::Trial& trial = candidate.trial;
  trial.set_index(next_index_++);
  trial.set_name(absl::StrCat(sweep_.name(), "/trials/", trial.index()));
  trial.set_op(plan_->op.text);
  trial.set_device_key(context_.backend.device_key);
  trial.set_template_id(source.id());
  trial.set_template_revision(source.revision());
  trial.mutable_config()->insert(config.begin(), config.end());
  *trial.mutable_environment() = context_.backend.environment;
  RT_ASSIGN_OR_RETURN(candidate.plan, source.Plan(plan_->op, config, context_.backend.profile));
  return candidate;
}

void SweepRun::StartCompile(Candidate candidate) {
  const SearchPoint& point = plan_->points[static_cast<size_t>(candidate.position)];
  const KernelTemplate& source = *plan_->templates[static_cast<size_t>(point.template_index)];
  const Config config = plan_->ConfigOf(point);
  ++in_flight_;
  sweep_.mutable_progress()->set_started(sweep_.progress().started() + 1);
  auto request = source.CompileInput(plan_->op, config, context_.backend.profile);
  if (request.ok()) {
    const int limit = sweep_.spec().compile_timeout_ms();
    request->set_timeout_ms(limit > 0 ? limit : kDefaultCompileTimeoutMs);
    candidate.trial.set_compile_key(CompileKey(*request, context_.backend.environment.nvrtc()));
  }
  context_.pool.Submit([out = compiled_, compiler = context_.backend.compiler, clock = &context_.clock,
                        request = std::move(request), candidate = std::move(candidate)]() mutable {
    candidate.status = request.status();
    candidate.compile_begin = clock->Now();
    if (request.ok()) {
      auto result = compiler->Compile(*request);
      candidate.status = result.status();
      if (result.ok()) candidate.compiled = *std::move(result);
    }
    candidate.compile_end = clock->Now();
    absl::MutexLock lock(&out->mutex);
    out->queue.push_back(std::move(candidate));
  });
}

std::optional<SweepRun::Candidate> SweepRun::WaitCompiled() {
  const auto ready = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !compiled_->queue.empty(); };
  const absl::Time begin = context_.clock.Now();
  std::optional<Candidate> candidate;
  while (!candidate && !Stop()) {
    absl::MutexLock lock(&compiled_->mutex);
    if (!compiled_->mutex.AwaitWithTimeout(absl::Condition(&ready), kPoll)) continue;
    candidate = std::move(compiled_->queue.front());
    compiled_->queue.pop_front();
  }
  Spend("idle", begin);
  return candidate;
}

absl::Status SweepRun::Search() {
  const absl::Status status = SearchAll();
  auto& spent = *sweep_.mutable_progress()->mutable_spent_s();
  spent["compile_wall"] = absl::ToDoubleSeconds(Covered(compiling_));
  spent["overlap"] = absl::ToDoubleSeconds(CoveredByBoth(compiling_, running_));
  return status;
}

absl::Status SweepRun::SearchAll() {
  while (true) {
    RT_RETURN_IF_ERROR(FillPipeline());
    if (in_flight_ == 0 || Stop()) return absl::OkStatus();
    std::optional<Candidate> candidate = WaitCompiled();
    if (!candidate) return absl::OkStatus();
    --in_flight_;
    RT_RETURN_IF_ERROR(Finish(*std::move(candidate)));
    if (device_lost_) return absl::OkStatus();
  }
}

bool SweepRun::BudgetSpent() const {
  StopState state;
  state.started = sweep_.progress().started();
  state.max_trials = sweep_.progress().planned();
  state.elapsed_s = absl::ToDoubleSeconds(context_.clock.Now() - started_);
  state.time_budget_s = sweep_.spec().time_budget_s();
  state.cancelled = Stop();
  state.device_lost = device_lost_;
  return ShouldStop(state);
}

absl::Status SweepRun::FillPipeline() {
  while (in_flight_ < context_.compile_ahead) {
    // A resumed sweep asks the (deterministic) strategy again and passes over what is finished, also when
    // the budget is spent.
    const bool spent = BudgetSpent();
    if (spent && finished_.empty()) return absl::OkStatus();
    const auto position = strategy_->Next();
    if (!position) return absl::OkStatus();
    const SearchPoint& point = plan_->points[static_cast<size_t>(*position)];
    const auto done = finished_.find(
        PointKey(plan_->templates[static_cast<size_t>(point.template_index)]->id(), plan_->ConfigOf(point)));
    if (done != finished_.end()) {
      TellStrategy(*position, done->second);
      finished_.erase(done);
      continue;
    }
    if (spent) continue;
    RT_ASSIGN_OR_RETURN(Candidate candidate, NewCandidate(*position));
    StartCompile(std::move(candidate));
  }
  return absl::OkStatus();
}

void SweepRun::TellStrategy(int64_t position, const v1::Trial& trial) {
  const bool timed = trial.outcome() == v1::OK && trial.has_measurement();
  strategy_->Tell(position, trial.outcome(), timed ? std::optional<double>(trial.measurement().median_us()) : std::nullopt);
}

absl::Status SweepRun::Finish(Candidate candidate) {
  if (!candidate.status.ok()) return Annotate(candidate.status, "compiling");
  v1::Trial& trial = candidate.trial;
  auto& spent = *sweep_.mutable_progress()->mutable_spent_s();
  trial.set_compile_ms(candidate.compiled.compile_ms());
  spent["compile"] += candidate.compiled.compile_ms() / 1e3;
  compiling_.emplace_back(candidate.compile_begin, candidate.compile_end);
  trial.set_outcome(candidate.compiled.outcome());
  trial.set_message(Shorten(candidate.compiled.log()));
  if (candidate.compiled.outcome() == v1::OK) {
    trial.clear_message();
    const absl::Time begin = context_.clock.Now();
    RT_ASSIGN_OR_RETURN(const std::string digest, context_.artifacts.Put(candidate.compiled.cubin()));
    Spend("store", begin);
    trial.set_artifact_digest(digest);
    const absl::Status attached = AttachArtifact(candidate.compiled, candidate.plan);
    if (!attached.ok()) {
      trial.set_outcome(v1::COMPILE_FAILED);
      trial.set_message(std::string(attached.message()));
    } else {
      RT_RETURN_IF_ERROR(DescribeCompiled(candidate));
      if (trial.outcome() == v1::OK && HasGpu(context_.backend)) RT_RETURN_IF_ERROR(RunOnDevice(candidate));
      if (trial.outcome() == v1::DEVICE_LOST) return absl::OkStatus();  // says nothing about the candidate
    }
  }
  if (trial.outcome() == v1::NOT_RUN) return absl::OkStatus();  // interrupted: a resumed sweep runs it
  *trial.mutable_create_time() = ToProto(context_.clock.Now());
  TellStrategy(candidate.position, trial);
  plans_[trial.index()] = std::move(candidate.plan);
  return Commit(trial);
}

absl::Status SweepRun::DescribeCompiled(Candidate& candidate) {
  const SearchPoint& point = plan_->points[static_cast<size_t>(candidate.position)];
  return DescribeTrial({*plan_->templates[static_cast<size_t>(point.template_index)], plan_->op, plan_->work,
                        plan_->ConfigOf(point), context_.backend.profile, calibration_ ? &*calibration_ : nullptr,
                        candidate.compiled, candidate.plan, sweep_.spec().max_spill_bytes()},
                       candidate.trial);
}

absl::Status SweepRun::RunOnDevice(Candidate& candidate) {
  v1::Trial& trial = candidate.trial;
  const absl::Status idle = AwaitIdleDevice();
  if (absl::IsCancelled(idle)) {
    trial.set_outcome(v1::NOT_RUN);
    return absl::OkStatus();
  }
  RT_RETURN_IF_ERROR(idle);
  worker::v1::RunRequest request;
  *request.mutable_plan() = candidate.plan;
  request.set_cubin(candidate.compiled.cubin());
  request.set_digest(trial.artifact_digest());
  request.set_verify(true);
  request.set_measure(true);
  *request.mutable_options() = ScreeningOptions(sweep_.spec(), plan_->bounds, sweep_.progress().best_us());
  request.set_timeout_ms(RunDeadlineMs(trial.prediction().time_us(), sweep_.spec().run_timeout_ms()) +
                         (NeedsEnergy(Objective()) && sweep_.spec().run_timeout_ms() == 0 ? kEnergyMs : 0));
  const absl::Time begin = context_.clock.Now();
  const auto ran = context_.backend.runner->Run(request);
  running_.emplace_back(begin, context_.clock.Now());
  const double wall_s = absl::ToDoubleSeconds(running_.back().second - begin);
  auto& spent = *sweep_.mutable_progress()->mutable_spent_s();
  const double verify_s = ran.ok() ? std::min(wall_s, ran->verify_ms() / 1e3) : 0;
  spent["verify"] += verify_s;
  spent["measure"] += wall_s - verify_s;
  trial.set_run_ms(wall_s * 1e3);
  if (absl::IsCancelled(ran.status())) {
    trial.set_outcome(v1::NOT_RUN);
    return absl::OkStatus();
  }
  RT_RETURN_IF_ERROR(ran.status());
  trial.set_outcome(ran->outcome());
  trial.set_message(Shorten(ran->message()));
  peak_bytes_ = std::max(peak_bytes_, ran->peak_bytes());
  if (ran->outcome() == v1::DEVICE_LOST) {
    device_lost_ = true;
    device_message_ = ran->message();
    return absl::OkStatus();
  }
  if (ran->has_verification()) *trial.mutable_verification() = ran->verification();
  if (ran->has_measurement()) *trial.mutable_measurement() = ran->measurement();
  if (ran->outcome() == v1::OK && ran->verification().passed()) {
    trial.set_evidence(ran->has_measurement() ? v1::MEASURED : v1::VERIFIED);
  }
  FlagBeatsAttainable(plan_->bounds, trial);
  if (!ran->energy_error().empty() && ran->outcome() == v1::OK) {
    return Error(absl::StatusCode::kFailedPrecondition, "NO_ENERGY",
                 absl::StrCat(context_.backend.id, ": ", ran->energy_error(), "; choose by time instead"));
  }
  return absl::OkStatus();
}

void SweepRun::Count(const v1::Trial& trial) {
  auto& progress = *sweep_.mutable_progress();
  // Trials of an earlier start were handed to the compiler then.
  progress.set_started(std::max(progress.started(), progress.finished() + 1));
  progress.set_finished(progress.finished() + 1);
  if (!trial.artifact_digest().empty()) progress.set_compiled(progress.compiled() + 1);
  ++(*progress.mutable_outcome())[v1::Outcome_Name(trial.outcome())];
  const double time_us = trial.has_measurement() ? trial.measurement().median_us() : trial.prediction().time_us();
  const Score score = ScoreOf(trial.measurement(), Objective());
  const double value = trial.has_measurement() ? score.value : time_us;
  const bool better = value > 0 && (best_value_ == 0 || value < best_value_);
  if (trial.outcome() == v1::OK && better && (trial.has_measurement() || !HasGpu(context_.backend))) {
    best_value_ = value;
    progress.set_best_us(time_us);
    progress.set_best_template(trial.template_id());
    *progress.mutable_best_config() = trial.config();
    sweep_.set_evidence(std::max(sweep_.evidence(), trial.evidence()));
  }
}

absl::Status SweepRun::Commit(const v1::Trial& trial) {
  const absl::Time begin = context_.clock.Now();
  RT_RETURN_IF_ERROR(context_.store.PutTrial(trial));
  Spend("store", begin);
  trials_.push_back(trial);
  Count(trial);
  auto& progress = *sweep_.mutable_progress();
  const double elapsed_s = absl::ToDoubleSeconds(context_.clock.Now() - started_);
  progress.set_eta_s(elapsed_s / progress.finished() * std::max(0, progress.planned() - progress.finished()));
  return Save(false);
}

absl::Status SweepRun::AllFailed() const {
  // By name, so that equal sweeps say the same.
  std::map<std::string, std::pair<int, const v1::Trial*>> reasons;
  for (const v1::Trial& trial : trials_) {
    auto& [count, sample] = reasons[v1::Outcome_Name(trial.outcome())];
    ++count;
    if (sample == nullptr || sample->message().empty()) sample = &trial;
  }
  std::vector<std::string> counts, samples;
  for (const auto& [outcome, of] : reasons) {
    counts.push_back(absl::StrCat(outcome, ": ", of.first));
    samples.push_back(
        absl::StrCat(outcome, " (", of.second->name(), "): ", of.second->message().substr(0, kSampleLimit)));
  }
  const std::string examples = samples.empty() ? "" : absl::StrCat("; for example ", absl::StrJoin(samples, "; "));
  return Error(absl::StatusCode::kFailedPrecondition, "ALL_FAILED",
               absl::StrCat("every candidate failed (", absl::StrJoin(counts, ", "), ")", examples));
}

absl::Status SweepRun::Confirm() {
  RT_RETURN_IF_ERROR(SetState(v1::CONFIRMING));
  const auto is_ok = [](const v1::Trial& t) { return t.outcome() == v1::OK; };
  if (std::none_of(trials_.begin(), trials_.end(), is_ok) &&
      std::none_of(vendor_trials_.begin(), vendor_trials_.end(), is_ok)) {
    return AllFailed();
  }
  return HasGpu(context_.backend) ? ConfirmMeasured() : ConfirmCompiled();
}

}  // namespace rooftune

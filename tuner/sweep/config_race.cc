#include "tuner/sweep/config_race.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tuner/search/policies.h"
#include "tuner/sweep/await_idle.h"
#include "tuner/sweep/describe_trial.h"
#include "tuner/sweep/measure_policy.h"
#include "tuner/sweep/prepare_device.h"
#include "tuner/sweep/proto_time.h"

namespace rooftune {
namespace {

constexpr int kCompileTimeoutMs = 30'000;
constexpr int kRunTimeoutMs = 30'000;
constexpr int kRaceRounds = 6;
constexpr size_t kMessageLimit = 4096;

absl::Status Bad(const char* reason, const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason, message);
}

}  // namespace

ConfigRace::ConfigRace(Context context, const v1::RaceConfigsRequest& request) : context_(context) {
  spec_.set_l2(request.l2() == v1::L2_STATE_UNSPECIFIED ? v1::COLD : request.l2());
  spec_.set_clock(request.clock() == v1::CLOCK_STATE_UNSPECIFIED ? v1::COOL : request.clock());
  spec_.set_seed(request.seed() == 0 ? 1 : request.seed());
  spec_.set_objective(request.objective());
}

absl::StatusOr<std::unique_ptr<ConfigRace>> ConfigRace::Create(Context context, const v1::RaceConfigsRequest& request,
                                                               const Calibration* calibration) {
  if (request.entrant_size() < 1 || request.entrant_size() > kMaxEntrants) {
    return Bad("BAD_SPEC",
               absl::StrCat("a race has 1 to ", kMaxEntrants, " configurations, not ", request.entrant_size()));
  }
  std::unique_ptr<ConfigRace> race(new ConfigRace(context, request));
  if (calibration != nullptr) race->calibration_ = *calibration;
  std::vector<std::string> ids;
  for (const auto& entrant : request.entrant()) {
    if (!entrant.template_id().empty()) ids.push_back(entrant.template_id());
  }
  // All templates where one entrant names none; the order of points does not matter here.
  if (static_cast<int>(ids.size()) < request.entrant_size()) ids.clear();
  RT_ASSIGN_OR_RETURN(race->plan_,
                      MakePlan(context.library, request.op(), context.backend.profile, calibration, ids, 1));
  for (const auto& entrant : request.entrant()) RT_RETURN_IF_ERROR(race->Add(entrant));
  return race;
}

absl::Status ConfigRace::Add(const v1::RaceConfigsRequest::Entrant& wanted) {
  std::vector<std::string> ids;
  for (const KernelTemplate* source : plan_.templates) ids.push_back(source->id());
  if (wanted.template_id().empty() && ids.size() > 1) {
    return Bad("AMBIGUOUS_TEMPLATE", absl::StrCat("several templates implement `", plan_.op.text,
                                                  "` here: ", absl::StrJoin(ids, ", "), "; name one"));
  }
  const std::string& id = wanted.template_id().empty() ? ids[0] : wanted.template_id();
  const auto found = std::find(ids.begin(), ids.end(), id);
  if (found == ids.end()) {
    return Bad("UNKNOWN_TEMPLATE", absl::StrCat("no template `", id, "` implements `", plan_.op.text,
                                                "` here; those that do: ", absl::StrJoin(ids, ", ")));
  }
  const auto index = static_cast<size_t>(found - ids.begin());
  Entrant entrant;
  entrant.source = plan_.templates[index];
  RT_ASSIGN_OR_RETURN(entrant.config, entrant.source->DefaultConfig(plan_.op, context_.backend.profile));
  for (const auto& [name, value] : wanted.config()) entrant.config[name] = value;
  const std::string why = plan_.spaces[index].WhyRejected(entrant.config);
  if (!why.empty()) {
    return Bad("BAD_CONFIG", absl::StrCat(id, " ", ConfigToString(entrant.config), " is no valid configuration of `",
                                          plan_.op.text, "` here: ", why));
  }
  RT_ASSIGN_OR_RETURN(entrant.plan, entrant.source->Plan(plan_.op, entrant.config, context_.backend.profile));
  v1::Trial& trial = entrant.trial;
  trial.set_index(size());
  trial.set_op(plan_.op.text);
  trial.set_device_key(context_.backend.device_key);
  trial.set_template_id(id);
  trial.set_template_revision(entrant.source->revision());
  trial.mutable_config()->insert(entrant.config.begin(), entrant.config.end());
  *trial.mutable_environment() = context_.backend.environment;
  entrants_.push_back(std::move(entrant));
  return absl::OkStatus();
}

void ConfigRace::Compile(int index) {
  Entrant& entrant = entrants_[static_cast<size_t>(index)];
  entrant.status = CompileEntrant(entrant);
}

absl::Status ConfigRace::CompileEntrant(Entrant& entrant) {
  const Backend& backend = context_.backend;
  RT_ASSIGN_OR_RETURN(auto request, entrant.source->CompileInput(plan_.op, entrant.config, backend.profile));
  request.set_timeout_ms(kCompileTimeoutMs);
  v1::Trial& trial = entrant.trial;
  trial.set_compile_key(CompileKey(request, backend.environment.nvrtc()));
  RT_ASSIGN_OR_RETURN(entrant.compiled, backend.compiler->Compile(request));
  trial.set_compile_ms(entrant.compiled.compile_ms());
  trial.set_outcome(entrant.compiled.outcome());
  trial.set_message(entrant.compiled.log().substr(0, kMessageLimit));
  if (trial.outcome() != v1::OK) return absl::OkStatus();
  trial.clear_message();
  trial.set_artifact_digest(entrant.compiled.digest());
  const absl::Status attached = AttachArtifact(entrant.compiled, entrant.plan);
  if (!attached.ok()) {
    trial.set_outcome(v1::COMPILE_FAILED);
    trial.set_message(std::string(attached.message()));
    return absl::OkStatus();
  }
  // Spills are shown, not refused: whoever asks for this very configuration wants to see it.
  return DescribeTrial(
      {*entrant.source, plan_.op, plan_.work, entrant.config, backend.profile, calibration_ ? &*calibration_ : nullptr,
       entrant.compiled, entrant.plan, /*max_spill_bytes=*/-1},
      trial);
}

worker::v1::RunRequest ConfigRace::RequestFor(const Entrant& entrant) const {
  worker::v1::RunRequest request;
  *request.mutable_plan() = entrant.plan;
  request.set_cubin(entrant.compiled.cubin());
  request.set_digest(entrant.compiled.digest());
  request.set_verify(true);
  request.set_measure(true);
  *request.mutable_options() = RaceOptions(spec_, plan_.bounds);
  request.set_timeout_ms(kRunTimeoutMs);
  return request;
}

absl::Status ConfigRace::Take(const worker::v1::RunResult& result, double wall_s, Entrant& entrant) {
  v1::Trial& trial = entrant.trial;
  if (result.outcome() == v1::DEVICE_LOST) {
    return Error(absl::StatusCode::kUnavailable, "DEVICE_LOST",
                 absl::StrCat("the device stopped answering (", result.message(), ")"));
  }
  trial.set_outcome(result.outcome());
  trial.set_message(result.message().substr(0, kMessageLimit));
  trial.set_run_ms(wall_s * 1e3);
  if (result.has_verification()) *trial.mutable_verification() = result.verification();
  if (result.has_measurement()) *trial.mutable_measurement() = result.measurement();
  if (result.outcome() == v1::OK && result.verification().passed()) {
    trial.set_evidence(result.has_measurement() ? v1::MEASURED : v1::VERIFIED);
  }
  FlagBeatsAttainable(plan_.bounds, trial);
  if (!result.energy_error().empty()) {
    trial.set_message(absl::StrCat(trial.message(), trial.message().empty() ? "" : "; ", result.energy_error()));
  }
  return absl::OkStatus();
}

absl::Status ConfigRace::RunAlone(Entrant& entrant) {
  const absl::Time begin = context_.clock.Now();
  RT_ASSIGN_OR_RETURN(const auto result, context_.backend.runner->Run(RequestFor(entrant)));
  return Take(result, absl::ToDoubleSeconds(context_.clock.Now() - begin), entrant);
}

absl::Status ConfigRace::RunTogether(const std::vector<Entrant*>& entrants) {
  worker::v1::RaceRequest race;
  race.set_rounds(kRaceRounds);
  *race.mutable_options() = RaceOptions(spec_, plan_.bounds);
  for (const Entrant* entrant : entrants) *race.add_entrant()->mutable_candidate() = RequestFor(*entrant);
  race.set_timeout_ms(kRunTimeoutMs * race.entrant_size());
  const absl::Time begin = context_.clock.Now();
  RT_ASSIGN_OR_RETURN(const auto result, context_.backend.runner->Race(race));
  const double wall_s = absl::ToDoubleSeconds(context_.clock.Now() - begin);
  if (result.outcome() != v1::OK || result.result_size() < race.entrant_size()) {
    return Error(absl::StatusCode::kUnavailable, "RACE_FAILED",
                 absl::StrCat("the configurations could not be raced (", v1::Outcome_Name(result.outcome()),
                              "): ", result.message()));
  }
  for (int i = 0; i < race.entrant_size(); ++i) {
    RT_RETURN_IF_ERROR(Take(result.result(i), wall_s / race.entrant_size(), *entrants[static_cast<size_t>(i)]));
  }
  return absl::OkStatus();
}

absl::Status ConfigRace::RunOnDevice() {
  std::vector<Entrant*> able;
  for (Entrant& entrant : entrants_) {
    if (entrant.trial.outcome() == v1::OK) able.push_back(&entrant);
  }
  if (able.empty()) return absl::OkStatus();
  RT_RETURN_IF_ERROR(AwaitIdle(
      context_.backend, context_.clock, [] { return false; }, [](const std::string& reason) { LogInfo(reason); }));
  RT_RETURN_IF_ERROR(PrepareDevice(context_.library, context_.backend, plan_.op, spec_.seed(), spec_.l2()));
  return able.size() == 1 ? RunAlone(*able[0]) : RunTogether(able);
}

absl::StatusOr<v1::RaceConfigsResponse> ConfigRace::Run() {
  const Backend& backend = context_.backend;
  if (!backend.unavailable.empty()) {
    return Error(absl::StatusCode::kUnavailable, "DEVICE_UNAVAILABLE", backend.unavailable);
  }
  for (const Entrant& entrant : entrants_) RT_RETURN_IF_ERROR(entrant.status);
  if (backend.runner != nullptr) RT_RETURN_IF_ERROR(RunOnDevice());
  v1::RaceConfigsResponse response;
  *response.mutable_bounds() = plan_.bounds;
  for (Entrant& entrant : entrants_) {
    *entrant.trial.mutable_create_time() = ToProto(context_.clock.Now());
    *response.add_trial() = entrant.trial;
  }
  return response;
}

}  // namespace rooftune

// SweepCore's calls that wait for their turn on a device: given configurations, and stored trials measured again.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "server/sweep_core.h"
#include "tuner/sweep/replay.h"

namespace rooftune {
namespace {

constexpr char kTrials[] = "/trials/";
constexpr int kTrialsPerPage = 1000;

// "sweeps/x/trials/3" → "sweeps/x". INVALID_ARGUMENT (BAD_NAME).
absl::StatusOr<std::string> SweepOfTrial(const std::string& name) {
  const size_t at = name.find(kTrials);
  if (at == std::string::npos) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_NAME",
                 absl::StrCat("`", name.substr(0, 200), "` is no trial; its name is sweeps/SWEEP/trials/INDEX"),
                 {{"field", "name"}});
  }
  const std::string sweep = name.substr(0, at);
  RT_RETURN_IF_ERROR(ResourceId(sweep, "sweeps/").status());
  RT_RETURN_IF_ERROR(ResourceId(name.substr(at + 1), "trials/").status());
  return sweep;
}

absl::StatusOr<v1::Trial> FindTrial(Store& store, const std::string& sweep, const std::string& name) {
  std::string token;
  do {
    RT_ASSIGN_OR_RETURN(const auto page, store.ListTrials({sweep, v1::OUTCOME_UNSPECIFIED}, kTrialsPerPage, token));
    for (const v1::Trial& trial : page.items) {
      if (trial.name() == name) return trial;
    }
    token = page.next_token;
  } while (!token.empty());
  return Error(absl::StatusCode::kNotFound, "TRIAL_NOT_FOUND",
               absl::StrCat(name, " is not stored; `rooftune trials ", sweep, "` lists those of its sweep"));
}

}  // namespace

void SweepCore::RaceConfigs(v1::RaceConfigsRequest request, const CallPtr& call, Done<v1::RaceConfigsResponse> done) {
  const absl::StatusOr<Op> op = ParseOp(context_, request.op());
  if (!op.ok()) return done(op.status());
  request.set_op(op->text);
  const auto device = context_.devices.Resolve(request.device());
  if (!device.ok()) return done(device.status());
  request.set_device((*device)->device.id());
  context_.sweeps->RaceConfigs(
      request, [call] { return call->cancelled(); }, std::move(done));
}

void SweepCore::TryConfig(const v1::TryConfigRequest& request, const CallPtr& call, Done<v1::Trial> done) {
  v1::RaceConfigsRequest race;
  race.set_op(request.op());
  race.set_device(request.device());
  auto& entrant = *race.add_entrant();
  entrant.set_template_id(request.template_id());
  *entrant.mutable_config() = request.config();
  race.set_l2(request.l2());
  race.set_clock(request.clock());
  race.set_seed(request.seed());
  race.set_objective(request.objective());
  RaceConfigs(std::move(race), call, [done = std::move(done)](absl::StatusOr<v1::RaceConfigsResponse> result) {
    if (!result.ok()) return done(result.status());
    done(result->trial(0));
  });
}

void SweepCore::ReplayTrial(const v1::ReplayTrialRequest& request, const CallPtr& call,
                            Done<v1::ReplayTrialResponse> done) {
  const auto replay = [&]() -> absl::StatusOr<std::pair<v1::RaceConfigsRequest, v1::Trial>> {
    RT_ASSIGN_OR_RETURN(const std::string name, SweepOfTrial(request.name()));
    RT_ASSIGN_OR_RETURN(const v1::Sweep sweep, context_.deps.store.GetSweep(name));
    RT_ASSIGN_OR_RETURN(v1::Trial before, FindTrial(context_.deps.store, name, request.name()));
    if (before.provider() == v1::CUBLASLT) {
      return Error(absl::StatusCode::kUnimplemented, "VENDOR_TRIAL",
                   absl::StrCat(request.name(), " is an algorithm of cuBLASLt, not a configuration of a template: tune ",
                                before.op(), " again to have it measured again"));
    }
    v1::RaceConfigsRequest race;
    race.set_op(before.op());
    race.set_device(request.device().empty() ? sweep.spec().device() : request.device());
    race.add_entrant()->set_template_id(before.template_id());
    *race.mutable_entrant(0)->mutable_config() = before.config();
    race.set_l2(sweep.spec().l2());
    race.set_clock(sweep.spec().clock());
    race.set_seed(sweep.spec().seed());
    race.set_objective(sweep.spec().objective());
    return std::make_pair(std::move(race), std::move(before));
  }();
  if (!replay.ok()) return done(replay.status());
  RaceConfigs(replay->first, call,
              [done = std::move(done), before = replay->second](absl::StatusOr<v1::RaceConfigsResponse> result) {
                if (!result.ok()) return done(result.status());
                done(CompareReplay(before, result->trial(0)));
              });
}

}  // namespace rooftune

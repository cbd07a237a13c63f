// try and trial replay: configurations on the device without a sweep.
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"

namespace rooftune::cli {
namespace {

// "gemm_mma:block_m=128,stages=3", the template and everything else optional.
absl::StatusOr<v1::RaceConfigsRequest::Entrant> ParseConfig(absl::string_view text, const std::string& template_id) {
  v1::RaceConfigsRequest::Entrant entrant;
  entrant.set_template_id(template_id);
  const size_t colon = text.find(':');
  if (colon != absl::string_view::npos) {
    entrant.set_template_id(std::string(text.substr(0, colon)));
    text.remove_prefix(colon + 1);
  }
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::vector<std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    int64_t value = 0;
    if (pair.size() != 2 || pair[0].empty() || !absl::SimpleAtoi(pair[1], &value)) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE",
                   absl::StrCat("--config: `", part, "` is not name=NUMBER"));
    }
    (*entrant.mutable_config())[pair[0]] = value;
  }
  return entrant;
}

std::string OutcomeText(const v1::Trial& trial) {
  std::string text = v1::Outcome_Name(trial.outcome());
  if (!trial.message().empty()) absl::StrAppend(&text, ": ", Clip(trial.message(), 300));
  return text;
}

void PrintTrial(const v1::Trial& trial, const v1::Bounds* bounds) {
  std::printf("operator    %s\n", trial.op().c_str());
  std::printf("device      %s\n", trial.device_key().c_str());
  std::printf("config      %s %s\n", trial.template_id().c_str(), ConfigText(trial.config()).c_str());
  std::printf("outcome     %s\n", OutcomeText(trial).c_str());
  const v1::Measurement& m = trial.measurement();
  if (trial.has_measurement()) {
    std::printf("time        %s (%d samples of %d, %d thrown away)\n", MeasurementText(m).c_str(), m.sample_us_size(),
                m.launches_per_sample(), m.discarded_samples());
    std::printf("state       L2 %s, clock %s at %.0f MHz", v1::L2State_Name(m.l2()).c_str(),
                v1::ClockState_Name(m.clock()).c_str(), m.sm_clock_mhz());
    if (m.power_w() > 0) std::printf(", %.0f W, %.0f °C", m.power_w(), m.temperature_c());
    std::printf("%s\n", m.contended() ? ", CONTENDED by another process" : "");
    if (m.energy_uj() > 0) std::printf("energy      %s\n", EnergyText(m).c_str());
  }
  std::printf("predicted   %s\n", TimeText(trial.prediction().time_us()).c_str());
  if (bounds != nullptr) {
    std::printf("bounds      floor %s, attainable %s\n", TimeText(bounds->floor_us()).c_str(),
                TimeText(bounds->attainable_us()).c_str());
  }
  if (!trial.environment().sharing().empty()) std::printf("shared      %s\n", trial.environment().sharing().c_str());
  const v1::Resources& r = trial.resources();
  std::printf("resources   %d registers, %d B shared, %d B spilled, %d blocks an SM\n", r.registers_per_thread(),
              r.static_shared_bytes() + r.dynamic_shared_bytes(), r.spill_store_bytes(), r.blocks_per_sm());
  if (trial.has_verification()) {
    std::printf("verified    %s: largest error %.3f of its bound over %lld elements\n",
                trial.verification().passed() ? "passed" : "FAILED", trial.verification().max_error_ratio(),
                static_cast<long long>(trial.verification().elements()));
  }
}

absl::Status OutcomeStatus(const v1::Trial& trial) {
  if (trial.outcome() == v1::OK) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, v1::Outcome_Name(trial.outcome()), OutcomeText(trial));
}

}  // namespace

absl::Status Try(Context& context, const TryOptions& options) {
  v1::RaceConfigsRequest request;
  RT_ASSIGN_OR_RETURN(const std::string op, OpText(options.words));
  request.set_op(op);
  request.set_device(context.device);
  RT_ASSIGN_OR_RETURN(const int l2, EnumValue(v1::L2State_descriptor(), options.l2, "--l2"));
  request.set_l2(static_cast<v1::L2State>(l2));
  RT_ASSIGN_OR_RETURN(const int clock, EnumValue(v1::ClockState_descriptor(), options.clock, "--clock"));
  request.set_clock(static_cast<v1::ClockState>(clock));
  RT_ASSIGN_OR_RETURN(const int objective, EnumValue(v1::Objective_descriptor(), options.objective, "--objective"));
  request.set_objective(static_cast<v1::Objective>(objective));
  request.set_seed(options.seed);
  for (const std::string& text : options.configs) {
    RT_ASSIGN_OR_RETURN(*request.add_entrant(), ParseConfig(text, options.template_id));
  }
  if (request.entrant().empty()) request.add_entrant()->set_template_id(options.template_id);
  RT_ASSIGN_OR_RETURN(const auto response, context.client->RaceConfigs(request));
  if (context.json) {
    PrintJson(response);
  } else if (response.trial_size() == 1) {
    PrintTrial(response.trial(0), &response.bounds());
  } else {
    std::vector<std::vector<std::string>> rows = {{"TIME", "OUTCOME", "REGS", "CONFIGURATION"}};
    for (const v1::Trial& trial : response.trial()) {
      rows.push_back({MeasurementText(trial.measurement()), Clip(OutcomeText(trial), 60),
                      absl::StrCat(trial.resources().registers_per_thread()),
                      absl::StrCat(trial.template_id(), " ", ConfigText(trial.config()))});
    }
    PrintTable(rows);
  }
  for (const v1::Trial& trial : response.trial()) RT_RETURN_IF_ERROR(OutcomeStatus(trial));
  return absl::OkStatus();
}

absl::Status TrialReplay(Context& context, const std::string& name) {
  v1::ReplayTrialRequest request;
  request.set_name(ResourceName("sweeps/", name));
  request.set_device(context.device);
  RT_ASSIGN_OR_RETURN(const auto response, context.client->ReplayTrial(request));
  if (context.json) {
    PrintJson(response);
  } else {
    PrintTrial(response.after(), nullptr);
    std::printf("before      %s, %s\n", MeasurementText(response.before().measurement()).c_str(),
                OutcomeText(response.before()).c_str());
    for (const auto& [field, change] : response.difference())
      std::printf("differs     %s: %s\n", field.c_str(), change.c_str());
    std::printf("agrees      %s\n", response.agrees() ? "yes" : "NO");
  }
  if (response.agrees()) return absl::OkStatus();
  return Error(
      absl::StatusCode::kFailedPrecondition, "REPLAY_DIFFERS",
      absl::StrFormat("%s does not repeat: %s before, %s now%s", request.name(),
                      MeasurementText(response.before().measurement()), MeasurementText(response.after().measurement()),
                      response.difference().empty() ? "" : "; the environment differs"));
}

}  // namespace rooftune::cli

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "google/protobuf/util/time_util.h"
#include "server/record_core.h"

namespace rooftune {
namespace {

constexpr int kEvidenceSchema = 1;
constexpr int kTrialsAtOnce = 16;
constexpr int kSweepPage = 1000;

}  // namespace

absl::StatusOr<std::unique_ptr<EvidenceReader>> EvidenceReader::Create(ServerContext& context,
                                                                       const v1::ExportEvidenceRequest& request) {
  std::map<std::string, std::vector<std::string>> by_device;
  const auto add = [&](const v1::Sweep& sweep) { by_device[sweep.device_key()].push_back(sweep.name()); };
  for (const std::string& name : request.sweep()) {
    RT_RETURN_IF_ERROR(ResourceId(name, "sweeps/").status());
    RT_ASSIGN_OR_RETURN(const v1::Sweep sweep, context.sweeps->Get(name));
    if (!IsTerminal(sweep.state())) {
      return Error(absl::StatusCode::kFailedPrecondition, "SWEEP_RUNNING",
                   absl::StrCat(name, " has not ended; wait for it or cancel it"), {{"sweep", name}});
    }
    add(sweep);
  }
  std::string token;
  while (request.sweep().empty()) {
    RT_ASSIGN_OR_RETURN(const Page<v1::Sweep> page, context.deps.store.ListSweeps(std::nullopt, kSweepPage, token));
    for (const v1::Sweep& sweep : page.items) {
      if (IsTerminal(sweep.state())) add(sweep);
    }
    token = page.next_token;
    if (token.empty()) break;
  }
  auto reader = std::unique_ptr<EvidenceReader>(new EvidenceReader(context, request.suite()));
  for (auto& [device, names] : by_device) {
    // Listings come newest first; files read better in the order things happened.
    if (request.sweep().empty()) std::reverse(names.begin(), names.end());
    for (std::string& name : names) {
      if (std::find(reader->sweeps_.begin(), reader->sweeps_.end(), name) == reader->sweeps_.end()) {
        reader->sweeps_.push_back(std::move(name));
      }
    }
  }
  if (!reader->sweeps_.empty()) return reader;
  return Error(absl::StatusCode::kNotFound, "NOTHING_TO_EXPORT", "no sweep has ended yet: tune something first");
}

void EvidenceReader::AddRun(const v1::Sweep& sweep, std::vector<v1::ExportLine>& lines) {
  device_key_ = sweep.device_key();
  v1::EvidenceRun* run = lines.emplace_back().mutable_run();
  run->set_schema(kEvidenceSchema);
  *run->mutable_time() =
      google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(absl::ToUnixMicros(context_.deps.clock.Now()));
  *run->mutable_environment() = sweep.environment();
  run->set_device_key(device_key_);
  run->set_suite(suite_);
  const absl::StatusOr<DevicePtr> device = context_.devices.Resolve(device_key_);
  if (device.ok() && (*device)->has_profile) *run->mutable_device() = (*device)->device.profile();
  const absl::StatusOr<Calibration> calibration = context_.deps.store.GetCalibration(device_key_);
  if (calibration.ok()) *run->mutable_calibration() = *calibration;
}

absl::Status EvidenceReader::AddRecords(const v1::Sweep& sweep, std::vector<v1::ExportLine>& lines) {
  for (const v1::Baseline& baseline : sweep.baseline()) {
    v1::SweepBaseline* line = lines.emplace_back().mutable_baseline();
    line->set_sweep(sweep.name());
    line->set_op(sweep.spec().op());
    line->set_device_key(sweep.device_key());
    *line->mutable_baseline() = baseline;
  }
  for (const std::string& name : sweep.record()) {
    RT_ASSIGN_OR_RETURN(v1::TuningRecord record, context_.deps.store.GetRecord(name));
    *lines.emplace_back().mutable_record() = std::move(record);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::ExportLine>> EvidenceReader::Next() {
  std::vector<v1::ExportLine> lines;
  while (lines.empty()) {
    if (!in_trials_) {
      if (next_sweep_ >= sweeps_.size()) return lines;
      RT_ASSIGN_OR_RETURN(current_, context_.deps.store.GetSweep(sweeps_[next_sweep_++]));
      if (next_sweep_ == 1 || current_.device_key() != device_key_) AddRun(current_, lines);
      *lines.emplace_back().mutable_sweep() = current_;
      in_trials_ = true;
      token_.clear();
    }
    TrialFilter filter;
    filter.sweep = current_.name();
    RT_ASSIGN_OR_RETURN(Page<v1::Trial> page, context_.deps.store.ListTrials(filter, kTrialsAtOnce, token_));
    for (v1::Trial& trial : page.items) *lines.emplace_back().mutable_trial() = std::move(trial);
    token_ = page.next_token;
    if (token_.empty()) {
      in_trials_ = false;
      RT_RETURN_IF_ERROR(AddRecords(current_, lines));
    }
  }
  return lines;
}

}  // namespace rooftune

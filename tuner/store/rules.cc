#include "tuner/store/rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

constexpr size_t kMaxNameBytes = 256;

absl::Status BadRow(absl::string_view what) { return Error(absl::StatusCode::kInvalidArgument, "BAD_ROW", what); }

absl::Status CheckName(const std::string& name, absl::string_view collection) {
  if (!absl::StartsWith(name, collection) || name.size() == collection.size() || name.size() > kMaxNameBytes) {
    return BadRow(absl::StrCat("name '", name.substr(0, kMaxNameBytes), "' is not '", collection, "…'"));
  }
  return absl::OkStatus();
}

absl::Status CheckSize(const google::protobuf::Message& message, const std::string& name) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes <= kMaxRowBytes) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, "ROW_TOO_LARGE",
               absl::StrCat(name, " takes ", bytes, " bytes; the limit is ", kMaxRowBytes));
}

// Nothing runs on a modelled device, so nothing there can be verified or measured.
absl::Status CheckEvidence(const std::string& name, const std::string& device_key, v1::EvidenceLevel evidence,
                           bool measured) {
  const bool ran = measured || evidence >= v1::VERIFIED;
  if (ran && device_key.empty()) return BadRow(absl::StrCat(name, " was run but names no device"));
  if (ran && absl::StartsWith(device_key, "model/")) {
    return BadRow(absl::StrCat(name, " claims to have run on the modelled device ", device_key));
  }
  if (evidence >= v1::MEASURED && !measured) {
    return BadRow(absl::StrCat(name, " claims ", v1::EvidenceLevel_Name(evidence), " without a measurement"));
  }
  return absl::OkStatus();
}

}  // namespace

int PageLimit(int limit) { return limit <= 0 ? kDefaultPage : std::min(limit, kMaxPage); }

std::string SweepOfTrial(const v1::Trial& trial) {
  const std::string suffix = absl::StrCat("/trials/", trial.index());
  if (!absl::EndsWith(trial.name(), suffix)) return "";
  return trial.name().substr(0, trial.name().size() - suffix.size());
}

std::string OpKind(const std::string& op) { return op.substr(0, op.find(' ')); }

absl::Status ValidateSweep(const v1::Sweep& sweep) {
  RT_RETURN_IF_ERROR(CheckName(sweep.name(), "sweeps/"));
  if (absl::StrContains(sweep.name().substr(7), "/")) return BadRow(absl::StrCat("bad sweep name ", sweep.name()));
  return CheckSize(sweep, sweep.name());
}

absl::Status ValidateTrial(const v1::Trial& trial) {
  RT_RETURN_IF_ERROR(CheckName(trial.name(), "sweeps/"));
  if (trial.index() < 0 || SweepOfTrial(trial).size() <= 7) {
    return BadRow(absl::StrCat("trial name '", trial.name(), "' does not end in /trials/", trial.index()));
  }
  RT_RETURN_IF_ERROR(CheckEvidence(trial.name(), trial.device_key(), trial.evidence(), trial.has_measurement()));
  return CheckSize(trial, trial.name());
}

absl::Status ValidateRecord(const v1::TuningRecord& record) {
  RT_RETURN_IF_ERROR(CheckName(record.name(), "records/"));
  if (record.target_key().empty()) return BadRow(absl::StrCat(record.name(), " has no target key"));
  if (record.device_key().empty()) return BadRow(absl::StrCat(record.name(), " has no device key"));
  RT_RETURN_IF_ERROR(CheckEvidence(record.name(), record.device_key(), record.evidence(), record.has_measurement()));
  return CheckSize(record, record.name());
}

absl::Status ApplyPutSweep(Tables& tables, const v1::Sweep& sweep) {
  RT_RETURN_IF_ERROR(ValidateSweep(sweep));
  if (!sweep.request_id().empty()) {
    RT_ASSIGN_OR_RETURN(const auto holder, tables.FindRequestId(sweep.request_id()));
    if (holder.has_value() && *holder != sweep.name()) {
      return Error(absl::StatusCode::kAlreadyExists, "REQUEST_ID_USED",
                   absl::StrCat("request id ", sweep.request_id(), " belongs to ", *holder), {{"sweep", *holder}});
    }
  }
  return tables.WriteSweep(sweep);
}

absl::Status ApplyPutTrial(Tables& tables, const v1::Trial& trial) {
  RT_RETURN_IF_ERROR(ValidateTrial(trial));
  const std::string sweep = SweepOfTrial(trial);
  RT_ASSIGN_OR_RETURN(const auto facts, tables.FindSweep(sweep));
  if (!facts.has_value()) {
    return Error(absl::StatusCode::kNotFound, "SWEEP_NOT_FOUND",
                 absl::StrCat(trial.name(), " belongs to a sweep that is not stored"));
  }
  RT_ASSIGN_OR_RETURN(const auto measured, tables.FindTrial(sweep, trial.index()));
  if (measured.value_or(false) && !trial.has_measurement()) return absl::OkStatus();
  return tables.WriteTrial(sweep, trial);
}

absl::Status ApplyPutCalibration(Tables& tables, const device::v1::Calibration& calibration) {
  if (calibration.device_key().empty()) return BadRow("a calibration without a device key");
  RT_RETURN_IF_ERROR(CheckSize(calibration, "calibration"));
  return tables.WriteCalibration(calibration);
}

absl::Status ApplyPutCompileFailure(Tables& tables, const std::string& key, const worker::v1::CompileResult& result) {
  if (key.empty()) return BadRow("a failed compile without a key");
  if (result.outcome() != v1::COMPILE_FAILED || !result.cubin().empty()) {
    return BadRow(absl::StrCat("compile ", key, " did not fail"));
  }
  RT_RETURN_IF_ERROR(CheckSize(result, key));
  return tables.WriteCompileFailure(key, result);
}

absl::StatusOr<int64_t> ApplyPublish(Tables& tables, const std::vector<v1::TuningRecord>& records) {
  if (records.empty()) return BadRow("no records to publish");
  std::map<std::string, std::vector<v1::TuningRecord>> by_key;
  std::set<std::string> names;
  for (const v1::TuningRecord& record : records) {
    RT_RETURN_IF_ERROR(ValidateRecord(record));
    RT_ASSIGN_OR_RETURN(const bool known, tables.HasRecord(record.name()));
    if (known || !names.insert(record.name()).second) {
      return Error(absl::StatusCode::kAlreadyExists, "RECORD_EXISTS",
                   absl::StrCat(record.name(), " exists; records never change"));
    }
    by_key[record.target_key()].push_back(record);
  }
  RT_ASSIGN_OR_RETURN(const int64_t generation, tables.Generation());
  for (auto& [key, group] : by_key) {
    RT_ASSIGN_OR_RETURN(const std::vector<CurrentRecord> current, tables.CurrentRecords(key));
    const bool holds_measured =
        std::any_of(current.begin(), current.end(), [](const CurrentRecord& r) { return r.evidence >= v1::MEASURED; });
    for (const v1::TuningRecord& record : group) {
      if (!holds_measured || record.evidence() >= v1::MEASURED) continue;
      return Error(absl::StatusCode::kFailedPrecondition, "WEAKER_EVIDENCE",
                   absl::StrCat(record.name(), " is ", v1::EvidenceLevel_Name(record.evidence()), " but ", record.op(),
                                " has measured records on ", record.device_key()));
    }
    RT_RETURN_IF_ERROR(tables.Supersede(key, generation));
    std::stable_sort(group.begin(), group.end(), [](const auto& a, const auto& b) { return a.rank() < b.rank(); });
    // Listings go from the newest row to the oldest: the best rank is written last.
    for (size_t i = group.size(); i-- > 0;) {
      group[i].set_rank(static_cast<int>(i));
      group[i].set_from_generation(generation + 1);
      group[i].set_to_generation(0);
      RT_RETURN_IF_ERROR(tables.InsertRecord(group[i]));
    }
  }
  RT_RETURN_IF_ERROR(tables.SetGeneration(generation + 1));
  return generation + 1;
}

}  // namespace rooftune

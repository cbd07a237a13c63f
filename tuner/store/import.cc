// Import of evidence lines: what is new comes in, what is known stays as it is, and nothing that is served gets
// worse.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "tuner/store/rules.h"

namespace rooftune {
namespace {

// EvidenceRun.schema that is understood.
constexpr int kEvidenceSchema = 1;

absl::Status BadLine(size_t line, absl::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_EVIDENCE", absl::StrCat("line ", line + 1, ": ", what),
               {{"line", absl::StrCat(line + 1)}});
}

absl::Status AtLine(size_t line, const absl::Status& status) {
  return Annotate(status, absl::StrCat("line ", line + 1));
}

// Lines sorted into what they describe; checks everything that can be checked without the store.
struct Parsed {
  std::vector<v1::Sweep> sweeps;
  std::map<std::string, size_t> sweep_by_name;
  std::vector<const v1::Trial*> trials;
  std::vector<const v1::TuningRecord*> records;
};

bool HasEnded(v1::SweepState state) { return state == v1::DONE || state == v1::FAILED || state == v1::CANCELLED; }

absl::Status AddSweep(size_t line, const v1::Sweep& sweep, Parsed* parsed) {
  RT_RETURN_IF_ERROR(AtLine(line, ValidateSweep(sweep)));
  // A daemon takes unfinished sweeps up again; somebody else's must never become its own work.
  if (!HasEnded(sweep.state())) {
    return BadLine(line, absl::StrCat(sweep.name(), " has not ended (", v1::SweepState_Name(sweep.state()),
                                      "): export it again when it has"));
  }
  if (!parsed->sweep_by_name.emplace(sweep.name(), parsed->sweeps.size()).second) {
    return BadLine(line, absl::StrCat(sweep.name(), " occurs twice"));
  }
  parsed->sweeps.push_back(sweep);
  // Request ids belong to the clients of the daemon that made the sweep.
  parsed->sweeps.back().clear_request_id();
  return absl::OkStatus();
}

absl::StatusOr<v1::Sweep*> OwnerOf(size_t line, const std::string& sweep, Parsed* parsed) {
  const auto found = parsed->sweep_by_name.find(sweep);
  if (found == parsed->sweep_by_name.end()) {
    return BadLine(line, absl::StrCat("belongs to '", sweep, "', which no line before it describes"));
  }
  return &parsed->sweeps[found->second];
}

absl::Status AddTrial(size_t line, const v1::EvidenceRun& run, const v1::Trial& trial, Parsed* parsed) {
  RT_RETURN_IF_ERROR(AtLine(line, ValidateTrial(trial)));
  RT_ASSIGN_OR_RETURN(const v1::Sweep* sweep, OwnerOf(line, SweepOfTrial(trial), parsed));
  if (trial.device_key() != sweep->device_key()) {
    return BadLine(line, absl::StrCat(trial.name(), " is of device '", trial.device_key(), "', its sweep of '",
                                      sweep->device_key(), "'"));
  }
  if (trial.has_measurement() && run.device_key().empty()) {
    return BadLine(line, absl::StrCat(trial.name(), " has a measurement, but the run names no device"));
  }
  parsed->trials.push_back(&trial);
  return absl::OkStatus();
}

absl::Status AddBaseline(size_t line, const v1::SweepBaseline& baseline, Parsed* parsed) {
  RT_ASSIGN_OR_RETURN(v1::Sweep * sweep, OwnerOf(line, baseline.sweep(), parsed));
  const auto& known = sweep->baseline();
  const bool twice = std::any_of(known.begin(), known.end(),
                                 [&](const v1::Baseline& b) { return b.name() == baseline.baseline().name(); });
  if (!twice) *sweep->add_baseline() = baseline.baseline();
  return absl::OkStatus();
}

// A newer format may mean something else by the same fields.
absl::Status CheckSchema(const v1::EvidenceRun& run) {
  if (run.schema() <= kEvidenceSchema) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, "EVIDENCE_NEWER",
               absl::StrCat("evidence of schema ", run.schema(), "; this rooftune reads up to ", kEvidenceSchema));
}

absl::StatusOr<Parsed> Parse(const std::vector<v1::ExportLine>& lines) {
  if (lines.empty() || !lines[0].has_run()) return BadLine(0, "evidence starts with a line that describes the run");
  RT_RETURN_IF_ERROR(CheckSchema(lines[0].run()));
  Parsed parsed;
  // Lines belong to the run before them: an export of several devices has one a device.
  const v1::EvidenceRun* run = &lines[0].run();
  for (size_t i = 1; i < lines.size(); ++i) {
    const v1::ExportLine& line = lines[i];
    switch (line.line_case()) {
      case v1::ExportLine::kRun:
        run = &line.run();
        RT_RETURN_IF_ERROR(CheckSchema(*run));
        break;
      case v1::ExportLine::kSweep:
        RT_RETURN_IF_ERROR(AddSweep(i, line.sweep(), &parsed));
        break;
      case v1::ExportLine::kTrial:
        RT_RETURN_IF_ERROR(AddTrial(i, *run, line.trial(), &parsed));
        break;
      case v1::ExportLine::kBaseline:
        RT_RETURN_IF_ERROR(AddBaseline(i, line.baseline(), &parsed));
        break;
      case v1::ExportLine::kRecord: {
        RT_RETURN_IF_ERROR(AtLine(i, ValidateRecord(line.record())));
        if (line.record().has_measurement() && run->device_key().empty()) {
          return BadLine(i, absl::StrCat(line.record().name(), " is measured, but the run names no device"));
        }
        parsed.records.push_back(&line.record());
        break;
      }
      case v1::ExportLine::LINE_NOT_SET:
        return BadLine(i, "an empty line");
    }
  }
  return parsed;
}

absl::Status ImportSweeps(Tables& tables, const Parsed& parsed, ImportCounts* counts) {
  for (const v1::Sweep& sweep : parsed.sweeps) {
    RT_ASSIGN_OR_RETURN(const auto known, tables.FindSweep(sweep.name()));
    if (!known.has_value()) {
      ++counts->sweeps;
      RT_RETURN_IF_ERROR(tables.WriteSweep(sweep));
      continue;
    }
    if (known->op != sweep.spec().op() || known->device_key != sweep.device_key()) {
      return Error(absl::StatusCode::kInvalidArgument, "NAME_CONFLICT",
                   absl::StrCat(sweep.name(), " is stored as '", known->op, "' on '", known->device_key, "', not as '",
                                sweep.spec().op(), "' on '", sweep.device_key(), "'"));
    }
    ++counts->duplicates;
  }
  return absl::OkStatus();
}

absl::Status ImportTrials(Tables& tables, const Parsed& parsed, ImportCounts* counts) {
  for (const v1::Trial* trial : parsed.trials) {
    const std::string sweep = SweepOfTrial(*trial);
    RT_ASSIGN_OR_RETURN(const auto known, tables.FindTrial(sweep, trial->index()));
    if (known.has_value()) {
      ++counts->duplicates;
      continue;
    }
    ++counts->trials;
    RT_RETURN_IF_ERROR(tables.WriteTrial(sweep, *trial));
  }
  return absl::OkStatus();
}

// Whether `best` may displace what is current: into an empty key, a measured one over unmeasured ones, or one
// that is faster beyond the noise.
bool MayDisplace(const v1::TuningRecord& best, const std::vector<CurrentRecord>& current) {
  if (current.empty()) return true;
  const CurrentRecord& held = current.front();
  const bool held_measured =
      std::any_of(current.begin(), current.end(), [](const CurrentRecord& r) { return r.evidence >= v1::MEASURED; });
  if (best.evidence() < v1::MEASURED) return !held_measured && best.evidence() > held.evidence;
  if (!held_measured || held.evidence < v1::MEASURED) return true;
  const double upper = std::max(best.measurement().ci_high_us(), best.measurement().median_us());
  return held.ci_low_us > 0 && upper < held.ci_low_us;
}

// Whether a record was what its source served: one of the newest there that nothing had superseded.
class WasCurrent {
 public:
  explicit WasCurrent(const std::vector<v1::TuningRecord>& records) {
    for (const auto& r : records) {
      if (r.to_generation() == 0) newest_ = std::max(newest_, r.from_generation());
    }
  }
  bool operator()(const v1::TuningRecord& r) const { return r.to_generation() == 0 && r.from_generation() == newest_; }

 private:
  int64_t newest_ = 0;
};

// The records of one key: those that were current at their source may become current here, the rest is history.
absl::Status ImportKey(Tables& tables, const std::string& key, std::vector<v1::TuningRecord> records,
                       int64_t generation) {
  const WasCurrent was_current(records);
  std::stable_sort(records.begin(), records.end(), [&](const auto& a, const auto& b) {
    if (was_current(a) != was_current(b)) return was_current(a);
    return std::make_pair(-a.from_generation(), a.rank()) < std::make_pair(-b.from_generation(), b.rank());
  });
  RT_ASSIGN_OR_RETURN(const std::vector<CurrentRecord> held, tables.CurrentRecords(key));
  const bool held_measured =
      std::any_of(held.begin(), held.end(), [](const CurrentRecord& r) { return r.evidence >= v1::MEASURED; });
  const bool displace = was_current(records.front()) && MayDisplace(records.front(), held);
  if (displace) RT_RETURN_IF_ERROR(tables.Supersede(key, generation - 1));
  // The newest row is listed first, so the best one is written last.
  for (size_t i = records.size(); i-- > 0;) {
    v1::TuningRecord& record = records[i];
    const bool weaker = held_measured && record.evidence() < v1::MEASURED;
    const bool current = displace && !weaker && was_current(record);
    if (was_current(record)) record.set_rank(static_cast<int>(i));
    record.set_from_generation(generation);
    // History gets a range that ends before it starts: part of no generation.
    record.set_to_generation(current ? 0 : generation - 1);
    RT_RETURN_IF_ERROR(tables.InsertRecord(record));
  }
  return absl::OkStatus();
}

absl::Status ImportRecords(Tables& tables, const Parsed& parsed, ImportCounts* counts) {
  std::map<std::string, std::vector<v1::TuningRecord>> by_key;
  std::set<std::string> names;
  for (const v1::TuningRecord* record : parsed.records) {
    RT_ASSIGN_OR_RETURN(const bool known, tables.HasRecord(record->name()));
    if (known || !names.insert(record->name()).second) {
      ++counts->duplicates;
      continue;
    }
    ++counts->records;
    by_key[record->target_key()].push_back(*record);
  }
  if (by_key.empty()) return absl::OkStatus();
  RT_ASSIGN_OR_RETURN(const int64_t generation, tables.Generation());
  // At least 2: history ends one generation before it starts, and an end of 0 would mean current.
  const int64_t next = std::max<int64_t>(generation, 1) + 1;
  for (auto& [key, records] : by_key) {
    RT_RETURN_IF_ERROR(ImportKey(tables, key, std::move(records), next));
  }
  return tables.SetGeneration(next);
}

}  // namespace

absl::StatusOr<ImportCounts> ApplyImport(Tables& tables, const std::vector<v1::ExportLine>& lines) {
  RT_ASSIGN_OR_RETURN(const Parsed parsed, Parse(lines));
  ImportCounts counts;
  RT_RETURN_IF_ERROR(ImportSweeps(tables, parsed, &counts));
  RT_RETURN_IF_ERROR(ImportTrials(tables, parsed, &counts));
  RT_RETURN_IF_ERROR(ImportRecords(tables, parsed, &counts));
  return counts;
}

}  // namespace rooftune

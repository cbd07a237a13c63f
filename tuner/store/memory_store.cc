#include "tuner/store/memory_store.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "tuner/store/listing.h"
#include "tuner/store/page_token.h"
#include "tuner/store/rules.h"
#include "tuner/store/tables.h"

namespace rooftune {

struct MemoryStore::State : public Tables {
  struct SweepRow {
    int64_t seq = 0;
    v1::Sweep sweep;
  };
  std::map<std::string, SweepRow> sweeps;
  std::map<std::pair<std::string, int>, v1::Trial> trials;
  // In order of writing: the index is the sequence number.
  std::vector<v1::TuningRecord> records;
  std::map<std::string, size_t> record_by_name;
  std::map<std::string, device::v1::Calibration> calibrations;
  std::map<std::string, worker::v1::CompileResult> compile_failures;
  // Keys in order of writing.
  std::vector<std::string> compile_failure_order;
  int64_t generation = 0;

  absl::StatusOr<std::optional<SweepFacts>> FindSweep(const std::string& name) override {
    const auto found = sweeps.find(name);
    if (found == sweeps.end()) return std::nullopt;
    return SweepFacts{found->second.sweep.spec().op(), found->second.sweep.device_key()};
  }

  absl::StatusOr<std::optional<std::string>> FindRequestId(const std::string& request_id) override {
    for (const auto& [name, row] : sweeps) {
      if (row.sweep.request_id() == request_id) return name;
    }
    return std::nullopt;
  }

  absl::Status WriteSweep(const v1::Sweep& sweep) override {
    SweepRow& row = sweeps[sweep.name()];
    if (row.seq == 0) row.seq = static_cast<int64_t>(sweeps.size());
    row.sweep = sweep;
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<bool>> FindTrial(const std::string& sweep, int index) override {
    const auto found = trials.find({sweep, index});
    if (found == trials.end()) return std::nullopt;
    return found->second.has_measurement();
  }

  absl::Status WriteTrial(const std::string& sweep, const v1::Trial& trial) override {
    trials[{sweep, trial.index()}] = trial;
    return absl::OkStatus();
  }

  absl::StatusOr<bool> HasRecord(const std::string& name) override { return record_by_name.count(name) != 0; }

  absl::StatusOr<std::vector<CurrentRecord>> CurrentRecords(const std::string& target_key) override {
    std::vector<CurrentRecord> current;
    for (auto r = records.rbegin(); r != records.rend(); ++r) {
      if (r->target_key() == target_key && r->to_generation() == 0) {
        current.push_back({r->evidence(), r->measurement().ci_low_us()});
      }
    }
    return current;
  }

  absl::Status InsertRecord(const v1::TuningRecord& record) override {
    record_by_name[record.name()] = records.size();
    records.push_back(record);
    return absl::OkStatus();
  }

  absl::Status Supersede(const std::string& target_key, int64_t to_generation) override {
    for (v1::TuningRecord& r : records) {
      if (r.target_key() == target_key && r.to_generation() == 0) r.set_to_generation(to_generation);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Generation() override { return generation; }
  absl::Status SetGeneration(int64_t value) override {
    generation = value;
    return absl::OkStatus();
  }

  absl::Status WriteCalibration(const device::v1::Calibration& calibration) override {
    device::v1::Calibration& newest = calibrations[calibration.device_key()];
    if (TimeMicros(calibration.time()) >= TimeMicros(newest.time())) newest = calibration;
    return absl::OkStatus();
  }

  absl::Status WriteCompileFailure(const std::string& key, const worker::v1::CompileResult& result) override {
    auto& order = compile_failure_order;
    order.erase(std::remove(order.begin(), order.end(), key), order.end());
    order.push_back(key);
    compile_failures[key] = result;
    if (order.size() > static_cast<size_t>(kMaxCompileFailures)) {
      compile_failures.erase(order.front());
      order.erase(order.begin());
    }
    return absl::OkStatus();
  }
};

MemoryStore::MemoryStore() : state_(std::make_unique<State>()) {}
MemoryStore::~MemoryStore() = default;

void MemoryStore::FailWrite(int n, absl::Status status, bool onwards) {
  absl::MutexLock lock(&mutex_);
  fail_in_ = n;
  fail_onwards_ = onwards;
  failure_ = std::move(status);
}

void MemoryStore::ClearFailures() {
  absl::MutexLock lock(&mutex_);
  fail_in_ = 0;
}

int MemoryStore::writes() const {
  absl::MutexLock lock(&mutex_);
  return writes_;
}

absl::Status MemoryStore::Write(bool copy, const std::function<absl::Status(Tables&)>& apply) {
  absl::MutexLock lock(&mutex_);
  ++writes_;
  if (fail_in_ > 0 && --fail_in_ == 0) {
    if (fail_onwards_) fail_in_ = 1;
    return failure_;
  }
  if (!copy) return apply(*state_);
  auto changed = std::make_unique<State>(*state_);
  RT_RETURN_IF_ERROR(apply(*changed));
  state_ = std::move(changed);
  return absl::OkStatus();
}

absl::Status MemoryStore::PutSweep(const v1::Sweep& sweep) {
  return Write(false, [&](Tables& tables) { return ApplyPutSweep(tables, sweep); });
}

absl::StatusOr<v1::Sweep> MemoryStore::GetSweep(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto found = state_->sweeps.find(name);
  if (found == state_->sweeps.end()) {
    return Error(absl::StatusCode::kNotFound, "SWEEP_NOT_FOUND", absl::StrCat("no sweep ", name));
  }
  return found->second.sweep;
}

absl::StatusOr<Page<v1::Sweep>> MemoryStore::ListSweeps(std::optional<v1::SweepState> state, int limit,
                                                        const std::string& token) {
  std::pair<int64_t, int64_t> before = {std::numeric_limits<int64_t>::max(), 0};
  if (!token.empty()) {
    RT_ASSIGN_OR_RETURN(const PagePosition position, DecodePageToken(token, SweepListing(state), 2));
    before = {position.numbers[0], position.numbers[1]};
  }
  absl::MutexLock lock(&mutex_);
  std::vector<std::pair<std::pair<int64_t, int64_t>, const v1::Sweep*>> found;
  for (const auto& [name, row] : state_->sweeps) {
    const std::pair<int64_t, int64_t> at = {TimeMicros(row.sweep.create_time()), row.seq};
    if (at < before && (!state.has_value() || row.sweep.state() == *state)) found.emplace_back(at, &row.sweep);
  }
  std::sort(found.rbegin(), found.rend());
  Page<v1::Sweep> page;
  const auto size = static_cast<size_t>(PageLimit(limit));
  for (size_t i = 0; i < found.size() && i < size; ++i) page.items.push_back(*found[i].second);
  if (found.size() > size) {
    const auto& last = found[size - 1].first;
    page.next_token = EncodePageToken(SweepListing(state), {last.first, last.second});
  }
  return page;
}

absl::StatusOr<v1::Sweep> MemoryStore::FindSweepByRequestId(const std::string& request_id) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [name, row] : state_->sweeps) {
    if (!request_id.empty() && row.sweep.request_id() == request_id) return row.sweep;
  }
  return Error(absl::StatusCode::kNotFound, "SWEEP_NOT_FOUND", absl::StrCat("no sweep of request ", request_id));
}

absl::Status MemoryStore::PutTrial(const v1::Trial& trial) {
  return Write(false, [&](Tables& tables) { return ApplyPutTrial(tables, trial); });
}

absl::StatusOr<Page<v1::Trial>> MemoryStore::ListTrials(const TrialFilter& filter, int limit,
                                                        const std::string& token) {
  std::pair<std::string, int> after = {filter.sweep, -1};
  if (!token.empty()) {
    RT_ASSIGN_OR_RETURN(const PagePosition position, DecodePageToken(token, TrialListing(filter), 1));
    after = {position.text, static_cast<int>(position.numbers[0])};
  }
  absl::MutexLock lock(&mutex_);
  Page<v1::Trial> page;
  for (auto row = state_->trials.upper_bound(after); row != state_->trials.end(); ++row) {
    if (!filter.sweep.empty() && row->first.first != filter.sweep) break;
    if (filter.outcome != v1::OUTCOME_UNSPECIFIED && row->second.outcome() != filter.outcome) continue;
    if (page.items.size() == static_cast<size_t>(PageLimit(limit))) {
      page.next_token = EncodePageToken(TrialListing(filter), {after.second}, after.first);
      break;
    }
    page.items.push_back(row->second);
    after = row->first;
  }
  return page;
}

absl::StatusOr<int64_t> MemoryStore::PublishRecords(const std::vector<v1::TuningRecord>& records) {
  int64_t generation = 0;
  RT_RETURN_IF_ERROR(Write(true, [&](Tables& tables) -> absl::Status {
    RT_ASSIGN_OR_RETURN(generation, ApplyPublish(tables, records));
    return absl::OkStatus();
  }));
  return generation;
}

absl::StatusOr<v1::TuningRecord> MemoryStore::GetRecord(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto found = state_->record_by_name.find(name);
  if (found == state_->record_by_name.end()) {
    return Error(absl::StatusCode::kNotFound, "RECORD_NOT_FOUND", absl::StrCat("no record ", name));
  }
  return state_->records[found->second];
}

absl::StatusOr<Page<v1::TuningRecord>> MemoryStore::ListRecords(const RecordFilter& filter, int limit,
                                                                const std::string& token) {
  absl::MutexLock lock(&mutex_);
  int64_t generation = state_->generation;
  size_t before = state_->records.size();
  if (!token.empty()) {
    RT_ASSIGN_OR_RETURN(const PagePosition position, DecodePageToken(token, RecordListing(filter), 2));
    generation = position.numbers[0];
    before = std::min(before, static_cast<size_t>(position.numbers[1]));
  }
  Page<v1::TuningRecord> page;
  for (size_t i = before; i-- > 0;) {
    const v1::TuningRecord& r = state_->records[i];
    const bool current = r.to_generation() == 0 || r.to_generation() >= generation;
    if (r.from_generation() > generation || (!filter.include_superseded && !current) ||
        (!filter.target_key.empty() && r.target_key() != filter.target_key) ||
        (!filter.op_kind.empty() && OpKind(r.op()) != filter.op_kind) ||
        (!filter.device_key.empty() && r.device_key() != filter.device_key) || r.evidence() < filter.min_evidence) {
      continue;
    }
    if (page.items.size() == static_cast<size_t>(PageLimit(limit))) {
      page.next_token = EncodePageToken(RecordListing(filter), {generation, static_cast<int64_t>(before)});
      break;
    }
    page.items.push_back(r);
    before = i;
  }
  return page;
}

absl::StatusOr<int64_t> MemoryStore::CurrentGeneration() {
  absl::MutexLock lock(&mutex_);
  return state_->generation;
}

absl::StatusOr<std::set<std::string>> MemoryStore::ServedArtifacts(int64_t generations_back) {
  absl::MutexLock lock(&mutex_);
  std::set<std::string> digests;
  for (const v1::TuningRecord& r : state_->records) {
    const bool served = r.to_generation() == 0 || r.to_generation() >= state_->generation - generations_back;
    if (served && !r.artifact_digest().empty()) digests.insert(r.artifact_digest());
  }
  return digests;
}

absl::Status MemoryStore::PutCalibration(const device::v1::Calibration& calibration) {
  return Write(false, [&](Tables& tables) { return ApplyPutCalibration(tables, calibration); });
}

absl::StatusOr<device::v1::Calibration> MemoryStore::GetCalibration(const std::string& device_key) {
  absl::MutexLock lock(&mutex_);
  const auto found = state_->calibrations.find(device_key);
  if (found == state_->calibrations.end()) {
    return Error(absl::StatusCode::kNotFound, "NOT_CALIBRATED", absl::StrCat("no calibration of ", device_key));
  }
  return found->second;
}

absl::Status MemoryStore::PutCompileFailure(const std::string& key, const worker::v1::CompileResult& result) {
  return Write(false, [&](Tables& tables) { return ApplyPutCompileFailure(tables, key, result); });
}

absl::StatusOr<worker::v1::CompileResult> MemoryStore::GetCompileFailure(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  const auto found = state_->compile_failures.find(key);
  if (found == state_->compile_failures.end()) {
    return Error(absl::StatusCode::kNotFound, "NO_COMPILE_FAILURE", absl::StrCat("no failed compile ", key));
  }
  return found->second;
}

absl::Status MemoryStore::Import(const std::vector<v1::ExportLine>& lines, int* sweeps, int* trials, int* records,
                                 int* duplicates) {
  ImportCounts counts;
  RT_RETURN_IF_ERROR(Write(true, [&](Tables& tables) -> absl::Status {
    RT_ASSIGN_OR_RETURN(counts, ApplyImport(tables, lines));
    return absl::OkStatus();
  }));
  *sweeps = counts.sweeps;
  *trials = counts.trials;
  *records = counts.records;
  *duplicates = counts.duplicates;
  return absl::OkStatus();
}

}  // namespace rooftune

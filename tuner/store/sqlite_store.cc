#include "tuner/store/sqlite_store.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tuner/store/listing.h"
#include "tuner/store/page_token.h"
#include "tuner/store/rules.h"

namespace rooftune {
namespace {

// A page ends early at this many bytes of payload.
constexpr size_t kMaxPageBytes = 64 << 20;
// Damaged rows beyond this many are counted but no longer logged.
constexpr int64_t kMaxLoggedRows = 100;

absl::Status NotFound(absl::string_view reason, absl::string_view message) {
  return Error(absl::StatusCode::kNotFound, reason, message);
}

// Rows of a page as they come: says when it is full.
class PageBudget {
 public:
  explicit PageBudget(int limit) : rows_left_(PageLimit(limit)) {}
  // One more than a full page, so that the end is known.
  int64_t sql_limit() const { return rows_left_ + 1; }
  bool Full() const { return rows_left_ <= 0 || bytes_ > kMaxPageBytes; }
  void Count(size_t bytes) {
    --rows_left_;
    bytes_ += bytes;
  }

 private:
  int64_t rows_left_;
  size_t bytes_ = 0;
};

}  // namespace

SqliteStore::SqliteStore(std::unique_ptr<LockFile> lock, std::unique_ptr<SqliteWriter> writer,
                         std::unique_ptr<SqliteDb> reader)
    : lock_(std::move(lock)), writer_(std::move(writer)), reader_(std::move(reader)) {}

SqliteStore::~SqliteStore() = default;

absl::Status SqliteStore::ReadPayload(const SqliteStatement& row, int digest_column, absl::string_view what,
                                      google::protobuf::Message* message) {
  const absl::Status status =
      Annotate(ParsePayload(row.Text(digest_column), row.Text(digest_column + 1), message), what);
  if (!status.ok() && ++corrupt_rows_ <= kMaxLoggedRows) LogWarning("store: ", status.message(), "; left out");
  return status;
}

template <typename T>
absl::StatusOr<T> SqliteStore::ReadOne(const std::string& sql, const std::string& key, const absl::Status& missing) {
  absl::MutexLock lock(&read_mutex_);
  RT_ASSIGN_OR_RETURN(SqliteStatement statement, reader_->Prepare(sql));
  RT_ASSIGN_OR_RETURN(const bool found, statement.Bind(1, key).Step());
  if (!found) return missing;
  T message;
  RT_RETURN_IF_ERROR(ReadPayload(statement, 0, key, &message));
  return message;
}

absl::Status SqliteStore::PutSweep(const v1::Sweep& sweep) {
  return writer_->Write([&](Tables& tables) { return ApplyPutSweep(tables, sweep); });
}

absl::StatusOr<v1::Sweep> SqliteStore::GetSweep(const std::string& name) {
  return ReadOne<v1::Sweep>("SELECT digest, payload FROM sweeps WHERE name=?", name,
                            NotFound("SWEEP_NOT_FOUND", absl::StrCat("no sweep ", name)));
}

absl::StatusOr<v1::Sweep> SqliteStore::FindSweepByRequestId(const std::string& request_id) {
  return ReadOne<v1::Sweep>("SELECT digest, payload FROM sweeps WHERE request_id=?", request_id,
                            NotFound("SWEEP_NOT_FOUND", absl::StrCat("no sweep of request ", request_id)));
}

absl::StatusOr<Page<v1::Sweep>> SqliteStore::ListSweeps(std::optional<v1::SweepState> state, int limit,
                                                        const std::string& token) {
  PagePosition before{{std::numeric_limits<int64_t>::max(), 0}, ""};
  if (!token.empty()) {
    RT_ASSIGN_OR_RETURN(before, DecodePageToken(token, SweepListing(state), 2));
  }
  PageBudget budget(limit);
  absl::MutexLock lock(&read_mutex_);
  RT_ASSIGN_OR_RETURN(SqliteStatement rows,
                      reader_->Prepare(absl::StrCat("SELECT create_us, seq, name, digest, payload FROM sweeps WHERE "
                                                    "(create_us, seq) < (?, ?)",
                                                    state.has_value() ? " AND state=?4" : "",
                                                    " ORDER BY create_us DESC, seq DESC LIMIT ?3")));
  rows.Bind(1, before.numbers[0]).Bind(2, before.numbers[1]).Bind(3, budget.sql_limit());
  if (state.has_value()) rows.Bind(4, v1::SweepState_Name(*state));
  Page<v1::Sweep> page;
  while (true) {
    RT_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return page;
    if (budget.Full()) {
      page.next_token = EncodePageToken(SweepListing(state), before.numbers);
      return page;
    }
    before.numbers = {rows.Int(0), rows.Int(1)};
    v1::Sweep sweep;
    if (ReadPayload(rows, 3, rows.Text(2), &sweep).ok()) page.items.push_back(std::move(sweep));
    budget.Count(rows.Text(4).size());
  }
}

absl::Status SqliteStore::PutTrial(const v1::Trial& trial) {
  return writer_->Write([&](Tables& tables) { return ApplyPutTrial(tables, trial); });
}

absl::StatusOr<Page<v1::Trial>> SqliteStore::ListTrials(const TrialFilter& filter, int limit,
                                                        const std::string& token) {
  PagePosition after{{-1}, filter.sweep};
  if (!token.empty()) {
    RT_ASSIGN_OR_RETURN(after, DecodePageToken(token, TrialListing(filter), 1));
  }
  PageBudget budget(limit);
  const bool by_outcome = filter.outcome != v1::OUTCOME_UNSPECIFIED;
  absl::MutexLock lock(&read_mutex_);
  RT_ASSIGN_OR_RETURN(
      SqliteStatement rows,
      reader_->Prepare(absl::StrCat("SELECT sweep, idx, digest, payload FROM trials WHERE (sweep, idx) > (?1, ?2)",
                                    filter.sweep.empty() ? "" : " AND sweep=?4", by_outcome ? " AND outcome=?5" : "",
                                    " ORDER BY sweep, idx LIMIT ?3")));
  rows.Bind(1, after.text).Bind(2, after.numbers[0]).Bind(3, budget.sql_limit());
  if (!filter.sweep.empty()) rows.Bind(4, filter.sweep);
  if (by_outcome) rows.Bind(5, v1::Outcome_Name(filter.outcome));
  Page<v1::Trial> page;
  while (true) {
    RT_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return page;
    if (budget.Full()) {
      page.next_token = EncodePageToken(TrialListing(filter), after.numbers, after.text);
      return page;
    }
    after = {{rows.Int(1)}, rows.Text(0)};
    v1::Trial trial;
    const std::string what = absl::StrCat(after.text, "/trials/", after.numbers[0]);
    if (ReadPayload(rows, 2, what, &trial).ok()) page.items.push_back(std::move(trial));
    budget.Count(rows.Text(3).size());
  }
}

absl::StatusOr<int64_t> SqliteStore::PublishRecords(const std::vector<v1::TuningRecord>& records) {
  int64_t generation = 0;
  RT_RETURN_IF_ERROR(writer_->Write([&](Tables& tables) -> absl::Status {
    RT_ASSIGN_OR_RETURN(generation, ApplyPublish(tables, records));
    return absl::OkStatus();
  }));
  return generation;
}

absl::StatusOr<v1::TuningRecord> SqliteStore::GetRecord(const std::string& name) {
  absl::MutexLock lock(&read_mutex_);
  RT_ASSIGN_OR_RETURN(SqliteStatement row,
                      reader_->Prepare("SELECT digest, payload, to_generation FROM records WHERE name=?"));
  RT_ASSIGN_OR_RETURN(const bool found, row.Bind(1, name).Step());
  if (!found) return NotFound("RECORD_NOT_FOUND", absl::StrCat("no record ", name));
  v1::TuningRecord record;
  RT_RETURN_IF_ERROR(ReadPayload(row, 0, name, &record));
  // The payload never changes; what ends a record is a column.
  record.set_to_generation(row.Int(2));
  return record;
}

absl::StatusOr<Page<v1::TuningRecord>> SqliteStore::ListRecords(const RecordFilter& filter, int limit,
                                                                const std::string& token) {
  PagePosition before{{0, std::numeric_limits<int64_t>::max()}, ""};
  if (token.empty()) {
    // Later pages see the generation of the first, so that no key is missed or seen twice.
    RT_ASSIGN_OR_RETURN(before.numbers[0], CurrentGeneration());
  } else {
    RT_ASSIGN_OR_RETURN(before, DecodePageToken(token, RecordListing(filter), 2));
  }
  PageBudget budget(limit);
  absl::MutexLock lock(&read_mutex_);
  RT_ASSIGN_OR_RETURN(
      SqliteStatement rows,
      reader_->Prepare(absl::StrCat(
          "SELECT seq, name, to_generation, digest, payload FROM records WHERE seq < ?2 AND from_generation <= ?1 "
          "AND evidence >= ?4",
          filter.include_superseded ? "" : " AND (to_generation = 0 OR to_generation >= ?1)",
          filter.target_key.empty() ? "" : " AND target_key=?5", filter.op_kind.empty() ? "" : " AND op_kind=?6",
          filter.device_key.empty() ? "" : " AND device_key=?7", " ORDER BY seq DESC LIMIT ?3")));
  rows.Bind(1, before.numbers[0]).Bind(2, before.numbers[1]).Bind(3, budget.sql_limit());
  rows.Bind(4, int64_t{filter.min_evidence});
  if (!filter.target_key.empty()) rows.Bind(5, filter.target_key);
  if (!filter.op_kind.empty()) rows.Bind(6, filter.op_kind);
  if (!filter.device_key.empty()) rows.Bind(7, filter.device_key);
  Page<v1::TuningRecord> page;
  while (true) {
    RT_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return page;
    if (budget.Full()) {
      page.next_token = EncodePageToken(RecordListing(filter), before.numbers);
      return page;
    }
    before.numbers[1] = rows.Int(0);
    v1::TuningRecord record;
    if (ReadPayload(rows, 3, rows.Text(1), &record).ok()) {
      record.set_to_generation(rows.Int(2));
      page.items.push_back(std::move(record));
    }
    budget.Count(rows.Text(4).size());
  }
}

absl::StatusOr<int64_t> SqliteStore::CurrentGeneration() {
  absl::MutexLock lock(&read_mutex_);
  return reader_->QueryInt("SELECT value FROM meta WHERE key='generation'");
}

absl::StatusOr<std::set<std::string>> SqliteStore::ServedArtifacts(int64_t generations_back) {
  absl::MutexLock lock(&read_mutex_);
  RT_ASSIGN_OR_RETURN(SqliteStatement rows,
                      reader_->Prepare("SELECT DISTINCT artifact_digest FROM records WHERE artifact_digest != '' AND "
                                       "(to_generation = 0 OR to_generation >= "
                                       "(SELECT value FROM meta WHERE key='generation') - ?)"));
  rows.Bind(1, generations_back);
  std::set<std::string> digests;
  while (true) {
    RT_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return digests;
    digests.insert(rows.Text(0));
  }
}

absl::Status SqliteStore::PutCalibration(const device::v1::Calibration& calibration) {
  return writer_->Write([&](Tables& tables) { return ApplyPutCalibration(tables, calibration); });
}

absl::StatusOr<device::v1::Calibration> SqliteStore::GetCalibration(const std::string& device_key) {
  return ReadOne<device::v1::Calibration>(
      "SELECT digest, payload FROM calibrations WHERE device_key=? ORDER BY time_us DESC, seq DESC LIMIT 1", device_key,
      NotFound("NOT_CALIBRATED", absl::StrCat("no calibration of ", device_key)));
}

absl::Status SqliteStore::PutCompileFailure(const std::string& key, const worker::v1::CompileResult& result) {
  return writer_->Write([&](Tables& tables) { return ApplyPutCompileFailure(tables, key, result); });
}

absl::StatusOr<worker::v1::CompileResult> SqliteStore::GetCompileFailure(const std::string& key) {
  return ReadOne<worker::v1::CompileResult>("SELECT digest, payload FROM compile_failures WHERE key=?", key,
                                            NotFound("NO_COMPILE_FAILURE", absl::StrCat("no failed compile ", key)));
}

std::map<std::string, int64_t> SqliteStore::Counters() const {
  return {{"store_commits", commits()}, {"store_corrupt_rows", corrupt_rows()}};
}

absl::Status SqliteStore::Import(const std::vector<v1::ExportLine>& lines, int* sweeps, int* trials, int* records,
                                 int* duplicates) {
  ImportCounts counts;
  RT_RETURN_IF_ERROR(writer_->Write([&](Tables& tables) -> absl::Status {
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

#include "tuner/store/sqlite_schema.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// `payload` is the serialized message and is what the store reads; the other columns serve keys, filters and
// people. `digest` is the first half of the payload's SHA-256 in hex. Times are microseconds since 1970 in UTC.
constexpr char kVersion1[] = R"sql(
CREATE TABLE meta(
  key TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('generation', 0);

CREATE TABLE sweeps(
  seq INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  request_id TEXT UNIQUE,
  state TEXT NOT NULL,
  op TEXT NOT NULL,
  device_key TEXT NOT NULL,
  strategy TEXT NOT NULL,
  planned INTEGER NOT NULL,
  finished INTEGER NOT NULL,
  best_us REAL,
  evidence INTEGER NOT NULL,
  message TEXT NOT NULL,
  driver TEXT NOT NULL,
  nvrtc TEXT NOT NULL,
  create_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  digest TEXT NOT NULL,
  payload BLOB NOT NULL
) STRICT;
CREATE INDEX sweeps_newest ON sweeps(create_us, seq);

CREATE TABLE trials(
  seq INTEGER PRIMARY KEY,
  sweep TEXT NOT NULL REFERENCES sweeps(name),
  idx INTEGER NOT NULL,
  op TEXT NOT NULL,
  device_key TEXT NOT NULL,
  template TEXT NOT NULL,
  config TEXT NOT NULL,
  outcome TEXT NOT NULL,
  message TEXT NOT NULL,
  evidence INTEGER NOT NULL,
  measured INTEGER NOT NULL,
  median_us REAL,
  ci_low_us REAL,
  ci_high_us REAL,
  predicted_us REAL,
  registers INTEGER NOT NULL,
  shared_bytes INTEGER NOT NULL,
  spill_bytes INTEGER NOT NULL,
  compile_ms REAL,
  run_ms REAL,
  driver TEXT NOT NULL,
  nvrtc TEXT NOT NULL,
  create_us INTEGER NOT NULL,
  digest TEXT NOT NULL,
  payload BLOB NOT NULL,
  UNIQUE(sweep, idx)
) STRICT;

CREATE TABLE records(
  seq INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  target_key TEXT NOT NULL,
  op TEXT NOT NULL,
  op_kind TEXT NOT NULL,
  device_key TEXT NOT NULL,
  provider TEXT NOT NULL,
  template TEXT NOT NULL,
  config TEXT NOT NULL,
  evidence INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  from_generation INTEGER NOT NULL,
  to_generation INTEGER NOT NULL,
  median_us REAL,
  ci_low_us REAL,
  ci_high_us REAL,
  default_us REAL,
  floor_us REAL,
  attainable_us REAL,
  bound TEXT NOT NULL,
  registers INTEGER NOT NULL,
  shared_bytes INTEGER NOT NULL,
  spill_bytes INTEGER NOT NULL,
  artifact_digest TEXT NOT NULL,
  sweep TEXT NOT NULL,
  driver TEXT NOT NULL,
  nvrtc TEXT NOT NULL,
  create_us INTEGER NOT NULL,
  digest TEXT NOT NULL,
  payload BLOB NOT NULL
) STRICT;
CREATE INDEX records_target ON records(target_key, to_generation);
CREATE INDEX records_device ON records(device_key, op_kind);

CREATE TABLE calibrations(
  seq INTEGER PRIMARY KEY,
  device_key TEXT NOT NULL,
  time_us INTEGER NOT NULL,
  digest TEXT NOT NULL,
  payload BLOB NOT NULL
) STRICT;
CREATE INDEX calibrations_newest ON calibrations(device_key, time_us, seq);

CREATE VIEW v_sweeps AS
SELECT name, state, op, device_key, strategy, planned, finished, best_us,
  CASE evidence WHEN 1 THEN 'ESTIMATED' WHEN 2 THEN 'COMPILED' WHEN 3 THEN 'VERIFIED' WHEN 4 THEN 'MEASURED'
    WHEN 5 THEN 'PROFILED' WHEN 6 THEN 'END_TO_END' ELSE '' END AS evidence,
  message, driver, nvrtc,
  strftime('%Y-%m-%dT%H:%M:%SZ', create_us / 1000000, 'unixepoch') AS create_time,
  CASE end_us WHEN 0 THEN NULL ELSE strftime('%Y-%m-%dT%H:%M:%SZ', end_us / 1000000, 'unixepoch') END AS end_time
FROM sweeps;

CREATE VIEW v_trials AS
SELECT sweep, idx, op, device_key, template, config, outcome, message,
  CASE evidence WHEN 1 THEN 'ESTIMATED' WHEN 2 THEN 'COMPILED' WHEN 3 THEN 'VERIFIED' WHEN 4 THEN 'MEASURED'
    WHEN 5 THEN 'PROFILED' WHEN 6 THEN 'END_TO_END' ELSE '' END AS evidence,
  median_us, ci_low_us, ci_high_us, predicted_us, registers, shared_bytes, spill_bytes, compile_ms, run_ms,
  driver, nvrtc,
  strftime('%Y-%m-%dT%H:%M:%SZ', create_us / 1000000, 'unixepoch') AS create_time
FROM trials;

CREATE VIEW v_records AS
SELECT name, op, op_kind, device_key, provider, template, config,
  CASE evidence WHEN 1 THEN 'ESTIMATED' WHEN 2 THEN 'COMPILED' WHEN 3 THEN 'VERIFIED' WHEN 4 THEN 'MEASURED'
    WHEN 5 THEN 'PROFILED' WHEN 6 THEN 'END_TO_END' ELSE '' END AS evidence,
  rank, to_generation = 0 AS current, from_generation, to_generation,
  median_us, ci_low_us, ci_high_us, default_us, floor_us, attainable_us, bound,
  registers, shared_bytes, spill_bytes, artifact_digest, sweep, driver, nvrtc,
  strftime('%Y-%m-%dT%H:%M:%SZ', create_us / 1000000, 'unixepoch') AS create_time
FROM records;
)sql";

// Failed compiles are no longer forgotten by a restart.
constexpr char kVersion2[] = R"sql(
CREATE TABLE compile_failures(
  seq INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  nvrtc TEXT NOT NULL,
  message TEXT NOT NULL,
  digest TEXT NOT NULL,
  payload BLOB NOT NULL
) STRICT;
)sql";

}  // namespace

const std::vector<std::string>& SchemaSteps() {
  static const auto* const steps = new std::vector<std::string>{kVersion1, kVersion2};
  return *steps;
}

absl::Status CheckSchema(SqliteDb& db, const std::vector<std::string>& steps) {
  RT_ASSIGN_OR_RETURN(const int64_t application, db.QueryInt("PRAGMA application_id"));
  RT_ASSIGN_OR_RETURN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  RT_ASSIGN_OR_RETURN(const int64_t objects, db.QueryInt("SELECT count(*) FROM sqlite_schema"));
  if (application != kApplicationId && (application != 0 || version != 0 || objects != 0)) {
    return Error(absl::StatusCode::kFailedPrecondition, "DATABASE_FOREIGN",
                 "the file is a SQLite database of another program: choose another data directory");
  }
  const auto newest = static_cast<int64_t>(steps.size());
  if (version > newest || version < 0) {
    return Error(absl::StatusCode::kFailedPrecondition, "DATABASE_NEWER",
                 absl::StrCat("the database has version ", version, ", this rooftune knows versions up to ", newest,
                              ": use the newer rooftune that wrote it, or another data directory"),
                 {{"database_version", absl::StrCat(version)}, {"supported_version", absl::StrCat(newest)}});
  }
  RT_ASSIGN_OR_RETURN(const std::string check, db.QueryText("PRAGMA quick_check(1)"));
  if (check != "ok") {
    return Error(absl::StatusCode::kDataLoss, "DATABASE_CORRUPT",
                 absl::StrCat("the database is damaged: ", check,
                              "; move the file away and import an evidence file, or restore a backup"));
  }
  return absl::OkStatus();
}

absl::Status Migrate(SqliteDb& db, const std::vector<std::string>& steps) {
  RT_ASSIGN_OR_RETURN(int64_t version, db.QueryInt("PRAGMA user_version"));
  const bool fresh = version == 0;
  for (; version < static_cast<int64_t>(steps.size()); ++version) {
    RT_RETURN_IF_ERROR(db.Execute("BEGIN IMMEDIATE"));
    absl::Status status = db.Execute(steps[static_cast<size_t>(version)]);
    if (status.ok()) {
      status =
          db.Execute(absl::StrCat("PRAGMA application_id=", kApplicationId, "; PRAGMA user_version=", version + 1));
    }
    if (status.ok()) status = db.Execute("COMMIT");
    if (!status.ok()) {
      if (db.InTransaction()) (void)db.Execute("ROLLBACK");
      return Annotate(status, absl::StrCat("schema step ", version + 1));
    }
    if (!fresh) LogInfo("database brought from version ", version, " to ", version + 1);
  }
  return absl::OkStatus();
}

}  // namespace rooftune

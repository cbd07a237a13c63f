#include "tuner/store/sqlite_rows.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "tuner/store/listing.h"
#include "tuner/store/rules.h"

namespace rooftune {
namespace {

// "block_m=128,stages=3": sorted by name.
std::string ConfigText(const google::protobuf::Map<std::string, int64_t>& config) {
  const std::map<std::string, int64_t> sorted(config.begin(), config.end());
  return absl::StrJoin(sorted, ",", absl::PairFormatter("="));
}

// Binds parameters one after the other.
class Binder {
 public:
  explicit Binder(SqliteStatement* statement) : statement_(*statement) {}
  Binder& Text(const std::string& value) {
    statement_.Bind(++position_, value);
    return *this;
  }
  Binder& Int(int64_t value) {
    statement_.Bind(++position_, value);
    return *this;
  }
  // 0 and what is no number mean unknown.
  Binder& Real(double value) {
    if (value == 0 || std::isnan(value)) {
      statement_.BindNull(++position_);
    } else {
      statement_.Bind(++position_, value);
    }
    return *this;
  }
  Binder& TextOrNull(const std::string& value) {
    if (value.empty()) {
      statement_.BindNull(++position_);
      return *this;
    }
    return Text(value);
  }
  Binder& Payload(const google::protobuf::Message& message) {
    const std::string payload = SerializePayload(message);
    Text(PayloadDigest(payload));
    statement_.BindBlob(++position_, payload);
    return *this;
  }
  Binder& Measured(const v1::Measurement& m) { return Real(m.median_us()).Real(m.ci_low_us()).Real(m.ci_high_us()); }
  Binder& Needs(const v1::Resources& r) {
    return Int(r.registers_per_thread())
        .Int(int64_t{r.static_shared_bytes()} + r.dynamic_shared_bytes())
        .Int(int64_t{r.spill_store_bytes()} + r.spill_load_bytes());
  }

 private:
  SqliteStatement& statement_;
  int position_ = 0;
};

constexpr char kWriteSweep[] =
    "INSERT INTO sweeps(name, request_id, state, op, device_key, strategy, planned, finished, best_us, evidence, "
    "message, driver, nvrtc, create_us, end_us, digest, payload) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) "
    "ON CONFLICT(name) DO UPDATE SET request_id=excluded.request_id, state=excluded.state, op=excluded.op, "
    "device_key=excluded.device_key, strategy=excluded.strategy, planned=excluded.planned, "
    "finished=excluded.finished, best_us=excluded.best_us, evidence=excluded.evidence, message=excluded.message, "
    "driver=excluded.driver, nvrtc=excluded.nvrtc, create_us=excluded.create_us, end_us=excluded.end_us, "
    "digest=excluded.digest, payload=excluded.payload";
// The old row is replaced whole; trials are referred to by sweep and index, never by `seq`.
constexpr char kWriteTrial[] =
    "INSERT OR REPLACE INTO trials(sweep, idx, op, device_key, template, config, outcome, message, evidence, "
    "measured, median_us, ci_low_us, ci_high_us, predicted_us, registers, shared_bytes, spill_bytes, compile_ms, "
    "run_ms, driver, nvrtc, create_us, digest, payload) "
    "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
constexpr char kInsertRecord[] =
    "INSERT INTO records(name, target_key, op, op_kind, device_key, provider, template, config, evidence, rank, "
    "from_generation, to_generation, median_us, ci_low_us, ci_high_us, default_us, floor_us, attainable_us, bound, "
    "registers, shared_bytes, spill_bytes, artifact_digest, sweep, driver, nvrtc, create_us, digest, payload) "
    "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
constexpr char kFindSweep[] = "SELECT op, device_key FROM sweeps WHERE name=?";
constexpr char kFindRequestId[] = "SELECT name FROM sweeps WHERE request_id=?";
constexpr char kFindTrial[] = "SELECT measured FROM trials WHERE sweep=? AND idx=?";
constexpr char kHasRecord[] = "SELECT 1 FROM records WHERE name=?";
constexpr char kCurrentRecords[] =
    "SELECT evidence, ci_low_us FROM records WHERE target_key=? AND to_generation=0 ORDER BY seq DESC";
constexpr char kSupersede[] = "UPDATE records SET to_generation=? WHERE target_key=? AND to_generation=0";
constexpr char kGeneration[] = "SELECT value FROM meta WHERE key='generation'";
constexpr char kSetGeneration[] = "UPDATE meta SET value=? WHERE key='generation'";
constexpr char kWriteCompileFailure[] =
    "INSERT OR REPLACE INTO compile_failures(key, nvrtc, message, digest, payload) VALUES(?,?,?,?,?)";
constexpr char kTrimCompileFailures[] =
    "DELETE FROM compile_failures WHERE seq <= (SELECT max(seq) FROM compile_failures) - ?";
constexpr char kWriteCalibration[] = "INSERT INTO calibrations(device_key, time_us, digest, payload) VALUES(?,?,?,?)";

}  // namespace

std::string SerializePayload(const google::protobuf::Message& message) {
  std::string payload;
  {
    google::protobuf::io::StringOutputStream stream(&payload);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return payload;
}

std::string PayloadDigest(const std::string& payload) { return Sha256Hex(payload).substr(0, 32); }

absl::Status ParsePayload(const std::string& digest, const std::string& payload, google::protobuf::Message* message) {
  if (digest == PayloadDigest(payload) && message->ParseFromString(payload)) return absl::OkStatus();
  return Error(absl::StatusCode::kDataLoss, "CORRUPT_ROW", "the stored bytes are not those that were written");
}

absl::StatusOr<std::unique_ptr<SqliteTables>> SqliteTables::Create(SqliteDb* db) {
  std::unique_ptr<SqliteTables> tables(new SqliteTables());
  for (const char* sql :
       {kWriteSweep, kWriteTrial, kInsertRecord, kFindSweep, kFindRequestId, kFindTrial, kHasRecord, kCurrentRecords,
        kSupersede, kGeneration, kSetGeneration, kWriteCalibration, kWriteCompileFailure, kTrimCompileFailures}) {
    RT_ASSIGN_OR_RETURN(SqliteStatement statement, db->Prepare(sql));
    tables->statements_[sql] = std::make_unique<SqliteStatement>(std::move(statement));
  }
  return tables;
}

absl::StatusOr<SqliteStatement*> SqliteTables::Statement(const char* sql) {
  SqliteStatement* const statement = statements_.at(sql).get();
  statement->Reset();
  return statement;
}

absl::StatusOr<std::optional<SweepFacts>> SqliteTables::FindSweep(const std::string& name) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const find, Statement(kFindSweep));
  RT_ASSIGN_OR_RETURN(const bool row, find->Bind(1, name).Step());
  std::optional<SweepFacts> facts;
  if (row) facts = SweepFacts{find->Text(0), find->Text(1)};
  find->Reset();
  return facts;
}

absl::StatusOr<std::optional<std::string>> SqliteTables::FindRequestId(const std::string& request_id) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const find, Statement(kFindRequestId));
  RT_ASSIGN_OR_RETURN(const bool row, find->Bind(1, request_id).Step());
  std::optional<std::string> name;
  if (row) name = find->Text(0);
  find->Reset();
  return name;
}

absl::Status SqliteTables::WriteSweep(const v1::Sweep& sweep) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const write, Statement(kWriteSweep));
  Binder(write)
      .Text(sweep.name())
      .TextOrNull(sweep.request_id())
      .Text(v1::SweepState_Name(sweep.state()))
      .Text(sweep.spec().op())
      .Text(sweep.device_key())
      .Text(v1::StrategyKind_Name(sweep.spec().strategy()))
      .Int(sweep.progress().planned())
      .Int(sweep.progress().finished())
      .Real(sweep.progress().best_us())
      .Int(sweep.evidence())
      .Text(sweep.message())
      .Text(sweep.environment().driver())
      .Text(sweep.environment().nvrtc())
      .Int(TimeMicros(sweep.create_time()))
      .Int(TimeMicros(sweep.end_time()))
      .Payload(sweep);
  return write->Run();
}

absl::StatusOr<std::optional<bool>> SqliteTables::FindTrial(const std::string& sweep, int index) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const find, Statement(kFindTrial));
  RT_ASSIGN_OR_RETURN(const bool row, find->Bind(1, sweep).Bind(2, int64_t{index}).Step());
  std::optional<bool> measured;
  if (row) measured = find->Int(0) != 0;
  find->Reset();
  return measured;
}

absl::Status SqliteTables::WriteTrial(const std::string& sweep, const v1::Trial& trial) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const write, Statement(kWriteTrial));
  Binder(write)
      .Text(sweep)
      .Int(trial.index())
      .Text(trial.op())
      .Text(trial.device_key())
      .Text(trial.template_id())
      .Text(ConfigText(trial.config()))
      .Text(v1::Outcome_Name(trial.outcome()))
      .Text(trial.message())
      .Int(trial.evidence())
      .Int(trial.has_measurement())
      .Measured(trial.measurement())
      .Real(trial.prediction().time_us())
      .Needs(trial.resources())
      .Real(trial.compile_ms())
      .Real(trial.run_ms())
      .Text(trial.environment().driver())
      .Text(trial.environment().nvrtc())
      .Int(TimeMicros(trial.create_time()))
      .Payload(trial);
  return write->Run();
}

absl::StatusOr<bool> SqliteTables::HasRecord(const std::string& name) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const find, Statement(kHasRecord));
  absl::StatusOr<bool> row = find->Bind(1, name).Step();
  find->Reset();
  return row;
}

absl::StatusOr<std::vector<CurrentRecord>> SqliteTables::CurrentRecords(const std::string& target_key) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const find, Statement(kCurrentRecords));
  find->Bind(1, target_key);
  std::vector<CurrentRecord> current;
  while (true) {
    RT_ASSIGN_OR_RETURN(const bool row, find->Step());
    if (!row) break;
    current.push_back({static_cast<v1::EvidenceLevel>(find->Int(0)), find->Double(1)});
  }
  find->Reset();
  return current;
}

absl::Status SqliteTables::InsertRecord(const v1::TuningRecord& record) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const insert, Statement(kInsertRecord));
  Binder(insert)
      .Text(record.name())
      .Text(record.target_key())
      .Text(record.op())
      .Text(OpKind(record.op()))
      .Text(record.device_key())
      .Text(v1::Provider_Name(record.provider()))
      .Text(record.template_id())
      .Text(ConfigText(record.config()))
      .Int(record.evidence())
      .Int(record.rank())
      .Int(record.from_generation())
      .Int(record.to_generation())
      .Measured(record.measurement())
      .Real(record.default_us())
      .Real(record.bounds().floor_us())
      .Real(record.bounds().attainable_us())
      .Text(v1::Bound_Name(record.bounds().bound()))
      .Needs(record.resources())
      .Text(record.artifact_digest())
      .Text(record.sweep())
      .Text(record.environment().driver())
      .Text(record.environment().nvrtc())
      .Int(TimeMicros(record.create_time()))
      .Payload(record);
  return insert->Run();
}

absl::Status SqliteTables::Supersede(const std::string& target_key, int64_t to_generation) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const update, Statement(kSupersede));
  return update->Bind(1, to_generation).Bind(2, target_key).Run();
}

absl::StatusOr<int64_t> SqliteTables::Generation() {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const find, Statement(kGeneration));
  RT_ASSIGN_OR_RETURN(const bool row, find->Step());
  if (!row) return Error(absl::StatusCode::kDataLoss, "DATABASE_CORRUPT", "the generation is missing");
  const int64_t generation = find->Int(0);
  find->Reset();
  return generation;
}

absl::Status SqliteTables::SetGeneration(int64_t generation) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const update, Statement(kSetGeneration));
  return update->Bind(1, generation).Run();
}

absl::Status SqliteTables::WriteCalibration(const device::v1::Calibration& calibration) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const write, Statement(kWriteCalibration));
  Binder(write).Text(calibration.device_key()).Int(TimeMicros(calibration.time())).Payload(calibration);
  return write->Run();
}

absl::Status SqliteTables::WriteCompileFailure(const std::string& key, const worker::v1::CompileResult& result) {
  RT_ASSIGN_OR_RETURN(SqliteStatement* const write, Statement(kWriteCompileFailure));
  Binder(write).Text(key).Text(result.nvrtc_version()).Text(result.log()).Payload(result);
  RT_RETURN_IF_ERROR(write->Run());
  RT_ASSIGN_OR_RETURN(SqliteStatement* const trim, Statement(kTrimCompileFailures));
  return trim->Bind(1, kMaxCompileFailures).Run();
}

}  // namespace rooftune

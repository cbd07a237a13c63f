// Rows of the database: columns from messages when writing, checked messages from payloads when reading.
#ifndef ROOFTUNE_TUNER_STORE_SQLITE_ROWS_H_
#define ROOFTUNE_TUNER_STORE_SQLITE_ROWS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/v1/records.pb.h"
#include "tuner/store/sqlite_db.h"
#include "tuner/store/tables.h"

namespace rooftune {

// Writer's side of the tables, within whatever transaction is open. Statements are prepared once.
class SqliteTables : public Tables {
 public:
  // The connection must outlive it.
  static absl::StatusOr<std::unique_ptr<SqliteTables>> Create(SqliteDb* db);

  absl::StatusOr<std::optional<SweepFacts>> FindSweep(const std::string& name) override;
  absl::StatusOr<std::optional<std::string>> FindRequestId(const std::string& request_id) override;
  absl::Status WriteSweep(const v1::Sweep& sweep) override;
  absl::StatusOr<std::optional<bool>> FindTrial(const std::string& sweep, int index) override;
  absl::Status WriteTrial(const std::string& sweep, const v1::Trial& trial) override;
  absl::StatusOr<bool> HasRecord(const std::string& name) override;
  absl::StatusOr<std::vector<CurrentRecord>> CurrentRecords(const std::string& target_key) override;
  absl::Status InsertRecord(const v1::TuningRecord& record) override;
  absl::Status Supersede(const std::string& target_key, int64_t to_generation) override;
  absl::StatusOr<int64_t> Generation() override;
  absl::Status SetGeneration(int64_t generation) override;
  absl::Status WriteCalibration(const device::v1::Calibration& calibration) override;
  absl::Status WriteCompileFailure(const std::string& key, const worker::v1::CompileResult& result) override;

 private:
  SqliteTables() = default;
  // The statement of this text, reset and ready to bind.
  absl::StatusOr<SqliteStatement*> Statement(const char* sql);

  std::map<const char*, std::unique_ptr<SqliteStatement>> statements_;
};

// Equal messages give equal bytes (maps are sorted).
std::string SerializePayload(const google::protobuf::Message& message);
// First half of the payload's SHA-256 in hex.
std::string PayloadDigest(const std::string& payload);
// DATA_LOSS (CORRUPT_ROW) if the bytes are not those that were written.
absl::Status ParsePayload(const std::string& digest, const std::string& payload, google::protobuf::Message* message);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_SQLITE_ROWS_H_

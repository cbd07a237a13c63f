// Row-level access to a store inside one write transaction. The meaning of a call (what may replace what, what
// a generation is) lies in tuner/store/rules.h, once for all backends; a backend implements only this.
#ifndef ROOFTUNE_TUNER_STORE_TABLES_H_
#define ROOFTUNE_TUNER_STORE_TABLES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/v1/records.pb.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

// What rules need of a stored sweep.
struct SweepFacts {
  std::string op;
  std::string device_key;
};

// What rules need of a record that is current.
struct CurrentRecord {
  v1::EvidenceLevel evidence = v1::EVIDENCE_LEVEL_UNSPECIFIED;
  // Of the median; 0 = not measured.
  double ci_low_us = 0;
};

// Not thread-safe: used by one writer at a time. An error leaves the transaction to be rolled back.
class Tables {
 public:
  virtual ~Tables() = default;

  virtual absl::StatusOr<std::optional<SweepFacts>> FindSweep(const std::string& name) = 0;
  // Name of the sweep that holds it; never called with an empty id.
  virtual absl::StatusOr<std::optional<std::string>> FindRequestId(const std::string& request_id) = 0;
  // Inserts, or replaces in place by name.
  virtual absl::Status WriteSweep(const v1::Sweep& sweep) = 0;

  // nullopt if there is no such trial, else whether it holds a measurement.
  virtual absl::StatusOr<std::optional<bool>> FindTrial(const std::string& sweep, int index) = 0;
  virtual absl::Status WriteTrial(const std::string& sweep, const v1::Trial& trial) = 0;

  virtual absl::StatusOr<bool> HasRecord(const std::string& name) = 0;
  // By rank.
  virtual absl::StatusOr<std::vector<CurrentRecord>> CurrentRecords(const std::string& target_key) = 0;
  virtual absl::Status InsertRecord(const v1::TuningRecord& record) = 0;
  // Sets to_generation of all current records of the key.
  virtual absl::Status Supersede(const std::string& target_key, int64_t to_generation) = 0;

  virtual absl::StatusOr<int64_t> Generation() = 0;
  virtual absl::Status SetGeneration(int64_t generation) = 0;

  virtual absl::Status WriteCalibration(const device::v1::Calibration& calibration) = 0;

  // Replaces by key; drops the oldest past kMaxCompileFailures.
  virtual absl::Status WriteCompileFailure(const std::string& key, const worker::v1::CompileResult& result) = 0;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_TABLES_H_

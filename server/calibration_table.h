// Calibrations as operations, in memory: a restart forgets the operation, never the calibration.
#ifndef ROOFTUNE_SERVER_CALIBRATION_TABLE_H_
#define ROOFTUNE_SERVER_CALIBRATION_TABLE_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "google/longrunning/operations_proto.pb.h"
#include "server/context.h"

namespace rooftune {

// Thread-safe.
class CalibrationTable {
 public:
  using Operation = google::longrunning::Operation;

  explicit CalibrationTable(ServerContext& context) : context_(context) {}

  // Starts one, or returns the one that is under way on the device. FAILED_PRECONDITION (NOT_A_GPU).
  absl::StatusOr<Operation> Start(const KnownDevice& device);
  // True for names of this table ("operations/calibrate-…").
  static bool Owns(const std::string& operation);
  absl::StatusOr<Operation> Get(const std::string& operation) const;
  std::vector<Operation> List() const;
  // Calls `done` once the operation is done; at once if it is already.
  absl::Status OnceDone(const std::string& operation, std::function<void(const Operation&)> done);

 private:
  void Run(const std::string& operation, const std::string& device_id);

  ServerContext& context_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Operation> operations_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> order_ ABSL_GUARDED_BY(mutex_);              // oldest first
  std::map<std::string, std::string> running_ ABSL_GUARDED_BY(mutex_);  // by device id
  std::map<std::string, std::vector<std::function<void(const Operation&)>>> waiters_ ABSL_GUARDED_BY(mutex_);
  int next_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_CALIBRATION_TABLE_H_

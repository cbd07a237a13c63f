// A Store that keeps nothing: for tests and for daemons that are told to forget. Failures can be planted.
#ifndef ROOFTUNE_TUNER_STORE_MEMORY_STORE_H_
#define ROOFTUNE_TUNER_STORE_MEMORY_STORE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tuner/store/store.h"

namespace rooftune {

class Tables;

// Means exactly what SqliteStore means, but for durability.
class MemoryStore : public Store {
 public:
  MemoryStore();
  ~MemoryStore() override;

  // Test seam: the n-th write from now on (1 = the next) fails with `status` and changes nothing; with
  // `onwards`, every later one too, until ClearFailures().
  void FailWrite(int n, absl::Status status, bool onwards = false);
  void ClearFailures();
  // Writes that were tried, failed ones included.
  int writes() const;

  absl::Status PutSweep(const v1::Sweep& sweep) override;
  absl::StatusOr<v1::Sweep> GetSweep(const std::string& name) override;
  absl::StatusOr<Page<v1::Sweep>> ListSweeps(std::optional<v1::SweepState> state, int limit,
                                             const std::string& token) override;
  absl::StatusOr<v1::Sweep> FindSweepByRequestId(const std::string& request_id) override;
  absl::Status PutTrial(const v1::Trial& trial) override;
  absl::StatusOr<Page<v1::Trial>> ListTrials(const TrialFilter& filter, int limit, const std::string& token) override;
  absl::StatusOr<int64_t> PublishRecords(const std::vector<v1::TuningRecord>& records) override;
  absl::StatusOr<v1::TuningRecord> GetRecord(const std::string& name) override;
  absl::StatusOr<Page<v1::TuningRecord>> ListRecords(const RecordFilter& filter, int limit,
                                                     const std::string& token) override;
  absl::StatusOr<int64_t> CurrentGeneration() override;
  absl::StatusOr<std::set<std::string>> ServedArtifacts(int64_t generations_back) override;
  absl::Status PutCalibration(const device::v1::Calibration& calibration) override;
  absl::StatusOr<device::v1::Calibration> GetCalibration(const std::string& device_key) override;
  absl::Status PutCompileFailure(const std::string& key, const worker::v1::CompileResult& result) override;
  absl::StatusOr<worker::v1::CompileResult> GetCompileFailure(const std::string& key) override;
  absl::Status Import(const std::vector<v1::ExportLine>& lines, int* sweeps, int* trials, int* records,
                      int* duplicates) override;

  // The tables; only for the implementation.
  struct State;

 private:
  // Runs `apply` on the tables; `copy` when it may fail after its first change.
  absl::Status Write(bool copy, const std::function<absl::Status(Tables&)>& apply);

  mutable absl::Mutex mutex_;
  std::unique_ptr<State> state_ ABSL_GUARDED_BY(mutex_);
  int writes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Writes left until the planted failure; 0 = none.
  int fail_in_ ABSL_GUARDED_BY(mutex_) = 0;
  bool fail_onwards_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_MEMORY_STORE_H_

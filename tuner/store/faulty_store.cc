#include "tuner/store/faulty_store.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

using device::v1::StoreFault;

// Counts writes and says which fail.
class FaultPlan {
 public:
  FaultPlan(std::vector<StoreFault> faults, bool artifacts) : faults_(std::move(faults)), artifacts_(artifacts) {}

  absl::Status Next() {
    const int64_t write = ++writes_;
    for (const StoreFault& fault : faults_) {
      if (fault.artifacts() != artifacts_ || fault.write() <= 0 || write < fault.write()) continue;
      const int64_t count = fault.count() == 0 ? 1 : fault.count();
      if (count > 0 && write - fault.write() >= count) continue;
      ++failed_;
      return Error(absl::StatusCode::kResourceExhausted, "DISK_FULL",
                   absl::StrCat("write ", write, ": no space left (planted by the device's script)"));
    }
    return absl::OkStatus();
  }
  int64_t writes() const { return writes_; }
  int64_t failed() const { return failed_; }

 private:
  const std::vector<StoreFault> faults_;
  const bool artifacts_;
  std::atomic<int64_t> writes_{0};
  std::atomic<int64_t> failed_{0};
};

class FaultyStore : public Store {
 public:
  FaultyStore(std::unique_ptr<Store> store, std::vector<StoreFault> faults)
      : store_(std::move(store)), plan_(std::move(faults), /*artifacts=*/false) {}

  absl::Status PutSweep(const v1::Sweep& sweep) override {
    RT_RETURN_IF_ERROR(plan_.Next());
    return store_->PutSweep(sweep);
  }
  absl::Status PutTrial(const v1::Trial& trial) override {
    RT_RETURN_IF_ERROR(plan_.Next());
    return store_->PutTrial(trial);
  }
  absl::StatusOr<int64_t> PublishRecords(const std::vector<v1::TuningRecord>& records) override {
    RT_RETURN_IF_ERROR(plan_.Next());
    return store_->PublishRecords(records);
  }
  absl::Status PutCalibration(const device::v1::Calibration& calibration) override {
    RT_RETURN_IF_ERROR(plan_.Next());
    return store_->PutCalibration(calibration);
  }
  absl::Status PutCompileFailure(const std::string& key, const worker::v1::CompileResult& result) override {
    RT_RETURN_IF_ERROR(plan_.Next());
    return store_->PutCompileFailure(key, result);
  }
  absl::Status Import(const std::vector<v1::ExportLine>& lines, int* sweeps, int* trials, int* records,
                      int* duplicates) override {
    RT_RETURN_IF_ERROR(plan_.Next());
    return store_->Import(lines, sweeps, trials, records, duplicates);
  }

  absl::StatusOr<v1::Sweep> GetSweep(const std::string& name) override { return store_->GetSweep(name); }
  absl::StatusOr<Page<v1::Sweep>> ListSweeps(std::optional<v1::SweepState> state, int limit,
                                             const std::string& token) override {
    return store_->ListSweeps(state, limit, token);
  }
  absl::StatusOr<v1::Sweep> FindSweepByRequestId(const std::string& request_id) override {
    return store_->FindSweepByRequestId(request_id);
  }
  absl::StatusOr<Page<v1::Trial>> ListTrials(const TrialFilter& filter, int limit, const std::string& token) override {
    return store_->ListTrials(filter, limit, token);
  }
  absl::StatusOr<v1::TuningRecord> GetRecord(const std::string& name) override { return store_->GetRecord(name); }
  absl::StatusOr<Page<v1::TuningRecord>> ListRecords(const RecordFilter& filter, int limit,
                                                     const std::string& token) override {
    return store_->ListRecords(filter, limit, token);
  }
  absl::StatusOr<int64_t> CurrentGeneration() override { return store_->CurrentGeneration(); }
  absl::StatusOr<std::set<std::string>> ServedArtifacts(int64_t generations_back) override {
    return store_->ServedArtifacts(generations_back);
  }
  absl::StatusOr<device::v1::Calibration> GetCalibration(const std::string& device_key) override {
    return store_->GetCalibration(device_key);
  }
  absl::StatusOr<worker::v1::CompileResult> GetCompileFailure(const std::string& key) override {
    return store_->GetCompileFailure(key);
  }
  std::map<std::string, int64_t> Counters() const override {
    auto counters = store_->Counters();
    counters["store_writes"] = plan_.writes();
    counters["store_faults"] = plan_.failed();
    return counters;
  }

 private:
  const std::unique_ptr<Store> store_;
  FaultPlan plan_;
};

class FaultyArtifacts : public ArtifactStore {
 public:
  FaultyArtifacts(std::unique_ptr<ArtifactStore> artifacts, std::vector<StoreFault> faults)
      : artifacts_(std::move(artifacts)), plan_(std::move(faults), /*artifacts=*/true) {}

  absl::StatusOr<std::string> Put(absl::string_view data) override {
    RT_RETURN_IF_ERROR(plan_.Next());
    return artifacts_->Put(data);
  }
  absl::StatusOr<std::string> Get(const std::string& digest) override { return artifacts_->Get(digest); }
  std::map<std::string, int64_t> Counters() const override {
    auto counters = artifacts_->Counters();
    counters["artifact_faults"] = plan_.failed();
    return counters;
  }

 private:
  const std::unique_ptr<ArtifactStore> artifacts_;
  FaultPlan plan_;
};

}  // namespace

std::unique_ptr<Store> MakeFaultyStore(std::unique_ptr<Store> store, std::vector<StoreFault> faults) {
  return std::make_unique<FaultyStore>(std::move(store), std::move(faults));
}

std::unique_ptr<ArtifactStore> MakeFaultyArtifacts(std::unique_ptr<ArtifactStore> artifacts,
                                                   std::vector<StoreFault> faults) {
  return std::make_unique<FaultyArtifacts>(std::move(artifacts), std::move(faults));
}

}  // namespace rooftune

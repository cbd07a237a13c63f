// Sweeps and calibrations as operations: start, watch, wait, cancel.
#ifndef ROOFTUNE_SERVER_SWEEP_CORE_H_
#define ROOFTUNE_SERVER_SWEEP_CORE_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "google/longrunning/operations_proto.pb.h"
#include "server/calibration_table.h"
#include "server/call.h"
#include "server/context.h"
#include "server/sweep_feed.h"

namespace rooftune {

// Thread-safe. Methods that return a value block (store, planning): call them from an executor.
class SweepCore {
 public:
  using Operation = google::longrunning::Operation;

  explicit SweepCore(ServerContext& context) : context_(context), calibrations_(context) {}

  absl::StatusOr<Operation> Create(const v1::CreateSweepRequest& request);
  absl::StatusOr<Operation> Resume(const v1::ResumeSweepRequest& request);
  absl::StatusOr<v1::Sweep> Get(const v1::GetSweepRequest& request);
  absl::StatusOr<v1::ListSweepsResponse> List(const v1::ListSweepsRequest& request);
  absl::StatusOr<v1::Sweep> Cancel(const v1::CancelSweepRequest& request);
  absl::StatusOr<Operation> Calibrate(const v1::CalibrateDeviceRequest& request);

  absl::StatusOr<Operation> GetOperation(const google::longrunning::GetOperationRequest& request);
  absl::StatusOr<google::longrunning::ListOperationsResponse> ListOperations(
      const google::longrunning::ListOperationsRequest& request);
  absl::Status CancelOperation(const google::longrunning::CancelOperationRequest& request);
  // The operation when it is done, or as it is after the request's timeout.
  void WaitOperation(const google::longrunning::WaitOperationRequest& request, const CallPtr& call,
                     Done<Operation> done);

  // These plan on the calling thread (an executor's), then wait for the device without holding one.
  void RaceConfigs(v1::RaceConfigsRequest request, const CallPtr& call, Done<v1::RaceConfigsResponse> done);
  void TryConfig(const v1::TryConfigRequest& request, const CallPtr& call, Done<v1::Trial> done);
  // NOT_FOUND (TRIAL_NOT_FOUND).
  void ReplayTrial(const v1::ReplayTrialRequest& request, const CallPtr& call, Done<v1::ReplayTrialResponse> done);

  // Feeds `sink` the sweep now and on every change until it ends. Never blocks.
  std::shared_ptr<SweepFeed> Watch(const v1::WatchSweepRequest& request, const CallPtr& call,
                                   SweepFeed::Options options, SweepFeed::Sink sink);

  // The unfinished sweep of this operator, device and objective, or a new one: callers that ask at the same time get
  // the same. Blocks while planning.
  absl::StatusOr<v1::Sweep> StartOnce(const std::string& op, const KnownDevice& device, v1::Objective objective);
  // Calls `done` (from an executor) when all sweeps have ended or, with an error, when the call is cancelled or
  // the daemon drains.
  void WaitForAll(const std::vector<std::string>& sweeps, const CallPtr& call, std::function<void(absl::Status)> done);

  // From the manager's lanes; does not block.
  void OnChange(const v1::Sweep& sweep);

 private:
  ServerContext& context_;
  CalibrationTable calibrations_;
  absl::Mutex mutex_;
  // Unfinished sweeps by target key, and keys whose sweep is being started.
  std::map<std::string, std::string> active_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> starting_ ABSL_GUARDED_BY(mutex_);
};

// "operations/{sweep}" as of the sweep's state.
google::longrunning::Operation OperationOf(const v1::Sweep& sweep);

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_SWEEP_CORE_H_

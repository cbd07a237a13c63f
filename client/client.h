// C++ client of rooftuned: one method a call, errors with the server's reason, binaries checked.
#ifndef ROOFTUNE_CLIENT_CLIENT_H_
#define ROOFTUNE_CLIENT_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rooftune/v1/service.pb.h"

namespace rooftune {

// A record with its binary.
struct FetchedKernel {
  v1::TuningRecord record;
  std::string cubin;
};

// $ROOFTUNE_ADDRESS, else unix:$XDG_RUNTIME_DIR/rooftune/rooftune.sock, else unix:/tmp/rooftune-UID/rooftune.sock.
std::string DefaultAddress();

// Thread-safe. Connects on the first call. Every error carries the server's reason and facts (base/error.h);
// UNAVAILABLE (NO_DAEMON) if nothing answers at the address. Configurations and estimates are retried by gRPC on
// UNAVAILABLE within their timeout. A message may have 64 MiB, a binary 256 MiB.
class Client {
 public:
  struct Options {
    std::string address;  // empty = DefaultAddress()
    absl::Duration timeout = absl::Seconds(10);
  };
  static std::unique_ptr<Client> Create(const Options& options);
  virtual ~Client() = default;

  virtual absl::Status Ping() = 0;
  virtual absl::StatusOr<v1::GetBestConfigResponse> GetBestConfig(const v1::GetBestConfigRequest& request,
                                                                  absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::BatchGetBestConfigsResponse> BatchGetBestConfigs(
      const v1::BatchGetBestConfigsRequest& request) = 0;
  // DATA_LOSS (DIGEST_MISMATCH) if the binary does not have the record's digest; checked only for offset 0.
  virtual absl::StatusOr<FetchedKernel> GetKernel(const v1::GetKernelRequest& request) = 0;
  virtual absl::StatusOr<v1::EstimateResponse> Estimate(const v1::EstimateRequest& request) = 0;

  // Returns the sweep's name ("sweeps/…"); with validate_only the plan comes back in `planned`.
  virtual absl::StatusOr<std::string> CreateSweep(const v1::CreateSweepRequest& request, v1::Sweep* planned) = 0;
  virtual absl::StatusOr<v1::Sweep> GetSweep(const std::string& name) = 0;
  virtual absl::StatusOr<v1::ListSweepsResponse> ListSweeps(const v1::ListSweepsRequest& request) = 0;
  virtual absl::StatusOr<v1::Sweep> CancelSweep(const std::string& name) = 0;
  virtual absl::Status ResumeSweep(const std::string& name) = 0;
  // Calls `more` on every change, and every 200 ms with the last state (before the first answer: the name alone), so
  // that a caller can stop at any time. Returns the sweep as it ended, or CANCELLED once `more` returned false.
  virtual absl::StatusOr<v1::Sweep> WatchSweep(const std::string& name,
                                               const std::function<bool(const v1::Sweep&)>& more) = 0;

  // These wait for their turn on the device, ten minutes at most (DEADLINE_EXCEEDED).
  virtual absl::StatusOr<v1::Trial> TryConfig(const v1::TryConfigRequest& request) = 0;
  virtual absl::StatusOr<v1::RaceConfigsResponse> RaceConfigs(const v1::RaceConfigsRequest& request) = 0;
  virtual absl::StatusOr<v1::ReplayTrialResponse> ReplayTrial(const v1::ReplayTrialRequest& request) = 0;

  virtual absl::StatusOr<v1::ListTrialsResponse> ListTrials(const v1::ListTrialsRequest& request) = 0;
  virtual absl::StatusOr<v1::ListRecordsResponse> ListRecords(const v1::ListRecordsRequest& request) = 0;
  virtual absl::StatusOr<v1::TuningRecord> GetRecord(const std::string& name) = 0;
  virtual absl::Status ExportEvidence(const v1::ExportEvidenceRequest& request,
                                      const std::function<absl::Status(const v1::ExportLine&)>& line) = 0;
  virtual absl::StatusOr<v1::ImportEvidenceResponse> ImportEvidence(const std::vector<v1::ExportLine>& lines) = 0;

  virtual absl::StatusOr<v1::ListDevicesResponse> ListDevices(bool include_profiles) = 0;
  virtual absl::StatusOr<v1::Device> GetDevice(const std::string& name) = 0;
  // Waits for the end; DEADLINE_EXCEEDED after three minutes.
  virtual absl::StatusOr<device::v1::Calibration> CalibrateDevice(const std::string& name) = 0;

  virtual absl::StatusOr<v1::ListTemplatesResponse> ListTemplates() = 0;
  virtual absl::StatusOr<v1::TemplateInfo> GetTemplate(const std::string& id) = 0;
  virtual absl::StatusOr<v1::CheckTemplateResponse> CheckTemplate(const v1::CheckTemplateRequest& request) = 0;
};

}  // namespace rooftune

#endif  // ROOFTUNE_CLIENT_CLIENT_H_

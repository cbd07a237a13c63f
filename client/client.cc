#include "client/client.h"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "google/longrunning/operations_proto.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "rooftune/v1/service.grpc.pb.h"

namespace rooftune {
namespace {

constexpr absl::Duration kSlowTimeout = absl::Minutes(3);
// A sweep that is under way comes first.
constexpr absl::Duration kDeviceTimeout = absl::Minutes(10);
// How long a watcher may be deaf to its caller while the daemon has nothing to say.
constexpr absl::Duration kWatchTick = absl::Milliseconds(200);
// A page of 1000 trials with all their samples is far below, gRPC's own limit of 4 MiB is not.
constexpr int kMaxMessageBytes = 64 << 20;
constexpr size_t kMaxBinaryBytes = 256 << 20;
constexpr char kReadRetryPolicy[] = R"({"methodConfig": [{
  "name": [{"service": "rooftune.v1.ConfigService"}, {"service": "rooftune.v1.EstimateService"}],
  "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.02s", "maxBackoff": "0.2s", "backoffMultiplier": 2,
                  "retryableStatusCodes": ["UNAVAILABLE"]}}]})";

// Our status of a google.rpc.Status, with reason and facts of its ErrorInfo.
absl::Status FromRpc(const google::rpc::Status& status) {
  const auto code = static_cast<absl::StatusCode>(status.code());
  for (const auto& detail : status.details()) {
    google::rpc::ErrorInfo info;
    if (!detail.Is<google::rpc::ErrorInfo>() || !detail.UnpackTo(&info)) continue;
    return Error(code, info.reason(), status.message(), {info.metadata().begin(), info.metadata().end()});
  }
  return absl::Status(code, status.message());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) details.Clear();
  // What gRPC itself says wins: details are optional.
  details.set_code(static_cast<int>(status.error_code()));
  details.set_message(status.error_message());
  return FromRpc(details);
}

std::chrono::system_clock::time_point Deadline(absl::Duration timeout) {
  // Capped, since gRPC's clock overflows on an infinite duration.
  return std::chrono::system_clock::now() + absl::ToChronoMicroseconds(std::min(timeout, absl::Hours(24 * 365)));
}

// Waits for the one event that is under way on `queue`, calling `tick` whenever kWatchTick passes without it.
// False if the event says that there is nothing more.
bool Await(grpc::CompletionQueue& queue, const std::function<void()>& tick) {
  void* tag = nullptr;
  bool more = false;
  while (queue.AsyncNext(&tag, &more, Deadline(kWatchTick)) == grpc::CompletionQueue::TIMEOUT) tick();
  return more;
}

class GrpcClient : public Client {
 public:
  GrpcClient(std::string address, absl::Duration timeout, const std::shared_ptr<grpc::Channel>& channel)
      : address_(std::move(address)),
        timeout_(timeout),
        config_(v1::ConfigService::NewStub(channel)),
        estimate_(v1::EstimateService::NewStub(channel)),
        sweep_(v1::SweepService::NewStub(channel)),
        record_(v1::RecordService::NewStub(channel)),
        device_(v1::DeviceService::NewStub(channel)),
        template_(v1::TemplateService::NewStub(channel)),
        operations_(google::longrunning::Operations::NewStub(channel)) {}

  absl::Status Ping() override {
    return Unary<v1::PingResponse>(*config_, &v1::ConfigService::Stub::Ping, v1::PingRequest()).status();
  }
  absl::StatusOr<v1::GetBestConfigResponse> GetBestConfig(const v1::GetBestConfigRequest& request,
                                                          absl::Duration timeout) override {
    return Unary<v1::GetBestConfigResponse>(*config_, &v1::ConfigService::Stub::GetBestConfig, request, timeout);
  }
  absl::StatusOr<v1::BatchGetBestConfigsResponse> BatchGetBestConfigs(
      const v1::BatchGetBestConfigsRequest& request) override {
    return Unary<v1::BatchGetBestConfigsResponse>(*config_, &v1::ConfigService::Stub::BatchGetBestConfigs, request);
  }
  absl::StatusOr<FetchedKernel> GetKernel(const v1::GetKernelRequest& request) override;
  absl::StatusOr<v1::EstimateResponse> Estimate(const v1::EstimateRequest& request) override {
    return Unary<v1::EstimateResponse>(*estimate_, &v1::EstimateService::Stub::Estimate, request);
  }
  absl::StatusOr<std::string> CreateSweep(const v1::CreateSweepRequest& request, v1::Sweep* planned) override;
  absl::StatusOr<v1::Sweep> GetSweep(const std::string& name) override {
    v1::GetSweepRequest request;
    request.set_name(name);
    return Unary<v1::Sweep>(*sweep_, &v1::SweepService::Stub::GetSweep, request);
  }
  absl::StatusOr<v1::ListSweepsResponse> ListSweeps(const v1::ListSweepsRequest& request) override {
    return Unary<v1::ListSweepsResponse>(*sweep_, &v1::SweepService::Stub::ListSweeps, request);
  }
  absl::StatusOr<v1::Sweep> CancelSweep(const std::string& name) override {
    v1::CancelSweepRequest request;
    request.set_name(name);
    return Unary<v1::Sweep>(*sweep_, &v1::SweepService::Stub::CancelSweep, request);
  }
  absl::Status ResumeSweep(const std::string& name) override {
    v1::ResumeSweepRequest request;
    request.set_name(name);
    return Unary<google::longrunning::Operation>(*sweep_, &v1::SweepService::Stub::ResumeSweep, request).status();
  }
  absl::StatusOr<v1::Sweep> WatchSweep(const std::string& name,
                                       const std::function<bool(const v1::Sweep&)>& more) override;
  absl::StatusOr<v1::Trial> TryConfig(const v1::TryConfigRequest& request) override {
    return Unary<v1::Trial>(*sweep_, &v1::SweepService::Stub::TryConfig, request, kDeviceTimeout);
  }
  absl::StatusOr<v1::RaceConfigsResponse> RaceConfigs(const v1::RaceConfigsRequest& request) override {
    return Unary<v1::RaceConfigsResponse>(*sweep_, &v1::SweepService::Stub::RaceConfigs, request, kDeviceTimeout);
  }
  absl::StatusOr<v1::ReplayTrialResponse> ReplayTrial(const v1::ReplayTrialRequest& request) override {
    return Unary<v1::ReplayTrialResponse>(*sweep_, &v1::SweepService::Stub::ReplayTrial, request, kDeviceTimeout);
  }
  absl::StatusOr<v1::ListTrialsResponse> ListTrials(const v1::ListTrialsRequest& request) override {
    return Unary<v1::ListTrialsResponse>(*record_, &v1::RecordService::Stub::ListTrials, request);
  }
  absl::StatusOr<v1::ListRecordsResponse> ListRecords(const v1::ListRecordsRequest& request) override {
    return Unary<v1::ListRecordsResponse>(*record_, &v1::RecordService::Stub::ListRecords, request);
  }
  absl::StatusOr<v1::TuningRecord> GetRecord(const std::string& name) override {
    v1::GetRecordRequest request;
    request.set_name(name);
    return Unary<v1::TuningRecord>(*record_, &v1::RecordService::Stub::GetRecord, request);
  }
  absl::Status ExportEvidence(const v1::ExportEvidenceRequest& request,
                              const std::function<absl::Status(const v1::ExportLine&)>& line) override;
  absl::StatusOr<v1::ImportEvidenceResponse> ImportEvidence(const std::vector<v1::ExportLine>& lines) override;
  absl::StatusOr<v1::ListDevicesResponse> ListDevices(bool include_profiles) override {
    v1::ListDevicesRequest request;
    request.set_include_profiles(include_profiles);
    return Unary<v1::ListDevicesResponse>(*device_, &v1::DeviceService::Stub::ListDevices, request);
  }
  absl::StatusOr<v1::Device> GetDevice(const std::string& name) override {
    v1::GetDeviceRequest request;
    request.set_name(name);
    return Unary<v1::Device>(*device_, &v1::DeviceService::Stub::GetDevice, request);
  }
  absl::StatusOr<device::v1::Calibration> CalibrateDevice(const std::string& name) override;
  absl::StatusOr<v1::ListTemplatesResponse> ListTemplates() override {
    return Unary<v1::ListTemplatesResponse>(*template_, &v1::TemplateService::Stub::ListTemplates,
                                            v1::ListTemplatesRequest());
  }
  absl::StatusOr<v1::TemplateInfo> GetTemplate(const std::string& id) override {
    v1::GetTemplateRequest request;
    request.set_id(id);
    return Unary<v1::TemplateInfo>(*template_, &v1::TemplateService::Stub::GetTemplate, request);
  }
  absl::StatusOr<v1::CheckTemplateResponse> CheckTemplate(const v1::CheckTemplateRequest& request) override {
    return Unary<v1::CheckTemplateResponse>(*template_, &v1::TemplateService::Stub::CheckTemplate, request,
                                            kSlowTimeout);
  }

 private:
  template <typename Response, typename Stub, typename Request>
  absl::StatusOr<Response> Unary(Stub& stub,
                                 grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                 const Request& request, absl::Duration timeout = absl::ZeroDuration()) {
    grpc::ClientContext context;
    context.set_deadline(Deadline(timeout > absl::ZeroDuration() ? timeout : timeout_));
    Response response;
    RT_RETURN_IF_ERROR(Explain((stub.*method)(&context, request, &response)));
    return response;
  }
  // Adds what to do when there is no daemon.
  absl::Status Explain(const grpc::Status& status) const {
    if (status.error_code() == grpc::UNAVAILABLE && status.error_details().empty()) {
      return Error(absl::StatusCode::kUnavailable, "NO_DAEMON",
                   absl::StrCat("no rooftuned answers at ", address_, " (", status.error_message(),
                                "); start one, set ROOFTUNE_ADDRESS, or use --local"));
    }
    return FromGrpc(status);
  }

  const std::string address_;
  const absl::Duration timeout_;
  const std::unique_ptr<v1::ConfigService::Stub> config_;
  const std::unique_ptr<v1::EstimateService::Stub> estimate_;
  const std::unique_ptr<v1::SweepService::Stub> sweep_;
  const std::unique_ptr<v1::RecordService::Stub> record_;
  const std::unique_ptr<v1::DeviceService::Stub> device_;
  const std::unique_ptr<v1::TemplateService::Stub> template_;
  const std::unique_ptr<google::longrunning::Operations::Stub> operations_;
};

absl::StatusOr<FetchedKernel> GrpcClient::GetKernel(const v1::GetKernelRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(Deadline(kSlowTimeout));
  FetchedKernel kernel;
  v1::GetKernelResponse part;
  bool too_large = false;
  const auto reader = config_->GetKernel(&context, request);
  while (reader->Read(&part)) {
    if (part.has_record()) kernel.record = part.record();
    if (part.has_chunk()) kernel.cubin += part.chunk();
    if (kernel.cubin.size() > kMaxBinaryBytes) {
      too_large = true;
      context.TryCancel();
      break;
    }
  }
  const grpc::Status status = reader->Finish();
  if (too_large) return absl::ResourceExhaustedError("the binary is larger than 256 MiB");
  RT_RETURN_IF_ERROR(Explain(status));
  // The call of a library has no binary.
  if (kernel.record.artifact_digest().empty() && kernel.record.plan().has_cublaslt() && kernel.cubin.empty()) {
    return kernel;
  }
  if (request.offset() == 0 && Sha256Hex(kernel.cubin) != kernel.record.artifact_digest()) {
    return Error(absl::StatusCode::kDataLoss, "DIGEST_MISMATCH",
                 absl::StrCat("the binary that arrived does not have the digest ", kernel.record.artifact_digest()));
  }
  return kernel;
}

absl::StatusOr<std::string> GrpcClient::CreateSweep(const v1::CreateSweepRequest& request, v1::Sweep* planned) {
  RT_ASSIGN_OR_RETURN(const auto operation,
                      Unary<google::longrunning::Operation>(*sweep_, &v1::SweepService::Stub::CreateSweep, request));
  if (request.validate_only()) {
    if (planned != nullptr && !operation.response().UnpackTo(planned)) {
      return absl::InternalError("the plan that came back is no rooftune.v1.Sweep");
    }
    return std::string();
  }
  return absl::StrReplaceAll(operation.name(), {{"operations/", "sweeps/"}});
}

absl::StatusOr<v1::Sweep> GrpcClient::WatchSweep(const std::string& name,
                                                 const std::function<bool(const v1::Sweep&)>& more) {
  v1::WatchSweepRequest request;
  request.set_name(name);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  v1::Sweep last, next;
  last.set_name(name);
  bool stopped = false;
  const auto tick = [&] {
    if (stopped || more(last)) return;
    stopped = true;
    context.TryCancel();
  };
  // One operation at a time is under way, so that its tag says nothing.
  const auto reader = sweep_->PrepareAsyncWatchSweep(&context, request, &queue);
  reader->StartCall(nullptr);
  bool open = Await(queue, tick);
  while (open) {
    reader->Read(&next, nullptr);
    open = Await(queue, tick);
    if (!open) break;
    last = next;
    tick();
  }
  grpc::Status status;
  reader->Finish(&status, nullptr);
  Await(queue, tick);
  queue.Shutdown();
  void* tag = nullptr;
  while (queue.Next(&tag, &open)) {
  }
  if (stopped) return absl::CancelledError("stopped watching");
  RT_RETURN_IF_ERROR(Explain(status));
  return last;
}

absl::Status GrpcClient::ExportEvidence(const v1::ExportEvidenceRequest& request,
                                        const std::function<absl::Status(const v1::ExportLine&)>& line) {
  grpc::ClientContext context;
  v1::ExportLine part;
  const auto reader = record_->ExportEvidence(&context, request);
  absl::Status status;
  while (reader->Read(&part)) {
    if (!status.ok()) continue;
    status = line(part);
    if (!status.ok()) context.TryCancel();
  }
  const grpc::Status finished = reader->Finish();
  RT_RETURN_IF_ERROR(status);
  return Explain(finished);
}

absl::StatusOr<v1::ImportEvidenceResponse> GrpcClient::ImportEvidence(const std::vector<v1::ExportLine>& lines) {
  grpc::ClientContext context;
  v1::ImportEvidenceResponse response;
  const auto writer = record_->ImportEvidence(&context, &response);
  for (const v1::ExportLine& line : lines) {
    if (!writer->Write(line)) break;  // the server's verdict is in Finish
  }
  writer->WritesDone();
  RT_RETURN_IF_ERROR(Explain(writer->Finish()));
  return response;
}

absl::StatusOr<device::v1::Calibration> GrpcClient::CalibrateDevice(const std::string& name) {
  v1::CalibrateDeviceRequest request;
  request.set_name(name);
  RT_ASSIGN_OR_RETURN(auto operation, Unary<google::longrunning::Operation>(
                                          *device_, &v1::DeviceService::Stub::CalibrateDevice, request));
  google::longrunning::WaitOperationRequest wait;
  wait.set_name(operation.name());
  const absl::Time give_up = absl::Now() + kSlowTimeout;
  while (!operation.done() && absl::Now() < give_up) {
    RT_ASSIGN_OR_RETURN(
        operation, Unary<google::longrunning::Operation>(
                       *operations_, &google::longrunning::Operations::Stub::WaitOperation, wait, absl::Seconds(60)));
  }
  if (!operation.done()) return absl::DeadlineExceededError("the calibration did not end within three minutes");
  if (operation.has_error()) return FromRpc(operation.error());
  device::v1::Calibration calibration;
  if (!operation.response().UnpackTo(&calibration))
    return absl::InternalError("the calibration's response is of another type");
  return calibration;
}

}  // namespace

std::string DefaultAddress() {
  const char* address = std::getenv("ROOFTUNE_ADDRESS");
  if (address != nullptr && *address != '\0') return address;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') return absl::StrCat("unix:", runtime, "/rooftune/rooftune.sock");
  return absl::StrCat("unix:/tmp/rooftune-", getuid(), "/rooftune.sock");
}

std::unique_ptr<Client> Client::Create(const Options& options) {
  // Never given back: when the last user of gRPC 1.51 goes after a large write, its shutdown joins a thread that may
  // sit in a poll of 10 s. A process that talks to a daemon keeps gRPC until it ends.
  static const bool kept = (grpc_init(), true);
  (void)kept;
  const std::string address = options.address.empty() ? DefaultAddress() : options.address;
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(kReadRetryPolicy);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  const auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  return std::make_unique<GrpcClient>(address, options.timeout, channel);
}

}  // namespace rooftune

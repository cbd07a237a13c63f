#include "tests/client/fake_daemon.h"

#include <grpcpp/grpcpp.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/sha256.h"
#include "google/longrunning/operations_proto.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "rooftune/v1/service.grpc.pb.h"

namespace rooftune {
namespace {

using google::longrunning::Operation;
using grpc::ServerContext;

grpc::Status ErrorOf(const Canned& canned) {
  const auto code = static_cast<grpc::StatusCode>(canned.error.code());
  const std::string message(canned.error.message());
  if (canned.error.ok() || canned.bare_error) return grpc::Status(code, message);
  google::rpc::ErrorInfo info;
  info.set_domain("rooftune");
  info.set_reason(ErrorReason(canned.error));
  for (const auto& [key, value] : ErrorMetadata(canned.error)) (*info.mutable_metadata())[key] = value;
  google::rpc::Status details;
  details.set_code(static_cast<int>(code));
  details.set_message(message);
  details.add_details()->PackFrom(info);
  return grpc::Status(code, message, details.SerializeAsString());
}

template <typename Request, typename Response>
grpc::Status Answer(FakeDaemon& fake, const char* method, const Request* request, const Response& canned,
                    Response* response) {
  fake.Note(method, *request);
  *response = canned;
  return ErrorOf(fake.canned);
}

// One unary method.
#define RT_UNARY(method, RequestType, ResponseType, canned_field)                                    \
  grpc::Status method(ServerContext*, const RequestType* request, ResponseType* response) override { \
    return Answer(fake, #method, request, fake.canned.canned_field, response);                       \
  }

struct ConfigFake : v1::ConfigService::Service {
  explicit ConfigFake(FakeDaemon& f) : fake(f) {}
  FakeDaemon& fake;
  RT_UNARY(GetBestConfig, v1::GetBestConfigRequest, v1::GetBestConfigResponse, best)
  RT_UNARY(BatchGetBestConfigs, v1::BatchGetBestConfigsRequest, v1::BatchGetBestConfigsResponse, batch)
  grpc::Status Ping(ServerContext*, const v1::PingRequest* request, v1::PingResponse* response) override {
    return Answer(fake, "Ping", request, v1::PingResponse(), response);
  }
  grpc::Status GetKernel(ServerContext*, const v1::GetKernelRequest* request,
                         grpc::ServerWriter<v1::GetKernelResponse>* writer) override {
    fake.Note("GetKernel", *request);
    if (!fake.canned.error.ok()) return ErrorOf(fake.canned);
    v1::GetKernelResponse part;
    *part.mutable_record() = fake.canned.record;
    writer->Write(part);
    // Several chunks, so that their order matters.
    const std::string rest = fake.canned.binary.substr(static_cast<size_t>(request->offset()));
    for (size_t i = 0; i < rest.size(); i += 7) {
      part.set_chunk(rest.substr(i, 7));
      writer->Write(part);
    }
    return grpc::Status::OK;
  }
};

struct EstimateFake : v1::EstimateService::Service {
  explicit EstimateFake(FakeDaemon& f) : fake(f) {}
  FakeDaemon& fake;
  RT_UNARY(Estimate, v1::EstimateRequest, v1::EstimateResponse, estimate)
};

struct SweepFake : v1::SweepService::Service {
  explicit SweepFake(FakeDaemon& f) : fake(f) {}
  FakeDaemon& fake;
  RT_UNARY(CreateSweep, v1::CreateSweepRequest, Operation, created)
  RT_UNARY(GetSweep, v1::GetSweepRequest, v1::Sweep, sweep)
  RT_UNARY(ListSweeps, v1::ListSweepsRequest, v1::ListSweepsResponse, sweeps)
  RT_UNARY(CancelSweep, v1::CancelSweepRequest, v1::Sweep, sweep)
  RT_UNARY(ResumeSweep, v1::ResumeSweepRequest, Operation, created)
  RT_UNARY(TryConfig, v1::TryConfigRequest, v1::Trial, tried)
  RT_UNARY(RaceConfigs, v1::RaceConfigsRequest, v1::RaceConfigsResponse, raced)
  RT_UNARY(ReplayTrial, v1::ReplayTrialRequest, v1::ReplayTrialResponse, replayed)
  grpc::Status WatchSweep(ServerContext* context, const v1::WatchSweepRequest* request,
                          grpc::ServerWriter<v1::Sweep>* writer) override {
    fake.Note("WatchSweep", *request);
    if (!fake.canned.error.ok()) return ErrorOf(fake.canned);
    for (const v1::Sweep& sweep : fake.canned.watch) writer->Write(sweep);
    if (!fake.canned.watch_hangs) return grpc::Status::OK;
    if (!fake.watching.HasBeenNotified()) fake.watching.Notify();
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(2));
    if (!fake.gone.HasBeenNotified()) fake.gone.Notify();
    return grpc::Status::CANCELLED;
  }
};

struct RecordFake : v1::RecordService::Service {
  explicit RecordFake(FakeDaemon& f) : fake(f) {}
  FakeDaemon& fake;
  RT_UNARY(ListTrials, v1::ListTrialsRequest, v1::ListTrialsResponse, trials)
  RT_UNARY(ListRecords, v1::ListRecordsRequest, v1::ListRecordsResponse, records)
  RT_UNARY(GetRecord, v1::GetRecordRequest, v1::TuningRecord, record)
  grpc::Status ExportEvidence(ServerContext*, const v1::ExportEvidenceRequest* request,
                              grpc::ServerWriter<v1::ExportLine>* writer) override {
    fake.Note("ExportEvidence", *request);
    for (const v1::ExportLine& line : fake.canned.lines) writer->Write(line);
    return ErrorOf(fake.canned);
  }
  grpc::Status ImportEvidence(ServerContext*, grpc::ServerReader<v1::ExportLine>* reader,
                              v1::ImportEvidenceResponse* response) override {
    v1::ExportLine line;
    while (reader->Read(&line)) fake.Note("ImportEvidence", line);
    *response = fake.canned.imported;
    return ErrorOf(fake.canned);
  }
};

struct DeviceFake : v1::DeviceService::Service {
  explicit DeviceFake(FakeDaemon& f) : fake(f) {}
  FakeDaemon& fake;
  RT_UNARY(ListDevices, v1::ListDevicesRequest, v1::ListDevicesResponse, devices)
  RT_UNARY(GetDevice, v1::GetDeviceRequest, v1::Device, devices.device(0))
  RT_UNARY(CalibrateDevice, v1::CalibrateDeviceRequest, Operation, calibrating)
};

struct TemplateFake : v1::TemplateService::Service {
  explicit TemplateFake(FakeDaemon& f) : fake(f) {}
  FakeDaemon& fake;
  RT_UNARY(ListTemplates, v1::ListTemplatesRequest, v1::ListTemplatesResponse, templates)
  RT_UNARY(GetTemplate, v1::GetTemplateRequest, v1::TemplateInfo, info)
  RT_UNARY(CheckTemplate, v1::CheckTemplateRequest, v1::CheckTemplateResponse, check)
};

struct OperationsFake : google::longrunning::Operations::Service {
  explicit OperationsFake(FakeDaemon& f) : fake(f) {}
  FakeDaemon& fake;
  RT_UNARY(WaitOperation, google::longrunning::WaitOperationRequest, Operation, calibrated)
};

}  // namespace

struct FakeDaemon::Services {
  explicit Services(FakeDaemon& fake)
      : config(fake), estimate(fake), sweep(fake), record(fake), device(fake), templates(fake), operations(fake) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(fake.address(), grpc::InsecureServerCredentials());
    for (grpc::Service* service :
         std::initializer_list<grpc::Service*>{&config, &estimate, &sweep, &record, &device, &templates, &operations}) {
      builder.RegisterService(service);
    }
    server = builder.BuildAndStart();
  }
  ConfigFake config;
  EstimateFake estimate;
  SweepFake sweep;
  RecordFake record;
  DeviceFake device;
  TemplateFake templates;
  OperationsFake operations;
  std::unique_ptr<grpc::Server> server;
};

FakeDaemon::FakeDaemon(const std::string& address) : address_(address) {
  if (address_.empty()) address_ = absl::StrCat("unix:", dir_ / "socket");
  services_ = std::make_unique<Services>(*this);
  if (services_->server == nullptr) std::abort();
}

FakeDaemon::~FakeDaemon() {
  services_->server->Shutdown(std::chrono::system_clock::now());
  services_.reset();
}

void FakeDaemon::Note(const std::string& method, const google::protobuf::Message& request) {
  const absl::MutexLock lock(&mutex_);
  requests_[method].push_back(request.ShortDebugString());
}

std::string FakeDaemon::Request(const std::string& method) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = requests_.find(method);
  return found == requests_.end() ? "" : found->second.back();
}

int FakeDaemon::Calls(const std::string& method) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = requests_.find(method);
  return found == requests_.end() ? 0 : static_cast<int>(found->second.size());
}

}  // namespace rooftune

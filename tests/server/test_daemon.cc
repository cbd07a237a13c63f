#include "tests/server/test_daemon.h"

#include <google/protobuf/text_format.h>
#include <google/rpc/error_details.pb.h>
#include <grpcpp/create_channel.h>
#include <stdlib.h>

#include <chrono>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "google/rpc/status.pb.h"
#include "kernels/candidate.h"

namespace rooftune {
namespace {

// Tests can't go on without their set-up.
template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "set-up failed: %s\n", value.status().ToString().c_str());
    abort();
  }
  return *std::move(value);
}
void Must(const absl::Status& status) {
  if (!status.ok()) Must(absl::StatusOr<int>(status));
}

std::vector<v1::Device> Devices(const ProfileCatalog& catalog) {
  v1::Device gpu;
  gpu.set_name("devices/cuda-0");
  gpu.set_id(kGpuId);
  gpu.set_device_key(kGpuKey);
  gpu.set_kind(v1::Device::CUDA);
  gpu.set_state(v1::Device::READY);
  gpu.set_tunable(true);
  *gpu.mutable_profile() = Must(catalog.ById("h200-sxm"));
  gpu.mutable_environment()->set_driver("580.159.04");
  gpu.mutable_environment()->set_nvrtc("13.0");
  v1::Device model = gpu;
  model.set_name("devices/model-h200-sxm");
  model.set_id(kModelId);
  model.set_device_key(kModelKey);
  model.set_kind(v1::Device::MODELLED);
  model.mutable_environment()->clear_driver();
  return {gpu, model};
}

}  // namespace

absl::StatusOr<worker::v1::CompileResult> ParameterCompiler::Compile(const worker::v1::CompileRequest& request) {
  absl::StatusOr<worker::v1::CompileResult> result = inner_.Compile(request);
  if (!result.ok()) return result;
  for (auto& kernel : *result->mutable_kernel()) {
    for (const KernelTemplate* owner : library_.templates()) {
      for (const auto& launch : owner->manifest().launch()) {
        if (launch.symbol() != kernel.symbol() || kernel.parameter_size() > 0) continue;
        int offset = 0;
        for (const auto& arg : launch.arg()) {
          const int size = arg.has_int32() || arg.has_scalar() ? 4 : 8;
          offset = (offset + size - 1) / size * size;
          auto* parameter = kernel.add_parameter();
          parameter->set_ordinal(kernel.parameter_size() - 1);
          parameter->set_offset(offset);
          parameter->set_size(size);
          offset += size;
        }
      }
    }
  }
  return result;
}

TestDaemon::TestDaemon(Options options)
    : artifacts(ArtifactStore::InMemory()),
      catalog(Must(ProfileCatalog::Builtin())),
      library(Must(TemplateLibrary::Load({}))) {
  device::v1::FakeScript script;
  if (!google::protobuf::TextFormat::ParseFromString(options.compiler_script, &script)) abort();
  compiler = Must(FakeCompiler::Create(script));
  with_parameters = std::make_unique<ParameterCompiler>(*library, *compiler);
  if (!options.records.empty()) Must(store.PublishRecords(options.records).status());
  core = Must(ServerCore::Create({*library, catalog, store, *artifacts, *with_parameters, clock}, options.limits));
  manager = std::make_unique<FakeSweepManager>(store, Devices(catalog));
  manager->on_change = [this](const v1::Sweep& sweep) { core->OnChange(sweep); };
  manager->on_publish = [this](const std::vector<v1::TuningRecord>& records, int64_t generation) {
    core->OnPublish(records, generation);
  };
  const absl::Status attached = core->Attach(*manager);
  if (!attached.ok()) {
    std::fprintf(stderr, "set-up failed: %s\n", attached.ToString().c_str());
    abort();
  }
  GrpcServer::Options serve;
  serve.watch_pace = options.watch_pace;
  serve.listen.push_back(Must(ParseListenAddress(absl::StrCat("unix:", dir_ / "s"), false)));
  serve.locks.push_back(Must(SocketLock::Acquire(serve.listen[0].path)));
  server = Must(GrpcServer::Start(*core, std::move(serve)));
  target_ = server->addresses()[0];
}

TestDaemon::~TestDaemon() {
  manager->HoldCalibrations(false);
  core->BeginDrain();
  server.reset();
  core.reset();
}

std::shared_ptr<grpc::Channel> TestDaemon::Connect() const {
  return grpc::CreateChannel(target_, grpc::InsecureChannelCredentials());
}

v1::TuningRecord TestDaemon::Record(const std::string& op, const std::string& device_key, v1::EvidenceLevel evidence,
                                    int64_t config_value, int rank) const {
  const std::string text = Must(library->ops().Parse(op)).text;
  v1::TuningRecord record;
  record.set_name(absl::StrCat("records/r-", TargetKey(text, device_key), "-", config_value, "-", rank));
  record.set_op(text);
  record.set_device_key(device_key);
  record.set_target_key(TargetKey(text, device_key));
  record.mutable_environment()->set_driver("580.159.04");
  record.mutable_environment()->set_nvrtc("13.0");
  record.set_provider(v1::TEMPLATE);
  record.set_template_id("softmax");
  record.set_template_revision(library->Find("softmax") != nullptr ? library->Find("softmax")->revision() : "");
  (*record.mutable_config())["block"] = config_value;
  record.mutable_plan()->set_op(text);
  record.mutable_plan()->set_template_id("softmax");
  record.mutable_plan()->set_deterministic(true);
  record.set_evidence(evidence);
  record.set_rank(rank);
  if (evidence >= v1::VERIFIED) record.mutable_verification()->set_passed(true);
  if (evidence >= v1::MEASURED) {
    record.mutable_measurement()->set_median_us(12.5);
    record.mutable_measurement()->add_sample_us(12.5);
  }
  return record;
}

void TestDaemon::Publish(const std::vector<v1::TuningRecord>& records) {
  Must(manager->Publish(records));
  core->context.index.Flush(clock.Now());
}

v1::GetBestConfigRequest BestConfigOf(const std::string& op, const std::string& device) {
  v1::GetBestConfigRequest request;
  request.set_op(op);
  request.set_device(device);
  return request;
}

SeenError See(const grpc::Status& status) {
  SeenError seen;
  seen.code = status.error_code();
  seen.message = status.error_message();
  google::rpc::Status rpc;
  google::rpc::ErrorInfo info;
  if (!rpc.ParseFromString(status.error_details())) return seen;
  for (const auto& detail : rpc.details()) {
    if (!detail.UnpackTo(&info)) continue;
    seen.domain = info.domain();
    seen.reason = info.reason();
    seen.metadata = {info.metadata().begin(), info.metadata().end()};
  }
  return seen;
}

void SetDeadline(grpc::ClientContext& context, int seconds) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(seconds));
}

}  // namespace rooftune

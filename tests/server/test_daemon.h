// The whole server in one process: real gRPC over a Unix socket, memory store, fake compiler, fake sweeps.
#ifndef ROOFTUNE_TESTS_SERVER_TEST_DAEMON_H_
#define ROOFTUNE_TESTS_SERVER_TEST_DAEMON_H_

#include <grpcpp/channel.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rooftune/v1/service.grpc.pb.h"
#include "server/grpc_server.h"
#include "server/server_core.h"
#include "tests/server/fake_sweep_manager.h"
#include "tests/support/temp_dir.h"
#include "tuner/compile/fake_compiler.h"
#include "tuner/store/memory_store.h"

namespace rooftune {

inline constexpr char kModelId[] = "model:h200-sxm";
inline constexpr char kModelKey[] = "model/h200-sxm";
inline constexpr char kGpuId[] = "cuda:0";
inline constexpr char kGpuKey[] = "nvidia-h200/132sm/141gb/700w";

// A compiler whose binaries have the parameters that the templates' manifests say, as a real one's would.
class ParameterCompiler : public Compiler {
 public:
  ParameterCompiler(const TemplateLibrary& library, Compiler& inner) : library_(library), inner_(inner) {}
  absl::StatusOr<std::string> NvrtcVersion() override { return inner_.NvrtcVersion(); }
  absl::StatusOr<worker::v1::CompileResult> Compile(const worker::v1::CompileRequest& request) override;
  int parallelism() const override { return inner_.parallelism(); }

 private:
  const TemplateLibrary& library_;
  Compiler& inner_;
};

// Devices: kGpuId (MEASURED is possible), then kModelId.
class TestDaemon {
 public:
  struct Options {
    ServerLimits limits;
    // Textproto of a FakeScript for the compiler.
    std::string compiler_script;
    SweepFeed::Options watch_pace;
    // Filled before the index is loaded.
    std::vector<v1::TuningRecord> records;
  };
  explicit TestDaemon(Options options);
  TestDaemon() : TestDaemon(Options()) {}
  ~TestDaemon();

  const std::string& target() const { return target_; }
  std::shared_ptr<grpc::Channel> Connect() const;
  template <typename Service>
  std::unique_ptr<typename Service::Stub> Stub() const {
    return Service::NewStub(Connect());
  }

  // A record that passes the store's checks. The config distinguishes it.
  v1::TuningRecord Record(const std::string& op, const std::string& device_key, v1::EvidenceLevel evidence,
                          int64_t config_value, int rank = 0) const;
  // Publishes through the manager, and makes it visible.
  void Publish(const std::vector<v1::TuningRecord>& records);

  MemoryStore store;
  std::unique_ptr<ArtifactStore> artifacts;
  ProfileCatalog catalog;
  std::unique_ptr<TemplateLibrary> library;
  std::unique_ptr<FakeCompiler> compiler;
  std::unique_ptr<ParameterCompiler> with_parameters;
  FakeClock clock;
  std::unique_ptr<FakeSweepManager> manager;
  std::unique_ptr<ServerCore> core;
  std::unique_ptr<GrpcServer> server;

 private:
  const TempDir dir_;
  std::string target_;
};

v1::GetBestConfigRequest BestConfigOf(const std::string& op, const std::string& device);

// What a client sees of an error.
struct SeenError {
  int code = 0;
  std::string message;
  std::string domain;
  std::string reason;
  std::map<std::string, std::string> metadata;
};
SeenError See(const grpc::Status& status);

// A deadline that no healthy call reaches.
void SetDeadline(grpc::ClientContext& context, int seconds = 20);

// One call with that deadline.
template <typename Request, typename Response, typename Stub>
grpc::Status Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request, Response* response) {
  grpc::ClientContext context;
  SetDeadline(context);
  return (stub.*method)(&context, request, response);
}

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_SERVER_TEST_DAEMON_H_

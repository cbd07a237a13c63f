#include "server/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

constexpr int kMaxReceiveBytes = 4 << 20;
constexpr int kMaxMetadataBytes = 8 << 10;
constexpr int kMaxConcurrentStreams = 128;
// Pings of idle watchers: more often than this is taken for abuse.
constexpr int kMinPingIntervalMs = 30'000;

// Health and reflection are process-wide switches of gRPC, to be set before the first builder.
void EnableDefaultsOnce() {
  static const bool enabled = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  (void)enabled;
}

}  // namespace

struct GrpcServer::Health {
  absl::Mutex mutex;
  // nullptr once the server drains.
  grpc::HealthCheckServiceInterface* service ABSL_GUARDED_BY(mutex) = nullptr;
  uint64_t timer ABSL_GUARDED_BY(mutex) = 0;
};

GrpcServer::GrpcServer(ServerCore& core, Options& options)
    : core_(core),
      config_(core),
      estimate_(core),
      sweep_(core, options.watch_pace),
      record_(core),
      device_(core),
      template_(core),
      operations_(core),
      locks_(std::move(options.locks)),
      health_(std::make_shared<Health>()) {}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(ServerCore& core, Options options) {
  EnableDefaultsOnce();
  auto server = std::unique_ptr<GrpcServer>(new GrpcServer(core, options));
  RT_RETURN_IF_ERROR(server->Listen(options.listen));
  {
    absl::MutexLock lock(&server->health_->mutex);
    server->health_->service = server->server_->GetHealthCheckService();
    server->health_->service->SetServingStatus("rooftune.v1.ConfigService", true);
  }
  UpdateHealth(core, options.health_interval, server->health_);
  return server;
}

absl::Status GrpcServer::Listen(const std::vector<ListenAddress>& listen) {
  grpc::ServerBuilder builder;
  // Without it a second daemon would start on the same port and get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
  builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  std::vector<int> ports(listen.size(), -1);
  for (size_t i = 0; i < listen.size(); ++i) {
    builder.AddListeningPort(listen[i].Target(), grpc::InsecureServerCredentials(), &ports[i]);
  }
  for (grpc::Service* service : std::initializer_list<grpc::Service*>{&config_, &estimate_, &sweep_, &record_, &device_,
                                                                      &template_, &operations_}) {
    builder.RegisterService(service);
  }
  // Sockets are born with these rights; a chmod afterwards would leave a gap.
  const mode_t old_mask = umask(0177);
  server_ = builder.BuildAndStart();
  umask(old_mask);
  for (size_t i = 0; i < listen.size(); ++i) {
    if (server_ == nullptr || (!listen[i].is_unix() && ports[i] <= 0)) {
      // gRPC names the reason on stderr only; a taken port is by far the most frequent one.
      return Error(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                   absl::StrCat("can't listen on ", listen[i].Target(),
                                listen.size() > 1 ? " or another of the given addresses" : "",
                                ": it is in use or not an address of this machine"));
    }
    ListenAddress bound = listen[i];
    if (!bound.is_unix()) bound.port = ports[i];
    addresses_.push_back(bound.Target());
  }
  return absl::OkStatus();
}

void GrpcServer::UpdateHealth(ServerCore& core, absl::Duration interval, const std::shared_ptr<Health>& health) {
  const auto again = [&core, interval, health] {
    absl::MutexLock lock(&health->mutex);
    if (health->service == nullptr) return;
    health->timer =
        core.context.timer.RunAfter(interval, [&core, interval, health] { UpdateHealth(core, interval, health); });
  };
  // Devices() may take a lane's lock: not on the timer's thread.
  const absl::Status posted = core.context.reads.Post([&core, health, again] {
    const bool usable = core.catalog.AnyDeviceUsable();
    {
      absl::MutexLock lock(&health->mutex);
      if (health->service != nullptr) health->service->SetServingStatus("rooftune.v1.SweepService", usable);
    }
    again();
  });
  if (absl::IsResourceExhausted(posted)) again();
}

void GrpcServer::SetNotServing() {
  absl::MutexLock lock(&health_->mutex);
  if (health_->service == nullptr) return;
  core_.context.timer.Cancel(health_->timer);
  health_->service->SetServingStatus(false);
  health_->service = nullptr;
}

void GrpcServer::Shutdown(absl::Duration grace) {
  SetNotServing();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
  for (const SocketLock& lock : locks_) lock.RemoveSocket();
}

GrpcServer::~GrpcServer() { Shutdown(absl::ZeroDuration()); }

}  // namespace rooftune

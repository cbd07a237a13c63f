// The gRPC server: services, health, reflection, limits, addresses.
#ifndef ROOFTUNE_SERVER_GRPC_SERVER_H_
#define ROOFTUNE_SERVER_GRPC_SERVER_H_

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/catalog_services.h"
#include "server/config_service.h"
#include "server/listen_address.h"
#include "server/record_service.h"
#include "server/server_core.h"
#include "server/sweep_service.h"

namespace rooftune {

class GrpcServer {
 public:
  struct Options {
    std::vector<ListenAddress> listen;
    // Locks of the Unix sockets among them.
    std::vector<SocketLock> locks;
    SweepFeed::Options watch_pace;
    // How often the health of SweepService follows the devices.
    absl::Duration health_interval = absl::Seconds(5);
  };
  // Serves when it returns. UNAVAILABLE (CANNOT_LISTEN). The core must be attached to its manager and outlive the
  // server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(ServerCore& core, Options options);
  // Shuts down without grace.
  ~GrpcServer();

  // Addresses as bound, in the order given.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // All health states become NOT_SERVING: balancers stop sending.
  void SetNotServing();
  // Calls under way may finish until the deadline; then they are cancelled.
  void Shutdown(absl::Duration grace);
  // For in-process channels of tests.
  grpc::Server& server() { return *server_; }

 private:
  GrpcServer(ServerCore& core, Options& options);
  absl::Status Listen(const std::vector<ListenAddress>& listen);
  struct Health;
  // Sets SweepService's state by the devices' and comes back after the interval, until the server drains.
  static void UpdateHealth(ServerCore& core, absl::Duration interval, const std::shared_ptr<Health>& health);

  ServerCore& core_;
  ConfigServiceImpl config_;
  EstimateServiceImpl estimate_;
  SweepServiceImpl sweep_;
  RecordServiceImpl record_;
  DeviceServiceImpl device_;
  TemplateServiceImpl template_;
  OperationsServiceImpl operations_;
  std::vector<SocketLock> locks_;
  std::vector<std::string> addresses_;
  // Shared with the health timer, which may fire while the server goes away.
  std::shared_ptr<Health> health_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_GRPC_SERVER_H_

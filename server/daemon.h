// Everything of rooftuned but its process: built from flags, serving when made.
#ifndef ROOFTUNE_SERVER_DAEMON_H_
#define ROOFTUNE_SERVER_DAEMON_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/flags.h"
#include "server/grpc_server.h"
#include "server/server_core.h"
#include "tuner/store/artifact_store.h"
#include "tuner/store/store.h"
#include "tuner/sweep/backend_factory.h"
#include "tuner/sweep/sweep_manager.h"

namespace rooftune {

class Daemon {
 public:
  // Addresses and data directory are claimed before anything else starts.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const DaemonFlags& flags);
  ~Daemon();

  const std::vector<std::string>& addresses() const { return server_->addresses(); }
  // NOT_SERVING, then sweeps stop (they stay resumable), then calls end, then threads.
  void Drain();

 private:
  explicit Daemon(const DaemonFlags& flags) : drain_timeout_(flags.drain_timeout) {}
  absl::Status OpenData(const DaemonFlags& flags);
  absl::Status LoadCatalogs(const DaemonFlags& flags);
  absl::Status StartSweeps(const DaemonFlags& flags);

  const absl::Duration drain_timeout_;
  bool drained_ = false;
  // Used only if a fake device says so.
  SkippingClock skipping_clock_;
  Clock* clock_ = &Clock::Real();
  // Destroyed in reverse: server, manager, core (whose threads ended in Drain), devices, store.
  std::unique_ptr<Store> store_;
  std::unique_ptr<ArtifactStore> artifacts_;
  std::optional<ProfileCatalog> catalog_;
  std::unique_ptr<TemplateLibrary> library_;
  BackendSet devices_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<SweepManager> manager_;
  std::unique_ptr<GrpcServer> server_;
};

// "rooftune 0.1.0".
std::string DaemonVersion();

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_DAEMON_H_

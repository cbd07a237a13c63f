// All of the API's logic, without gRPC. The services (server/services.h) only translate.
#ifndef ROOFTUNE_SERVER_SERVER_CORE_H_
#define ROOFTUNE_SERVER_SERVER_CORE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/catalog_core.h"
#include "server/config_core.h"
#include "server/context.h"
#include "server/kernel_core.h"
#include "server/record_core.h"
#include "server/sweep_core.h"

namespace rooftune {

// Thread-safe. Order of life: Create, make the SweepManager with OnChange and OnPublish as its callbacks, Attach,
// serve; BeginDrain, shut the manager down, end the calls, Stop, destroy (before the manager and the dependencies).
class ServerCore {
 public:
  static absl::StatusOr<std::unique_ptr<ServerCore>> Create(const ServerDeps& deps, const ServerLimits& limits = {});
  ~ServerCore();

  // Takes the manager's devices and then loads the index from the store. Errors are the store's.
  absl::Status Attach(SweepManager& manager);
  // For SweepManager::Options.
  void OnChange(const v1::Sweep& sweep);
  void OnPublish(const std::vector<v1::TuningRecord>& records, int64_t generation);

  // Ends watching and waiting calls with UNAVAILABLE (DRAINING).
  void BeginDrain() { context.hub.Close(); }
  // Finishes what is queued and ends the threads.
  void Stop();

  ServerContext context;
  SweepCore sweeps;
  EstimateTable estimates;
  ConfigCore configs;
  KernelCore kernels;
  RecordCore records;
  CatalogCore catalog;

 private:
  ServerCore(const ServerDeps& deps, const ServerLimits& limits);
  void FlushLater();
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_SERVER_CORE_H_

// Makes the devices that --device names.
#ifndef ROOFTUNE_TUNER_SWEEP_BACKEND_FACTORY_H_
#define ROOFTUNE_TUNER_SWEEP_BACKEND_FACTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "rooftune/device/v1/fake.pb.h"
#include "rooftune/worker/v1/worker.pb.h"
#include "tuner/store/store.h"
#include "tuner/sweep/backend.h"

namespace rooftune {

struct BackendFactoryOptions {
  // rooftune-worker.
  std::string worker_path;
  // Compile processes; 0 = as many as cores and memory allow.
  int compile_processes = 0;
  // For Environment.rooftune.
  std::string version;
  // Of real and fake GPUs.
  MeasurePolicy policy;
  // Where failed compiles are remembered across restarts; null = nowhere. Borrowed.
  Store* store = nullptr;
  // Of fake devices whose script says `virtual_time`. Borrowed.
  Clock* virtual_clock = nullptr;
};

// What scripts of the flags' fake devices ask of the whole daemon.
struct ScriptedWorld {
  bool virtual_time = false;
  std::vector<device::v1::StoreFault> store_faults;
};
// Errors as those of MakeBackends for `fake:` flags; other flags are passed over.
absl::StatusOr<ScriptedWorld> ReadScriptedWorld(const std::vector<std::string>& flags);

struct BackendSet {
  // Real compiler, and one a fake device. Outlive the backends.
  std::vector<std::unique_ptr<Compiler>> compilers;
  std::vector<Backend> backends;
  // The NVRTC compiler, for compiles on demand and template checks.
  Compiler* compiler = nullptr;
  // Things worth telling at start ("no GPU: …").
  std::vector<std::string> notes;
};

// `flags`: "auto" (every GPU, else model:h200-sxm with a note), "cuda:N", "model:ID", "fake:FILE".
// INVALID_ARGUMENT for a malformed one, NOT_FOUND (UNKNOWN_DEVICE) for a GPU, profile or file that does not
// exist, with what there is.
absl::StatusOr<BackendSet> MakeBackends(const std::vector<std::string>& flags, const ProfileCatalog& catalog,
                                        const BackendFactoryOptions& options);

// What this machine has, asked in a process of its own: `rooftune-worker probe`.
absl::StatusOr<worker::v1::ProbeResult> RunProbe(const std::string& worker_path);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_BACKEND_FACTORY_H_

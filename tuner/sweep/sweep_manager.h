// Runs sweeps: one lane (thread) a device, compiles overlapping measurements.
//
// plan (templates × space → static prune → order) → loop { propose → compile in parallel → verify and time
// on the lane → commit → tell } → race finalists, incumbent, default and baselines → publish.
// Every state change and every trial is in the store before anybody is told; a restarted daemon resumes
// unfinished sweeps and measures only what is missing.
#ifndef ROOFTUNE_TUNER_SWEEP_SWEEP_MANAGER_H_
#define ROOFTUNE_TUNER_SWEEP_SWEEP_MANAGER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kernels/template_library.h"
#include "rooftune/v1/records.pb.h"
#include "rooftune/v1/service.pb.h"
#include "tuner/store/artifact_store.h"
#include "tuner/store/store.h"
#include "tuner/sweep/backend.h"

namespace rooftune {

// Thread-safe.
class SweepManager {
 public:
  struct Deps {
    const TemplateLibrary& library;
    Store& store;
    ArtifactStore& artifacts;
    Clock& clock;
  };
  struct Options {
    // Candidates compiled ahead of the lane.
    int compile_ahead = 0;  // 0 = the compiler's parallelism
    int max_queued = 64;
    // Called (from a lane) after every change of a sweep; must not block.
    std::function<void(const v1::Sweep&)> on_change;
    // Called (from a lane) after records were published, with their generation; must not block.
    std::function<void(const std::vector<v1::TuningRecord>&, int64_t generation)> on_publish;
  };

  // Takes unfinished sweeps of the store up again.
  static absl::StatusOr<std::unique_ptr<SweepManager>> Create(const Deps& deps, std::vector<Backend> backends,
                                                              Options options);
  virtual ~SweepManager() = default;

  // INVALID_ARGUMENT for a bad spec; FAILED_PRECONDITION (NO_TEMPLATE, EMPTY_SPACE) if nothing can be tried;
  // RESOURCE_EXHAUSTED (QUEUE_FULL). A known request_id returns its sweep; with another spec it is
  // INVALID_ARGUMENT.
  virtual absl::StatusOr<v1::Sweep> Start(const v1::SweepSpec& spec, const std::string& request_id) = 0;
  // As Start, but only plans: space, pruning and order, nothing stored.
  virtual absl::StatusOr<v1::Sweep> Validate(const v1::SweepSpec& spec) = 0;
  virtual absl::StatusOr<v1::Sweep> Resume(const std::string& name) = 0;
  // Takes effect within 2 s, also inside a compile or a hung kernel.
  virtual absl::StatusOr<v1::Sweep> Cancel(const std::string& name) = 0;
  // The sweep as of now (from memory while it runs).
  virtual absl::StatusOr<v1::Sweep> Get(const std::string& name) = 0;

  // Devices with their state. Profiles and calibrations as of now.
  virtual std::vector<v1::Device> Devices() = 0;
  // Blocks; waits its turn on the lane. FAILED_PRECONDITION (NOT_A_GPU) for modelled devices.
  virtual absl::StatusOr<device::v1::Calibration> Calibrate(const std::string& device_id) = 0;
  // Compiles, verifies and times given configurations, interleaved, when the lane is free; nothing is stored. Plans
  // on the calling thread and returns; `done` is called once, from any thread and not under a lock, with the errors of
  // ConfigRace (tuner/sweep/config_race.h) or UNAVAILABLE (SHUTTING_DOWN). `abandoned` tells, from any thread, that
  // nobody waits any more: what has not started is then dropped (CANCELLED).
  virtual void RaceConfigs(const v1::RaceConfigsRequest& request, std::function<bool()> abandoned,
                           std::function<void(absl::StatusOr<v1::RaceConfigsResponse>)> done) = 0;

  // Stops after the current candidates; sweeps stay resumable. Returns when all lanes are idle.
  virtual void Shutdown() = 0;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_SWEEP_MANAGER_H_

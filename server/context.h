// What all parts of the server share.
#ifndef ROOFTUNE_SERVER_CONTEXT_H_
#define ROOFTUNE_SERVER_CONTEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "costmodel/device_profile.h"
#include "kernels/template_library.h"
#include "server/config_index.h"
#include "server/device_table.h"
#include "server/executor.h"
#include "server/sweep_hub.h"
#include "server/timer.h"
#include "tuner/compile/compiler.h"
#include "tuner/store/artifact_store.h"
#include "tuner/store/store.h"
#include "tuner/sweep/sweep_manager.h"

namespace rooftune {

struct ServerDeps {
  const TemplateLibrary& library;
  const ProfileCatalog& catalog;
  Store& store;
  ArtifactStore& artifacts;
  Compiler& compiler;
  Clock& clock;
};

struct ServerLimits {
  // Threads and queued calls for short reads of the store.
  int read_threads = 4;
  size_t read_queue = 1024;
  // The same for what takes longer: planning, compiling on demand, export and import.
  int work_threads = 4;
  size_t work_queue = 256;
  // Calls that wait for or watch sweeps at the same time.
  size_t max_watchers = 1024;
  // Answers of the cost model that are remembered.
  size_t max_estimates = 65'536;
  // One import: lines, and bytes of them.
  size_t import_lines = 500'000;
  size_t import_bytes = size_t{512} << 20;
};

// Longest text of an operator that is looked at.
inline constexpr size_t kMaxOpText = 4096;

struct ServerContext;

// Which constraint a record of another revision of its template breaks today, so that it must not be served; empty if
// none, if the revision is the same, or if nothing is known of the device or the template.
std::string WhyStale(const ServerContext& context, const v1::TuningRecord& record, const Op& op);

struct ServerContext {
  ServerContext(const ServerDeps& dependencies, const ServerLimits& server_limits)
      : deps(dependencies),
        limits(server_limits),
        hub(server_limits.max_watchers),
        devices(dependencies.catalog),
        index(dependencies.library.ops(),
              [this](const v1::TuningRecord& record, const Op& op) { return WhyStale(*this, record, op); }),
        reads("reads", server_limits.read_threads, server_limits.read_queue),
        work("planning and compiling", server_limits.work_threads, server_limits.work_queue),
        calibrations("calibrations", 2, 16) {}

  const ServerDeps deps;
  const ServerLimits limits;
  // Set once, before the first call.
  SweepManager* sweeps = nullptr;
  SweepHub hub;
  DeviceTable devices;
  // Uses the devices.
  ConfigIndex index;
  Executor reads;
  Executor work;
  Executor calibrations;
  // Last, so that it stops first: its functions use the rest.
  Timer timer;
};

// Canonical form of an operator text. INVALID_ARGUMENT (OP_TOO_LONG) past kMaxOpText.
absl::StatusOr<Op> ParseOp(const ServerContext& context, const std::string& text);

// Page size as used: 50 for 0, at most 1000. INVALID_ARGUMENT (BAD_VALUE) for negative ones.
absl::StatusOr<int> PageSize(int requested);

// The part after `prefix` of a resource name. INVALID_ARGUMENT (BAD_NAME) unless it is 1 to 128 of
// [A-Za-z0-9._-].
absl::StatusOr<std::string> ResourceId(const std::string& name, absl::string_view prefix);

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_CONTEXT_H_

// Runs kernels on one device. Exactly one result per request, whatever happens to the process behind it.
// Not thread-safe: the lane that owns a device calls it from one thread, except Interrupt().
#ifndef ROOFTUNE_TUNER_RUN_RUNNER_H_
#define ROOFTUNE_TUNER_RUN_RUNNER_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

class Runner {
 public:
  virtual ~Runner() = default;

  // Sets up a problem; kept, and set up again by itself after a worker died. The outcome tells a reference
  // that fails its CPU check (WRONG_RESULT) or tensors that do not fit (OUT_OF_MEMORY). UNAVAILABLE
  // (NO_GPU) if no worker can be started.
  virtual absl::StatusOr<worker::v1::PrepareResult> Prepare(const worker::v1::PrepareRequest& request) = 0;
  // What the vendor's library offers for the prepared problem, each as the plan of a RunRequest without a binary.
  // NOT_RUN if there is none; a library that crashes or hangs is an outcome.
  virtual absl::StatusOr<worker::v1::VendorResult> ListVendor(const worker::v1::VendorRequest& request) = 0;
  // FAILED_PRECONDITION without a prepared problem. A fault, a hang or a crash is an outcome.
  virtual absl::StatusOr<worker::v1::RunResult> Run(const worker::v1::RunRequest& request) = 0;
  virtual absl::StatusOr<worker::v1::RunResult> RunBaseline(const worker::v1::BaselineRequest& request) = 0;
  // Results in the order of the entrants; an entrant that kills the worker is charged alone and the race is
  // run again without it.
  virtual absl::StatusOr<worker::v1::RaceResult> Race(const worker::v1::RaceRequest& request) = 0;
  virtual absl::StatusOr<worker::v1::CalibrateResult> Calibrate(const worker::v1::CalibrateRequest& request) = 0;
  // Who else computes on the device just now; does no work on it. Errors as those of Prepare.
  virtual absl::StatusOr<worker::v1::IdleResult> Idle() = 0;
  // Ends a call in progress within 2 s (it returns CANCELLED). Callable from any thread.
  virtual void Interrupt() = 0;
  // What happened so far, by name ("runs", "worker_starts", …); only grows. Callable from any thread.
  virtual std::map<std::string, int64_t> Counters() const { return {}; }
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_RUN_RUNNER_H_

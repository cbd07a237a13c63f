// The Runner behind which rooftune-worker runs: one process holds the GPU, and is replaced when a kernel took it
// down.
#ifndef ROOFTUNE_TUNER_RUN_WORKER_RUNNER_H_
#define ROOFTUNE_TUNER_RUN_WORKER_RUNNER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tuner/run/runner.h"
#include "tuner/wire/subprocess.h"

namespace rooftune {

// A request is charged with its worker's death only after the worker said Begin for it; a worker that dies before
// is replaced and the request is sent again, three times at most. Then the device counts as lost.
//
// A worker that does not end after SIGKILL hangs in the kernel, and so does the GPU. The device is then in quarantine:
// every call says DEVICE_LOST at once and names the process, until that has ended; nothing else is started on it.
class WorkerRunner : public Runner {
 public:
  struct Options {
    // Path of rooftune-worker; empty = beside the running executable.
    std::string worker_path;
    // GPU as the driver counts.
    int device = 0;
    // Keeps a second process with a context ready: it takes over in a millisecond instead of 0.3 s, and costs some
    // 500 MiB of device memory. It takes the GPU's lease only with its first request.
    bool spare = false;
    // "NAME=VALUE", added to the worker's environment.
    std::vector<std::string> env;
    // Time a worker may take to say Hello: the first context after boot can take seconds.
    absl::Duration start_timeout = absl::Seconds(30);
    // Time a worker may take to begin a request; it covers the wait for the GPU's lease.
    absl::Duration begin_timeout = absl::Seconds(15);
    // Test seam: whether a worker ended by the deadline; empty = Subprocess::Wait.
    std::function<bool(Subprocess& worker, absl::Time deadline, ExitInfo* exit)> await_end;
  };

  // Starts nothing yet. INVALID_ARGUMENT for a negative ordinal.
  static absl::StatusOr<std::unique_ptr<WorkerRunner>> Create(Options options);
  ~WorkerRunner() override;

  absl::StatusOr<worker::v1::PrepareResult> Prepare(const worker::v1::PrepareRequest& request) override;
  absl::StatusOr<worker::v1::VendorResult> ListVendor(const worker::v1::VendorRequest& request) override;
  absl::StatusOr<worker::v1::RunResult> Run(const worker::v1::RunRequest& request) override;
  absl::StatusOr<worker::v1::RunResult> RunBaseline(const worker::v1::BaselineRequest& request) override;
  absl::StatusOr<worker::v1::RaceResult> Race(const worker::v1::RaceRequest& request) override;
  absl::StatusOr<worker::v1::CalibrateResult> Calibrate(const worker::v1::CalibrateRequest& request) override;
  absl::StatusOr<worker::v1::IdleResult> Idle() override;
  void Interrupt() override;
  // "runs", "prepares", "worker_starts", "worker_deaths", "quarantines".
  std::map<std::string, int64_t> Counters() const override;

 private:
  // What came of one request.
  enum class Fate {
    kAnswered,
    kRefused,   // ErrorReply
    kTimedOut,  // killed at its deadline
    kDied,      // the worker ended on its own, or spoke nonsense
    kNotBegun,  // says nothing about the request
  };
  struct Reply {
    Fate fate = Fate::kNotBegun;
    worker::v1::Frame frame;
    // For people.
    std::string detail;
    // Of a race: who was running last; -1 = nobody yet.
    int entrant = -1;
  };

  explicit WorkerRunner(Options options) : options_(std::move(options)) {}

  // What a call came to: the answer, or the outcome that its fate means. The Status of a refusal.
  template <typename Result>
  static absl::StatusOr<Result> ResultOf(const Reply& reply, int timeout_ms,
                                         const Result& (worker::v1::Frame::*answer)() const);

  // Sends a request until it was begun, with the problem set up again where that is needed. CANCELLED after
  // Interrupt(). Fate kNotBegun = the device is lost.
  absl::StatusOr<Reply> Call(worker::v1::Frame request, int timeout_ms, bool needs_problem);
  absl::StatusOr<Reply> CallBegun(worker::v1::Frame& request, absl::Duration timeout, bool needs_problem);
  absl::StatusOr<worker::v1::RunResult> CallForResult(worker::v1::Frame request, int timeout_ms);
  // One exchange with the present worker. INVALID_ARGUMENT for a request that is too large to send.
  absl::StatusOr<Reply> Exchange(worker::v1::Frame& request, absl::Duration timeout);
  Reply AwaitBegin(uint64_t id);
  Reply AwaitResult(uint64_t id, absl::Duration timeout);
  // Removes the present worker and says how it ended.
  std::string Bury(bool kill);
  bool AwaitEnd(Subprocess& worker, absl::Time deadline, ExitInfo* exit) const;
  // Why the device is in quarantine; empty if it is not (any more).
  std::string Quarantine();
  absl::Status EnsureWorker();
  absl::StatusOr<std::unique_ptr<Subprocess>> Spawn(bool standby);
  absl::Status AwaitHello(Subprocess& worker);
  absl::Status PrepareAgain();
  // Race results of `reply` for the entrants `active` (indices into `race`); removes whom it condemns. True if
  // there is nothing more to run.
  bool SettleRace(const Reply& reply, int timeout_ms, std::vector<int>* active, worker::v1::RaceResult* race) const;
  bool interrupted();

  const Options options_;
  uint64_t next_id_ = 0;
  // What the present worker has to have set up, and whether it has.
  std::optional<worker::v1::PrepareRequest> problem_;
  bool is_prepared_ = false;
  bool ever_started_ = false;
  std::unique_ptr<Subprocess> spare_;
  // Killed, and has not ended.
  std::unique_ptr<Subprocess> stuck_;
  std::atomic<int64_t> runs_{0}, prepares_{0}, starts_{0}, deaths_{0}, quarantines_{0};

  absl::Mutex mutex_;
  std::unique_ptr<Subprocess> worker_;  // replaced under the mutex, used by the calling thread
  bool in_call_ ABSL_GUARDED_BY(mutex_) = false;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_RUN_WORKER_RUNNER_H_

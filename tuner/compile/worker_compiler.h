// Compiler whose NVRTC lives in killable child processes.
#ifndef ROOFTUNE_TUNER_COMPILE_WORKER_COMPILER_H_
#define ROOFTUNE_TUNER_COMPILE_WORKER_COMPILER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tuner/compile/compiler.h"
#include "tuner/wire/subprocess.h"

namespace rooftune {

// A pool of `rooftune-worker compile` processes: started when needed, one request at a time each, kept while idle,
// replaced after a death, a timeout or 500 compiles. Thread-safe.
//
// A request's time runs while its process works on it, not while it waits for a free process: a queue of many
// requests must not look like slow kernels. When it is over the process is killed and the outcome is
// COMPILE_TIMEOUT. A process that dies is charged to the request it had begun, alone, as COMPILE_FAILED with the
// signal and the end of its output; if it had not begun any, the request goes to a fresh one.
class WorkerCompiler : public Compiler {
 public:
  struct Options {
    // Path of rooftune-worker; empty = beside the running program.
    std::string worker_path;
    // Processes at most; 0 = DefaultProcesses().
    int max_processes = 0;
    // File or folder of NVRTC; empty = search.
    std::string nvrtc_path;
    // For requests that name no limit.
    absl::Duration default_timeout = absl::Seconds(30);
    // From start to Hello, loading NVRTC from a cold disk included.
    absl::Duration start_timeout = absl::Seconds(30);
    // Prefix of the processes' lines in the log.
    std::string log_prefix = "compile worker: ";
    // Compiles until a process is replaced, against slow leaks in NVRTC.
    int recycle_after = 500;
  };
  // INVALID_ARGUMENT for impossible options. Starts nothing yet.
  static absl::StatusOr<std::unique_ptr<WorkerCompiler>> Create(Options options);
  // Shutdown(), then waits for calls in progress.
  ~WorkerCompiler() override;

  absl::StatusOr<std::string> NvrtcVersion() override;
  absl::StatusOr<worker::v1::CompileResult> Compile(const worker::v1::CompileRequest& request) override;
  int parallelism() const override { return options_.max_processes; }
  // "compile_worker_starts", "compile_worker_deaths" (kills after a timeout included).
  std::map<std::string, int64_t> Counters() const override;

  // Kills every process; calls in progress and later ones return CANCELLED.
  void Shutdown();

 private:
  struct Worker {
    std::unique_ptr<Subprocess> process;
    int served = 0;
  };
  // What one exchange with a worker came to.
  struct Exchange {
    absl::Status status;
    worker::v1::Frame reply;
    // The worker had said Begin: a death after it is the request's doing.
    bool begun = false;
  };

  // Counts a call for the destructor, which waits for them.
  class CallScope {
   public:
    explicit CallScope(WorkerCompiler* compiler);
    ~CallScope();

   private:
    WorkerCompiler* const compiler_;
  };

  explicit WorkerCompiler(Options options);

  // A worker for one exchange, started if need be; waits for a free one. CANCELLED, UNAVAILABLE.
  absl::StatusOr<std::unique_ptr<Worker>> Acquire();
  // Gives it back, or ends it if it is null, broken or worn out.
  void Release(std::unique_ptr<Worker> worker, bool healthy);
  absl::StatusOr<std::unique_ptr<Worker>> Start();
  // Sends the request and waits for its reply; at most until `timeout` after sending.
  Exchange Talk(Worker& worker, worker::v1::Frame request, absl::Duration timeout);
  // Talks to a worker, and to another one as long as they die before they begin.
  absl::StatusOr<worker::v1::Frame> Serve(const worker::v1::Frame& request, absl::Duration timeout);
  // Outcome of a request whose worker fell silent or died.
  worker::v1::Frame Failure(const Exchange& exchange, Worker& worker, const worker::v1::Frame& request,
                            absl::Duration timeout);
  bool IsShutDown() const;
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable absl::Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  // Processes that exist or are being started.
  int live_ ABSL_GUARDED_BY(mutex_) = 0;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t starts_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t deaths_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::string nvrtc_version_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Worker>> idle_ ABSL_GUARDED_BY(mutex_);
  // Processes of workers in use, for Shutdown().
  std::set<Subprocess*> busy_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_COMPILE_WORKER_COMPILER_H_

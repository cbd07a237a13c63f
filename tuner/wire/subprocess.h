// A worker process: spawned with a socket on descriptor 3, killed when it is late, always reaped.
#ifndef ROOFTUNE_TUNER_WIRE_SUBPROCESS_H_
#define ROOFTUNE_TUNER_WIRE_SUBPROCESS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace rooftune {

class OutputPump;

// How a process ended.
struct ExitInfo {
  bool exited = false;  // else killed by `signal`
  int code = 0;
  int signal = 0;
  std::string ToString() const;
};

// Not thread-safe, except Kill().
class Subprocess {
 public:
  struct Options {
    std::vector<std::string> argv;  // argv[0] is the path
    // Added to the parent's environment.
    std::vector<std::string> env;
    // Lines of stdout and stderr go to the log with this prefix; the last 4 KiB are kept.
    std::string log_prefix;
  };
  // posix_spawn in its own process group, PDEATHSIG in the child by its main, every other descriptor
  // closed, no signal blocked or ignored, standard input empty. UNAVAILABLE with the reason.
  static absl::StatusOr<std::unique_ptr<Subprocess>> Spawn(const Options& options);
  // Kills and reaps.
  ~Subprocess();

  // Our end of the socket.
  int fd() const { return fd_; }
  int pid() const { return pid_; }
  // SIGKILL to the whole group. Callable from any thread.
  void Kill();
  // Waits until it ends or the deadline; true if it ended. Whatever it left in its process group is killed
  // then. `info` may be null.
  bool Wait(absl::Time deadline, ExitInfo* info);
  // Last output, for messages.
  std::string OutputTail() const;

 private:
  Subprocess();
  // Waits until the process is a zombie, without reaping it; false at the deadline.
  bool WaitForEnd(absl::Time deadline) const;
  void Reap();

  int fd_ = -1;
  int pid_ = -1;
  int pidfd_ = -1;  // -1 where the kernel has none
  // Guards the step from zombie to reaped: after it the process id may be another's.
  absl::Mutex mutex_;
  bool reaped_ ABSL_GUARDED_BY(mutex_) = false;
  ExitInfo exit_;
  std::unique_ptr<OutputPump> output_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WIRE_SUBPROCESS_H_

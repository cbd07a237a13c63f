#include "tuner/wire/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file_util.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tuner/wire/output_pump.h"

extern char** environ;

namespace rooftune {
namespace {

// A process that hangs in the kernel (a driver call) can't even be killed; its reaping goes on behind us.
constexpr absl::Duration kReapPatience = absl::Seconds(5);

// Closed on destruction.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  // Takes `fd` and moves it above 9, out of the way of the numbers that the child gets.
  bool Adopt(int fd) {
    fd_ = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    close(fd);
    return fd_ >= 0;
  }

 private:
  int fd_;
};

absl::Status Unavailable(int error, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(error)));
}

// Runs every spawn on one thread that never ends: PR_SET_PDEATHSIG is sent when the *thread* that made the child
// exits, and callers are often short-lived.
class SpawnThread {
 public:
  static SpawnThread& Get() {
    static SpawnThread* const thread = new SpawnThread;
    return *thread;
  }
  int Run(std::function<int()> spawn) {
    std::packaged_task<int()> task(std::move(spawn));
    std::future<int> result = task.get_future();
    {
      absl::MutexLock lock(&mutex_);
      task_.push_back(std::move(task));
    }
    return result.get();
  }

 private:
  SpawnThread() {
    std::thread([this] { Loop(); }).detach();
  }
  void Loop() {
    while (true) {
      std::vector<std::packaged_task<int()>> tasks;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(
            +[](std::vector<std::packaged_task<int()>>* t) { return !t->empty(); }, &task_));
        tasks.swap(task_);
      }
      for (auto& task : tasks) task();
    }
  }
  absl::Mutex mutex_;
  std::vector<std::packaged_task<int()>> task_ ABSL_GUARDED_BY(mutex_);
};

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Parent's environment with `extra` in front of it, without the variables that `extra` sets anew.
std::vector<std::string> Environment(const std::vector<std::string>& extra) {
  std::vector<std::string> env = extra;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string name(*entry, std::min(strlen(*entry), strcspn(*entry, "=") + 1));
    const bool replaced = std::any_of(extra.begin(), extra.end(),
                                      [&](const std::string& e) { return e.compare(0, name.size(), name) == 0; });
    if (!replaced) env.push_back(*entry);
  }
  return env;
}

// 0 or an errno. Blocked and ignored signals are inherited over exec: a daemon that waits with sigwait would
// make its children deaf.
int SpawnChild(const Subprocess::Options& options, int socket, int pipe, int* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe, 1);
  posix_spawn_file_actions_adddup2(&actions, pipe, 2);
  posix_spawn_file_actions_adddup2(&actions, socket, 3);
  // Descriptors that someone opened without CLOEXEC.
  posix_spawn_file_actions_addclosefrom_np(&actions, 4);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const std::vector<std::string> env = Environment(options.env);
  const int error = SpawnThread::Get().Run([&] {
    return posix_spawn(pid, options.argv[0].c_str(), &actions, &attributes, Pointers(options.argv).data(),
                       Pointers(env).data());
  });
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

ExitInfo ToExitInfo(int status) {
  ExitInfo info;
  info.exited = WIFEXITED(status);
  if (info.exited) info.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) info.signal = WTERMSIG(status);
  return info;
}

}  // namespace

std::string ExitInfo::ToString() const {
  if (exited) return absl::StrCat("exited with code ", code);
  const char* name = sigdescr_np(signal);
  return absl::StrCat("killed by signal ", signal, " (", name == nullptr ? "unknown" : name, ")");
}

Subprocess::Subprocess() = default;

absl::StatusOr<std::unique_ptr<Subprocess>> Subprocess::Spawn(const Options& options) {
  if (options.argv.empty()) return absl::InvalidArgumentError("argv is empty");
  int sockets[2], pipes[2];
  OwnedFd ours, theirs, pipe_read, pipe_write;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return Unavailable(errno, "socketpair");
  // Both are adopted in any case, or one would leak.
  const bool ours_ok = ours.Adopt(sockets[0]), theirs_ok = theirs.Adopt(sockets[1]);
  if (!ours_ok || !theirs_ok) return Unavailable(errno, "socketpair");
  if (pipe2(pipes, O_CLOEXEC) != 0) return Unavailable(errno, "pipe");
  const bool read_ok = pipe_read.Adopt(pipes[0]), write_ok = pipe_write.Adopt(pipes[1]);
  if (!read_ok || !write_ok) return Unavailable(errno, "pipe");
  int pid = -1;
  const int error = SpawnChild(options, theirs.get(), pipe_write.get(), &pid);
  if (error != 0) return Unavailable(error, absl::StrCat("can't start ", options.argv[0]));
  std::unique_ptr<Subprocess> process(new Subprocess);
  process->fd_ = ours.Release();
  process->pid_ = pid;
  process->pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  process->output_ = std::make_unique<OutputPump>(pipe_read.Release(), options.log_prefix);
  return process;
}

Subprocess::~Subprocess() {
  // First the socket: a child that is just ending sees end of stream.
  close(fd_);
  Kill();
  if (!Wait(absl::Now() + kReapPatience, nullptr)) {
    LogError("process ", pid_, " does not end after SIGKILL; it hangs in the kernel");
    std::thread([pid = pid_] {
      while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }).detach();
  }
  if (pidfd_ >= 0) close(pidfd_);
}

void Subprocess::Kill() {
  absl::MutexLock lock(&mutex_);
  if (!reaped_) kill(-pid_, SIGKILL);
}

bool Subprocess::Wait(absl::Time deadline, ExitInfo* info) {
  bool reaped;
  {
    absl::MutexLock lock(&mutex_);
    reaped = reaped_;
  }
  if (!reaped) {
    if (!WaitForEnd(deadline)) return false;
    Reap();
  }
  if (info != nullptr) *info = exit_;
  return true;
}

std::string Subprocess::OutputTail() const { return output_->Tail(); }

bool Subprocess::WaitForEnd(absl::Time deadline) const {
  while (true) {
    siginfo_t ended{};
    if (waitid(P_PID, pid_, &ended, WEXITED | WNOWAIT | WNOHANG) != 0) {
      if (errno == ECHILD) return true;  // reaped behind our back: SIGCHLD is ignored in this program
    } else if (ended.si_pid == pid_) {
      return true;
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    int64_t wait_ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 1, INT_MAX);
    // Without a pidfd there is nothing to wait on: look again every 2 ms.
    if (pidfd_ < 0) wait_ms = std::min<int64_t>(wait_ms, 2);
    pollfd entry{pidfd_, POLLIN, 0};
    poll(&entry, 1, static_cast<int>(wait_ms));
  }
}

void Subprocess::Reap() {
  {
    absl::MutexLock lock(&mutex_);
    // While the leader is a zombie its group id can't be another's: now is the time to end what it left.
    kill(-pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    exit_ = ToExitInfo(status);
    reaped_ = true;
  }
  output_->Stop();
}

}  // namespace rooftune

#include "client/cli/local_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/file_util.h"

namespace rooftune::cli {
namespace {

constexpr int kStartTimeoutMs = 60'000;
constexpr int kReadyFd = 3;
// A socket's path has 107 bytes at most.
constexpr size_t kMaxTmpDir = 60;

// In the child; never returns.
[[noreturn]] void BecomeDaemon(pid_t parent, int ready, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  // Its own group: Ctrl-C is for the command, which then ends the daemon in order.
  setpgid(0, 0);
  // dup2 onto itself would keep close-on-exec.
  if (ready == kReadyFd) {
    fcntl(ready, F_SETFD, 0);
  } else {
    dup2(ready, kReadyFd);
  }
  // stdout belongs to the command's own result; the daemon's word that it listens is of no interest.
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
  execv(argv[0], argv);
  std::fprintf(stderr, "rooftune: start %s: %s\n", argv[0], std::strerror(errno));
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalDaemon>> LocalDaemon::Start(const std::string& device, const std::string& data_dir,
                                                                const std::vector<std::string>& template_dirs) {
  auto daemon = std::unique_ptr<LocalDaemon>(new LocalDaemon);
  const char* temporary = std::getenv("TMPDIR");
  const bool use = temporary != nullptr && *temporary == '/' && std::strlen(temporary) <= kMaxTmpDir;
  std::string dir = absl::StrCat(use ? temporary : "/tmp", "/rooftune-local-XXXXXX");
  if (mkdtemp(dir.data()) == nullptr) return ErrnoStatus(errno, absl::StrCat("create a temporary folder ", dir));
  daemon->dir_ = dir;
  daemon->address_ = absl::StrCat("unix:", dir, "/rooftune.sock");
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  const std::string path = absl::StrCat(ExecutableDir(), "/rooftuned");
  std::vector<std::string> args = {path,      "--listen",   daemon->address_,      "--log-level",
                                   "warning", "--ready-fd", absl::StrCat(kReadyFd)};
  if (!device.empty()) args.insert(args.end(), {"--device", device});
  if (!data_dir.empty()) args.insert(args.end(), {"--data-dir", data_dir});
  for (const std::string& folder : template_dirs) args.insert(args.end(), {"--template-dir", folder});
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  // fork is safe: this program has no other thread yet. posix_spawn could not tie the daemon's life to ours.
  const pid_t parent = getpid();
  daemon->pid_ = fork();
  if (daemon->pid_ == 0) BecomeDaemon(parent, ready[1], argv.data());
  const int error = errno;
  close(ready[1]);
  if (daemon->pid_ < 0) {
    close(ready[0]);
    return ErrnoStatus(error, absl::StrCat("start ", path));
  }
  pollfd waiter = {ready[0], POLLIN, 0};
  char byte = 0;
  // The pipe ends without a byte if the daemon gives up.
  const bool listening = poll(&waiter, 1, kStartTimeoutMs) == 1 && read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  if (!listening) {
    return Error(absl::StatusCode::kUnavailable, "NO_DAEMON", "the private daemon did not start; its message is above");
  }
  return daemon;
}

LocalDaemon::~LocalDaemon() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    int status = 0;
    waitpid(pid_, &status, 0);
  }
  std::error_code ignored;
  if (!dir_.empty()) std::filesystem::remove_all(dir_, ignored);
}

}  // namespace rooftune::cli

#include "client/cli/local_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/file_util.h"

extern char** environ;

namespace rooftune::cli {
namespace {

constexpr int kStartTimeoutMs = 60'000;

}  // namespace

absl::StatusOr<std::unique_ptr<LocalDaemon>> LocalDaemon::Start(const std::string& device, const std::string& data_dir,
                                                                const std::vector<std::string>& template_dirs) {
  auto daemon = std::unique_ptr<LocalDaemon>(new LocalDaemon);
  char dir[] = "/tmp/rooftune-local-XXXXXX";
  if (mkdtemp(dir) == nullptr) return ErrnoStatus(errno, "create a temporary folder");
  daemon->dir_ = dir;
  daemon->address_ = absl::StrCat("unix:", dir, "/rooftune.sock");
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  const std::string path = absl::StrCat(ExecutableDir(), "/rooftuned");
  std::vector<std::string> args = {path, "--listen", daemon->address_, "--log-level", "warning", "--ready-fd", "3"};
  if (!device.empty()) args.insert(args.end(), {"--device", device});
  if (!data_dir.empty()) args.insert(args.end(), {"--data-dir", data_dir});
  for (const std::string& folder : template_dirs) args.insert(args.end(), {"--template-dir", folder});
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ready[1], 3);
  // stdout belongs to the command's own result.
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Its own group: Ctrl-C is for the command, which then ends the daemon in order.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(&daemon->pid_, path.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(ready[1]);
  if (error != 0) {
    close(ready[0]);
    daemon->pid_ = -1;
    return ErrnoStatus(error, absl::StrCat("start ", path));
  }
  pollfd waiter = {ready[0], POLLIN, 0};
  char byte = 0;
  const bool listening = poll(&waiter, 1, kStartTimeoutMs) == 1 && read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  if (!listening) return absl::UnavailableError("the private daemon did not start; its message is above");
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

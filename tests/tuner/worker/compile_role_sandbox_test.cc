#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tuner/worker/nvrtc_library.h"
#include "tuner/worker/sandbox.h"

namespace rooftune {
namespace {

bool KernelHasLandlock() { return syscall(444, nullptr, 0, 1) >= 1; }

bool CanOpen(const char* path, int flags = O_RDONLY) {
  const int fd = open(path, flags | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// 0, or the number of the first thing that is wrong inside.
int CheckInside(const std::string& folder) {
  const int niceness = getpriority(PRIO_PROCESS, 0);
  const std::string told = EnterCompileSandbox(folder);
  char cwd[4096];
  if (getcwd(cwd, sizeof cwd) != nullptr) return 1;  // the working folder is gone
  if (CanOpen("file", O_WRONLY | O_CREAT)) return 2;
  rlimit core;
  if (getrlimit(RLIMIT_CORE, &core) != 0 || core.rlim_max != 0) return 3;
  if (getpriority(PRIO_PROCESS, 0) < std::min(niceness + 10, 19)) return 4;
  const bool landlocked = told.find("Landlock ABI") != std::string::npos;
  if (landlocked != KernelHasLandlock()) return 5;
  if (!landlocked) return 0;
  for (const char* hidden : {"/etc/passwd", "/etc/hostname", "/proc/self/environ", "/proc/1/cmdline"}) {
    if (CanOpen(hidden)) return 6;
  }
  if (CanOpen("/tmp/rooftune-sandbox-test", O_WRONLY | O_CREAT)) return 7;
  if (!CanOpen((folder + "/.").c_str(), O_RDONLY | O_DIRECTORY)) return 8;
  return 0;
}

TEST(SandboxTest, LeavesLibrariesAndNothingElse) {
  const auto library = NvrtcLibrary::Load("");
  ASSERT_TRUE(library.ok()) << library.status();
  const std::string folder = library->path.substr(0, library->path.rfind('/'));
  const pid_t pid = fork();
  if (pid == 0) _exit(CheckInside(folder));
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see CheckInside()";
}

}  // namespace
}  // namespace rooftune

#include "tuner/worker/sandbox.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROOFTUNE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ROOFTUNE_SANITIZED 1
#endif
#endif

namespace rooftune {
namespace {

// Landlock's system calls and rights, as in the kernel's uapi/linux/landlock.h; Debian 12's headers know fewer.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr uint32_t kAskVersion = 1;
constexpr int kPathBeneath = 1;
constexpr uint64_t kExecute = 1 << 0;
constexpr uint64_t kReadFile = 1 << 2;
constexpr uint64_t kReadDir = 1 << 3;
constexpr int kRightsByAbi[] = {0, 13, 14, 15, 15, 16};  // number of file rights of each ABI version
constexpr uint64_t kNetRights = 3;                       // bind and connect TCP, from ABI 4
constexpr uint64_t kScopes = 3;                          // abstract sockets and signals, from ABI 6

struct RulesetAttr {
  uint64_t handled_access_fs;
  uint64_t handled_access_net;
  uint64_t scoped;
};
struct __attribute__((packed)) PathBeneathAttr {
  uint64_t allowed_access;
  int32_t parent_fd;
};

void AllowReading(int ruleset, const std::string& path) {
  const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return;  // what is not there needs no rule
  struct stat info;
  // A right on folders makes a rule on a plain file fail.
  const bool folder = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
  PathBeneathAttr rule{kExecute | kReadFile | (folder ? kReadDir : 0), fd};
  syscall(kAddRule, ruleset, kPathBeneath, &rule, 0);
  close(fd);
}

std::string EnterLandlock(const std::string& nvrtc_folder) {
  const long abi = syscall(kCreateRuleset, nullptr, 0, kAskVersion);
  if (abi < 1) return "no Landlock in this kernel";
  constexpr long kKnownAbi = std::size(kRightsByAbi) - 1;
  RulesetAttr attr{};
  attr.handled_access_fs = (uint64_t{1} << kRightsByAbi[std::min(abi, kKnownAbi)]) - 1;
  if (abi >= 4) attr.handled_access_net = kNetRights;
  if (abi >= 6) attr.scoped = kScopes;
  const int ruleset = static_cast<int>(syscall(kCreateRuleset, &attr, sizeof attr, 0));
  if (ruleset < 0) return absl::StrCat("Landlock refused: ", strerror(errno));
  for (const std::string& path :
       {nvrtc_folder, std::string("/lib"), std::string("/lib64"), std::string("/usr/lib"), std::string("/usr/lib64"),
        std::string("/etc/ld.so.cache"), std::string("/sys/devices/system/cpu"), std::string("/dev/null"),
        std::string("/dev/urandom")}) {
    if (!path.empty()) AllowReading(ruleset, path);
  }
  const bool ok = syscall(kRestrictSelf, ruleset, 0) == 0;
  const int error = errno;
  close(ruleset);
  return ok ? absl::StrCat("Landlock ABI ", abi) : absl::StrCat("Landlock refused: ", strerror(error));
}

// A relative include that is not among the request's headers is looked for in the working folder: make that one
// that is empty and can't be filled.
std::string EnterEmptyFolder() {
  const char* temporary = getenv("TMPDIR");
  std::string path = absl::StrCat(temporary == nullptr ? "/tmp" : temporary, "/rooftune-compile-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) return absl::StrCat("working folder kept: ", strerror(errno));
  const bool entered = chdir(path.c_str()) == 0;
  rmdir(path.c_str());
  return entered ? "empty working folder" : "working folder kept";
}

std::string LimitResources() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  [[maybe_unused]] const int priority = nice(10);
#ifdef ROOFTUNE_SANITIZED
  return "no memory limit (sanitizer)";  // its shadow memory is larger than any limit
#else
  const rlimit memory{static_cast<rlim_t>(kCompileMemoryBytes), static_cast<rlim_t>(kCompileMemoryBytes)};
  return setrlimit(RLIMIT_DATA, &memory) == 0 ? "2 GiB memory limit" : "no memory limit";
#endif
}

}  // namespace

void VolunteerForOutOfMemory() {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  constexpr char kFirst[] = "1000";
  // Where it is forbidden things stay as they are.
  if (write(fd, kFirst, sizeof(kFirst) - 1) < 0) errno = 0;
  close(fd);
}

std::string EnterCompileSandbox(const std::string& nvrtc_folder) {
  VolunteerForOutOfMemory();
  std::vector<std::string> what = {LimitResources(), EnterEmptyFolder()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  what.push_back(EnterLandlock(nvrtc_folder));
  return absl::StrJoin(what, ", ");
}

}  // namespace rooftune

#include "tuner/worker/run_lease.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "tuner/worker/run_library.h"

namespace rooftune {
namespace {

constexpr absl::Duration kRetryEvery = absl::Milliseconds(10);

// The lock file, made if it is not there. Another user's file in a sticky folder may not be opened with O_CREAT, so
// it is tried without first; a lock needs no write permission.
int OpenLockFile(const std::string& path, bool* writable) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW;
  *writable = true;
  int fd = open(path.c_str(), O_RDWR | kFlags);
  if (fd < 0 && errno == ENOENT) {
    fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | kFlags, 0666);
    if (fd < 0 && errno == EEXIST) fd = open(path.c_str(), O_RDWR | kFlags);
    // Past the umask: other users' daemons must respect the lease too.
    if (fd >= 0 && fchmod(fd, 0666) != 0) errno = 0;
  }
  if (fd < 0 && errno == EACCES) {
    *writable = false;
    fd = open(path.c_str(), O_RDONLY | kFlags);
  }
  return fd;
}

std::string HolderOf(int fd) {
  char text[32] = {};
  const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
  const std::string pid(absl::StripAsciiWhitespace(absl::string_view(text, n > 0 ? static_cast<size_t>(n) : 0)));
  return pid.empty() ? "another process" : absl::StrCat("process ", pid);
}

void WriteHolder(int fd) {
  const std::string pid = absl::StrCat(getpid(), "\n");
  // Only for messages: failing to write it changes nothing.
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) errno = 0;
}

}  // namespace

std::string GpuLease::PathFor(const std::string& name) {
  const std::string folder = EnvironmentOr("XDG_RUNTIME_DIR");
  return absl::StrCat(folder.empty() ? "/tmp" : folder, "/rooftune-gpu-", name, ".lock");
}

absl::StatusOr<GpuLease> GpuLease::Take(const std::string& path, absl::Time deadline) {
  bool writable = false;
  const int fd = OpenLockFile(path, &writable);
  if (fd < 0) {
    return Error(absl::StatusCode::kUnavailable, "GPU_LEASE",
                 absl::StrCat("can't open the GPU's lock file ", path, ": ", std::strerror(errno)));
  }
  GpuLease lease(fd);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Error(absl::StatusCode::kUnavailable, "GPU_LEASE",
                   absl::StrCat("can't lock ", path, ": ", std::strerror(errno)));
    }
    if (absl::Now() >= deadline) {
      return Error(
          absl::StatusCode::kUnavailable, "GPU_LEASED",
          absl::StrCat("the GPU is leased by ", HolderOf(fd), " (", path, "): stop it, or choose another --device"));
    }
    absl::SleepFor(kRetryEvery);
  }
  if (writable) WriteHolder(fd);
  return lease;
}

GpuLease& GpuLease::operator=(GpuLease&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

GpuLease::~GpuLease() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace rooftune

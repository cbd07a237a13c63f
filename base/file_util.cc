#include "base/file_util.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// Closes on scope exit.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status WriteAll(int fd, absl::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("write ", path));
    }
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ErrnoStatus(int error, absl::string_view what) {
  const std::string message = absl::StrCat(what, ": ", strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR: return absl::NotFoundError(message);
    case EEXIST: return absl::AlreadyExistsError(message);
    case EACCES:
    case EPERM:
    case EROFS: return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return Error(absl::StatusCode::kResourceExhausted, "DISK_FULL", message);
    case EMFILE:
    case ENFILE: return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_FILES", message);
    default: return absl::InternalError(message);
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  std::string data;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("read ", path));
    }
    if (n == 0) return data;
    data.append(buffer, static_cast<size_t>(n));
    if (data.size() > max_bytes) return absl::ResourceExhaustedError(absl::StrCat(path, " is larger than ", max_bytes, " bytes"));
  }
}

absl::Status WriteFileAtomic(const std::string& path, absl::string_view data) {
  static std::atomic<int> counter{0};
  const std::string temp = absl::StrCat(path, ".tmp.", getpid(), ".", counter++);
  absl::Status status;
  {
    const Fd fd(open(temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("create ", temp));
    status = WriteAll(fd.get(), data, temp);
    if (status.ok() && fsync(fd.get()) != 0) status = ErrnoStatus(errno, absl::StrCat("sync ", temp));
  }
  if (status.ok() && rename(temp.c_str(), path.c_str()) != 0) status = ErrnoStatus(errno, absl::StrCat("rename to ", path));
  if (!status.ok()) {
    unlink(temp.c_str());
    return status;
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const Fd dir(open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir.get() < 0 || fsync(dir.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync folder of ", path));
  return absl::OkStatus();
}

absl::Status MakeDirs(const std::string& path, int mode) {
  std::string prefix;
  for (const auto& part : std::filesystem::path(path)) {
    prefix = (std::filesystem::path(prefix) / part).string();
    if (prefix.empty() || prefix == "/") continue;
    if (mkdir(prefix.c_str(), static_cast<mode_t>(mode)) != 0 && errno != EEXIST) {
      return ErrnoStatus(errno, absl::StrCat("create folder ", prefix));
    }
  }
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISDIR(info.st_mode)) return absl::FailedPreconditionError(absl::StrCat(path, " is not a folder"));
  return absl::OkStatus();
}

std::string ExecutableDir() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : path.parent_path().string();
}

}  // namespace rooftune

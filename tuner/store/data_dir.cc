#include "tuner/store/data_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// f_type of file systems that are shared between hosts (statfs(2), linux/magic.h, and the trees of Lustre, GPFS,
// BeeGFS).
constexpr uint32_t kRemoteFileSystems[] = {
    0x6969,      // NFS
    0xff534d42,  // CIFS
    0xfe534d42,  // SMB2
    0x517b,      // SMB
    0x00c36400,  // Ceph
    0x0bd00bd0,  // Lustre
    0x47504653,  // GPFS
    0x19830326,  // BeeGFS
    0x6b414653,  // AFS
};

absl::Status Unsafe(const std::string& path, absl::string_view why) {
  return Error(absl::StatusCode::kFailedPrecondition, "DATA_DIR_UNSAFE",
               absl::StrCat(path, " ", why, ": others could plant files in it"), {{"path", path}});
}

// Makes the name of a new file survive a power cut.
absl::Status SyncFolderOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const int fd = open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("open folder of ", path));
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : ErrnoStatus(error, absl::StrCat("sync folder of ", path));
}

absl::Status CheckOwner(const std::string& path, const struct stat& info) {
  if (S_ISLNK(info.st_mode)) return Unsafe(path, "is a symbolic link; give the real path");
  if (info.st_uid != geteuid()) {
    return Unsafe(path, absl::StrCat("belongs to user ", info.st_uid, ", not to ", geteuid()));
  }
  if ((info.st_mode & S_IWOTH) != 0) return Unsafe(path, "is writable by everyone; use chmod o-w");
  return absl::OkStatus();
}

}  // namespace

absl::Status PrepareDataDir(const std::string& dir) {
  struct stat info;
  if (lstat(dir.c_str(), &info) != 0) {
    if (errno != ENOENT) return ErrnoStatus(errno, dir);
    RT_RETURN_IF_ERROR(MakeDirs(dir, 0700));
    if (lstat(dir.c_str(), &info) != 0) return ErrnoStatus(errno, dir);
  }
  RT_RETURN_IF_ERROR(CheckOwner(dir, info));
  if (!S_ISDIR(info.st_mode)) {
    return Error(absl::StatusCode::kFailedPrecondition, "DATA_DIR_UNSAFE", absl::StrCat(dir, " is not a folder"));
  }
  struct statfs fs;
  if (statfs(dir.c_str(), &fs) != 0) return ErrnoStatus(errno, dir);
  const auto type = static_cast<uint32_t>(fs.f_type);
  if (std::find(std::begin(kRemoteFileSystems), std::end(kRemoteFileSystems), type) != std::end(kRemoteFileSystems)) {
    return Error(absl::StatusCode::kFailedPrecondition, "DATA_DIR_REMOTE",
                 absl::StrCat(dir,
                              " is on a network file system, where SQLite's log can't be relied on: use a local "
                              "disk and share results by export and import"),
                 {{"path", dir}});
  }
  return absl::OkStatus();
}

absl::Status PrepareDataFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0) {
    close(fd);
    return SyncFolderOf(path);
  }
  if (errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("create ", path));
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  RT_RETURN_IF_ERROR(CheckOwner(path, info));
  if (!S_ISREG(info.st_mode)) return Unsafe(path, "is not a regular file");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LockFile>> LockFile::Acquire(const std::string& path) {
  RT_RETURN_IF_ERROR(PrepareDataFile(path));
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  std::unique_ptr<LockFile> lock(new LockFile(fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock ", path));
    char text[32] = {};
    const ssize_t bytes = pread(fd, text, sizeof(text) - 1, 0);
    const std::string pid(
        absl::StripAsciiWhitespace(absl::string_view(text, bytes > 0 ? static_cast<size_t>(bytes) : 0)));
    return Error(absl::StatusCode::kFailedPrecondition, "DATABASE_IN_USE",
                 absl::StrCat("the data directory is in use by process ", pid.empty() ? "?" : pid, " (", path,
                              "): stop it or choose another data directory"),
                 {{"pid", pid}});
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return ErrnoStatus(errno, absl::StrCat("write ", path));
  }
  return lock;
}

LockFile::~LockFile() {
  // The file stays: removing it would let two processes lock two files of one name.
  close(fd_);
}

}  // namespace rooftune

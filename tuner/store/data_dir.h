// The folder and the lock of a database: nobody else may plant files there, and one process at a time uses it.
#ifndef ROOFTUNE_TUNER_STORE_DATA_DIR_H_
#define ROOFTUNE_TUNER_STORE_DATA_DIR_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rooftune {

// Creates `dir` (0700) if it is missing. FAILED_PRECONDITION (DATA_DIR_UNSAFE) if it is a symbolic link, somebody
// else's or writable by everyone; (DATA_DIR_REMOTE) on a network file system, where neither locks nor shared
// memory can be relied on.
absl::Status PrepareDataDir(const std::string& dir);

// Creates the file (0600) if it is missing. FAILED_PRECONDITION (DATA_DIR_UNSAFE) for a link, a folder, a foreign
// or world-writable file.
absl::Status PrepareDataFile(const std::string& path);

// An exclusive lock that dies with its holder.
class LockFile {
 public:
  // FAILED_PRECONDITION (DATABASE_IN_USE) naming the holder's pid, at once.
  static absl::StatusOr<std::unique_ptr<LockFile>> Acquire(const std::string& path);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  explicit LockFile(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_DATA_DIR_H_

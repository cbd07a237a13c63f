// Files: whole reads, and writes that are all or nothing.
#ifndef ROOFTUNE_BASE_FILE_UTIL_H_
#define ROOFTUNE_BASE_FILE_UTIL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rooftune {

// A file compiled into the binary (rooftune_embed in cmake/).
struct EmbeddedFile {
  std::string path;  // below the embedding root
  std::string data;
};

// NOT_FOUND, PERMISSION_DENIED, or RESOURCE_EXHAUSTED if larger than `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes = 64 << 20);

// Writes a temporary file beside `path`, syncs it, renames it and syncs the folder: afterwards either the
// old or the whole new content is there, also after power loss. RESOURCE_EXHAUSTED on a full disk.
absl::Status WriteFileAtomic(const std::string& path, absl::string_view data);

// mkdir -p with `mode` for new folders.
absl::Status MakeDirs(const std::string& path, int mode = 0700);

// Folder of the running executable.
std::string ExecutableDir();

// Status of an errno with what was attempted.
absl::Status ErrnoStatus(int error, absl::string_view what);

}  // namespace rooftune

#endif  // ROOFTUNE_BASE_FILE_UTIL_H_

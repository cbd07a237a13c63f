// Binaries by content: <dir>/ab/<sha256>. Thread-safe, safe between processes.
#ifndef ROOFTUNE_TUNER_STORE_ARTIFACT_STORE_H_
#define ROOFTUNE_TUNER_STORE_ARTIFACT_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rooftune {

class ArtifactStore {
 public:
  virtual ~ArtifactStore() = default;
  // Returns the SHA-256 in hex. Writing the same bytes twice is free. RESOURCE_EXHAUSTED (DISK_FULL) on a full disk
  // on which nothing could be removed; the next one is tried again.
  virtual absl::StatusOr<std::string> Put(absl::string_view data) = 0;
  // NOT_FOUND, or DATA_LOSS (CORRUPT_ARTIFACT) if the bytes no longer have that digest (the file is moved
  // aside). INVALID_ARGUMENT for a malformed digest.
  virtual absl::StatusOr<std::string> Get(const std::string& digest) = 0;

  // What happened so far, by name ("artifact_writes", …); only grows.
  virtual std::map<std::string, int64_t> Counters() const { return {}; }

  struct Options {
    // Bytes of binaries; past it those that were not used for longest are removed. 0 = no limit.
    int64_t max_bytes = 0;
    // Digests that are never removed, whatever the limit; asked when something has to go. If it fails nothing goes.
    std::function<absl::StatusOr<std::set<std::string>>()> in_use;
  };
  static absl::StatusOr<std::unique_ptr<ArtifactStore>> OpenDirectory(const std::string& dir, Options options);
  static absl::StatusOr<std::unique_ptr<ArtifactStore>> OpenDirectory(const std::string& dir) {
    return OpenDirectory(dir, Options());
  }
  static std::unique_ptr<ArtifactStore> InMemory();
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_ARTIFACT_STORE_H_

// Binaries by content: <dir>/ab/<sha256>. Thread-safe, safe between processes.
#ifndef ROOFTUNE_TUNER_STORE_ARTIFACT_STORE_H_
#define ROOFTUNE_TUNER_STORE_ARTIFACT_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rooftune {

class ArtifactStore {
 public:
  virtual ~ArtifactStore() = default;
  // Returns the SHA-256 in hex. Writing the same bytes twice is free. RESOURCE_EXHAUSTED on a full disk.
  virtual absl::StatusOr<std::string> Put(absl::string_view data) = 0;
  // NOT_FOUND, or DATA_LOSS (CORRUPT_ARTIFACT) if the bytes no longer have that digest (the file is moved
  // aside). INVALID_ARGUMENT for a malformed digest.
  virtual absl::StatusOr<std::string> Get(const std::string& digest) = 0;

  static absl::StatusOr<std::unique_ptr<ArtifactStore>> OpenDirectory(const std::string& dir);
  static std::unique_ptr<ArtifactStore> InMemory();
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_ARTIFACT_STORE_H_

// Which binaries of a folder were used when, and how many bytes they take: what a size limit needs.
#ifndef ROOFTUNE_TUNER_STORE_ARTIFACT_USAGE_H_
#define ROOFTUNE_TUNER_STORE_ARTIFACT_USAGE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace rooftune {

// Thread-safe. Uses survive a restart as the files' modification times.
class ArtifactUsage {
 public:
  // Reads what lies in `dir` as <dir>/ab/<digest>; other files are nobody's business.
  explicit ArtifactUsage(std::string dir);

  // This binary was written or read just now.
  void Used(const std::string& digest, int64_t bytes);
  // Removes files, least recently used first, until no more than `target_bytes` are left or only `spared` ones are.
  // Returns how many.
  int Evict(int64_t target_bytes, const std::set<std::string>& spared);
  int64_t total_bytes() const;

 private:
  struct Entry {
    int64_t bytes = 0;
    // Larger = later: nanoseconds since 1970, made distinct.
    int64_t used = 0;
  };
  void Insert(const std::string& digest, const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string dir_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  int64_t total_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_use_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_ARTIFACT_USAGE_H_

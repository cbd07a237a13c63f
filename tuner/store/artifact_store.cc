#include "tuner/store/artifact_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "tuner/store/data_dir.h"

namespace rooftune {
namespace {

// Largest cubin seen is below 2 MiB; a library of many kernels may be larger.
constexpr size_t kMaxArtifactBytes = 64 << 20;

absl::Status CheckDigest(const std::string& digest) {
  const bool hex = std::all_of(digest.begin(), digest.end(),
                               [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (hex && digest.size() == 64) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, "BAD_DIGEST",
               absl::StrCat("'", digest.substr(0, 80), "' is not a SHA-256 digest of 64 lower-case hex digits"));
}

absl::Status CheckSize(absl::string_view data) {
  if (data.size() <= kMaxArtifactBytes) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, "ARTIFACT_TOO_LARGE",
               absl::StrCat(data.size(), " bytes; the limit is ", kMaxArtifactBytes));
}

absl::Status NoArtifact(const std::string& digest) {
  return Error(absl::StatusCode::kNotFound, "ARTIFACT_NOT_FOUND", absl::StrCat("no binary ", digest));
}

class DirectoryArtifactStore : public ArtifactStore {
 public:
  explicit DirectoryArtifactStore(std::string dir) : dir_(std::move(dir)) {}

  absl::StatusOr<std::string> Put(absl::string_view data) override {
    RT_RETURN_IF_ERROR(CheckSize(data));
    const std::string digest = Sha256Hex(data);
    const std::string path = PathOf(digest);
    // What lies there may have been damaged since: only equal bytes make the write free.
    const absl::StatusOr<std::string> present = ReadFile(path, kMaxArtifactBytes);
    if (present.ok() && *present == data) return digest;
    RT_RETURN_IF_ERROR(MakeDirs(absl::StrCat(dir_, "/", digest.substr(0, 2))));
    RT_RETURN_IF_ERROR(WriteFileAtomic(path, data));
    return digest;
  }

  absl::StatusOr<std::string> Get(const std::string& digest) override {
    RT_RETURN_IF_ERROR(CheckDigest(digest));
    absl::StatusOr<std::string> data = ReadFile(PathOf(digest), kMaxArtifactBytes);
    if (absl::IsNotFound(data.status())) return NoArtifact(digest);
    if (!data.ok() && !absl::IsResourceExhausted(data.status())) return data.status();
    if (data.ok() && Sha256Hex(*data) == digest) return data;
    return Quarantine(digest);
  }

 private:
  std::string PathOf(const std::string& digest) const {
    return absl::StrCat(dir_, "/", digest.substr(0, 2), "/", digest);
  }

  // Kept for whoever wants to know what happened, under a name that is free.
  absl::Status Quarantine(const std::string& digest) {
    const std::string aside = absl::StrCat(dir_, "/corrupt/", digest, ".", absl::ToUnixMicros(absl::Now()));
    absl::Status moved = MakeDirs(dir_ + "/corrupt");
    if (moved.ok() && rename(PathOf(digest).c_str(), aside.c_str()) != 0) moved = ErrnoStatus(errno, aside);
    LogError("binary ", digest, " does not have its digest any more; ",
             moved.ok() ? absl::StrCat("moved to ", aside) : std::string(moved.message()));
    return Error(
        absl::StatusCode::kDataLoss, "CORRUPT_ARTIFACT",
        absl::StrCat("the stored binary ", digest, " is damaged; it is rebuilt when its operator is tuned again"));
  }

  const std::string dir_;
};

class MemoryArtifactStore : public ArtifactStore {
 public:
  absl::StatusOr<std::string> Put(absl::string_view data) override {
    RT_RETURN_IF_ERROR(CheckSize(data));
    const std::string digest = Sha256Hex(data);
    absl::MutexLock lock(&mutex_);
    data_.emplace(digest, std::string(data));
    return digest;
  }

  absl::StatusOr<std::string> Get(const std::string& digest) override {
    RT_RETURN_IF_ERROR(CheckDigest(digest));
    absl::MutexLock lock(&mutex_);
    const auto found = data_.find(digest);
    if (found == data_.end()) return NoArtifact(digest);
    return found->second;
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::string> data_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<ArtifactStore>> ArtifactStore::OpenDirectory(const std::string& dir) {
  RT_RETURN_IF_ERROR(PrepareDataDir(dir));
  return std::make_unique<DirectoryArtifactStore>(dir);
}

std::unique_ptr<ArtifactStore> ArtifactStore::InMemory() { return std::make_unique<MemoryArtifactStore>(); }

}  // namespace rooftune

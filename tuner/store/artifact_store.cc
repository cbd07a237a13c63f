#include "tuner/store/artifact_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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
#include "tuner/store/artifact_usage.h"
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
  DirectoryArtifactStore(std::string dir, Options options) : dir_(std::move(dir)), options_(std::move(options)) {
    if (options_.max_bytes > 0) usage_ = std::make_unique<ArtifactUsage>(dir_);
  }

  absl::StatusOr<std::string> Put(absl::string_view data) override {
    RT_RETURN_IF_ERROR(CheckSize(data));
    const std::string digest = Sha256Hex(data);
    const std::string path = PathOf(digest);
    // What lies there may have been damaged since: only equal bytes make the write free.
    const absl::StatusOr<std::string> present = ReadFile(path, kMaxArtifactBytes);
    if (present.ok() && *present == data) {
      Used(digest, data.size());
      return digest;
    }
    absl::Status written = Write(digest, data);
    // Half of what may be kept: a full disk is no place to be stingy.
    if (absl::IsResourceExhausted(written) && Evict(options_.max_bytes / 2, digest)) written = Write(digest, data);
    RT_RETURN_IF_ERROR(written);
    ++writes_;
    Used(digest, data.size());
    if (usage_ != nullptr && usage_->total_bytes() > options_.max_bytes) {
      // Some room, so that not every write has to look for victims.
      Evict(options_.max_bytes / 10 * 9, digest);
    }
    return digest;
  }

  absl::StatusOr<std::string> Get(const std::string& digest) override {
    RT_RETURN_IF_ERROR(CheckDigest(digest));
    absl::StatusOr<std::string> data = ReadFile(PathOf(digest), kMaxArtifactBytes);
    if (absl::IsNotFound(data.status())) return NoArtifact(digest);
    if (!data.ok() && !absl::IsResourceExhausted(data.status())) return data.status();
    if (!data.ok() || Sha256Hex(*data) != digest) return Quarantine(digest);
    Used(digest, data->size());
    return data;
  }

  std::map<std::string, int64_t> Counters() const override {
    return {{"artifact_writes", writes_}, {"artifact_evictions", evictions_}};
  }

 private:
  std::string PathOf(const std::string& digest) const {
    return absl::StrCat(dir_, "/", digest.substr(0, 2), "/", digest);
  }

  absl::Status Write(const std::string& digest, absl::string_view data) {
    RT_RETURN_IF_ERROR(MakeDirs(absl::StrCat(dir_, "/", digest.substr(0, 2))));
    return WriteFileAtomic(PathOf(digest), data);
  }

  void Used(const std::string& digest, size_t bytes) {
    if (usage_ != nullptr) usage_->Used(digest, static_cast<int64_t>(bytes));
  }

  // Down to `target` bytes, sparing `newest` and what is in use. True if anything went.
  bool Evict(int64_t target, const std::string& newest) {
    if (usage_ == nullptr) return false;
    std::set<std::string> spared;
    if (options_.in_use != nullptr) {
      absl::StatusOr<std::set<std::string>> in_use = options_.in_use();
      if (!in_use.ok()) {
        LogWarning("no binary is removed, since it is not known which are served: ", in_use.status().message());
        return false;
      }
      spared = *std::move(in_use);
    }
    spared.insert(newest);
    const int removed = usage_->Evict(target, spared);
    evictions_ += removed;
    if (removed > 0) {
      LogInfo(removed, " binaries removed that were not used for longest");
    } else {
      LogWarning("the binaries take ", usage_->total_bytes(),
                 " bytes and all that could go are served: raise the limit");
    }
    return removed > 0;
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
  const Options options_;
  // Only with a limit.
  std::unique_ptr<ArtifactUsage> usage_;
  std::atomic<int64_t> writes_{0};
  std::atomic<int64_t> evictions_{0};
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

absl::StatusOr<std::unique_ptr<ArtifactStore>> ArtifactStore::OpenDirectory(const std::string& dir, Options options) {
  RT_RETURN_IF_ERROR(PrepareDataDir(dir));
  return std::make_unique<DirectoryArtifactStore>(dir, std::move(options));
}

std::unique_ptr<ArtifactStore> ArtifactStore::InMemory() { return std::make_unique<MemoryArtifactStore>(); }

}  // namespace rooftune

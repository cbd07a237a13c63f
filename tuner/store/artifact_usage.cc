#include "tuner/store/artifact_usage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace rooftune {
namespace {

constexpr size_t kDigestSize = 64;
constexpr int64_t kNanosPerSecond = 1'000'000'000;

std::string PathOf(const std::string& dir, const std::string& digest) {
  return absl::StrCat(dir, "/", digest.substr(0, 2), "/", digest);
}

}  // namespace

ArtifactUsage::ArtifactUsage(std::string dir) : dir_(std::move(dir)) {
  absl::MutexLock lock(&mutex_);
  std::error_code ignored;
  for (const auto& folder : std::filesystem::directory_iterator(dir_, ignored)) {
    if (folder.path().filename().string().size() != 2) continue;
    for (const auto& file : std::filesystem::directory_iterator(folder.path(), ignored)) {
      const std::string digest = file.path().filename().string();
      struct stat info = {};
      if (digest.size() != kDigestSize || stat(file.path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      Insert(digest, {info.st_size, info.st_mtim.tv_sec * kNanosPerSecond + info.st_mtim.tv_nsec});
    }
  }
}

void ArtifactUsage::Insert(const std::string& digest, const Entry& entry) {
  Entry& slot = entries_[digest];
  total_bytes_ += entry.bytes - slot.bytes;
  slot = entry;
  last_use_ = std::max(last_use_, entry.used);
}

void ArtifactUsage::Used(const std::string& digest, int64_t bytes) {
  int64_t used = 0;
  {
    absl::MutexLock lock(&mutex_);
    used = std::max(absl::ToUnixNanos(absl::Now()), last_use_ + 1);
    Insert(digest, {bytes, used});
  }
  timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = used / kNanosPerSecond;
  times[1].tv_nsec = used % kNanosPerSecond;
  // On a file system that does not take it, order is only known until the restart.
  (void)utimensat(AT_FDCWD, PathOf(dir_, digest).c_str(), times, 0);
}

int ArtifactUsage::Evict(int64_t target_bytes, const std::set<std::string>& spared) {
  absl::MutexLock lock(&mutex_);
  std::vector<std::pair<int64_t, std::string>> oldest;
  for (const auto& [digest, entry] : entries_) {
    if (spared.count(digest) == 0) oldest.emplace_back(entry.used, digest);
  }
  std::sort(oldest.begin(), oldest.end());
  int removed = 0;
  for (const auto& [used, digest] : oldest) {
    if (total_bytes_ <= target_bytes) break;
    if (unlink(PathOf(dir_, digest).c_str()) == 0) ++removed;
    total_bytes_ -= entries_[digest].bytes;
    entries_.erase(digest);
  }
  return removed;
}

int64_t ArtifactUsage::total_bytes() const {
  absl::MutexLock lock(&mutex_);
  return total_bytes_;
}

}  // namespace rooftune

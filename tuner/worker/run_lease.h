// The right to use a GPU: a lock on a file that the kernel drops when its holder ends, however it ends.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_LEASE_H_
#define ROOFTUNE_TUNER_WORKER_RUN_LEASE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace rooftune {

class GpuLease {
 public:
  // $XDG_RUNTIME_DIR (else /tmp) + "/rooftune-gpu-<name>.lock".
  static std::string PathFor(const std::string& name);
  // Waits until `deadline` for the lock. UNAVAILABLE (GPU_LEASED) naming the file and the process that holds it.
  static absl::StatusOr<GpuLease> Take(const std::string& path, absl::Time deadline);

  GpuLease(GpuLease&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  GpuLease& operator=(GpuLease&& other) noexcept;
  ~GpuLease();

 private:
  explicit GpuLease(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_LEASE_H_

// The CUDA driver, found at run time.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_DRIVER_H_
#define ROOFTUNE_TUNER_WORKER_RUN_DRIVER_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "tuner/worker/run_cuda.h"

namespace rooftune {

// Immutable after Load, except for the driver's last log line.
class CudaDriver : public cuda::Functions {
 public:
  // Opens $ROOFTUNE_LIBCUDA, else libcuda.so.1, and initialises it. UNAVAILABLE (NO_DRIVER) with the loader's
  // reason, the missing symbol, or what cuInit says.
  static absl::StatusOr<std::unique_ptr<CudaDriver>> Load();
  // A driver that is not the machine's, for tests.
  static std::unique_ptr<CudaDriver> FromFunctions(const cuda::Functions& functions);
  ~CudaDriver();
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  // OK, or an error "what: CUDA_ERROR_NAME (code): text [log]" that carries the code (run_outcome.h).
  absl::Status Check(cuda::Result result, absl::string_view what) const;

  bool has_virtual_memory() const;
  const std::string& path() const { return path_; }
  // 13000 = CUDA 13.0.
  int version() const { return version_; }

 private:
  CudaDriver() = default;
  static void OnLog(void* self, int level, char* message, size_t length);

  std::string path_;
  int version_ = 0;
  void* log_handle_ = nullptr;
  mutable absl::Mutex log_mutex_;
  mutable std::string last_log_ ABSL_GUARDED_BY(log_mutex_);
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_DRIVER_H_

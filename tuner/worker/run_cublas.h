// cuBLAS by dlopen, as far as a baseline needs it: cublasGemmEx with the algorithm that it chooses by itself, which is
// what frameworks call.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_CUBLAS_H_
#define ROOFTUNE_TUNER_WORKER_RUN_CUBLAS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tuner/worker/run_device.h"
#include "tuner/worker/run_gemm.h"
#include "tuner/worker/run_launch.h"

namespace rooftune {

// The library with a handle and its workspace. Owned by a context's thread; borrows the context.
class Cublas {
 public:
  // $ROOFTUNE_LIBCUBLAS, else the one beside $ROOFTUNE_LIBCUBLASLT, else libcublas.so.13 or .12. UNAVAILABLE
  // (NO_CUBLAS).
  static absl::StatusOr<std::unique_ptr<Cublas>> Load(const GpuContext& context);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  // "cublas 130100".
  std::string version() const;

  // UNIMPLEMENTED (NO_BASELINE) unless this is a plain product of a floating-point type that cublasGemmEx takes.
  static absl::Status Supports(const GemmProblem& problem);
  // Enqueues on the context's stream.
  absl::Status Enqueue(const GemmProblem& problem, const Bindings& bindings) const;

 private:
  struct Functions;
  explicit Cublas(const GpuContext& context);
  absl::Status Check(int status, absl::string_view what) const;

  const GpuContext& context_;
  std::unique_ptr<Functions> functions_;
  DeviceBuffer workspace_;
  void* handle_ = nullptr;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_CUBLAS_H_

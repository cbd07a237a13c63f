// cuBLASLt by dlopen, as far as a baseline needs it: the library's first choice for a plain matrix product.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_CUBLASLT_H_
#define ROOFTUNE_TUNER_WORKER_RUN_CUBLASLT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "costmodel/op.h"
#include "rooftune/v1/types.pb.h"
#include "tuner/worker/run_device.h"
#include "tuner/worker/run_library.h"

namespace rooftune {

// D[m,n] = alpha · A · B, row-major, batch outermost. A is stored [m,k], or [k,m] if a_transposed; B is stored
// [k,n], or [n,k] if b_transposed.
struct GemmProblem {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  bool a_transposed = false;
  bool b_transposed = false;
  v1::DType dtype = v1::BF16;
  v1::DType out = v1::BF16;
  float alpha = 1;
};
// From a gemm operator. UNIMPLEMENTED for bias, activation and beta.
absl::StatusOr<GemmProblem> GemmProblemOf(const Op& op, v1::DType out, float alpha);

// The column-major product that cuBLASLt is asked for: D'[n,m] = op(B')·op(A'). What is first and second there is
// our B and our A.
struct LtLayout {
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t leading = 0;
  int64_t batch_stride = 0;
  bool transposed = false;
};
struct LtProduct {
  LtLayout first;   // our B
  LtLayout second;  // our A
  LtLayout result;  // our D
};
LtProduct ColumnMajor(const GemmProblem& problem);

// The library with a handle. Owned by a context's thread; borrows the context.
class CublasLt {
 public:
  // $ROOFTUNE_LIBCUBLASLT, else libcublasLt.so.13 or .12. UNAVAILABLE (NO_CUBLASLT).
  static absl::StatusOr<std::unique_ptr<CublasLt>> Load(const GpuContext& context);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  // "cublasLt 130100".
  std::string version() const;
  const std::string& path() const { return path_; }

  // The algorithm that the library's heuristic puts first with 64 MiB of workspace.
  class Matmul {
   public:
    ~Matmul();
    Matmul(const Matmul&) = delete;
    Matmul& operator=(const Matmul&) = delete;
    // Enqueues on the context's stream. Addresses aligned to 256 bytes.
    absl::Status Enqueue(cuda::DevicePtr a, cuda::DevicePtr b, cuda::DevicePtr d) const;

   private:
    friend class CublasLt;
    explicit Matmul(const CublasLt& library) : library_(library) {}
    const CublasLt& library_;
    float alpha_ = 1;
    void* description_ = nullptr;
    void* layout_[3] = {};  // first, second, result
    uint64_t algorithm_[8] = {};
    DeviceBuffer workspace_;
  };
  absl::StatusOr<std::unique_ptr<Matmul>> First(const GemmProblem& problem) const;

 private:
  struct Functions;
  explicit CublasLt(const GpuContext& context);
  absl::Status Check(int status, absl::string_view what) const;
  absl::Status Describe(const GemmProblem& problem, Matmul* matmul) const;
  absl::StatusOr<void*> MakeLayout(const LtLayout& layout, v1::DType dtype, int64_t batch) const;
  absl::Status Choose(Matmul* matmul) const;

  const GpuContext& context_;
  std::string path_;
  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_CUBLASLT_H_

// cuBLASLt by dlopen: the algorithms that it offers for a matrix product, and the product with one of them.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_CUBLASLT_H_
#define ROOFTUNE_TUNER_WORKER_RUN_CUBLASLT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/v1/cublaslt.pb.h"
#include "tuner/worker/run_device.h"
#include "tuner/worker/run_launch.h"
#include "tuner/worker/run_library.h"

namespace rooftune {

// Fills the names of an algorithm's tile, stages and cluster shape from their numbers.
void NameAlgorithm(v1::CublasLtMatmul::Algorithm* algorithm);

// The library with a handle. Owned by a context's thread; borrows the context.
class CublasLt {
 public:
  // What an algorithm asks for beside its operands.
  struct Offer {
    v1::CublasLtMatmul matmul;
    int64_t workspace_bytes = 0;
  };

  // $ROOFTUNE_LIBCUBLASLT, else libcublasLt.so.13 or .12. UNAVAILABLE (NO_CUBLASLT).
  static absl::StatusOr<std::unique_ptr<CublasLt>> Load(const GpuContext& context);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  // As the library gives it: 130100. As text: "cublasLt 130100".
  int64_t version_number() const;
  std::string version() const;
  const std::string& path() const { return path_; }

  // What the heuristic answers for `product` (everything but algorithm and version) when it may use
  // `workspace_bytes`, then what it answers when it may use none: each algorithm once, at most `limit` of them. The
  // addresses of matrices are promised to be aligned to 256 bytes. UNIMPLEMENTED (NO_VENDOR) if it has none.
  absl::StatusOr<std::vector<Offer>> Algorithms(const v1::CublasLtMatmul& product, int64_t workspace_bytes,
                                                int limit) const;

  // One product, ready to be enqueued any number of times.
  class Matmul {
   public:
    ~Matmul();
    Matmul(const Matmul&) = delete;
    Matmul& operator=(const Matmul&) = delete;
    // Enqueues on the context's stream. Addresses aligned to 256 bytes.
    absl::Status Enqueue(const Bindings& bindings) const;

   private:
    friend class CublasLt;
    Matmul(const CublasLt& library, v1::CublasLtMatmul matmul) : library_(library), matmul_(std::move(matmul)) {}
    // Address of a tensor by name; INVALID_ARGUMENT if it is not bound. An empty name is null.
    static absl::StatusOr<const void*> Find(const Bindings& bindings, const std::string& name);
    absl::Status Point(const Bindings& bindings) const;

    const CublasLt& library_;
    const v1::CublasLtMatmul matmul_;
    void* description_ = nullptr;
    void* layout_[4] = {};  // A, B, C, D
  };
  // FAILED_PRECONDITION (CUBLASLT_VERSION) if another version made the algorithm; what the library says of one that
  // it can't run, or that wants more than `workspace_bytes`.
  absl::StatusOr<std::unique_ptr<Matmul>> Make(const v1::CublasLtMatmul& matmul, int64_t workspace_bytes) const;

 private:
  struct Functions;
  struct HeuristicResult;
  explicit CublasLt(const GpuContext& context);
  absl::Status Check(int status, absl::string_view what) const;
  absl::StatusOr<std::unique_ptr<Matmul>> Describe(const v1::CublasLtMatmul& product) const;
  absl::StatusOr<void*> MakeLayout(const v1::CublasLtMatmul::Matrix& matrix) const;
  template <typename T>
  absl::Status Set(void* description, int attribute, T value, absl::string_view what) const;
  // Appends what is not there yet.
  absl::Status Ask(const Matmul& matmul, int64_t workspace_bytes, int limit, std::vector<Offer>* offers) const;
  v1::CublasLtMatmul::Algorithm ReadAlgorithm(const HeuristicResult& result) const;

  const GpuContext& context_;
  std::string path_;
  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_CUBLASLT_H_

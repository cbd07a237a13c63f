// A gemm operator as the vendor's libraries take it.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_GEMM_H_
#define ROOFTUNE_TUNER_WORKER_RUN_GEMM_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "costmodel/op.h"
#include "rooftune/v1/cublaslt.pb.h"
#include "rooftune/v1/types.pb.h"

namespace rooftune {

// How operands are scaled before they are multiplied, and the tensors that hold the fp32 scales.
struct GemmScales {
  enum class Mode { kNone, kTensor, kRow, kBlock128 };
  Mode mode = Mode::kNone;
  std::string a;
  std::string b;
};

// D[m,n] = act(alpha · A · B + beta · C + bias), row-major, batch outermost. A is stored [m,k], or [k,m] if
// a_transposed; B is stored [k,n], or [n,k] if b_transposed. The tensors are called a, b, c, bias and d.
struct GemmProblem {
  enum class Act { kNone, kRelu, kGelu };
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  bool a_transposed = false;
  bool b_transposed = false;
  int64_t lda = 0;  // elements from one row in memory to the next
  int64_t ldb = 0;
  v1::DType a = v1::BF16;
  v1::DType b = v1::BF16;
  v1::DType out = v1::BF16;
  bool has_beta = false;
  bool has_bias = false;
  v1::DType bias = v1::BF16;
  Act act = Act::kNone;
  GemmScales scales;
  // Nothing but the product: what cublasGemmEx does.
  bool IsPlain() const { return !has_beta && !has_bias && act == Act::kNone && scales.mode == GemmScales::Mode::kNone; }
};

// Types of an operator's tensors by name.
using TensorTypes = std::map<std::string, v1::DType>;

// The scales of a gemm operator: its attribute `scale` (none, tensor, row, block128) and the tensors scale_a and
// scale_b. UNIMPLEMENTED (NO_VENDOR) for an unknown mode or a missing tensor.
absl::StatusOr<GemmScales> GemmScalesOf(const Op& op, const TensorTypes& types);

// From a gemm operator. UNIMPLEMENTED (NO_VENDOR) with the reason for what the vendor's libraries do not do: another
// kind, SiLU, block scales, a type.
absl::StatusOr<GemmProblem> GemmProblemOf(const Op& op, const TensorTypes& types);

// The column-major product that the libraries are asked for: D'[n,m] = op(B')·op(A'). What is first and second there
// is our B and our A.
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
  LtLayout result;  // our C and D
};
LtProduct ColumnMajor(const GemmProblem& problem);

// cudaDataType_t of a type, or -1.
int CudaType(v1::DType dtype);

// Everything of the call but algorithm and version. UNIMPLEMENTED (NO_VENDOR) for types that cuBLASLt does not mix.
absl::StatusOr<v1::CublasLtMatmul> CublasLtProduct(const GemmProblem& problem);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_GEMM_H_

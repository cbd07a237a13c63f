#include "tuner/worker/run_gemm.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// Values of cublasLt.h, cublas_api.h and library_types.h (13.0); the library keeps them between major versions.
constexpr int kComputeFp32 = 68;   // CUBLAS_COMPUTE_32F: no TF32
constexpr int kComputeInt32 = 72;  // CUBLAS_COMPUTE_32I
constexpr int kRealFp32 = 0;       // CUDA_R_32F
constexpr int kRealInt32 = 10;     // CUDA_R_32I
constexpr int kEpilogueDefault = 1;
constexpr int kEpilogueRelu = 2;
constexpr int kEpilogueBias = 4;
constexpr int kEpilogueGelu = 32;   // the tanh form
constexpr int kScalePerTensor = 0;  // CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F
constexpr int kScalePerRow = 3;     // CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F

absl::Status Refuse(absl::string_view why) { return Error(absl::StatusCode::kUnimplemented, "NO_VENDOR", why); }

int64_t NameOr(const Op& op, const std::string& name, int64_t fallback) {
  const auto found = op.names.find(name);
  return found != op.names.end() ? found->second : fallback;
}

std::string AttributeOr(const Op& op, const std::string& name, const std::string& fallback) {
  const auto found = op.attributes.find(name);
  return found != op.attributes.end() ? found->second : fallback;
}

bool IsFp8(v1::DType dtype) { return dtype == v1::FP8_E4M3 || dtype == v1::FP8_E5M2; }

v1::CublasLtMatmul::Matrix MatrixOf(const LtLayout& layout, const char* tensor, v1::DType dtype, int64_t batch) {
  v1::CublasLtMatmul::Matrix matrix;
  matrix.set_tensor(tensor);
  matrix.set_type(CudaType(dtype));
  matrix.set_rows(static_cast<int64_t>(layout.rows));
  matrix.set_columns(static_cast<int64_t>(layout.columns));
  matrix.set_leading(layout.leading);
  matrix.set_batch(static_cast<int32_t>(batch));
  matrix.set_batch_stride(batch > 1 ? layout.batch_stride : 0);
  matrix.set_transposed(layout.transposed);
  return matrix;
}

}  // namespace

int CudaType(v1::DType dtype) {
  switch (dtype) {
    case v1::FP32:
      return kRealFp32;
    case v1::FP16:
      return 2;
    case v1::BF16:
      return 14;
    case v1::FP64:
      return 1;
    case v1::FP8_E4M3:
      return 28;
    case v1::FP8_E5M2:
      return 29;
    case v1::INT8:
      return 3;
    case v1::INT32:
      return kRealInt32;
    default:
      return -1;
  }
}

absl::StatusOr<GemmScales> GemmScalesOf(const Op& op, const TensorTypes& types) {
  GemmScales scales;
  const std::string mode = AttributeOr(op, "scale", "none");
  if (mode == "none") return scales;
  if (mode == "tensor") {
    scales.mode = GemmScales::Mode::kTensor;
  } else if (mode == "row") {
    scales.mode = GemmScales::Mode::kRow;
  } else if (mode == "block128") {
    scales.mode = GemmScales::Mode::kBlock128;
  } else {
    return Refuse(absl::StrCat("scale=", mode, " is unknown to the vendor provider"));
  }
  scales.a = "scale_a";
  scales.b = "scale_b";
  for (const std::string& name : {scales.a, scales.b}) {
    if (types.count(name) == 0) return Refuse(absl::StrCat("scale=", mode, " without a tensor ", name));
  }
  return scales;
}

absl::StatusOr<GemmProblem> GemmProblemOf(const Op& op, const TensorTypes& types) {
  if (op.kind != "gemm") return Refuse(absl::StrCat("the vendor's library does gemm, not ", op.kind));
  for (const char* name : {"a", "b", "d"}) {
    if (types.count(name) == 0) return Refuse(absl::StrCat("'", op.text, "' has no tensor ", name));
  }
  if (types.count("scale_d") > 0) return Refuse("the vendor provider makes no results of 8 bits");
  GemmProblem problem;
  problem.m = NameOr(op, "m", 0);
  problem.n = NameOr(op, "n", 0);
  problem.k = NameOr(op, "k", 0);
  problem.batch = NameOr(op, "batch", 1);
  // Symbols of `layout`: nn = 0, nt = 1, tn = 2, tt = 3.
  const int64_t layout = NameOr(op, "layout", 1);
  problem.a_transposed = (layout & 2) != 0;
  problem.b_transposed = (layout & 1) != 0;
  const auto pitch = [&op](const char* name, int64_t packed) {
    const int64_t given = NameOr(op, name, 0);
    return given > 0 ? given : packed;
  };
  problem.lda = pitch("lda", problem.a_transposed ? problem.m : problem.k);
  problem.ldb = pitch("ldb", problem.b_transposed ? problem.k : problem.n);
  problem.a = types.at("a");
  problem.b = types.at("b");
  problem.out = types.at("d");
  problem.has_beta = types.count("c") > 0;
  problem.has_bias = types.count("bias") > 0;
  if (problem.has_bias) problem.bias = types.at("bias");
  const std::string act = AttributeOr(op, "act", "none");
  if (act == "relu") {
    problem.act = GemmProblem::Act::kRelu;
  } else if (act == "gelu") {
    problem.act = GemmProblem::Act::kGelu;
  } else if (act != "none") {
    return Refuse(absl::StrCat("cuBLASLt has no epilogue act=", act, ": it does none, relu and gelu"));
  }
  RT_ASSIGN_OR_RETURN(problem.scales, GemmScalesOf(op, types));
  if (problem.m < 1 || problem.n < 1 || problem.k < 1 || problem.batch < 1) {
    return Refuse(absl::StrCat("cuBLASLt can't do ", op.text));
  }
  return problem;
}

LtProduct ColumnMajor(const GemmProblem& p) {
  const auto unsigned_of = [](int64_t v) { return static_cast<uint64_t>(v); };
  LtProduct product;
  // A row-major matrix is its transpose in column-major order.
  product.first = p.b_transposed ? LtLayout{unsigned_of(p.k), unsigned_of(p.n), p.ldb, p.n * p.ldb, true}
                                 : LtLayout{unsigned_of(p.n), unsigned_of(p.k), p.ldb, p.k * p.ldb, false};
  product.second = p.a_transposed ? LtLayout{unsigned_of(p.m), unsigned_of(p.k), p.lda, p.k * p.lda, true}
                                  : LtLayout{unsigned_of(p.k), unsigned_of(p.m), p.lda, p.m * p.lda, false};
  product.result = LtLayout{unsigned_of(p.n), unsigned_of(p.m), p.n, p.m * p.n, false};
  return product;
}

absl::StatusOr<v1::CublasLtMatmul> CublasLtProduct(const GemmProblem& problem) {
  const auto unknown = [&] {
    return Refuse(absl::StrCat("cuBLASLt does not multiply ", v1::DType_Name(problem.a), " by ",
                               v1::DType_Name(problem.b), " into ", v1::DType_Name(problem.out)));
  };
  const bool fp8 = IsFp8(problem.a) && IsFp8(problem.b);
  const bool int8 = problem.a == v1::INT8 && problem.b == v1::INT8;
  const bool same = problem.a == problem.b;
  const bool floating = same && (problem.a == v1::FP32 || problem.a == v1::FP16 || problem.a == v1::BF16);
  const bool float_out = problem.out == v1::FP32 || problem.out == v1::FP16 || problem.out == v1::BF16;
  if (int8 ? problem.out != v1::INT32 : !((floating || fp8) && float_out)) return unknown();
  if (problem.scales.mode != GemmScales::Mode::kNone && !fp8) {
    return Refuse("cuBLASLt scales operands of 8-bit floating-point types only");
  }
  if (problem.scales.mode == GemmScales::Mode::kBlock128) {
    return Refuse("scales of blocks are not asked of cuBLASLt: scale=tensor and scale=row are");
  }
  const LtProduct product = ColumnMajor(problem);
  v1::CublasLtMatmul lt;
  *lt.mutable_a() = MatrixOf(product.first, "b", problem.b, problem.batch);
  *lt.mutable_b() = MatrixOf(product.second, "a", problem.a, problem.batch);
  *lt.mutable_c() = MatrixOf(product.result, problem.has_beta ? "c" : "", problem.out, problem.batch);
  *lt.mutable_d() = MatrixOf(product.result, "d", problem.out, problem.batch);
  if (problem.scales.mode != GemmScales::Mode::kNone) {
    const int mode = problem.scales.mode == GemmScales::Mode::kTensor ? kScalePerTensor : kScalePerRow;
    lt.mutable_a()->set_scale(problem.scales.b);
    lt.mutable_b()->set_scale(problem.scales.a);
    lt.mutable_a()->set_scale_mode(mode);
    lt.mutable_b()->set_scale_mode(mode);
  }
  lt.set_compute_type(int8 ? kComputeInt32 : kComputeFp32);
  lt.set_scale_type(int8 ? kRealInt32 : kRealFp32);
  lt.set_alpha("alpha");
  if (problem.has_beta) lt.set_beta("beta_value");
  int epilogue = problem.act == GemmProblem::Act::kRelu   ? kEpilogueRelu
                 : problem.act == GemmProblem::Act::kGelu ? kEpilogueGelu
                                                          : 0;
  if (problem.has_bias) {
    epilogue |= kEpilogueBias;
    lt.set_bias("bias");
    lt.set_bias_type(CudaType(problem.bias));
  }
  lt.set_epilogue(epilogue == 0 ? kEpilogueDefault : epilogue);
  return lt;
}

}  // namespace rooftune

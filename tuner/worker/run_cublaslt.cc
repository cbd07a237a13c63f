#include "tuner/worker/run_cublaslt.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// Values of cublasLt.h, cublas_api.h and library_types.h (13.0); the library keeps them between major versions.
constexpr int kComputeFp32 = 68;         // CUBLAS_COMPUTE_32F: no TF32
constexpr int kRealFp32 = 0;             // CUDA_R_32F
constexpr int kRealFp16 = 2;             // CUDA_R_16F
constexpr int kRealBf16 = 14;            // CUDA_R_16BF
constexpr int kDescTransA = 3;           // CUBLASLT_MATMUL_DESC_TRANSA, int32
constexpr int kDescTransB = 4;           // CUBLASLT_MATMUL_DESC_TRANSB, int32
constexpr int kLayoutBatchCount = 5;     // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32
constexpr int kLayoutBatchOffset = 6;    // CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64
constexpr int kPreferenceWorkspace = 1;  // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64
constexpr int kOpTranspose = 1;          // CUBLAS_OP_T
constexpr uint64_t kWorkspaceBytes = uint64_t{64} << 20;

// cublasLtMatmulHeuristicResult_t.
struct HeuristicResult {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

int RealType(v1::DType dtype) {
  if (dtype == v1::FP16) return kRealFp16;
  return dtype == v1::BF16 ? kRealBf16 : kRealFp32;
}

const void* Address(cuda::DevicePtr pointer) { return reinterpret_cast<const void*>(pointer); }

int64_t NameOr(const Op& op, const std::string& name, int64_t fallback) {
  const auto found = op.names.find(name);
  return found != op.names.end() ? found->second : fallback;
}

}  // namespace

struct CublasLt::Functions {
  size_t (*GetVersion)() = nullptr;
  const char* (*GetStatusName)(int) = nullptr;
  int (*Create)(void**) = nullptr;
  int (*Destroy)(void*) = nullptr;
  int (*DescCreate)(void**, int compute, int scale_type) = nullptr;
  int (*DescDestroy)(void*) = nullptr;
  int (*DescSet)(void*, int attribute, const void*, size_t) = nullptr;
  int (*LayoutCreate)(void**, int type, uint64_t rows, uint64_t columns, int64_t leading) = nullptr;
  int (*LayoutDestroy)(void*) = nullptr;
  int (*LayoutSet)(void*, int attribute, const void*, size_t) = nullptr;
  int (*PreferenceCreate)(void**) = nullptr;
  int (*PreferenceDestroy)(void*) = nullptr;
  int (*PreferenceSet)(void*, int attribute, const void*, size_t) = nullptr;
  int (*Heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, int wanted,
                   HeuristicResult* results, int* returned) = nullptr;
  int (*Matmul)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
                void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                const void* algorithm, void* workspace, size_t workspace_bytes, cuda::Stream stream) = nullptr;

  // Name of the first function that is missing, or empty.
  std::string Resolve(const DynamicLibrary& library) {
    std::string missing;
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(library.Find(symbol));
      if (function == nullptr && missing.empty()) missing = symbol;
    };
    find(GetVersion, "cublasLtGetVersion");
    find(GetStatusName, "cublasLtGetStatusName");
    find(Create, "cublasLtCreate");
    find(Destroy, "cublasLtDestroy");
    find(DescCreate, "cublasLtMatmulDescCreate");
    find(DescDestroy, "cublasLtMatmulDescDestroy");
    find(DescSet, "cublasLtMatmulDescSetAttribute");
    find(LayoutCreate, "cublasLtMatrixLayoutCreate");
    find(LayoutDestroy, "cublasLtMatrixLayoutDestroy");
    find(LayoutSet, "cublasLtMatrixLayoutSetAttribute");
    find(PreferenceCreate, "cublasLtMatmulPreferenceCreate");
    find(PreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
    find(PreferenceSet, "cublasLtMatmulPreferenceSetAttribute");
    find(Heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(Matmul, "cublasLtMatmul");
    return missing;
  }
};

absl::StatusOr<GemmProblem> GemmProblemOf(const Op& op, v1::DType out, float alpha) {
  const auto refuse = [](absl::string_view why) { return Error(absl::StatusCode::kUnimplemented, "NO_BASELINE", why); };
  if (op.kind != "gemm") return refuse(absl::StrCat("cublaslt_first is a baseline for gemm, not for ", op.kind));
  for (const char* attribute : {"bias", "act", "beta"}) {
    if (NameOr(op, attribute, 0) != 0) return refuse(absl::StrCat("cublaslt_first does not do ", attribute));
  }
  GemmProblem problem;
  problem.m = NameOr(op, "m", 0);
  problem.n = NameOr(op, "n", 0);
  problem.k = NameOr(op, "k", 0);
  problem.batch = NameOr(op, "batch", 1);
  // Symbols of `layout`: nn = 0, nt = 1, tn = 2, tt = 3.
  const int64_t layout = NameOr(op, "layout", 1);
  problem.a_transposed = (layout & 2) != 0;
  problem.b_transposed = (layout & 1) != 0;
  problem.dtype = static_cast<v1::DType>(NameOr(op, "dtype", 0));
  problem.out = out;
  problem.alpha = alpha;
  const bool known = problem.dtype == v1::FP32 || problem.dtype == v1::FP16 || problem.dtype == v1::BF16;
  if (!known || problem.m < 1 || problem.n < 1 || problem.k < 1 || problem.batch < 1) {
    return refuse(absl::StrCat("cublaslt_first can't do ", op.text));
  }
  return problem;
}

LtProduct ColumnMajor(const GemmProblem& p) {
  const auto unsigned_of = [](int64_t v) { return static_cast<uint64_t>(v); };
  LtProduct product;
  // A row-major matrix is its transpose in column-major order.
  product.first = p.b_transposed ? LtLayout{unsigned_of(p.k), unsigned_of(p.n), p.k, p.n * p.k, true}
                                 : LtLayout{unsigned_of(p.n), unsigned_of(p.k), p.n, p.n * p.k, false};
  product.second = p.a_transposed ? LtLayout{unsigned_of(p.m), unsigned_of(p.k), p.m, p.m * p.k, true}
                                  : LtLayout{unsigned_of(p.k), unsigned_of(p.m), p.k, p.m * p.k, false};
  product.result = LtLayout{unsigned_of(p.n), unsigned_of(p.m), p.n, p.m * p.n, false};
  return product;
}

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Load(const GpuContext& context) {
  const std::string chosen = EnvironmentOr("ROOFTUNE_LIBCUBLASLT");
  const std::vector<std::string> names = chosen.empty()
                                             ? std::vector<std::string>{"libcublasLt.so.13", "libcublasLt.so.12"}
                                             : std::vector<std::string>{chosen};
  const absl::StatusOr<DynamicLibrary> library = DynamicLibrary::Open(names);
  if (!library.ok()) {
    return Error(absl::StatusCode::kUnavailable, "NO_CUBLASLT",
                 absl::StrCat("no cuBLASLt: ", library.status().message(),
                              " (install it, or name the library in ROOFTUNE_LIBCUBLASLT)"));
  }
  std::unique_ptr<CublasLt> lt(new CublasLt(context));
  lt->path_ = library->path();
  lt->functions_ = std::make_unique<Functions>();
  const std::string missing = lt->functions_->Resolve(*library);
  if (!missing.empty()) {
    return Error(absl::StatusCode::kUnavailable, "NO_CUBLASLT", absl::StrCat(library->path(), " has no ", missing));
  }
  RT_RETURN_IF_ERROR(lt->Check(lt->functions_->Create(&lt->handle_), "cublasLtCreate"));
  return lt;
}

CublasLt::CublasLt(const GpuContext& context) : context_(context) {}

CublasLt::~CublasLt() {
  if (handle_ != nullptr) functions_->Destroy(handle_);
}

std::string CublasLt::version() const { return absl::StrCat("cublasLt ", functions_->GetVersion()); }

absl::Status CublasLt::Check(int status, absl::string_view what) const {
  if (status == 0) return absl::OkStatus();
  const char* const name = functions_->GetStatusName(status);
  return Error(absl::StatusCode::kInternal, "CUBLASLT",
               absl::StrCat(what, ": ", name != nullptr ? name : "unknown error", " (", status, ")"));
}

absl::StatusOr<void*> CublasLt::MakeLayout(const LtLayout& layout, v1::DType dtype, int64_t batch) const {
  void* made = nullptr;
  RT_RETURN_IF_ERROR(Check(
      functions_->LayoutCreate(&made, RealType(dtype), layout.rows, layout.columns, layout.leading), "matrix layout"));
  if (batch > 1) {
    const int32_t count = static_cast<int32_t>(batch);
    const int64_t stride = layout.batch_stride;
    absl::Status status = Check(functions_->LayoutSet(made, kLayoutBatchCount, &count, sizeof(count)), "batch count");
    if (status.ok()) {
      status = Check(functions_->LayoutSet(made, kLayoutBatchOffset, &stride, sizeof(stride)), "batch stride");
    }
    if (!status.ok()) {
      functions_->LayoutDestroy(made);
      return status;
    }
  }
  return made;
}

absl::Status CublasLt::Describe(const GemmProblem& problem, Matmul* matmul) const {
  const LtProduct product = ColumnMajor(problem);
  RT_RETURN_IF_ERROR(
      Check(functions_->DescCreate(&matmul->description_, kComputeFp32, kRealFp32), "matmul description"));
  const int32_t transpose = kOpTranspose;
  if (product.first.transposed) {
    RT_RETURN_IF_ERROR(
        Check(functions_->DescSet(matmul->description_, kDescTransA, &transpose, sizeof(transpose)), "transposing"));
  }
  if (product.second.transposed) {
    RT_RETURN_IF_ERROR(
        Check(functions_->DescSet(matmul->description_, kDescTransB, &transpose, sizeof(transpose)), "transposing"));
  }
  RT_ASSIGN_OR_RETURN(matmul->layout_[0], MakeLayout(product.first, problem.dtype, problem.batch));
  RT_ASSIGN_OR_RETURN(matmul->layout_[1], MakeLayout(product.second, problem.dtype, problem.batch));
  RT_ASSIGN_OR_RETURN(matmul->layout_[2], MakeLayout(product.result, problem.out, problem.batch));
  return absl::OkStatus();
}

absl::Status CublasLt::Choose(Matmul* matmul) const {
  void* preference = nullptr;
  RT_RETURN_IF_ERROR(Check(functions_->PreferenceCreate(&preference), "matmul preference"));
  HeuristicResult result = {};
  int returned = 0;
  absl::Status status =
      Check(functions_->PreferenceSet(preference, kPreferenceWorkspace, &kWorkspaceBytes, sizeof(kWorkspaceBytes)),
            "workspace size");
  if (status.ok()) {
    status = Check(functions_->Heuristic(handle_, matmul->description_, matmul->layout_[0], matmul->layout_[1],
                                         matmul->layout_[2], matmul->layout_[2], preference, 1, &result, &returned),
                   "cublasLtMatmulAlgoGetHeuristic");
  }
  functions_->PreferenceDestroy(preference);
  RT_RETURN_IF_ERROR(status);
  if (returned < 1 || result.state != 0) {
    return Error(absl::StatusCode::kUnimplemented, "NO_BASELINE", "cuBLASLt has no algorithm for this product");
  }
  std::memcpy(matmul->algorithm_, result.algorithm, sizeof(matmul->algorithm_));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CublasLt::Matmul>> CublasLt::First(const GemmProblem& problem) const {
  std::unique_ptr<Matmul> matmul(new Matmul(*this));
  matmul->alpha_ = problem.alpha;
  RT_RETURN_IF_ERROR(Describe(problem, matmul.get()));
  RT_RETURN_IF_ERROR(Choose(matmul.get()));
  RT_ASSIGN_OR_RETURN(matmul->workspace_, DeviceBuffer::Create(context_, static_cast<int64_t>(kWorkspaceBytes)));
  return matmul;
}

CublasLt::Matmul::~Matmul() {
  for (void* layout : layout_) {
    if (layout != nullptr) library_.functions_->LayoutDestroy(layout);
  }
  if (description_ != nullptr) library_.functions_->DescDestroy(description_);
}

absl::Status CublasLt::Matmul::Enqueue(cuda::DevicePtr a, cuda::DevicePtr b, cuda::DevicePtr d) const {
  const float beta = 0;
  void* const out = const_cast<void*>(Address(d));
  return library_.Check(library_.functions_->Matmul(library_.handle_, description_, &alpha_, Address(b), layout_[0],
                                                    Address(a), layout_[1], &beta, out, layout_[2], out, layout_[2],
                                                    algorithm_, const_cast<void*>(Address(workspace_.ptr())),
                                                    kWorkspaceBytes, library_.context_.stream()),
                        "cublasLtMatmul");
}

}  // namespace rooftune

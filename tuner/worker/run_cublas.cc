#include "tuner/worker/run_cublas.h"

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "tuner/worker/run_library.h"

namespace rooftune {
namespace {

// Values of cublas_api.h (13.0); the library keeps them between major versions.
constexpr int kComputeFp32 = 68;  // CUBLAS_COMPUTE_32F
constexpr int kDefaultGemm = -1;  // CUBLAS_GEMM_DEFAULT
constexpr int kOpNone = 0, kOpTranspose = 1;
// What the library takes by itself on Hopper; given explicitly because it may not allocate while a graph is captured.
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

std::vector<std::string> LibraryNames() {
  const std::string chosen = EnvironmentOr("ROOFTUNE_LIBCUBLAS");
  if (!chosen.empty()) return {chosen};
  const std::string lt = EnvironmentOr("ROOFTUNE_LIBCUBLASLT");
  const std::string folder = lt.find('/') != std::string::npos ? lt.substr(0, lt.rfind('/') + 1) : "";
  return {absl::StrCat(folder, "libcublas.so.13"), absl::StrCat(folder, "libcublas.so.12")};
}

}  // namespace

struct Cublas::Functions {
  int (*Create)(void**) = nullptr;
  int (*Destroy)(void*) = nullptr;
  int (*GetVersion)(void*, int*) = nullptr;
  const char* (*GetStatusName)(int) = nullptr;
  int (*SetStream)(void*, cuda::Stream) = nullptr;
  int (*SetWorkspace)(void*, void*, size_t) = nullptr;
  int (*GemmEx)(void* handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha, const void* a,
                int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type, int ldc,
                int compute, int algorithm) = nullptr;
  int (*GemmStridedBatchedEx)(void* handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha,
                              const void* a, int a_type, int lda, long long stride_a, const void* b, int b_type,
                              int ldb, long long stride_b, const void* beta, void* c, int c_type, int ldc,
                              long long stride_c, int batch, int compute, int algorithm) = nullptr;

  // Name of the first function that is missing, or empty.
  std::string Resolve(const DynamicLibrary& library) {
    std::string missing;
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(library.Find(symbol));
      if (function == nullptr && missing.empty()) missing = symbol;
    };
    find(Create, "cublasCreate_v2");
    find(Destroy, "cublasDestroy_v2");
    find(GetVersion, "cublasGetVersion_v2");
    find(GetStatusName, "cublasGetStatusName");
    find(SetStream, "cublasSetStream_v2");
    find(SetWorkspace, "cublasSetWorkspace_v2");
    find(GemmEx, "cublasGemmEx");
    find(GemmStridedBatchedEx, "cublasGemmStridedBatchedEx");
    return missing;
  }
};

absl::StatusOr<std::unique_ptr<Cublas>> Cublas::Load(const GpuContext& context) {
  const absl::StatusOr<DynamicLibrary> library = DynamicLibrary::Open(LibraryNames());
  if (!library.ok()) {
    return Error(absl::StatusCode::kUnavailable, "NO_CUBLAS",
                 absl::StrCat("no cuBLAS: ", library.status().message(),
                              " (install it, or name the library in ROOFTUNE_LIBCUBLAS)"));
  }
  std::unique_ptr<Cublas> cublas(new Cublas(context));
  cublas->functions_ = std::make_unique<Functions>();
  const std::string missing = cublas->functions_->Resolve(*library);
  if (!missing.empty()) {
    return Error(absl::StatusCode::kUnavailable, "NO_CUBLAS", absl::StrCat(library->path(), " has no ", missing));
  }
  const Functions& f = *cublas->functions_;
  RT_RETURN_IF_ERROR(cublas->Check(f.Create(&cublas->handle_), "cublasCreate"));
  RT_ASSIGN_OR_RETURN(cublas->workspace_, DeviceBuffer::Create(context, kWorkspaceBytes));
  // In this order: setting the stream puts the library's own workspace back.
  RT_RETURN_IF_ERROR(cublas->Check(f.SetStream(cublas->handle_, context.stream()), "cublasSetStream"));
  RT_RETURN_IF_ERROR(
      cublas->Check(f.SetWorkspace(cublas->handle_, reinterpret_cast<void*>(cublas->workspace_.ptr()), kWorkspaceBytes),
                    "cublasSetWorkspace"));
  return cublas;
}

Cublas::Cublas(const GpuContext& context) : context_(context) {}

Cublas::~Cublas() {
  if (handle_ != nullptr) functions_->Destroy(handle_);
}

std::string Cublas::version() const {
  int version = 0;
  functions_->GetVersion(handle_, &version);
  return absl::StrCat("cublas ", version);
}

absl::Status Cublas::Check(int status, absl::string_view what) const {
  if (status == 0) return absl::OkStatus();
  const char* const name = functions_->GetStatusName(status);
  return Error(absl::StatusCode::kInternal, "CUBLAS",
               absl::StrCat(what, ": ", name != nullptr ? name : "unknown error", " (", status, ")"));
}

absl::Status Cublas::Supports(const GemmProblem& problem) {
  const auto refuse = [](absl::string_view why) { return Error(absl::StatusCode::kUnimplemented, "NO_BASELINE", why); };
  if (!problem.IsPlain()) return refuse("cublasGemmEx does the product alone: no bias, activation, beta or scales");
  const bool floating = problem.a == v1::FP32 || problem.a == v1::FP16 || problem.a == v1::BF16;
  if (!floating || problem.a != problem.b || (problem.out != problem.a && problem.out != v1::FP32)) {
    return refuse(absl::StrCat("cublasGemmEx does not multiply ", v1::DType_Name(problem.a), " by ",
                               v1::DType_Name(problem.b), " into ", v1::DType_Name(problem.out)));
  }
  for (const int64_t extent : {problem.m, problem.n, problem.k, problem.batch}) {
    if (extent > std::numeric_limits<int>::max()) return refuse("cublasGemmEx takes extents of 31 bits");
  }
  return absl::OkStatus();
}

absl::Status Cublas::Enqueue(const GemmProblem& problem, const Bindings& bindings) const {
  const LtProduct product = ColumnMajor(problem);
  const auto address = [&](const char* name) { return reinterpret_cast<void*>(bindings.tensor.at(name)); };
  const auto found = bindings.scalar.find("alpha");
  const float alpha = found != bindings.scalar.end() ? static_cast<float>(found->second) : 1.0f;
  const float beta = 0;
  const auto op = [](const LtLayout& layout) { return layout.transposed ? kOpTranspose : kOpNone; };
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  const int type = CudaType(problem.a), out = CudaType(problem.out);
  if (problem.batch == 1) {
    return Check(
        functions_->GemmEx(handle_, op(product.first), op(product.second), narrow(problem.n), narrow(problem.m),
                           narrow(problem.k), &alpha, address("b"), type, narrow(product.first.leading), address("a"),
                           type, narrow(product.second.leading), &beta, address("d"), out,
                           narrow(product.result.leading), kComputeFp32, kDefaultGemm),
        "cublasGemmEx");
  }
  return Check(functions_->GemmStridedBatchedEx(
                   handle_, op(product.first), op(product.second), narrow(problem.n), narrow(problem.m),
                   narrow(problem.k), &alpha, address("b"), type, narrow(product.first.leading),
                   product.first.batch_stride, address("a"), type, narrow(product.second.leading),
                   product.second.batch_stride, &beta, address("d"), out, narrow(product.result.leading),
                   product.result.batch_stride, narrow(problem.batch), kComputeFp32, kDefaultGemm),
               "cublasGemmStridedBatchedEx");
}

}  // namespace rooftune

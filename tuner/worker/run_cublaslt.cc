#include "tuner/worker/run_cublaslt.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// Values of cublasLt.h and library_types.h (13.0); the library keeps them between major versions.
constexpr int kRealInt32 = 10;                 // CUDA_R_32I
constexpr int kDescTransA = 3;                 // CUBLASLT_MATMUL_DESC_TRANSA, int32
constexpr int kDescTransB = 4;                 // CUBLASLT_MATMUL_DESC_TRANSB, int32
constexpr int kDescEpilogue = 7;               // CUBLASLT_MATMUL_DESC_EPILOGUE, uint32
constexpr int kDescBiasPointer = 8;            // CUBLASLT_MATMUL_DESC_BIAS_POINTER
constexpr int kDescScalePointer[] = {17, 18};  // CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, …_B_…
constexpr int kDescBiasType = 26;              // CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32
constexpr int kDescScaleMode[] = {31, 32};     // CUBLASLT_MATMUL_DESC_A_SCALE_MODE, …_B_…, int32
constexpr int kLayoutBatchCount = 5;           // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32
constexpr int kLayoutBatchOffset = 6;          // CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64
constexpr int kPreferenceWorkspace = 1;        // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64
constexpr int kOpTranspose = 1;                // CUBLAS_OP_T
constexpr uintptr_t kNoScaleYet = 256;         // address of scales while nothing is enqueued
constexpr size_t kAlgorithmBytes = 64;         // sizeof(cublasLtMatmulAlgo_t)
// CUBLASLT_ALGO_CONFIG_*: ID, TILE_ID, SPLITK_NUM, … in this order, the last two of 16 bits.
constexpr int kConfigId = 0, kConfigTile = 1, kConfigSplitK = 2, kConfigReduction = 3, kConfigSwizzling = 4,
              kConfigCustom = 5, kConfigStages = 6, kConfigInnerShape = 7, kConfigCluster = 8;

// alpha or beta, in the scale type of the product.
union Scalar {
  float real;
  int32_t integer;
};
absl::StatusOr<Scalar> ScalarOf(const Bindings& bindings, const std::string& name, int scale_type, double fallback) {
  const auto found = bindings.scalar.find(name);
  const double value = found != bindings.scalar.end() ? found->second : fallback;
  Scalar scalar;
  if (scale_type != kRealInt32) {
    scalar.real = static_cast<float>(value);
    return scalar;
  }
  if (value != std::floor(value) || std::abs(value) > 0x7fffffff) {
    return Error(absl::StatusCode::kUnimplemented, "NO_VENDOR",
                 absl::StrCat(name, "=", value, " is no integer, as products of integers need"));
  }
  scalar.integer = static_cast<int32_t>(value);
  return scalar;
}

}  // namespace

// cublasLtMatmulHeuristicResult_t.
struct CublasLt::HeuristicResult {
  uint64_t algorithm[kAlgorithmBytes / 8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

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
  int (*AlgoCheck)(void* handle, void* desc, void* a, void* b, void* c, void* d, const void* algorithm,
                   HeuristicResult* result) = nullptr;
  int (*ConfigGet)(const void* algorithm, int attribute, void* value, size_t size, size_t* written) = nullptr;
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
    find(AlgoCheck, "cublasLtMatmulAlgoCheck");
    find(ConfigGet, "cublasLtMatmulAlgoConfigGetAttribute");
    find(Matmul, "cublasLtMatmul");
    return missing;
  }
};

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Load(const GpuContext& context) {
  static_assert(sizeof(HeuristicResult) == 96);
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

int64_t CublasLt::version_number() const { return static_cast<int64_t>(functions_->GetVersion()); }

std::string CublasLt::version() const { return absl::StrCat("cublasLt ", version_number()); }

absl::Status CublasLt::Check(int status, absl::string_view what) const {
  if (status == 0) return absl::OkStatus();
  const char* const name = functions_->GetStatusName(status);
  return Error(absl::StatusCode::kInternal, "CUBLASLT",
               absl::StrCat(what, ": ", name != nullptr ? name : "unknown error", " (", status, ")"));
}

template <typename T>
absl::Status CublasLt::Set(void* description, int attribute, T value, absl::string_view what) const {
  return Check(functions_->DescSet(description, attribute, &value, sizeof(value)), what);
}

absl::StatusOr<void*> CublasLt::MakeLayout(const v1::CublasLtMatmul::Matrix& matrix) const {
  void* made = nullptr;
  RT_RETURN_IF_ERROR(Check(functions_->LayoutCreate(&made, matrix.type(), static_cast<uint64_t>(matrix.rows()),
                                                    static_cast<uint64_t>(matrix.columns()), matrix.leading()),
                           "matrix layout"));
  if (matrix.batch() <= 1) return made;
  const int32_t count = matrix.batch();
  const int64_t stride = matrix.batch_stride();
  absl::Status status = Check(functions_->LayoutSet(made, kLayoutBatchCount, &count, sizeof(count)), "batch count");
  if (status.ok()) {
    status = Check(functions_->LayoutSet(made, kLayoutBatchOffset, &stride, sizeof(stride)), "batch stride");
  }
  if (status.ok()) return made;
  functions_->LayoutDestroy(made);
  return status;
}

absl::StatusOr<std::unique_ptr<CublasLt::Matmul>> CublasLt::Describe(const v1::CublasLtMatmul& product) const {
  std::unique_ptr<Matmul> matmul(new Matmul(*this, product));
  RT_RETURN_IF_ERROR(Check(functions_->DescCreate(&matmul->description_, product.compute_type(), product.scale_type()),
                           "matmul description"));
  void* const description = matmul->description_;
  if (product.a().transposed()) RT_RETURN_IF_ERROR(Set<int32_t>(description, kDescTransA, kOpTranspose, "transposing"));
  if (product.b().transposed()) RT_RETURN_IF_ERROR(Set<int32_t>(description, kDescTransB, kOpTranspose, "transposing"));
  RT_RETURN_IF_ERROR(
      Set<uint32_t>(description, kDescEpilogue, static_cast<uint32_t>(product.epilogue()), "the epilogue"));
  if (!product.bias().empty()) {
    RT_RETURN_IF_ERROR(Set<int32_t>(description, kDescBiasType, product.bias_type(), "the type of the bias"));
  }
  const v1::CublasLtMatmul::Matrix* const matrices[] = {&product.a(), &product.b(), &product.c(), &product.d()};
  for (int i = 0; i < 4; ++i) {
    RT_ASSIGN_OR_RETURN(matmul->layout_[i], MakeLayout(*matrices[i]));
    // A mode of 0 is the default, and versions before 12.8 do not know the attribute.
    if (matrices[i]->scale_mode() == 0 || i > 1) continue;
    RT_RETURN_IF_ERROR(Set<int32_t>(description, kDescScaleMode[i], matrices[i]->scale_mode(), "the mode of a scale"));
    // The heuristic of 13.1 has no algorithm for such scales without an address, which it does not read.
    RT_RETURN_IF_ERROR(Set(description, kDescScalePointer[i], kNoScaleYet, "a scale"));
  }
  return matmul;
}

v1::CublasLtMatmul::Algorithm CublasLt::ReadAlgorithm(const HeuristicResult& result) const {
  v1::CublasLtMatmul::Algorithm algorithm;
  algorithm.set_opaque(std::string(reinterpret_cast<const char*>(result.algorithm), kAlgorithmBytes));
  // What can't be read stays 0: it is for people.
  const auto read = [&](int attribute, size_t size) {
    int32_t value = 0;
    size_t written = 0;
    const int status = functions_->ConfigGet(result.algorithm, attribute, &value, size, &written);
    return status == 0 ? value : 0;
  };
  algorithm.set_id(read(kConfigId, 4));
  algorithm.set_tile_id(read(kConfigTile, 4));
  algorithm.set_stages_id(read(kConfigStages, 4));
  algorithm.set_split_k(read(kConfigSplitK, 4));
  algorithm.set_reduction_scheme(read(kConfigReduction, 4));
  algorithm.set_swizzling(read(kConfigSwizzling, 4));
  algorithm.set_custom_option(read(kConfigCustom, 4));
  algorithm.set_inner_shape_id(read(kConfigInnerShape, 2));
  algorithm.set_cluster_shape_id(read(kConfigCluster, 2));
  NameAlgorithm(&algorithm);
  return algorithm;
}

absl::Status CublasLt::Ask(const Matmul& matmul, int64_t workspace_bytes, int limit, std::vector<Offer>* offers) const {
  if (limit < 1) return absl::OkStatus();
  void* preference = nullptr;
  RT_RETURN_IF_ERROR(Check(functions_->PreferenceCreate(&preference), "matmul preference"));
  std::vector<HeuristicResult> results(static_cast<size_t>(limit));
  int returned = 0;
  const auto allowed = static_cast<uint64_t>(workspace_bytes);
  absl::Status status =
      Check(functions_->PreferenceSet(preference, kPreferenceWorkspace, &allowed, sizeof(allowed)), "workspace size");
  int answer = 0;
  if (status.ok()) {
    answer = functions_->Heuristic(handle_, matmul.description_, matmul.layout_[0], matmul.layout_[1],
                                   matmul.layout_[2], matmul.layout_[3], preference, limit, results.data(), &returned);
  }
  functions_->PreferenceDestroy(preference);
  RT_RETURN_IF_ERROR(status);
  // Not supported is an answer; the caller sees that there is nothing.
  if (answer != 0) return absl::OkStatus();
  for (int i = 0; i < std::min(returned, limit); ++i) {
    const HeuristicResult& result = results[static_cast<size_t>(i)];
    if (result.state != 0 || result.workspace_bytes > allowed) continue;
    Offer offer{matmul.matmul_, static_cast<int64_t>(result.workspace_bytes)};
    *offer.matmul.mutable_algorithm() = ReadAlgorithm(result);
    const bool known = std::any_of(offers->begin(), offers->end(), [&](const Offer& other) {
      return other.matmul.algorithm().opaque() == offer.matmul.algorithm().opaque();
    });
    if (known) continue;
    offer.matmul.mutable_algorithm()->set_heuristic_rank(i);
    offer.matmul.mutable_algorithm()->set_heuristic_workspace_bytes(workspace_bytes);
    offer.matmul.set_library_version(version_number());
    offers->push_back(std::move(offer));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CublasLt::Offer>> CublasLt::Algorithms(const v1::CublasLtMatmul& product,
                                                                  int64_t workspace_bytes, int limit) const {
  RT_ASSIGN_OR_RETURN(const std::unique_ptr<Matmul> matmul, Describe(product));
  std::vector<Offer> offers;
  RT_RETURN_IF_ERROR(Ask(*matmul, workspace_bytes, limit, &offers));
  if (workspace_bytes > 0) RT_RETURN_IF_ERROR(Ask(*matmul, 0, limit - static_cast<int>(offers.size()), &offers));
  if (!offers.empty()) return offers;
  return Error(absl::StatusCode::kUnimplemented, "NO_VENDOR",
               absl::StrCat(version(), " has no algorithm for this product"));
}

absl::StatusOr<std::unique_ptr<CublasLt::Matmul>> CublasLt::Make(const v1::CublasLtMatmul& matmul,
                                                                 int64_t workspace_bytes) const {
  if (matmul.library_version() != version_number()) {
    return Error(absl::StatusCode::kFailedPrecondition, "CUBLASLT_VERSION",
                 absl::StrCat("the algorithm is of cublasLt ", matmul.library_version(), ", here is ", version(), " (",
                              path_, "): algorithms are good for one version only; tune again with this one"));
  }
  const std::string& opaque = matmul.algorithm().opaque();
  if (opaque.size() != kAlgorithmBytes) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_PLAN",
                 absl::StrCat("an algorithm has ", kAlgorithmBytes, " bytes, not ", opaque.size()));
  }
  RT_ASSIGN_OR_RETURN(std::unique_ptr<Matmul> made, Describe(matmul));
  HeuristicResult result = {};
  RT_RETURN_IF_ERROR(Check(functions_->AlgoCheck(handle_, made->description_, made->layout_[0], made->layout_[1],
                                                 made->layout_[2], made->layout_[3], opaque.data(), &result),
                           "cublasLtMatmulAlgoCheck"));
  if (result.workspace_bytes <= static_cast<size_t>(std::max<int64_t>(workspace_bytes, 0))) return made;
  return Error(absl::StatusCode::kInvalidArgument, "BAD_PLAN",
               absl::StrCat("the algorithm wants a workspace of ", result.workspace_bytes, " bytes, the plan has ",
                            workspace_bytes));
}

CublasLt::Matmul::~Matmul() {
  for (void* layout : layout_) {
    if (layout != nullptr) library_.functions_->LayoutDestroy(layout);
  }
  if (description_ != nullptr) library_.functions_->DescDestroy(description_);
}

absl::StatusOr<const void*> CublasLt::Matmul::Find(const Bindings& bindings, const std::string& name) {
  if (name.empty()) return nullptr;
  const auto found = bindings.tensor.find(name);
  if (found != bindings.tensor.end()) return reinterpret_cast<const void*>(found->second);
  return Error(absl::StatusCode::kInvalidArgument, "BAD_PLAN", absl::StrCat("the plan has no tensor ", name));
}

absl::Status CublasLt::Matmul::Point(const Bindings& bindings) const {
  if (!matmul_.bias().empty()) {
    RT_ASSIGN_OR_RETURN(const void* const bias, Find(bindings, matmul_.bias()));
    RT_RETURN_IF_ERROR(library_.Set(description_, kDescBiasPointer, bias, "the bias"));
  }
  const v1::CublasLtMatmul::Matrix* const matrices[] = {&matmul_.a(), &matmul_.b()};
  for (int i = 0; i < 2; ++i) {
    if (matrices[i]->scale().empty()) continue;
    RT_ASSIGN_OR_RETURN(const void* const scale, Find(bindings, matrices[i]->scale()));
    RT_RETURN_IF_ERROR(library_.Set(description_, kDescScalePointer[i], scale, "a scale"));
  }
  return absl::OkStatus();
}

absl::Status CublasLt::Matmul::Enqueue(const Bindings& bindings) const {
  RT_RETURN_IF_ERROR(Point(bindings));
  RT_ASSIGN_OR_RETURN(const void* const a, Find(bindings, matmul_.a().tensor()));
  RT_ASSIGN_OR_RETURN(const void* const b, Find(bindings, matmul_.b().tensor()));
  RT_ASSIGN_OR_RETURN(const void* const d, Find(bindings, matmul_.d().tensor()));
  RT_ASSIGN_OR_RETURN(const void* c, Find(bindings, matmul_.c().tensor()));
  if (c == nullptr) c = d;
  RT_ASSIGN_OR_RETURN(const Scalar alpha, ScalarOf(bindings, matmul_.alpha(), matmul_.scale_type(), 1));
  RT_ASSIGN_OR_RETURN(const Scalar beta, ScalarOf(bindings, matmul_.beta(), matmul_.scale_type(), 0));
  return library_.Check(
      library_.functions_->Matmul(library_.handle_, description_, &alpha, a, layout_[0], b, layout_[1], &beta, c,
                                  layout_[2], const_cast<void*>(d), layout_[3], matmul_.algorithm().opaque().data(),
                                  reinterpret_cast<void*>(bindings.workspace),
                                  static_cast<size_t>(bindings.workspace_bytes), library_.context_.stream()),
      "cublasLtMatmul");
}

}  // namespace rooftune

// cuBLASLt and cuBLAS on the CPU for tests: fp32 only, straight from the definition of column-major products.
#include "tests/tuner/worker/fake_cublaslt.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace {

using rooftune::FakeCublasLt;

FakeCublasLt* fake = nullptr;

constexpr int kNotSupported = 15;  // CUBLAS_STATUS_NOT_SUPPORTED
constexpr int kInvalidValue = 7;   // CUBLAS_STATUS_INVALID_VALUE
constexpr int kBatch = 5, kBatchStride = 6, kTransA = 3, kTransB = 4, kEpilogue = 7, kBias = 8;
constexpr int kScale[] = {17, 18}, kScaleMode[] = {31, 32};

struct Attributes {
  std::map<int, std::string> values;
  template <typename T>
  T Get(int attribute, T fallback) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return fallback;
    T value;
    std::memcpy(&value, found->second.data(), sizeof(value));
    return value;
  }
};
struct Layout : Attributes {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0;
};
struct Result {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

template <typename T>
int Make(void** out, T value) {
  *out = new T(std::move(value));
  ++fake->alive;
  return 0;
}
template <typename T>
int Drop(void* object) {
  delete static_cast<T*>(object);
  --fake->alive;
  return 0;
}
int Put(void* object, int attribute, const void* value, size_t size) {
  static_cast<Attributes*>(object)->values[attribute] = std::string(static_cast<const char*>(value), size);
  return 0;
}

float At(const float* x, const Layout& layout, bool transposed, int64_t row, int64_t column) {
  return transposed ? x[column + row * layout.leading] : x[row + column * layout.leading];
}

float Activate(int epilogue, float x) {
  if ((epilogue & 2) != 0) return std::max(x, 0.0f);
  if ((epilogue & 32) == 0) return x;
  return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

struct Product {
  Attributes description;
  Layout a, b, c, d;
  float alpha = 1, beta = 0;
  const float* pa = nullptr;
  const float* pb = nullptr;
  const float* pc = nullptr;
  float* pd = nullptr;

  void Run(float error) const {
    const bool ta = description.Get<int32_t>(kTransA, 0) != 0, tb = description.Get<int32_t>(kTransB, 0) != 0;
    const int epilogue = description.Get<int32_t>(kEpilogue, 1);
    const auto* const bias = description.Get<const float*>(kBias, nullptr);
    const int64_t inner = static_cast<int64_t>(ta ? a.rows : a.columns);
    for (int32_t batch = 0; batch < d.Get<int32_t>(kBatch, 1); ++batch) {
      const auto of = [batch](const Layout& x) { return batch * x.Get<int64_t>(kBatchStride, 0); };
      for (int64_t i = 0; i < static_cast<int64_t>(d.rows); ++i) {
        for (int64_t j = 0; j < static_cast<int64_t>(d.columns); ++j) {
          float sum = 0;
          for (int64_t k = 0; k < inner; ++k) sum += At(pa + of(a), a, ta, i, k) * At(pb + of(b), b, tb, k, j);
          const int64_t at = i + j * d.leading;
          sum = alpha * sum + (beta != 0 ? beta * pc[of(c) + at] : 0) + ((epilogue & 4) != 0 ? bias[i] : 0);
          pd[of(d) + at] = Activate(epilogue, sum) + error;
        }
      }
    }
  }
};

const FakeCublasLt::Algorithm* Find(const void* algorithm) {
  uint64_t id = 0;
  std::memcpy(&id, algorithm, sizeof(id));
  for (const auto& known : fake->algorithms) {
    if (static_cast<uint64_t>(known.id) == id) return &known;
  }
  return nullptr;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void FakeCublasLtUse(FakeCublasLt* control) { fake = control; }

EXPORT size_t cublasLtGetVersion() { return fake->version; }
EXPORT const char* cublasLtGetStatusName(int status) {
  return status == kNotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_SOMETHING";
}
EXPORT int cublasLtCreate(void** handle) { return Make(handle, 0); }
EXPORT int cublasLtDestroy(void* handle) { return Drop<int>(handle); }
EXPORT int cublasLtMatmulDescCreate(void** description, int, int) { return Make(description, Attributes()); }
EXPORT int cublasLtMatmulDescDestroy(void* description) { return Drop<Attributes>(description); }
EXPORT int cublasLtMatmulDescSetAttribute(void* object, int attribute, const void* value, size_t size) {
  return Put(object, attribute, value, size);
}
EXPORT int cublasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  Layout layout;
  layout.type = type;
  layout.rows = rows;
  layout.columns = columns;
  layout.leading = leading;
  return Make(out, layout);
}
EXPORT int cublasLtMatrixLayoutDestroy(void* layout) { return Drop<Layout>(layout); }
EXPORT int cublasLtMatrixLayoutSetAttribute(void* object, int attribute, const void* value, size_t size) {
  return Put(static_cast<Layout*>(object), attribute, value, size);
}
EXPORT int cublasLtMatmulPreferenceCreate(void** out) { return Make(out, Attributes()); }
EXPORT int cublasLtMatmulPreferenceDestroy(void* preference) { return Drop<Attributes>(preference); }
EXPORT int cublasLtMatmulPreferenceSetAttribute(void* object, int attribute, const void* value, size_t size) {
  return Put(object, attribute, value, size);
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, void* description, void* a, void*, void*, void*, void* preference,
                                          int wanted, Result* results, int* returned) {
  *returned = 0;
  if (static_cast<Layout*>(a)->type != 0) return kNotSupported;  // not fp32
  const auto& asked = *static_cast<Attributes*>(description);
  for (int i = 0; i < 2; ++i) {
    // As cuBLASLt 13.1 answers.
    if (asked.Get<int32_t>(kScaleMode[i], 0) != 0 && asked.Get<uintptr_t>(kScale[i], 0) == 0) return kInvalidValue;
  }
  const auto allowed = static_cast<Attributes*>(preference)->Get<uint64_t>(1, 0);
  for (const auto& algorithm : fake->algorithms) {
    if (*returned == wanted || algorithm.workspace_bytes > allowed) continue;
    Result& result = results[(*returned)++];
    result = {};
    result.algorithm[0] = static_cast<uint64_t>(algorithm.id);
    result.workspace_bytes = algorithm.workspace_bytes;
    result.state = algorithm.state;
  }
  return *returned > 0 ? 0 : kNotSupported;
}

EXPORT int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const void* algorithm, Result* result) {
  const auto* const found = Find(algorithm);
  if (found == nullptr) return kNotSupported;
  result->workspace_bytes = found->workspace_bytes;
  return 0;
}

EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const void* algorithm, int attribute, void* value, size_t size,
                                                size_t* written) {
  // A tile of 128x256, 64xAUTO stages and a cluster of 2x1x1; 0 or 1 elsewhere.
  const int32_t values[] = {Find(algorithm)->id, 23, 1, 0, 0, 0, 35, 0, 3};
  if (attribute < 0 || attribute > 8) return 7;
  std::memcpy(value, &values[attribute], size);
  *written = size;
  return 0;
}

EXPORT int cublasLtMatmul(void*, void* description, const void* alpha, const void* a, void* a_layout, const void* b,
                          void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                          const void* algorithm, void* workspace, size_t workspace_bytes, void*) {
  const auto* const found = Find(algorithm);
  if (found == nullptr || found->status != 0) return found == nullptr ? kNotSupported : found->status;
  if (workspace_bytes < found->workspace_bytes) return 7;
  Product product;
  product.description = *static_cast<Attributes*>(description);
  product.a = *static_cast<Layout*>(a_layout);
  product.b = *static_cast<Layout*>(b_layout);
  product.c = *static_cast<Layout*>(c_layout);
  product.d = *static_cast<Layout*>(d_layout);
  std::memcpy(&product.alpha, alpha, sizeof(float));
  std::memcpy(&product.beta, beta, sizeof(float));
  product.pa = static_cast<const float*>(a);
  product.pb = static_cast<const float*>(b);
  product.pc = static_cast<const float*>(c);
  product.pd = static_cast<float*>(d);
  fake->epilogues.push_back(product.description.Get<int32_t>(kEpilogue, 1));
  fake->submit(found->us, [product, workspace, algorithm = *found] {
    if (workspace != nullptr) std::memset(workspace, 7, algorithm.workspace_bytes + algorithm.overrun);
    product.Run(algorithm.wrong ? 1.0f : 0.0f);
  });
  return 0;
}

EXPORT int cublasCreate_v2(void** handle) { return Make(handle, 0); }
EXPORT int cublasDestroy_v2(void* handle) { return Drop<int>(handle); }
EXPORT int cublasGetVersion_v2(void*, int* version) {
  *version = static_cast<int>(fake->version);
  return 0;
}
EXPORT const char* cublasGetStatusName(int) { return "CUBLAS_STATUS_SOMETHING"; }
EXPORT int cublasSetStream_v2(void*, void*) { return 0; }
EXPORT int cublasSetWorkspace_v2(void*, void*, size_t) { return 0; }

EXPORT int cublasGemmStridedBatchedEx(void*, int trans_a, int trans_b, int m, int n, int k, const void* alpha,
                                      const void* a, int, int lda, long long stride_a, const void* b, int, int ldb,
                                      long long stride_b, const void* beta, void* c, int, int ldc, long long stride_c,
                                      int batch, int, int) {
  const auto layout = [batch](int rows, int columns, int leading, long long stride) {
    Layout made;
    made.rows = static_cast<uint64_t>(rows);
    made.columns = static_cast<uint64_t>(columns);
    made.leading = leading;
    const int64_t step = stride;
    Put(&made, kBatch, &batch, sizeof(batch));
    Put(&made, kBatchStride, &step, sizeof(step));
    return made;
  };
  Product product;
  Put(&product.description, kTransA, &trans_a, sizeof(trans_a));
  Put(&product.description, kTransB, &trans_b, sizeof(trans_b));
  product.a = trans_a != 0 ? layout(k, m, lda, stride_a) : layout(m, k, lda, stride_a);
  product.b = trans_b != 0 ? layout(n, k, ldb, stride_b) : layout(k, n, ldb, stride_b);
  product.c = product.d = layout(m, n, ldc, stride_c);
  std::memcpy(&product.alpha, alpha, sizeof(float));
  std::memcpy(&product.beta, beta, sizeof(float));
  product.pa = static_cast<const float*>(a);
  product.pb = static_cast<const float*>(b);
  product.pc = product.pd = static_cast<float*>(c);
  fake->submit(fake->gemm_us, [product] { product.Run(0); });
  return 0;
}

EXPORT int cublasGemmEx(void* handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha, const void* a,
                        int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type,
                        int ldc, int compute, int algorithm) {
  return cublasGemmStridedBatchedEx(handle, trans_a, trans_b, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0,
                                    beta, c, c_type, ldc, 0, 1, compute, algorithm);
}

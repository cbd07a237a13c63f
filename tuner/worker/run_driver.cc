#include "tuner/worker/run_driver.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "tuner/worker/run_library.h"
#include "tuner/worker/run_outcome.h"

namespace rooftune {
namespace {

// Name of the first required symbol that is missing, or empty.
std::string Resolve(const DynamicLibrary& library, cuda::Functions& functions) {
  std::string missing;
#define ROOFTUNE_CUDA_FIND(member, symbol, parameters) \
  functions.member = reinterpret_cast<decltype(functions.member)>(library.Find(symbol));
#define ROOFTUNE_CUDA_NEED(member, symbol, parameters) \
  ROOFTUNE_CUDA_FIND(member, symbol, parameters)       \
  if (functions.member == nullptr && missing.empty()) missing = symbol;
  ROOFTUNE_CUDA_REQUIRED(ROOFTUNE_CUDA_NEED)
  ROOFTUNE_CUDA_OPTIONAL(ROOFTUNE_CUDA_FIND)
#undef ROOFTUNE_CUDA_NEED
#undef ROOFTUNE_CUDA_FIND
  return missing;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDriver>> CudaDriver::Load() {
  const std::string chosen = EnvironmentOr("ROOFTUNE_LIBCUDA");
  const absl::StatusOr<DynamicLibrary> library = DynamicLibrary::Open({chosen.empty() ? "libcuda.so.1" : chosen});
  if (!library.ok()) {
    return Error(absl::StatusCode::kUnavailable, "NO_DRIVER",
                 absl::StrCat("no CUDA driver: ", library.status().message(),
                              " (install NVIDIA's driver, or name its libcuda.so.1 in ROOFTUNE_LIBCUDA)"));
  }
  std::unique_ptr<CudaDriver> driver(new CudaDriver);
  driver->path_ = library->path();
  const std::string missing = Resolve(*library, *driver);
  if (!missing.empty()) {
    return Error(absl::StatusCode::kUnavailable, "NO_DRIVER",
                 absl::StrCat("CUDA driver ", library->path(), " has no ", missing, ": it is older than CUDA 11.8"));
  }
  const cuda::Result result = driver->Init(0);
  if (result != 0) {
    const absl::Status status = driver->Check(result, "cuInit");
    return Error(absl::StatusCode::kUnavailable, "NO_DRIVER", status.message());
  }
  driver->DriverGetVersion(&driver->version_);
  if (driver->LogsRegisterCallback != nullptr && driver->LogsUnregisterCallback != nullptr &&
      driver->LogsRegisterCallback(&OnLog, driver.get(), &driver->log_handle_) != 0) {
    driver->log_handle_ = nullptr;
  }
  return driver;
}

std::unique_ptr<CudaDriver> CudaDriver::FromFunctions(const cuda::Functions& functions) {
  std::unique_ptr<CudaDriver> driver(new CudaDriver);
  static_cast<cuda::Functions&>(*driver) = functions;
  return driver;
}

CudaDriver::~CudaDriver() {
  if (log_handle_ != nullptr) LogsUnregisterCallback(log_handle_);
}

void CudaDriver::OnLog(void* self, int /*level*/, char* message, size_t length) {
  CudaDriver* const driver = static_cast<CudaDriver*>(self);
  constexpr size_t kMaxLog = 512;
  absl::MutexLock lock(&driver->log_mutex_);
  driver->last_log_.assign(message, length < kMaxLog ? length : kMaxLog);
  while (!driver->last_log_.empty() && static_cast<unsigned char>(driver->last_log_.back()) <= ' ') {
    driver->last_log_.pop_back();
  }
}

absl::Status CudaDriver::Check(cuda::Result result, absl::string_view what) const {
  if (result == 0) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (GetErrorName(result, &name) != 0 || name == nullptr) name = "unknown error";
  if (GetErrorString(result, &text) != 0 || text == nullptr) text = "";
  std::string message = absl::StrCat(what, ": ", name, " (", result, "): ", text);
  {
    absl::MutexLock lock(&log_mutex_);
    if (!last_log_.empty()) absl::StrAppend(&message, " [", last_log_, "]");
    last_log_.clear();
  }
  return CudaStatus(result, message);
}

bool CudaDriver::has_virtual_memory() const {
  return MemGetGranularity != nullptr && MemCreate != nullptr && MemRelease != nullptr &&
         MemAddressReserve != nullptr && MemAddressFree != nullptr && MemMap != nullptr && MemUnmap != nullptr &&
         MemSetAccess != nullptr;
}

}  // namespace rooftune

// What this machine has, without a context on any GPU: nothing here disturbs whoever measures.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tuner/worker/roles.h"
#include "tuner/worker/run_device.h"
#include "tuner/worker/run_driver.h"
#include "tuner/worker/run_library.h"
#include "tuner/worker/run_monitor.h"
#include "tuner/worker/run_nvml.h"

namespace rooftune {
namespace {

worker::v1::Library* AddLibrary(const std::string& name, worker::v1::ProbeResult* result) {
  worker::v1::Library* const library = result->add_library();
  library->set_name(name);
  return library;
}

// A MIG device has its profile in its name: "NVIDIA H200 MIG 1g.18gb" gives "1g.18gb".
std::string MigProfileOf(const std::string& device_name) {
  constexpr char kMark[] = " MIG ";
  const size_t at = device_name.find(kMark);
  return at == std::string::npos ? "" : device_name.substr(at + sizeof(kMark) - 1);
}

void FillFromDriver(const CudaDriver& driver, const DeviceId& id, worker::v1::DeviceInfo* info) {
  const auto get = [&](int attribute) { return DeviceAttributeOr(driver, id.device, attribute, 0); };
  constexpr int kKhzPerMhz = 1000;
  info->set_ordinal(id.ordinal);
  char name[256] = {};
  if (driver.DeviceGetName(name, sizeof(name), id.device) == 0) info->set_name(name);
  info->set_mig_profile(MigProfileOf(info->name()));
  info->set_cc(get(cuda::kComputeCapabilityMajor) * 10 + get(cuda::kComputeCapabilityMinor));
  info->set_sm_count(get(cuda::kMultiprocessorCount));
  size_t bytes = 0;
  if (driver.DeviceTotalMem(&bytes, id.device) == 0) info->set_memory_bytes(static_cast<int64_t>(bytes));
  info->set_l2_bytes(get(cuda::kL2Bytes));
  info->set_max_clock_mhz(get(cuda::kClockRateKhz) / kKhzPerMhz);
  info->set_memory_clock_mhz(get(cuda::kMemoryClockRateKhz) / kKhzPerMhz);
  info->set_memory_bus_bits(get(cuda::kMemoryBusBits));
  info->set_shared_per_block_optin_bytes(get(cuda::kSharedPerBlockOptin));
  info->set_shared_per_sm_bytes(get(cuda::kSharedPerMultiprocessor));
  info->set_registers_per_sm(get(cuda::kRegistersPerMultiprocessor));
  info->set_threads_per_sm(get(cuda::kThreadsPerMultiprocessor));
}

void FillFromNvml(const Nvml& nvml, const DeviceId& id, worker::v1::DeviceInfo* info) {
  const Nvml::State state = nvml.Read(id.uuid);
  info->set_power_limit_watts(state.power_limit_watts);
  if (state.max_sm_clock_mhz > 0) info->set_max_clock_mhz(state.max_sm_clock_mhz);
  info->set_free_memory_bytes(nvml.FreeMemory(id.uuid));
  SharingFacts sharing;
  sharing.mig_profile = info->mig_profile();
  sharing.mig_mode = state.mig;
  sharing.compute_mode = state.compute_mode;
  sharing.mps = HasMpsPipe();
  sharing.other_processes = std::max(state.processes, 0);  // the probe holds no context
  info->set_sharing(SharingText(sharing));
  info->set_driver(nvml.DriverVersion());
}

void ProbeCublasLt(worker::v1::ProbeResult* result) {
  worker::v1::Library* const entry = AddLibrary("cublasLt", result);
  const auto library =
      DynamicLibrary::Open({EnvironmentOr("ROOFTUNE_LIBCUBLASLT"), "libcublasLt.so.13", "libcublasLt.so.12"});
  if (!library.ok()) {
    entry->set_error(std::string(library.status().message()));
    return;
  }
  entry->set_path(library->path());
  const auto version = reinterpret_cast<size_t (*)()>(library->Find("cublasLtGetVersion"));
  if (version != nullptr) entry->set_version(absl::StrCat(version()));
}

}  // namespace

void ProbeDriver(worker::v1::ProbeResult* result) {
  worker::v1::Library* const cuda_entry = AddLibrary("cuda", result);
  worker::v1::Library* const nvml_entry = AddLibrary("nvml", result);
  ProbeCublasLt(result);

  const absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open();
  if (nvml.ok()) {
    nvml_entry->set_path((*nvml)->path());
    nvml_entry->set_version((*nvml)->DriverVersion());
  } else {
    nvml_entry->set_error(std::string(nvml.status().message()));
  }
  const absl::StatusOr<std::unique_ptr<CudaDriver>> driver = CudaDriver::Load();
  if (!driver.ok()) {
    cuda_entry->set_error(std::string(driver.status().message()));
    result->set_message(std::string(driver.status().message()));
    return;
  }
  cuda_entry->set_path((*driver)->path());
  cuda_entry->set_version(absl::StrCat((*driver)->version() / 1000, ".", (*driver)->version() % 1000 / 10));
  result->set_driver_cuda_version((*driver)->version());
  int count = 0;
  if ((*driver)->DeviceGetCount(&count) != 0) count = 0;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const absl::StatusOr<DeviceId> id = FindDevice(**driver, ordinal);
    if (!id.ok()) continue;
    worker::v1::DeviceInfo* const info = result->add_device();
    FillFromDriver(**driver, *id, info);
    if (nvml.ok()) FillFromNvml(**nvml, *id, info);
  }
  if (result->device().empty()) result->set_message("the CUDA driver shows no device");
}

}  // namespace rooftune

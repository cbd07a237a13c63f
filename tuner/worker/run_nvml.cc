#include "tuner/worker/run_nvml.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace rooftune {
namespace {

using Device = struct NvmlDeviceTag*;

constexpr int kClockSm = 1;    // NVML_CLOCK_SM
constexpr int kGpuSensor = 0;  // NVML_TEMPERATURE_GPU
constexpr unsigned kMaxProcesses = 64;
constexpr int kInsufficientSize = 7;  // NVML_ERROR_INSUFFICIENT_SIZE

// nvmlProcessInfo_t (v2, which nvmlDeviceGetComputeRunningProcesses_v3 fills).
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

// nvmlProcessUtilizationSample_t; utilisation in percent of the sample's time.
struct UtilizationSample {
  unsigned pid;
  unsigned long long time_us;
  unsigned sm;
  unsigned memory;
  unsigned encoder;
  unsigned decoder;
};
static_assert(sizeof(UtilizationSample) == 32);
constexpr unsigned kMaxUtilizationSamples = 256;
constexpr int kNotFound = 6;  // NVML_ERROR_NOT_FOUND: no sample since then

// nvmlMemory_t.
struct MemoryInfo {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

}  // namespace

struct Nvml::Functions {
  int (*Init)() = nullptr;
  int (*Shutdown)() = nullptr;
  int (*DriverVersion)(char*, unsigned) = nullptr;
  int (*HandleByUuid)(const char*, Device*) = nullptr;
  int (*PowerLimit)(Device, unsigned*) = nullptr;  // milliwatts
  int (*MaxClock)(Device, int type, unsigned*) = nullptr;
  int (*Clock)(Device, int type, unsigned*) = nullptr;
  int (*Reasons)(Device, unsigned long long*) = nullptr;
  int (*MigMode)(Device, unsigned* current, unsigned* pending) = nullptr;
  int (*Processes)(Device, unsigned* count, ProcessInfo*) = nullptr;
  int (*Memory)(Device, MemoryInfo*) = nullptr;
  int (*Power)(Device, unsigned*) = nullptr;  // milliwatts
  int (*Temperature)(Device, int sensor, unsigned*) = nullptr;
  int (*ComputeMode)(Device, int*) = nullptr;
  int (*TotalEnergy)(Device, unsigned long long*) = nullptr;  // millijoules
  int (*Utilization)(Device, UtilizationSample*, unsigned* count, unsigned long long since_us) = nullptr;
};

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open() {
  absl::StatusOr<DynamicLibrary> library =
      DynamicLibrary::Open({EnvironmentOr("ROOFTUNE_LIBNVML"), "libnvidia-ml.so.1"});
  if (!library.ok()) return library.status();
  std::unique_ptr<Nvml> nvml(new Nvml);
  nvml->path_ = library->path();
  auto functions = std::make_unique<Functions>();
  const auto find = [&](auto& function, const char* symbol, const char* older = nullptr) {
    void* found = library->Find(symbol);
    if (found == nullptr && older != nullptr) found = library->Find(older);
    function = reinterpret_cast<std::decay_t<decltype(function)>>(found);
  };
  find(functions->Init, "nvmlInit_v2");
  find(functions->Shutdown, "nvmlShutdown");
  find(functions->DriverVersion, "nvmlSystemGetDriverVersion");
  find(functions->HandleByUuid, "nvmlDeviceGetHandleByUUID");
  find(functions->PowerLimit, "nvmlDeviceGetEnforcedPowerLimit");
  find(functions->MaxClock, "nvmlDeviceGetMaxClockInfo");
  find(functions->Clock, "nvmlDeviceGetClockInfo");
  find(functions->Reasons, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons");
  find(functions->MigMode, "nvmlDeviceGetMigMode");
  find(functions->Processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  find(functions->Memory, "nvmlDeviceGetMemoryInfo");
  find(functions->Power, "nvmlDeviceGetPowerUsage");
  find(functions->Temperature, "nvmlDeviceGetTemperature");
  find(functions->ComputeMode, "nvmlDeviceGetComputeMode");
  find(functions->TotalEnergy, "nvmlDeviceGetTotalEnergyConsumption");
  find(functions->Utilization, "nvmlDeviceGetProcessUtilization");
  if (functions->Init == nullptr) {
    return Error(absl::StatusCode::kUnavailable, "NO_NVML", absl::StrCat(library->path(), " has no nvmlInit_v2"));
  }
  const int status = functions->Init();
  if (status != 0) {
    return Error(absl::StatusCode::kUnavailable, "NO_NVML", absl::StrCat("nvmlInit: error ", status));
  }
  nvml->functions_ = std::move(functions);
  return nvml;
}

Nvml::~Nvml() {
  if (functions_ != nullptr && functions_->Shutdown != nullptr) functions_->Shutdown();
}

std::string Nvml::DriverVersion() const {
  char text[96] = {};
  if (functions_->DriverVersion == nullptr || functions_->DriverVersion(text, sizeof(text)) != 0) return "";
  return text;
}

Nvml::State Nvml::Read(const std::string& uuid) const {
  State state;
  const Functions& f = *functions_;
  Device device = nullptr;
  if (f.HandleByUuid == nullptr || f.HandleByUuid(uuid.c_str(), &device) != 0) return state;
  unsigned value = 0;
  if (f.PowerLimit != nullptr && f.PowerLimit(device, &value) == 0) {
    state.power_limit_watts = static_cast<int>((value + 500) / 1000);
  }
  if (f.MaxClock != nullptr && f.MaxClock(device, kClockSm, &value) == 0)
    state.max_sm_clock_mhz = static_cast<int>(value);
  if (f.Clock != nullptr && f.Clock(device, kClockSm, &value) == 0) state.sm_clock_mhz = static_cast<int>(value);
  unsigned long long reasons = 0;
  if (f.Reasons != nullptr && f.Reasons(device, &reasons) == 0) state.throttle_reasons = reasons;
  unsigned pending = 0;
  if (f.MigMode != nullptr && f.MigMode(device, &value, &pending) == 0) state.mig = value != 0;
  int mode = 0;
  if (f.ComputeMode != nullptr && f.ComputeMode(device, &mode) == 0) state.compute_mode = mode;
  ProcessInfo processes[kMaxProcesses] = {};
  unsigned count = kMaxProcesses;
  if (f.Processes != nullptr) {
    const int status = f.Processes(device, &count, processes);
    if (status == 0 || status == kInsufficientSize) state.processes = static_cast<int>(count);
  }
  return state;
}

void* Nvml::Handle(const std::string& uuid) {
  if (uuid == handle_uuid_) return handle_;
  Device device = nullptr;
  if (functions_->HandleByUuid == nullptr || functions_->HandleByUuid(uuid.c_str(), &device) != 0) return nullptr;
  handle_ = device;
  handle_uuid_ = uuid;
  return handle_;
}

int64_t Nvml::TotalEnergyMj(const std::string& uuid) {
  const auto device = static_cast<Device>(Handle(uuid));
  unsigned long long energy_mj = 0;
  const bool read =
      device != nullptr && functions_->TotalEnergy != nullptr && functions_->TotalEnergy(device, &energy_mj) == 0;
  return read ? static_cast<int64_t>(energy_mj) : -1;
}

std::optional<std::vector<int>> Nvml::BusyPids(const std::string& uuid, uint64_t since_us) {
  const auto device = static_cast<Device>(Handle(uuid));
  if (device == nullptr || functions_->Utilization == nullptr) return std::nullopt;
  std::vector<UtilizationSample> samples(kMaxUtilizationSamples);
  unsigned count = kMaxUtilizationSamples;
  const int status = functions_->Utilization(device, samples.data(), &count, since_us);
  std::vector<int> pids;
  if (status == kNotFound) return pids;
  if (status != 0) return std::nullopt;
  for (unsigned i = 0; i < std::min(count, kMaxUtilizationSamples); ++i) {
    if (samples[i].sm > 0) pids.push_back(static_cast<int>(samples[i].pid));
  }
  return pids;
}

Nvml::Load Nvml::ReadLoad(const std::string& uuid) {
  Load load;
  const Functions& f = *functions_;
  const auto device = static_cast<Device>(Handle(uuid));
  if (device == nullptr) return load;
  unsigned value = 0;
  if (f.Power != nullptr && f.Power(device, &value) == 0) load.power_w = value / 1e3;
  if (f.Temperature != nullptr && f.Temperature(device, kGpuSensor, &value) == 0) load.temperature_c = value;
  unsigned long long reasons = 0;
  if (f.Reasons != nullptr && f.Reasons(device, &reasons) == 0) load.throttle_reasons = reasons;
  ProcessInfo processes[kMaxProcesses] = {};
  unsigned count = kMaxProcesses;
  const int status = f.Processes != nullptr ? f.Processes(device, &count, processes) : -1;
  load.pids_known = status == 0 || status == kInsufficientSize;
  for (unsigned i = 0; load.pids_known && i < std::min(count, kMaxProcesses); ++i) {
    load.pids.push_back(static_cast<int>(processes[i].pid));
  }
  return load;
}

int64_t Nvml::FreeMemory(const std::string& uuid) const {
  Device device = nullptr;
  MemoryInfo memory = {};
  const Functions& f = *functions_;
  const bool read = f.HandleByUuid != nullptr && f.Memory != nullptr && f.HandleByUuid(uuid.c_str(), &device) == 0 &&
                    f.Memory(device, &memory) == 0;
  return read ? static_cast<int64_t>(memory.free) : 0;
}

}  // namespace rooftune

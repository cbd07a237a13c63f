// NVML by dlopen: what the driver API does not tell. Everything is optional; a value that can't be had is 0 or empty.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_NVML_H_
#define ROOFTUNE_TUNER_WORKER_RUN_NVML_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tuner/worker/run_library.h"

namespace rooftune {

// NVML's clocks, power and reasons are up to 100 ms old: good for telling people, not for judging samples.
class Nvml {
 public:
  // UNAVAILABLE with the reason.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::string& path() const { return path_; }
  // "580.159.04".
  std::string DriverVersion() const;

  struct State {
    int power_limit_watts = 0;
    int max_sm_clock_mhz = 0;
    int sm_clock_mhz = 0;
    // nvmlClocksEventReasons bits: 0x4 = power cap.
    uint64_t throttle_reasons = 0;
    bool mig = false;
    int compute_mode = -1;  // nvmlComputeMode_t; -1 = unknown
    // Processes that compute on the GPU, ourselves included; -1 = unknown.
    int processes = -1;
  };
  // `uuid` as "GPU-…".
  State Read(const std::string& uuid) const;
  // What changes while a kernel runs; quick (some ten microseconds).
  struct Load {
    double power_w = 0;
    double temperature_c = 0;
    uint64_t throttle_reasons = 0;
    bool pids_known = false;
    std::vector<int> pids;  // of processes that hold a context, at most 64
  };
  Load ReadLoad(const std::string& uuid);
  // Energy the board used since the driver was loaded, in millijoules; -1 = not counted (before Volta, MIG).
  int64_t TotalEnergyMj(const std::string& uuid);
  // Processes that kept the SMs busy since `since_us` (microseconds since 1970); nullopt = not known.
  std::optional<std::vector<int>> BusyPids(const std::string& uuid, uint64_t since_us);
  // Bytes of device memory that nobody uses; 0 = unknown.
  int64_t FreeMemory(const std::string& uuid) const;

 private:
  struct Functions;
  Nvml() = default;
  // Handle of the device; looking one up takes milliseconds, so the last one is kept. Null if there is none.
  void* Handle(const std::string& uuid);
  std::string path_;
  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;  // of handle_uuid_
  std::string handle_uuid_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_NVML_H_

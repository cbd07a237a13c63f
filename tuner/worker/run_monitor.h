// Who else uses the GPU, and what keeps it from its clock: read around bursts, judged by pure functions.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_MONITOR_H_
#define ROOFTUNE_TUNER_WORKER_RUN_MONITOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

struct GpuReading {
  double power_w = 0;        // 0 = not read
  double temperature_c = 0;  // 0 = not read
  uint64_t throttle_reasons = 0;
  int foreign_processes = -1;  // that compute on the GPU and are not this daemon's; -1 = not known
};

class GpuMonitor {
 public:
  virtual ~GpuMonitor() = default;
  // Some ten microseconds.
  virtual GpuReading Read() = 0;
  // Energy the board has used, in millijoules, from some start on; -1 = not counted.
  virtual int64_t EnergyMj() { return -1; }
  // Other processes that computed on the GPU during the last second; see IdleResult.
  virtual worker::v1::IdleResult Idle() {
    worker::v1::IdleResult result;
    result.set_busy_processes(-1);
    return result;
  }
};
// By NVML; null where there is none.
std::unique_ptr<GpuMonitor> MakeNvmlMonitor(const std::string& uuid);

// Processes of `pids` that are not ours: neither `self` nor children of `parent`, which are other workers and spares of
// the same daemon. `parent_of` gives 0 for a process it can't see. -1 if `self` is not listed although others are: then
// the list names processes as another pid namespace numbers them.
int CountForeign(const std::vector<int>& pids, int self, int parent, const std::function<int(int pid)>& parent_of);

// IdleResult of the processes that hold a context and those that kept the SMs busy (nullopt = not known), `foreign`
// telling which are not ours. Where it is not known who is busy, a GPU that nobody else holds is idle all the same.
worker::v1::IdleResult JudgeIdle(const GpuReading& reading, const std::optional<std::vector<int>>& busy,
                                 const std::function<bool(int pid)>& foreign);

// One burst as it is judged.
struct BurstFacts {
  int foreign_processes = -1;
  // From the first enqueue to the end of the wait, on the host.
  double wall_us = 0;
  // What the device's events account for, with the untimed replay before the first sample.
  double device_us = 0;
  // Device time from the first sample's start to the last one's end, a sample; and the shortest of all bursts so far.
  double span_us = 0;
  double shortest_span_us = 0;
};
// True if another process computed meanwhile: there is one, and time passed that our launches do not explain. Time
// slices hide between events (a foreign spinner leaves event times nearly as they were and makes the wall time a
// hundred times longer on an H200), so both clocks are looked at.
bool IsContended(const BurstFacts& facts);

// Sums readings up into a measurement, where higher is worse.
void AddReading(const GpuReading& reading, rooftune::v1::Measurement* measurement);

// "power cap, thermal (hardware)" of nvmlClocksEventReasons bits; empty for none that slow a kernel down.
std::string ThrottleText(uint64_t reasons);

// How others may use a GPU at the same time.
struct SharingFacts {
  std::string mig_profile;
  bool mig_mode = false;
  int compute_mode = -1;    // nvmlComputeMode_t; -1 = not known
  bool mps = false;         // a control pipe of the Multi-Process Service is there
  int other_processes = 0;  // on the GPU
};
// For people; empty if nothing is known that could disturb a measurement.
std::string SharingText(const SharingFacts& facts);
// True if $CUDA_MPS_PIPE_DIRECTORY (/tmp/nvidia-mps if not set) holds a control pipe.
bool HasMpsPipe();

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_MONITOR_H_

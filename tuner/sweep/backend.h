// One device as a sweep uses it.
#ifndef ROOFTUNE_TUNER_SWEEP_BACKEND_H_
#define ROOFTUNE_TUNER_SWEEP_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "costmodel/device_profile.h"
#include "rooftune/v1/service.pb.h"
#include "tuner/compile/compiler.h"
#include "tuner/run/runner.h"

namespace rooftune {

// For hosts that also serve.
struct MeasurePolicy {
  // Measure only while nobody else computes on the GPU: looked at before the problem is set up, before each candidate
  // and before the final race.
  bool idle_only = false;
  // How long to wait for that before the sweep ends with GPU_BUSY.
  absl::Duration idle_patience = absl::Minutes(10);
  // Most device memory to use, in bytes; 0 = 90 % of what is free.
  int64_t memory_cap_bytes = 0;
};

struct Backend {
  // "cuda:0", "model:h200-sxm", "fake:FILE".
  std::string id;
  std::string device_key;
  v1::Device::Kind kind = v1::Device::MODELLED;
  DeviceProfile profile;
  v1::Environment environment;
  Compiler* compiler = nullptr;  // borrowed
  // Absent on modelled devices: their sweeps stop at COMPILED.
  std::unique_ptr<Runner> runner;
  // Why it can't be used, if it can't.
  std::string unavailable;
  // How others may use it at the same time, if they may.
  std::string sharing;
  MeasurePolicy policy;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_BACKEND_H_

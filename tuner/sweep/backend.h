// One device as a sweep uses it.
#ifndef ROOFTUNE_TUNER_SWEEP_BACKEND_H_
#define ROOFTUNE_TUNER_SWEEP_BACKEND_H_

#include <memory>
#include <string>

#include "costmodel/device_profile.h"
#include "rooftune/v1/service.pb.h"
#include "tuner/compile/compiler.h"
#include "tuner/run/runner.h"

namespace rooftune {

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
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_BACKEND_H_

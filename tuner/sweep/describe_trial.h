// What a compiled candidate tells before it runs.
#ifndef ROOFTUNE_TUNER_SWEEP_DESCRIBE_TRIAL_H_
#define ROOFTUNE_TUNER_SWEEP_DESCRIBE_TRIAL_H_

#include "absl/status/status.h"
#include "kernels/template_library.h"

namespace rooftune {

struct CompiledCandidate {
  const KernelTemplate& source;
  const Op& op;
  const Work& work;
  const Config& config;
  const DeviceProfile& device;
  const Calibration* calibration;  // may be null
  const worker::v1::CompileResult& compiled;
  const v1::LaunchPlan& plan;
  int max_spill_bytes;  // negative = no limit
};

// Fills resources, prediction, evidence COMPILED and the verdict on them (OK, SPILLS, CONSTRAINT).
absl::Status DescribeTrial(const CompiledCandidate& candidate, v1::Trial& trial);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_DESCRIBE_TRIAL_H_

// What has to happen on a device before any candidate of an operator can run there.
#ifndef ROOFTUNE_TUNER_SWEEP_PREPARE_DEVICE_H_
#define ROOFTUNE_TUNER_SWEEP_PREPARE_DEVICE_H_

#include "absl/status/status.h"
#include "kernels/template_library.h"
#include "tuner/sweep/backend.h"

namespace rooftune {

// Compiles the harness and the reference kernel and sets the problem up on the backend's runner, which must exist.
// RESOURCE_EXHAUSTED (OUT_OF_MEMORY) if it does not fit, FAILED_PRECONDITION (HARNESS_COMPILE_FAILED,
// PREPARE_FAILED); errors of compiler and runner as they are.
absl::Status PrepareDevice(const TemplateLibrary& library, Backend& backend, const Op& op, uint64_t seed,
                           v1::L2State l2);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_PREPARE_DEVICE_H_

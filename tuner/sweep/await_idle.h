// The policy to measure on an idle GPU only.
#ifndef ROOFTUNE_TUNER_SWEEP_AWAIT_IDLE_H_
#define ROOFTUNE_TUNER_SWEEP_AWAIT_IDLE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "tuner/sweep/backend.h"

namespace rooftune {

// Returns at once unless the backend's policy is to measure on an idle GPU only; else asks, on the thread that owns the
// device, until nobody else computes there. `waiting` is told the reason when the wait begins and then every few
// seconds; `stop` ends it. UNAVAILABLE (GPU_BUSY) when patience runs out; FAILED_PRECONDITION (IDLE_UNKNOWN) if it
// can't be told; CANCELLED after `stop`; errors of the runner.
absl::Status AwaitIdle(Backend& backend, Clock& clock, const std::function<bool()>& stop,
                       const std::function<void(const std::string& reason)>& waiting);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_AWAIT_IDLE_H_

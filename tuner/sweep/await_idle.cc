#include "tuner/sweep/await_idle.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// NVML's utilisation is of the last second or so: asking more often tells nothing new.
constexpr absl::Duration kPoll = absl::Milliseconds(250);
constexpr absl::Duration kTellEvery = absl::Seconds(5);

}  // namespace

absl::Status AwaitIdle(Backend& backend, Clock& clock, const std::function<bool()>& stop,
                       const std::function<void(const std::string& reason)>& waiting) {
  if (!backend.policy.idle_only || backend.runner == nullptr) return absl::OkStatus();
  const absl::Time begin = clock.Now();
  absl::Time told = absl::InfinitePast();
  while (true) {
    RT_ASSIGN_OR_RETURN(const worker::v1::IdleResult idle, backend.runner->Idle());
    if (idle.busy_processes() == 0) return absl::OkStatus();
    if (idle.busy_processes() < 0) {
      return Error(absl::StatusCode::kFailedPrecondition, "IDLE_UNKNOWN",
                   absl::StrCat("this daemon measures on idle GPUs only (--idle-only), and it can't be told whether ",
                                backend.id, " is: ", idle.message()));
    }
    const absl::Time now = clock.Now();
    if (now - begin >= backend.policy.idle_patience) {
      return Error(absl::StatusCode::kUnavailable, "GPU_BUSY",
                   absl::StrCat(backend.id, " was not idle for ", absl::FormatDuration(backend.policy.idle_patience),
                                " (", idle.message(), "), and this daemon measures on idle GPUs only (--idle-only)"));
    }
    if (stop()) return absl::CancelledError("stopped while waiting for an idle GPU");
    if (now - told >= kTellEvery) {
      told = now;
      waiting(absl::StrCat("waiting until ", backend.id, " is idle: ", idle.message()));
    }
    clock.Sleep(kPoll);
  }
}

}  // namespace rooftune

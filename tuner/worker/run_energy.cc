// Energy of a launch, by the board's counter around windows of continuous load.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "tuner/worker/run_outcome.h"
#include "tuner/worker/run_session.h"

namespace rooftune {
namespace {

// The counter moves every 20 to 100 ms. A window starts and ends as it moves, so that what is lost is a batch's length
// (some milliseconds) and not the counter's step.
constexpr absl::Duration kWindow = absl::Milliseconds(300);
// A counter that has not moved after so long a load does not count.
constexpr absl::Duration kPatience = absl::Seconds(1);
constexpr double kBatchUs = 5000;
constexpr int kMaxBatch = 64;
// An interval needs several, and their least and most then hold the median with 75 %.
constexpr int kWindows = 3;

absl::Status NoEnergy(absl::string_view why) {
  return Error(absl::StatusCode::kFailedPrecondition, "NO_ENERGY", absl::StrCat("the energy can't be measured: ", why));
}

}  // namespace

absl::StatusOr<int64_t> KernelTimer::NextEnergy(int64_t from_mj, absl::Time least, int64_t* launches) {
  const int batch = std::clamp(static_cast<int>(kBatchUs / std::max(sample_us_, 1.0)), 1, kMaxBatch);
  const absl::Time latest = std::max(least, context_.clock.Now()) + kPatience;
  int64_t last_mj = from_mj;
  while (true) {
    for (int i = 0; i < batch; ++i) {
      RT_ASSIGN_OR_RETURN(const int executions, NextChunk());
      *launches += executions;
    }
    RT_RETURN_IF_ERROR(context_.gpu.Synchronize("load for the energy counter"));
    const int64_t now_mj = context_.monitor->EnergyMj();
    if (now_mj < last_mj) return NoEnergy("the counter went back");
    const absl::Time now = context_.clock.Now();
    // Only as it moves is the value of this moment.
    if (now_mj > last_mj && now >= least) return now_mj;
    last_mj = now_mj;
    if (now > latest) return NoEnergy("the counter does not move under load");
  }
}

absl::Status KernelTimer::EnergyWindow() {
  const int64_t before_mj = context_.monitor != nullptr ? context_.monitor->EnergyMj() : -1;
  if (before_mj < 0) return NoEnergy("NVML does not count it on this GPU");
  if (graphs_.empty()) return NoEnergy("the kernel was given up before it could be repeated");
  int64_t launches = 0;
  RT_ASSIGN_OR_RETURN(const int64_t start_mj, NextEnergy(before_mj, absl::InfinitePast(), &launches));
  launches = 0;
  RT_ASSIGN_OR_RETURN(const int64_t end_mj, NextEnergy(start_mj, context_.clock.Now() + kWindow, &launches));
  energy_uj_.push_back(1e3 * static_cast<double>(end_mj - start_mj) / static_cast<double>(launches));
  energy_launches_ += launches;
  return absl::OkStatus();
}

void RunSession::MeasureEnergy(const std::function<void(size_t)>& progress,
                               const std::vector<Participant*>& participants) const {
  for (int window = 0; window < kWindows; ++window) {
    for (size_t i = 0; i < participants.size(); ++i) {
      Participant* const participant = participants[i];
      if (participant->is_out || participant->timer == nullptr || participant->timer->abandoned() ||
          !participant->result.energy_error().empty()) {
        continue;
      }
      progress(i);
      const absl::Status status = participant->timer->EnergyWindow();
      if (status.ok()) continue;
      // A kernel that faults only after thousands of launches has failed as any other.
      if (CudaErrorOf(status) != 0) {
        Fail(status, /*is_baseline=*/false, participant);
        if (IsStickyCudaError(CudaErrorOf(status))) return;
      } else {
        participant->result.set_energy_error(std::string(status.message()));
      }
    }
  }
}

}  // namespace rooftune

#include "tuner/sweep/measure_policy.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tuner/search/policies.h"

namespace rooftune {
namespace {

// Full-rate tensor work throttles an H200 after 39–70 ms of continuous load (measured 2026-11-29); bursts of 3 ms with
// rests as long keep 98 % of the cool rate, and after half a second of load a rest of 20 ms brings back 95 %, one of
// 50 ms 99 %. Memory-bound kernels do not throttle. A screening burst holds three samples, so that two bursts do.
constexpr double kScreenBurstMs = 6, kScreenRestMs = 20;
constexpr double kRaceBurstMs = 5, kRaceRestMs = 50;
constexpr double kMemoryRestMs = 1;
// A candidate this many times slower than the best so far can't be the best: throttling after a short rest costs at
// most a tenth. Its first burst is its time.
constexpr double kAbandonFactor = 1.25;
constexpr double kFlaggedBelow = 0.97;

worker::v1::MeasureOptions Common(const v1::SweepSpec& spec, const v1::Bounds& bounds) {
  worker::v1::MeasureOptions options;
  options.set_l2(spec.l2());
  options.set_clock(spec.clock());
  options.set_target_relative_ci(0.01);
  options.set_target_absolute_ci_us(0.5);
  options.set_floor_us(bounds.floor_us());
  options.set_energy(NeedsEnergy(spec.objective()));
  return options;
}

}  // namespace

worker::v1::MeasureOptions ScreeningOptions(const v1::SweepSpec& spec, const v1::Bounds& bounds, double best_us) {
  worker::v1::MeasureOptions options = Common(spec, bounds);
  options.set_min_samples(5);
  options.set_max_samples(11);
  options.set_burst_ms(kScreenBurstMs);
  options.set_rest_ms(bounds.bound() == v1::COMPUTE ? kScreenRestMs : kMemoryRestMs);
  options.set_abandon_above_us(best_us * kAbandonFactor);
  return options;
}

worker::v1::MeasureOptions RaceOptions(const v1::SweepSpec& spec, const v1::Bounds& bounds) {
  worker::v1::MeasureOptions options = Common(spec, bounds);
  options.set_min_samples(9);
  // Twelve or so come from the rounds; the rest only for a kernel whose interval is still too wide.
  options.set_max_samples(61);
  options.set_burst_ms(kRaceBurstMs);
  options.set_rest_ms(bounds.bound() == v1::COMPUTE ? kRaceRestMs : kMemoryRestMs);
  return options;
}

bool BeatsAttainable(const v1::Measurement& measurement, const v1::Bounds& bounds) {
  return bounds.attainable_us() > 0 && measurement.l2() != v1::WARM && measurement.median_us() > 0 &&
         measurement.median_us() < kFlaggedBelow * bounds.attainable_us();
}

void FlagBeatsAttainable(const v1::Bounds& bounds, v1::Trial& trial) {
  if (trial.outcome() != v1::OK || !BeatsAttainable(trial.measurement(), bounds)) return;
  trial.set_beats_attainable(true);
  const double percent = 100 * (1 - trial.measurement().median_us() / bounds.attainable_us());
  trial.set_message(absl::StrCat(trial.message(), trial.message().empty() ? "" : "; ",
                                 absl::StrFormat("%.1f %% below the attainable %.2f us (%s)", percent,
                                                 bounds.attainable_us(), bounds.attainable_source())));
}

std::vector<std::string> BaselinesFor(bool is_gemm, const v1::Bounds& bounds) {
  if (is_gemm) return {"cublas", "cublaslt_first"};
  if (bounds.bound() == v1::COMPUTE) return {};
  return {"copy"};
}

}  // namespace rooftune

// How candidates and finalists are measured: pure choices.
#ifndef ROOFTUNE_TUNER_SWEEP_MEASURE_POLICY_H_
#define ROOFTUNE_TUNER_SWEEP_MEASURE_POLICY_H_

#include <string>
#include <vector>

#include "rooftune/v1/records.pb.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

// Options of the first measurement of every candidate: enough to tell who is worth the final race.
// `best_us` is the best so far (0 = none): a slower candidate is given up early (kAbandonFactor).
worker::v1::MeasureOptions ScreeningOptions(const v1::SweepSpec& spec, const v1::Bounds& bounds, double best_us);

// Options of the final interleaved race, whose figures are served.
worker::v1::MeasureOptions RaceOptions(const v1::SweepSpec& spec, const v1::Bounds& bounds);

// A time this far below what is attainable on the card is worth a second look: an old calibration, other clocks, or
// a measurement that lies. False for warm measurements and unknown bounds.
bool BeatsAttainable(const v1::Measurement& measurement, const v1::Bounds& bounds);
// Sets the flag of a measured OK trial and says so in its message.
void FlagBeatsAttainable(const v1::Bounds& bounds, v1::Trial& trial);

// Names of the baselines a cost class is compared with.
std::vector<std::string> BaselinesFor(bool is_gemm, const v1::Bounds& bounds);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_MEASURE_POLICY_H_

// Stretches of time, for telling how much of what happened at once. Pure.
#ifndef ROOFTUNE_TUNER_SWEEP_INTERVALS_H_
#define ROOFTUNE_TUNER_SWEEP_INTERVALS_H_

#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace rooftune {

// Begin and end; those that end before they begin are empty. In any order, and they may overlap.
using Intervals = std::vector<std::pair<absl::Time, absl::Time>>;

// Time that lies in at least one of them.
absl::Duration Covered(Intervals intervals);
// Time that lies in one of `a` and in one of `b`.
absl::Duration CoveredByBoth(Intervals a, Intervals b);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_INTERVALS_H_

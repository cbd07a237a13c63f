// Whether a trial that was measured again says the same. Pure.
#ifndef ROOFTUNE_TUNER_SWEEP_REPLAY_H_
#define ROOFTUNE_TUNER_SWEEP_REPLAY_H_

#include "rooftune/v1/service.pb.h"

namespace rooftune {

// Two trials agree if they have the same outcome and, where both were timed, their 95 % intervals meet. An interval
// narrower than what the stop rule asks for (1 % or 0.5 us) counts as that wide: order statistics of a few alike
// samples can be narrower than what the next start of the same kernel differs by.
v1::ReplayTrialResponse CompareReplay(const v1::Trial& before, const v1::Trial& after);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_REPLAY_H_

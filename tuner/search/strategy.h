// Order in which candidates are tried: ask and tell, deterministic for a seed. When to stop is not its
// business (ShouldStop in tuner/search/policies.h).
#ifndef ROOFTUNE_TUNER_SEARCH_STRATEGY_H_
#define ROOFTUNE_TUNER_SEARCH_STRATEGY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/v1/records.pb.h"

namespace rooftune {

// A point of the union of all templates' spaces, after pruning.
struct SearchPoint {
  int template_index = 0;
  int64_t space_index = 0;
  // From the static prediction; infinite = the model gives it no chance.
  double predicted_us = 0;
  bool is_default = false;
};

// Single-threaded.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string name() const = 0;
  // Position (into the points given at creation) to try next; nullopt when there is none left. Never
  // proposes a position twice. Default configurations come first whatever the strategy.
  virtual std::optional<int64_t> Next() = 0;
  // What became of it; `time_us` is set for OK outcomes on a GPU.
  virtual void Tell(int64_t position, v1::Outcome outcome, std::optional<double> time_us) = 0;
};

// EXHAUSTIVE: order of the points. RANDOM: a seeded permutation. MODEL: by predicted time, every fifth one
// drawn at random from the rest so that a wrong model can be found out; also what an unspecified kind means.
// INVALID_ARGUMENT (UNKNOWN_STRATEGY) for any other kind.
absl::StatusOr<std::unique_ptr<Strategy>> MakeStrategy(v1::StrategyKind kind, std::vector<SearchPoint> points,
                                                       uint64_t seed);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SEARCH_STRATEGY_H_

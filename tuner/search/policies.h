// Decisions of a sweep as pure functions.
#ifndef ROOFTUNE_TUNER_SEARCH_POLICIES_H_
#define ROOFTUNE_TUNER_SEARCH_POLICIES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/device_profile.h"
#include "costmodel/predictor.h"
#include "rooftune/v1/records.pb.h"
#include "rooftune/v1/service.pb.h"

namespace rooftune {

// Reason to prune a configuration before compiling ("shared memory 240 KiB > 227 KiB", …), or nullopt.
std::optional<std::string> PruneStatic(const v1::Resources& resources, const DeviceProfile& device);

// Reason to reject a compiled candidate (spills past the limit, does not fit), with its outcome.
struct CompiledVerdict {
  v1::Outcome outcome = v1::OK;
  std::string message;
};
CompiledVerdict JudgeCompiled(const v1::Resources& resources, int max_spill_bytes, const DeviceProfile& device);

struct StopState {
  int started = 0;
  int max_trials = 0;  // 0 = no limit
  double elapsed_s = 0;
  double time_budget_s = 0;  // 0 = no limit
  bool cancelled = false;
  bool device_lost = false;
};
// True if no further candidate may be started. Budgets are exact.
bool ShouldStop(const StopState& state);

// What a measurement is worth to an objective; less is better. All 0 if it has no usable value: no time, or no energy
// where the objective needs it. A measurement without an interval is a point.
struct Score {
  double value = 0;
  double low = 0;
  double high = 0;
  bool usable() const { return value > 0; }
};
Score ScoreOf(const v1::Measurement& measurement, v1::Objective objective);
bool NeedsEnergy(v1::Objective objective);

// Trials worth the final race: OK ones whose interval reaches down to the best one's upper end or within
// 3 % of the best value; best first, at most `limit`.
std::vector<int> SelectFinalists(const std::vector<v1::Trial>& trials, int limit, v1::Objective objective = v1::TIME);

// Index of the entrant to crown among finalists raced together: the lowest score; among those that it does not
// beat beyond noise (a tie), the one with the smaller footprint (workspace, then shared memory, then order). -1 if none
// has a measurement.
struct RaceEntry {
  v1::Measurement measurement;
  v1::Outcome outcome = v1::OK;
  int64_t workspace_bytes = 0;
  int64_t shared_bytes = 0;
  bool incumbent = false;
  // An algorithm of a vendor's library, not a template.
  bool vendor = false;
  // Two launches on equal inputs gave other bits.
  bool nondeterministic = false;
  // RunResult.round_us.
  std::vector<double> round_us = {};
};
// Whether `a` is faster than `b` beyond noise. By time and with at least six rounds in which both were measured: the
// 95 % interval of the median ratio of the two in a round lies above 1.001 (a thousandth is nothing to anybody).
// Otherwise: the interval of `a` lies wholly below that of `b`.
bool Beats(const RaceEntry& a, const RaceEntry& b, v1::Objective objective = v1::TIME);
struct RaceVerdict {
  int winner = -1;
  // The others of the tie, fastest first; the winner is not among them.
  std::vector<int> ties;
  // The incumbent stays unless the winner beats it.
  bool keep_incumbent = false;
};
RaceVerdict JudgeRace(const std::vector<RaceEntry>& entries, v1::Objective objective = v1::TIME);

// Who is served when a vendor's library raced along: templates are judged among themselves and so is the library
// (JudgeRace, each with its own incumbent). Indices into the entries; -1 = none could be measured.
struct ProviderVerdict {
  // The best of each kind: the incumbent unless it is beaten.
  int best_template = -1;
  int best_vendor = -1;
  // One of the two: the template, unless the library's beats it and those it ties with. What is served now is likewise
  // only displaced beyond noise.
  int served = -1;
  // Of the kind of `served`, as RaceVerdict has them.
  std::vector<int> ties;
};
// `vendor_serves`: the current record of the key is the library's.
ProviderVerdict JudgeProviders(const std::vector<RaceEntry>& entries, bool vendor_serves,
                               v1::Objective objective = v1::TIME);

// Deadline of one candidate on the GPU in milliseconds: from its predicted time, never under 1000 (a trap
// takes up to 0.6 s to be reported). A positive `requested_ms` takes the prediction's place.
int RunDeadlineMs(double predicted_us, int requested_ms);

// Distance of two shapes of one kind: the sum over dims of |log2 ratio|; nullopt if attributes differ.
struct OpFacts {
  std::string kind;
  std::vector<std::pair<std::string, int64_t>> dims;
  std::vector<std::pair<std::string, std::string>> attributes;
};
std::optional<double> ShapeDistance(const OpFacts& a, const OpFacts& b);

// How a record answers a query made in `wanted`, if at all; fills what differs.
v1::Match MatchEnvironment(const v1::Environment& record, const v1::Environment& wanted, bool newer_revision,
                           std::vector<std::pair<std::string, std::string>>* difference);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SEARCH_POLICIES_H_

// Races of a session: participants take turns, burst by burst, so that what drifts drifts for all.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "tuner/worker/run_outcome.h"
#include "tuner/worker/run_session.h"
#include "tuner/worker/run_statistics.h"

namespace rooftune {
namespace {

constexpr int kMaxEntrants = 64;
constexpr int kDefaultRounds = 20;
constexpr int kMaxRounds = 1000;
constexpr int kDefaultTimeoutMs = 60'000;
constexpr double kShareForSampling = 0.6;

worker::v1::RaceResult Refused(const std::string& message) {
  worker::v1::RaceResult result;
  result.set_outcome(v1::NOT_RUN);
  result.set_message(message);
  return result;
}

}  // namespace

void RunSession::SetUpEntrant(const worker::v1::RaceRequest& request, int i, Participant* participant) {
  const worker::v1::Entrant& entrant = request.entrant(i);
  const bool is_baseline = entrant.has_baseline();
  absl::Status status = is_baseline ? SetUpBaseline(entrant.baseline().name(), participant)
                                    : SetUpCandidate(entrant.candidate(), /*twice=*/true, participant);
  if (status.ok() && !participant->is_out) {
    worker::v1::MeasureOptions options = request.options();
    // Everyone runs to the end: the order of arrival must not matter.
    options.set_abandon_above_us(0);
    status = SetUpTimer(options, participant);
  }
  if (!status.ok()) Fail(status, is_baseline, participant);
}

void RunSession::RunRounds(const worker::v1::RaceRequest& request, const Progress& progress,
                           std::vector<Participant>* participants) {
  const int timeout_ms = request.timeout_ms() > 0 ? request.timeout_ms() : kDefaultTimeoutMs;
  const absl::Time deadline = absl::Now() + absl::Milliseconds(timeout_ms * kShareForSampling);
  const int rounds = request.rounds() > 0 ? std::min(request.rounds(), kMaxRounds) : kDefaultRounds;
  const int n = static_cast<int>(participants->size());
  for (int round = 0; round < kMaxRounds && absl::Now() < deadline; ++round) {
    bool anyone_left = false;
    for (Participant& participant : *participants) participant.round_us.push_back(0);
    // Rounds are for interleaving; whoever lost bursts to throttling or is noisy gets more until its samples suffice.
    const bool extra = round >= rounds;
    for (int turn = 0; turn < n; ++turn) {
      // The first of a round follows a rest or another's heat: everyone is first in turn.
      const int i = (round + turn) % n;
      Participant& participant = (*participants)[static_cast<size_t>(i)];
      if (participant.is_out) continue;
      const int have = static_cast<int>(participant.timer->samples().size());
      const int left = participant.timer->options().max_samples() - have;
      if (left <= 0 || (extra && participant.timer->Enough())) continue;
      anyone_left = true;
      progress(i);
      const absl::Status status = participant.timer->Burst(left);
      if (status.ok()) {
        const std::vector<double>& samples = participant.timer->samples();
        // Fewer than before: a drift was noticed, and what belongs to this round is not known.
        if (static_cast<int>(samples.size()) > have) {
          participant.round_us.back() = Median({samples.begin() + have, samples.end()});
        }
        continue;
      }
      Fail(status, request.entrant(i).has_baseline(), &participant);
      if (IsStickyCudaError(CudaErrorOf(status))) return;
    }
    if (!anyone_left) return;
  }
}

worker::v1::RaceResult RunSession::Race(const worker::v1::RaceRequest& request, const Progress& progress) {
  if (problem_ == nullptr) return Refused("no problem is prepared");
  if (request.entrant_size() < 1 || request.entrant_size() > kMaxEntrants) {
    return Refused(absl::StrCat("a race has 1 to ", kMaxEntrants, " entrants, not ", request.entrant_size()));
  }
  // Never moved: their work refers to them.
  std::vector<Participant> participants(static_cast<size_t>(request.entrant_size()));
  bool poisoned = false;
  for (int i = 0; i < request.entrant_size() && !poisoned; ++i) {
    progress(i);
    SetUpEntrant(request, i, &participants[static_cast<size_t>(i)]);
    poisoned = participants[static_cast<size_t>(i)].is_out && IsPoisoned();
  }
  if (!poisoned) {
    RunRounds(request, progress, &participants);
    if (request.options().energy() && !IsPoisoned()) {
      std::vector<Participant*> candidates;
      std::vector<int> positions;
      for (int i = 0; i < request.entrant_size(); ++i) {
        if (request.entrant(i).has_baseline()) continue;
        candidates.push_back(&participants[static_cast<size_t>(i)]);
        positions.push_back(i);
      }
      MeasureEnergy([&](size_t at) { progress(positions[at]); }, candidates);
    }
    poisoned = IsPoisoned();
  }
  worker::v1::RaceResult race;
  race.set_outcome(poisoned ? v1::CRASHED : v1::OK);
  if (poisoned) race.set_message("an entrant poisoned the process; the others have no result");
  for (Participant& participant : participants) {
    if (participant.is_out) {
      *race.add_result() = participant.result;
      continue;
    }
    if (poisoned || participant.timer == nullptr) {
      participant.result.set_outcome(v1::NOT_RUN);
    } else {
      const Verdict verdict = participant.timer->Finish(participant.result.mutable_measurement());
      participant.result.set_outcome(verdict.outcome);
      participant.result.set_message(verdict.message);
      participant.result.mutable_round_us()->Add(participant.round_us.begin(), participant.round_us.end());
    }
    *race.add_result() = participant.result;
  }
  return race;
}

}  // namespace rooftune

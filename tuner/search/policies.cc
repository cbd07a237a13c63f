#include "tuner/search/policies.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "costmodel/occupancy.h"

namespace rooftune {
namespace {

// Trials this close to the best median go to the final race even if their intervals are apart: clocks drift by
// about as much between the first and the last candidate of a sweep.
constexpr double kFinalistMargin = 1.03;

// Deadline of a candidate: fixed costs (loading, verification, a trap's report) and 1000 launches at twice the
// predicted time. Slow operators need fewer launches: at least 20 of them fit under the usual maximum.
constexpr double kDeadlineBaseMs = 2000;
constexpr double kDeadlineLaunches = 2 * 1000;
constexpr double kDeadlineUsualMaxMs = 30'000;
constexpr double kDeadlineLeastLaunches = 20;
constexpr double kDeadlineMinMs = 1000;
constexpr double kDeadlineMaxMs = 600'000;

std::string Bytes(int64_t bytes) {
  if (bytes % 1024 == 0) return absl::StrCat(bytes / 1024, " KiB");
  return bytes < 1024 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f KiB", static_cast<double>(bytes) / 1024);
}

int64_t SharedBytes(const v1::Resources& resources) {
  return int64_t{resources.static_shared_bytes()} + resources.dynamic_shared_bytes();
}

Score MakeScore(double value, double low, double high) {
  if (!std::isfinite(value) || value <= 0) return {};
  return {value, std::min(low > 0 ? low : value, value), std::max(high > 0 ? high : value, value)};
}

// How much faster a kernel must be in each pair to count as faster.
constexpr double kPairedMargin = 1.001;

// Place of the lower end of the 95 % interval of the median among n values in ascending order (order statistics: at most
// 2.5 % that so few of n lie below the median). -1 if n is too small for one.
int LowerPlace(size_t n) {
  double probability = std::pow(0.5, static_cast<double>(n));
  double sum = 0;
  int place = -1;
  for (size_t k = 0; k < n && (sum += probability) <= 0.025; ++k) {
    place = static_cast<int>(k);
    probability *= static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return place;
}

// "13.0" of "13.0.48".
std::string MajorMinor(const std::string& version) {
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  return parts.size() < 2 ? version : absl::StrCat(parts[0], ".", parts[1]);
}

// The branch "580" of the driver "580.159.04": releases of a branch keep the compiler in the driver.
std::string DriverBranch(const std::string& version) {
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  return parts[0];
}

}  // namespace

std::optional<std::string> PruneStatic(const v1::Resources& resources, const DeviceProfile& device) {
  // A limit of 0 in the profile and an estimate of 0 mean unknown: neither prunes.
  const int threads = resources.threads_per_block();
  if (device.threads_per_block_max() > 0 && threads > device.threads_per_block_max()) {
    return absl::StrCat("threads per block ", threads, " > ", device.threads_per_block_max());
  }
  const int64_t shared = SharedBytes(resources);
  if (device.shared_per_block_optin_bytes() > 0 && shared > device.shared_per_block_optin_bytes()) {
    return absl::StrCat("shared memory ", Bytes(shared), " > ", Bytes(device.shared_per_block_optin_bytes()));
  }
  const int registers = resources.registers_per_thread();
  if (device.registers_per_thread_max() > 0 && registers > device.registers_per_thread_max()) {
    return absl::StrCat("registers per thread ", registers, " > ", device.registers_per_thread_max());
  }
  const int64_t block_registers = int64_t{registers} * threads;
  if (device.registers_per_sm() > 0 && block_registers > device.registers_per_sm()) {
    return absl::StrCat("registers per block ", block_registers, " > ", device.registers_per_sm());
  }
  return std::nullopt;
}

CompiledVerdict JudgeCompiled(const v1::Resources& resources, int max_spill_bytes, const DeviceProfile& device) {
  if (const auto reason = PruneStatic(resources, device)) return {v1::CONSTRAINT, *reason};
  if (resources.threads_per_block() > 0) {
    const Occupancy occupancy = ComputeOccupancy(resources.threads_per_block(), resources.registers_per_thread(),
                                                 SharedBytes(resources), device);
    if (occupancy.blocks_per_sm <= 0) {
      return {v1::CONSTRAINT, absl::StrCat("no block fits on an SM: ", occupancy.limiter)};
    }
  }
  const int64_t spills = int64_t{resources.spill_store_bytes()} + resources.spill_load_bytes();
  if (max_spill_bytes >= 0 && spills > max_spill_bytes) {
    return {v1::SPILLS, absl::StrCat("spills ", resources.spill_store_bytes(), " B stores and ",
                                     resources.spill_load_bytes(), " B loads; the limit is ", max_spill_bytes, " B")};
  }
  return {v1::OK, ""};
}

bool ShouldStop(const StopState& state) {
  return state.cancelled || state.device_lost || (state.max_trials > 0 && state.started >= state.max_trials) ||
         (state.time_budget_s > 0 && state.elapsed_s >= state.time_budget_s);
}

bool NeedsEnergy(v1::Objective objective) { return objective == v1::ENERGY || objective == v1::ENERGY_DELAY; }

Score ScoreOf(const v1::Measurement& m, v1::Objective objective) {
  const Score time = MakeScore(m.median_us(), m.ci_low_us(), m.ci_high_us());
  if (!NeedsEnergy(objective) || !time.usable()) return time;
  const Score energy = MakeScore(m.energy_uj(), m.energy_low_uj(), m.energy_high_uj());
  if (objective == v1::ENERGY || !energy.usable()) return energy;
  return {time.value * energy.value, time.low * energy.low, time.high * energy.high};
}

std::vector<int> SelectFinalists(const std::vector<v1::Trial>& trials, int limit, v1::Objective objective) {
  std::vector<int> order;
  std::vector<Score> scores;
  for (const v1::Trial& trial : trials) {
    scores.push_back(trial.outcome() == v1::OK ? ScoreOf(trial.measurement(), objective) : Score());
    if (scores.back().usable()) order.push_back(static_cast<int>(scores.size()) - 1);
  }
  if (order.empty() || limit <= 0) return {};
  const auto score = [&scores](int i) -> const Score& { return scores[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return score(a).value < score(b).value; });
  const double reach = score(order[0]).high;
  const double margin = score(order[0]).value * kFinalistMargin;
  const auto out = [&](int i) { return score(i).low > reach && score(i).value > margin; };
  order.erase(std::remove_if(order.begin(), order.end(), out), order.end());
  if (order.size() > static_cast<size_t>(limit)) order.resize(static_cast<size_t>(limit));
  return order;
}

bool Beats(const RaceEntry& a, const RaceEntry& b, v1::Objective objective) {
  if (!NeedsEnergy(objective)) {
    std::vector<double> ratios;
    for (size_t i = 0; i < std::min(a.round_us.size(), b.round_us.size()); ++i) {
      if (a.round_us[i] > 0 && b.round_us[i] > 0) ratios.push_back(b.round_us[i] / a.round_us[i]);
    }
    std::sort(ratios.begin(), ratios.end());
    const int place = LowerPlace(ratios.size());
    if (place >= 0) return ratios[static_cast<size_t>(place)] > kPairedMargin;
  }
  return ScoreOf(a.measurement, objective).high < ScoreOf(b.measurement, objective).low;
}

RaceVerdict JudgeRace(const std::vector<RaceEntry>& entries, v1::Objective objective) {
  RaceVerdict verdict;
  std::vector<int> order;
  std::vector<Score> scores;
  for (const RaceEntry& entry : entries) {
    scores.push_back(entry.outcome == v1::OK ? ScoreOf(entry.measurement, objective) : Score());
    if (scores.back().usable()) order.push_back(static_cast<int>(scores.size()) - 1);
  }
  if (order.empty()) return verdict;
  const auto entry = [&entries](int i) -> const RaceEntry& { return entries[static_cast<size_t>(i)]; };
  const auto score = [&scores](int i) -> const Score& { return scores[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return score(a).value < score(b).value; });
  std::vector<int> tied;
  for (const int i : order) {
    if (!Beats(entry(order[0]), entry(i), objective)) tied.push_back(i);
  }
  verdict.winner = *std::min_element(tied.begin(), tied.end(), [&](int a, int b) {
    return std::make_tuple(entry(a).workspace_bytes, entry(a).shared_bytes, a) <
           std::make_tuple(entry(b).workspace_bytes, entry(b).shared_bytes, b);
  });
  for (const int i : tied) {
    if (i != verdict.winner) verdict.ties.push_back(i);
  }
  for (const int i : order) {
    if (!entry(i).incumbent) continue;
    verdict.keep_incumbent = i == verdict.winner || !Beats(entry(verdict.winner), entry(i), objective);
  }
  return verdict;
}

namespace {

// The best among the entries of one kind, by the index of all entries.
struct KindVerdict {
  int best = -1;
  std::vector<int> ties;
};

KindVerdict JudgeKind(const std::vector<RaceEntry>& entries, bool vendor, v1::Objective objective) {
  std::vector<RaceEntry> kind;
  std::vector<int> index;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].vendor != vendor) continue;
    kind.push_back(entries[i]);
    index.push_back(static_cast<int>(i));
  }
  const RaceVerdict verdict = JudgeRace(kind, objective);
  KindVerdict result;
  if (verdict.winner < 0) return result;
  const auto at = [&index](int i) { return index[static_cast<size_t>(i)]; };
  result.best = at(verdict.winner);
  for (const int i : verdict.ties) result.ties.push_back(at(i));
  if (!verdict.keep_incumbent) return result;
  for (size_t i = 0; i < kind.size(); ++i) {
    if (kind[i].incumbent && kind[i].outcome == v1::OK && ScoreOf(kind[i].measurement, objective).usable()) {
      result.best = index[i];
      result.ties.clear();
    }
  }
  return result;
}

}  // namespace

ProviderVerdict JudgeProviders(const std::vector<RaceEntry>& entries, bool vendor_serves, v1::Objective objective) {
  const KindVerdict templates = JudgeKind(entries, false, objective);
  const KindVerdict vendor = JudgeKind(entries, true, objective);
  const auto entry = [&entries](int i) -> const RaceEntry& { return entries[static_cast<size_t>(i)]; };
  ProviderVerdict verdict;
  verdict.best_template = templates.best;
  verdict.best_vendor = vendor.best;
  bool serve_vendor = vendor.best >= 0;
  if (templates.best >= 0 && vendor.best >= 0) {
    // The winner of a tie may be a little slower than the fastest.
    std::vector<int> own = templates.ties;
    own.push_back(templates.best);
    const RaceEntry& library = entry(vendor.best);
    serve_vendor = vendor_serves
                       ? std::none_of(own.begin(), own.end(), [&](int i) { return Beats(entry(i), library, objective); })
                       : std::all_of(own.begin(), own.end(), [&](int i) { return Beats(library, entry(i), objective); });
  }
  verdict.served = serve_vendor ? vendor.best : templates.best;
  verdict.ties = serve_vendor ? vendor.ties : templates.ties;
  return verdict;
}

int RunDeadlineMs(double predicted_us, int requested_ms) {
  if (requested_ms > 0) return static_cast<int>(std::clamp<double>(requested_ms, kDeadlineMinMs, kDeadlineMaxMs));
  if (std::isnan(predicted_us) || predicted_us < 0) predicted_us = 0;
  const double predicted_ms = predicted_us / 1000;
  const double usual_max = std::max(kDeadlineUsualMaxMs, kDeadlineLeastLaunches * predicted_ms);
  const double deadline = std::min(kDeadlineBaseMs + kDeadlineLaunches * predicted_ms, usual_max);
  return static_cast<int>(std::clamp(deadline, kDeadlineMinMs, kDeadlineMaxMs));
}

std::optional<double> ShapeDistance(const OpFacts& a, const OpFacts& b) {
  if (a.kind != b.kind || a.dims.size() != b.dims.size()) return std::nullopt;
  auto attributes_a = a.attributes;
  auto attributes_b = b.attributes;
  std::sort(attributes_a.begin(), attributes_a.end());
  std::sort(attributes_b.begin(), attributes_b.end());
  if (attributes_a != attributes_b) return std::nullopt;
  double distance = 0;
  for (const auto& [name, extent] : a.dims) {
    const auto other =
        std::find_if(b.dims.begin(), b.dims.end(), [&name = name](const auto& dim) { return dim.first == name; });
    if (other == b.dims.end() || extent <= 0 || other->second <= 0) return std::nullopt;
    distance += std::abs(std::log2(static_cast<double>(extent)) - std::log2(static_cast<double>(other->second)));
  }
  return distance;
}

v1::Match MatchEnvironment(const v1::Environment& record, const v1::Environment& wanted, bool newer_revision,
                           std::vector<std::pair<std::string, std::string>>* difference) {
  const auto differs = [difference](const char* field, const std::string& text) {
    if (difference != nullptr) difference->emplace_back(field, text);
  };
  bool exact = true;
  if (DriverBranch(record.driver()) != DriverBranch(wanted.driver())) {
    exact = false;
    differs("driver", absl::StrCat(record.driver(), " → ", wanted.driver()));
  }
  if (MajorMinor(record.nvrtc()) != MajorMinor(wanted.nvrtc())) {
    exact = false;
    differs("nvrtc", absl::StrCat(record.nvrtc(), " → ", wanted.nvrtc()));
  }
  if (newer_revision) {
    exact = false;
    differs("template_revision", "the template has a newer revision");
  }
  return exact ? v1::EXACT : v1::ENVIRONMENT_DIFFERS;
}

}  // namespace rooftune

#include "tuner/worker/run_statistics.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace rooftune {
namespace {

constexpr double kReplayUs = 2000;
constexpr int kMaxGraphNodes = 300;
constexpr double kThrottledBelow = 0.97;
constexpr int kRejectedBeforeRebase = 2;
constexpr double kNoisyAbove = 0.2;
constexpr int kMaxRestarts = 3;
// Fewer samples can't show a trend at 1 %.
constexpr size_t kTrendSamples = 7;
constexpr double kTrendZ = 2.58;  // two-sided 1 %

// Largest k with P(Binomial(n, 1/2) < k) ≤ 2.5 %: the interval runs from the k-th smallest sample to the k-th
// largest. 0 if there is none.
int IntervalRank(int n) {
  constexpr double kTail = 0.025;
  // Beyond this the normal approximation is exact to a rank, and 2^-n no longer underflows below it.
  constexpr int kExactUpTo = 500;
  if (n > kExactUpTo) return static_cast<int>((n - 1.96 * std::sqrt(static_cast<double>(n))) / 2);
  double term = std::pow(0.5, n);
  double below = 0;
  int k = 0;
  while (k < n / 2 && below + term <= kTail) {
    below += term;
    term = term * (n - k) / (k + 1);
    ++k;
  }
  return k;
}

struct Thirds {
  double first = 0;
  double last = 0;
};
Thirds MediansOfThirds(const std::vector<double>& samples) {
  const auto third = static_cast<std::ptrdiff_t>(std::max<size_t>(1, samples.size() / 3));
  return {Median({samples.begin(), samples.begin() + third}), Median({samples.end() - third, samples.end()})};
}

}  // namespace

double Median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  return n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

Interval MedianInterval95(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const int rank = std::max(1, IntervalRank(static_cast<int>(samples.size())));
  return {samples[static_cast<size_t>(rank - 1)], samples[samples.size() - static_cast<size_t>(rank)]};
}

worker::v1::MeasureOptions WithDefaults(worker::v1::MeasureOptions options) {
  constexpr int kMostSamples = 1000;
  if (options.l2() == v1::L2_STATE_UNSPECIFIED) options.set_l2(v1::COLD);
  if (options.clock() == v1::CLOCK_STATE_UNSPECIFIED) options.set_clock(v1::COOL);
  if (options.min_samples() <= 0) options.set_min_samples(7);
  if (options.max_samples() <= 0) options.set_max_samples(100);
  options.set_max_samples(std::min(options.max_samples(), kMostSamples));
  options.set_min_samples(std::min(options.min_samples(), options.max_samples()));
  if (options.target_relative_ci() <= 0) options.set_target_relative_ci(0.01);
  if (options.target_absolute_ci_us() <= 0) options.set_target_absolute_ci_us(0.5);
  if (options.burst_ms() <= 0) options.set_burst_ms(10);
  options.set_burst_ms(std::min(options.burst_ms(), 1000.0));
  options.set_rest_ms(std::clamp(options.rest_ms(), 0.0, 1000.0));
  return options;
}

bool EnoughSamples(const std::vector<double>& samples, const worker::v1::MeasureOptions& options) {
  const int n = static_cast<int>(samples.size());
  if (n >= options.max_samples()) return true;
  if (n < options.min_samples()) return false;
  const Interval interval = MedianInterval95(samples);
  const double width = interval.high - interval.low;
  return width <= options.target_absolute_ci_us() || width <= options.target_relative_ci() * Median(samples);
}

bool Drifts(const std::vector<double>& samples, const worker::v1::MeasureOptions& options) {
  const size_t n = samples.size();
  if (n < kTrendSamples) return false;
  const Thirds thirds = MediansOfThirds(samples);
  const double change = std::abs(thirds.last - thirds.first);
  if (change <= std::max(options.target_absolute_ci_us(), options.target_relative_ci() * Median(samples))) return false;
  // Mann and Kendall's test: how many more pairs rise than fall, against its standard deviation for a series at rest.
  int64_t rising = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) rising += (samples[j] > samples[i]) - (samples[j] < samples[i]);
  }
  const auto count = static_cast<double>(n);
  const double deviation = std::sqrt(count * (count - 1) * (2 * count + 5) / 18);
  return std::abs(static_cast<double>(rising)) - 1 > kTrendZ * deviation;
}

void StopCriterion::Add(const std::vector<double>& burst) {
  samples_.insert(samples_.end(), burst.begin(), burst.end());
  if (restarts_ >= kMaxRestarts || !EnoughSamples(samples_, options_) || !Drifts(samples_, options_)) return;
  const auto half = static_cast<std::ptrdiff_t>(samples_.size() / 2);
  samples_.erase(samples_.begin(), samples_.begin() + half);
  drifting_ += static_cast<int>(half);
  ++restarts_;
}

bool StopCriterion::Done() const {
  if (static_cast<int>(samples_.size()) + drifting_ >= 2 * options_.max_samples()) return true;
  return EnoughSamples(samples_, options_);
}

Verdict StopCriterion::Finish(bool abandoned, v1::Measurement* measurement) const {
  Verdict verdict = Summarize(samples_, options_, abandoned, measurement);
  measurement->set_drifting_samples(drifting_);
  if (abandoned || verdict.outcome != v1::OK || !Drifts(samples_, options_)) return verdict;
  const Thirds thirds = MediansOfThirds(samples_);
  measurement->set_ci_low_us(std::min({measurement->ci_low_us(), thirds.first, thirds.last}));
  measurement->set_ci_high_us(std::max({measurement->ci_high_us(), thirds.first, thirds.last}));
  verdict.message = absl::StrCat("drifts from ", thirds.first, " to ", thirds.last, " us; the interval holds both");
  const double width = measurement->ci_high_us() - measurement->ci_low_us();
  if (width > kNoisyAbove * measurement->median_us() && width > options_.target_absolute_ci_us()) {
    verdict.outcome = v1::TOO_NOISY;
  }
  return verdict;
}

bool ClockGate::Accept(double before_mhz, double after_mhz) {
  reference_mhz_ = std::max({reference_mhz_, before_mhz, after_mhz});
  end_reference_mhz_ = std::max(end_reference_mhz_, after_mhz);
  const bool started_high = before_mhz <= 0 || before_mhz >= kThrottledBelow * reference_mhz_;
  const bool ended_high = after_mhz <= 0 || after_mhz >= kThrottledBelow * end_reference_mhz_;
  if (started_high && ended_high) {
    rejected_in_a_row_ = 0;
    return true;
  }
  if (++rejected_in_a_row_ <= kRejectedBeforeRebase) return false;
  if (!started_high) reference_mhz_ = before_mhz;
  if (after_mhz > 0) end_reference_mhz_ = after_mhz;
  rejected_in_a_row_ = 0;
  return true;
}

std::vector<ReplayChunk> PlanReplays(double execution_us, int nodes_per_execution, int sets, Rotation rotation) {
  const int most = std::max(1, kMaxGraphNodes / std::max(1, nodes_per_execution));
  int wanted = most;
  if (execution_us > kReplayUs / most) wanted = std::max(1, static_cast<int>(std::ceil(kReplayUs / execution_us)));
  wanted = std::min(wanted, most);
  if (rotation == Rotation::kNone || sets <= 1) {
    return {{0, rotation == Rotation::kFlushed ? 1 : wanted}};
  }
  if (wanted >= sets) {
    return {{0, rotation == Rotation::kFlushed ? sets : wanted / sets * sets}};
  }
  // Even parts, so that samples are alike.
  const int graphs = (sets + wanted - 1) / wanted;
  std::vector<ReplayChunk> chunks;
  int first = 0;
  for (int g = 0; g < graphs; ++g) {
    const int end = static_cast<int>(static_cast<int64_t>(sets) * (g + 1) / graphs);
    chunks.push_back({first, end - first});
    first = end;
  }
  return chunks;
}

Verdict Summarize(const std::vector<double>& samples, const worker::v1::MeasureOptions& options, bool abandoned,
                  v1::Measurement* measurement) {
  const double median = Median(samples);
  const Interval interval = MedianInterval95(samples);
  measurement->set_median_us(median);
  measurement->set_ci_low_us(interval.low);
  measurement->set_ci_high_us(interval.high);
  measurement->clear_sample_us();
  for (double sample : samples) measurement->add_sample_us(sample);
  if (samples.empty()) return {v1::TOO_NOISY, "no sample was accepted"};
  if (!std::isfinite(median) || median <= 0) return {v1::IMPLAUSIBLE, absl::StrCat("median of ", median, " us")};
  if (options.floor_us() > 0 && median < options.floor_us()) {
    return {v1::IMPLAUSIBLE,
            absl::StrCat("median of ", median, " us is below the physical floor of ", options.floor_us(), " us")};
  }
  const double width = interval.high - interval.low;
  if (abandoned) {
    return {v1::OK, absl::StrCat("abandoned after ", samples.size(), " samples: slower than ",
                                 options.abandon_above_us(), " us")};
  }
  if (width > kNoisyAbove * median && width > options.target_absolute_ci_us()) {
    return {v1::TOO_NOISY, absl::StrCat("95 % interval ", interval.low, " to ", interval.high, " us")};
  }
  return {};
}

}  // namespace rooftune

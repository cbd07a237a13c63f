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

bool ClockGate::Accept(double before_mhz, double after_mhz) {
  reference_mhz_ = std::max({reference_mhz_, before_mhz, after_mhz});
  double lowest = reference_mhz_;
  if (before_mhz > 0) lowest = std::min(lowest, before_mhz);
  if (after_mhz > 0) lowest = std::min(lowest, after_mhz);
  if (lowest >= kThrottledBelow * reference_mhz_) {
    rejected_in_a_row_ = 0;
    return true;
  }
  if (++rejected_in_a_row_ <= kRejectedBeforeRebase) return false;
  reference_mhz_ = lowest;
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

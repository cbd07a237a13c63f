// What samples say: median, its interval, when to stop, which bursts to believe. Pure: no GPU, no clock.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_STATISTICS_H_
#define ROOFTUNE_TUNER_WORKER_RUN_STATISTICS_H_

#include <string>
#include <vector>

#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

// 0 for no samples.
double Median(std::vector<double> samples);

struct Interval {
  double low = 0;
  double high = 0;
};
// 95 % interval of the median by order statistics, free of any assumption on the distribution. Fewer than 6
// samples can't give 95 %: then it is their whole range.
Interval MedianInterval95(std::vector<double> samples);

// Options with every 0 replaced by its default.
worker::v1::MeasureOptions WithDefaults(worker::v1::MeasureOptions options);

// True if there are enough samples: at least min_samples and an interval of at most target_relative_ci or
// target_absolute_ci_us, or max_samples. Options have their defaults.
bool EnoughSamples(const std::vector<double>& samples, const worker::v1::MeasureOptions& options);

// A verdict on all accepted samples of a measurement.
struct Verdict {
  rooftune::v1::Outcome outcome = rooftune::v1::OK;
  std::string message;
};

// True if the samples, in the order they were taken, rise or fall: Kendall's rank correlation with time is significant
// at 1 %, and what it amounts to (the medians of the first and the last third) is more than the targets of the options.
bool Drifts(const std::vector<double>& samples, const worker::v1::MeasureOptions& options);

// When to stop, and which samples count. Options have their defaults.
class StopCriterion {
 public:
  explicit StopCriterion(const worker::v1::MeasureOptions& options) : options_(options) {}

  // The samples of one burst, in order. When there would be enough but they drift, the older half is thrown away and
  // the measurement goes on: at most three times.
  void Add(const std::vector<double>& burst);
  // Enough (see EnoughSamples) and at rest, or as many as may be taken in all.
  bool Done() const;
  // Those that count, in order.
  const std::vector<double>& samples() const { return samples_; }
  // Thrown away for a drift.
  int drifting() const { return drifting_; }
  // Summarize() of what counts. If it still drifts, the interval is widened to the medians of its first and last third,
  // so that it does not claim more than is known, and the message says so.
  Verdict Finish(bool abandoned, rooftune::v1::Measurement* measurement) const;

 private:
  const worker::v1::MeasureOptions options_;
  std::vector<double> samples_;
  int drifting_ = 0;
  int restarts_ = 0;
};

// Which bursts to believe in the cool state, from the SM clock before and after each. What earlier load left behind shows
// at the start: a burst that starts more than 3 % below the highest clock seen is throttled. A kernel that draws much
// power loses some clock within each of its own bursts, so ends are compared with this kernel's other ends. The third
// such burst in a row is believed: the card can't hold its clock, and its own clock becomes the reference. One gate a
// kernel.
class ClockGate {
 public:
  explicit ClockGate(double reference_mhz = 0) : reference_mhz_(reference_mhz) {}
  // Clocks in MHz; 0 = not read, which says nothing.
  bool Accept(double before_mhz, double after_mhz);
  double reference_mhz() const { return reference_mhz_; }

 private:
  double reference_mhz_;
  double end_reference_mhz_ = 0;
  int rejected_in_a_row_ = 0;
};

// Executions that one graph holds: `count` of them on sets first, first+1, … modulo the number of sets.
struct ReplayChunk {
  int first_set = 0;
  int count = 0;
};
enum class Rotation {
  kNone,    // always set 0: warm L2
  kCold,    // all sets together exceed the L2: every set once before any again
  kFlushed  // they do not: the L2 is flushed before each graph, which may use every set once
};
// Graphs that are launched in turn, each of about 2 ms and at most 300 nodes.
std::vector<ReplayChunk> PlanReplays(double execution_us, int nodes_per_execution, int sets, Rotation rotation);

// Fills median, interval and samples of `measurement`. IMPLAUSIBLE below options.floor_us or if it is no time;
// TOO_NOISY without samples or with an interval above 20 % (unless `abandoned`: then few samples are by intent).
Verdict Summarize(const std::vector<double>& samples, const worker::v1::MeasureOptions& options, bool abandoned,
                  rooftune::v1::Measurement* measurement);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_STATISTICS_H_

// Times one piece of work: graphs of executions over rotating buffer sets, launched in bursts between events, with
// the true SM clock read on the device around each burst. One object a participant, so that races interleave them.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_TIMER_H_
#define ROOFTUNE_TUNER_WORKER_RUN_TIMER_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "tuner/worker/run_device.h"
#include "tuner/worker/run_monitor.h"
#include "tuner/worker/run_statistics.h"
#include "tuner/worker/run_support.h"

namespace rooftune {

// What is timed.
struct TimedWork {
  // Enqueues one execution on buffer set `set`; captured into graphs, so it must not wait for anything.
  std::function<absl::Status(int set)> enqueue;
  int nodes = 1;  // graph nodes of an execution
  int sets = 1;
  Rotation rotation = Rotation::kNone;
  // What is read to empty the L2 of these buffers: before each sample (Rotation::kFlushed) or burst (kCold).
  cuda::DevicePtr flush = 0;
  int64_t flush_bytes = 0;
  // Enqueued before each burst, outside the timed part: kernels that work in place find their inputs again, instead of
  // what thousands of executions made of them. May be empty.
  std::function<absl::Status()> restore;
};

// What all timers of a session share.
struct TimerContext {
  const GpuContext& gpu;
  SupportModule& support;
  GpuMonitor* monitor;  // null = nobody looks
  Clock& clock;         // for the length of bursts as the host sees it
  // Highest SM clock any timer saw, in MHz: what a cool burst is compared with.
  double& highest_clock_mhz;
};

class KernelTimer {
 public:
  // `options` are completed by defaults.
  static absl::StatusOr<std::unique_ptr<KernelTimer>> Create(TimerContext context, TimedWork work,
                                                             const worker::v1::MeasureOptions& options);

  // Runs the work a few times, chooses how often a graph repeats it, captures the graphs; in the sustained state
  // loads the device for half a second.
  absl::Status WarmUp();
  // One burst of at most `max_samples` samples; in the cool state after the rest.
  absl::Status Burst(int max_samples);
  // Bursts until the stop rule holds, the candidate is abandoned or `deadline` is over.
  absl::Status Measure(absl::Time deadline);
  // One window of continuous load by the monitor's energy counter: after WarmUp(). FAILED_PRECONDITION (NO_ENERGY) if
  // nobody counts or the counter stands still. The windows so far go into the result.
  absl::Status EnergyWindow();
  // The result so far.
  Verdict Finish(rooftune::v1::Measurement* measurement) const;

  const std::vector<double>& samples() const { return stop_.samples(); }
  const worker::v1::MeasureOptions& options() const { return options_; }
  // Nothing more is to be learned: enough samples, or others disturb every burst.
  bool Enough() const { return stop_.Done() || GaveUp(); }
  double sm_clock_mhz() const { return sm_clock_mhz_; }
  // Given up early: there is no point in its energy.
  bool abandoned() const { return abandoned_; }

 private:
  static constexpr int kMaxBurstSamples = 32;

  KernelTimer(TimerContext context, TimedWork work, const worker::v1::MeasureOptions& options)
      : context_(context),
        work_(std::move(work)),
        options_(options),
        stop_(options),
        clock_gate_(context.highest_clock_mhz) {}
  absl::StatusOr<double> EstimateUs();
  absl::Status CaptureGraphs(double execution_us);
  absl::Status Sustain();
  absl::StatusOr<int> NextChunk();
  absl::Status EnqueueBurst(int samples, std::vector<int>* executions);
  absl::Status ReadBurst(const std::vector<int>& executions);
  // Whether others computed during the burst of these many samples.
  absl::StatusOr<bool> Contended(int samples, double wall_us, const GpuReading& before, const GpuReading& after);
  bool GaveUp() const;
  // Enqueues the flush if this is the rotation that wants it `when`.
  absl::Status Flush(Rotation when);
  absl::StatusOr<std::pair<double, double>> ReadClocks();
  // Loads the device until the counter moves, at least until `least`; gives its new value and counts launches.
  absl::StatusOr<int64_t> NextEnergy(int64_t from_mj, absl::Time least, int64_t* launches);

  const TimerContext context_;
  const TimedWork work_;
  const worker::v1::MeasureOptions options_;
  std::vector<ReplayChunk> chunks_;
  std::vector<std::unique_ptr<GpuGraph>> graphs_;
  size_t next_graph_ = 0;
  // Start and end of each sample of a burst.
  std::vector<GpuEvent> events_;
  DeviceBuffer clock_words_;
  double sample_us_ = 0;  // expected length of a sample
  double rest_ms_ = 0;
  StopCriterion stop_;
  int discarded_ = 0;
  // Load and contention; only the fields of GpuReading and the contended ones are used.
  rooftune::v1::Measurement seen_;
  int contended_bursts_ = 0;
  double shortest_span_us_ = 0;
  int warmup_launches_ = 0;
  double sm_clock_mhz_ = 0;
  ClockGate clock_gate_;
  bool abandoned_ = false;
  // Microjoules of one launch, a window each.
  std::vector<double> energy_uj_;
  int64_t energy_launches_ = 0;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_TIMER_H_

#include "tuner/worker/run_timer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// Load before samples count as sustained: the clock has settled after 0.15 s on an H200; the power average needs
// longer.
constexpr absl::Duration kSustainFor = absl::Milliseconds(500);
constexpr int kEstimateRuns = 3;
constexpr double kSlowUs = 50'000;
// Below this length a sample is preceded by an untimed replay: the host needs some microseconds to submit a graph,
// which must pass while the device is busy.
constexpr double kLeadInBelowUs = 5000;
// An H200 that was throttled by 0.5 s of load is back at its cool rate after 100 ms (measured 2026-11-29).
constexpr double kLongestRestMs = 100;
constexpr int kFirstSamples = 3;
// After that many samples a time is known well enough to give a candidate up at this share of options.abandon_above_us:
// the limit of a first burst allows for throttling.
constexpr double kCloserLook = 0.865;
// One run this many times slower than where a candidate is given up is enough to know it; less may be a cold start.
constexpr double kHopeless = 3;
// What a launch between two events may take longer than one within a graph: an H200 needs 8 µs for a kernel of 2 µs. Short
// kernels are compared by their graphs alone.
constexpr double kAloneUs = 20;
// Bursts that others disturbed before any could be used.
constexpr int kMostContendedBursts = 20;
// Of the device's clock words: before and after a burst, four each.
constexpr int64_t kClockBytes = 32;

}  // namespace

absl::StatusOr<std::unique_ptr<KernelTimer>> KernelTimer::Create(TimerContext context, TimedWork work,
                                                                 const worker::v1::MeasureOptions& options) {
  std::unique_ptr<KernelTimer> timer(new KernelTimer(context, std::move(work), WithDefaults(options)));
  timer->rest_ms_ = timer->options_.rest_ms();
  for (int i = 0; i < 2 * kMaxBurstSamples; ++i) {
    RT_ASSIGN_OR_RETURN(GpuEvent event, GpuEvent::Create(context.gpu));
    timer->events_.push_back(std::move(event));
  }
  RT_ASSIGN_OR_RETURN(timer->clock_words_, DeviceBuffer::Create(context.gpu, 2 * kClockBytes));
  return timer;
}

absl::Status KernelTimer::WarmUp() {
  RT_ASSIGN_OR_RETURN(const double execution_us, EstimateUs());
  if (abandoned_) return absl::OkStatus();
  RT_RETURN_IF_ERROR(CaptureGraphs(execution_us));
  // Once through every graph, which also tells how long a sample takes. A slow candidate has been seen enough.
  const double abandon_us = options_.abandon_above_us();
  if (sample_us_ <= kSlowUs && (abandon_us <= 0 || execution_us <= abandon_us + kAloneUs)) {
    const absl::Time start = absl::Now();
    for (size_t g = 0; g < graphs_.size(); ++g) {
      RT_RETURN_IF_ERROR(graphs_[g]->Launch());
      warmup_launches_ += chunks_[g].count;
    }
    RT_RETURN_IF_ERROR(context_.gpu.Synchronize("warm-up"));
    sample_us_ = absl::ToDoubleMicroseconds(absl::Now() - start) / static_cast<double>(graphs_.size());
  }
  return options_.clock() == v1::SUSTAINED ? Sustain() : absl::OkStatus();
}

absl::StatusOr<double> KernelTimer::EstimateUs() {
  double best_us = 0;
  for (int i = 0; i < kEstimateRuns; ++i) {
    RT_RETURN_IF_ERROR(events_[0].Record());
    RT_RETURN_IF_ERROR(work_.enqueue(i % work_.sets));
    RT_RETURN_IF_ERROR(events_[1].Record());
    RT_RETURN_IF_ERROR(context_.gpu.Synchronize("warm-up"));
    ++warmup_launches_;
    RT_ASSIGN_OR_RETURN(const double us, events_[1].SinceUs(events_[0]));
    best_us = i == 0 ? us : std::min(best_us, us);
    if (options_.abandon_above_us() > 0 && us > kHopeless * options_.abandon_above_us() + kAloneUs) {
      stop_.Add({us});
      abandoned_ = true;
      break;
    }
    if (us > kSlowUs) break;
  }
  return best_us;
}

absl::Status KernelTimer::CaptureGraphs(double execution_us) {
  chunks_ = PlanReplays(execution_us, work_.nodes, work_.sets, work_.rotation);
  for (const ReplayChunk& chunk : chunks_) {
    RT_ASSIGN_OR_RETURN(std::unique_ptr<GpuGraph> graph, GpuGraph::Capture(context_.gpu, [&] {
                          for (int i = 0; i < chunk.count; ++i) {
                            RT_RETURN_IF_ERROR(work_.enqueue((chunk.first_set + i) % work_.sets));
                          }
                          return absl::OkStatus();
                        }));
    graphs_.push_back(std::move(graph));
  }
  sample_us_ = execution_us * chunks_[0].count;
  return absl::OkStatus();
}

absl::Status KernelTimer::Sustain() {
  const int batch = std::clamp(static_cast<int>(50'000 / std::max(sample_us_, 1.0)), 1, 64);
  const absl::Time until = absl::Now() + kSustainFor;
  while (absl::Now() < until) {
    for (int i = 0; i < batch; ++i) {
      RT_ASSIGN_OR_RETURN(const int executions, NextChunk());
      warmup_launches_ += executions;
    }
    RT_RETURN_IF_ERROR(context_.gpu.Synchronize("sustained load"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> KernelTimer::NextChunk() {
  const size_t g = next_graph_;
  next_graph_ = (next_graph_ + 1) % graphs_.size();
  RT_RETURN_IF_ERROR(graphs_[g]->Launch());
  return chunks_[g].count;
}

absl::Status KernelTimer::Flush(Rotation when) {
  if (work_.rotation != when || work_.flush_bytes <= 0) return absl::OkStatus();
  return context_.support.FlushRead(work_.flush, work_.flush_bytes);
}

absl::Status KernelTimer::Burst(int max_samples) {
  const double fit = options_.burst_ms() * 1000 / std::max(sample_us_, 1.0);
  const int limit = std::max(1, std::min(max_samples, kMaxBurstSamples));
  const int samples = std::clamp(static_cast<int>(fit), 1, limit);
  const bool cool = options_.clock() != v1::SUSTAINED;
  if (work_.restore) RT_RETURN_IF_ERROR(work_.restore());
  // Whoever ran before left lines of these buffers in the L2. A kernel whose own lines are the first to be evicted
  // would find them there burst after burst.
  RT_RETURN_IF_ERROR(Flush(Rotation::kCold));
  // Neither belongs to the burst, whose length tells of contention.
  RT_RETURN_IF_ERROR(context_.gpu.Synchronize("before the burst"));
  if (cool && rest_ms_ > 0) absl::SleepFor(absl::Milliseconds(rest_ms_));
  std::vector<int> executions;
  const GpuReading before = context_.monitor != nullptr ? context_.monitor->Read() : GpuReading();
  const absl::Time begin = context_.clock.Now();
  RT_RETURN_IF_ERROR(EnqueueBurst(samples, &executions));
  RT_RETURN_IF_ERROR(context_.gpu.Synchronize("timed launches"));
  const GpuReading after = context_.monitor != nullptr ? context_.monitor->Read() : GpuReading();
  const double wall_us = absl::ToDoubleMicroseconds(context_.clock.Now() - begin);
  RT_ASSIGN_OR_RETURN(const bool contended, Contended(samples, wall_us, before, after));
  if (contended) {
    discarded_ += samples;
    return absl::OkStatus();
  }
  RT_ASSIGN_OR_RETURN(const auto clocks, ReadClocks());
  context_.highest_clock_mhz = std::max({context_.highest_clock_mhz, clocks.first, clocks.second});
  const double reference_mhz = std::max({clock_gate_.reference_mhz(), clocks.first, clocks.second});
  if (cool && !clock_gate_.Accept(clocks.first, clocks.second)) {
    discarded_ += samples;
    seen_.set_throttled_samples(seen_.throttled_samples() + samples);
    rest_ms_ = std::max(options_.rest_ms(), std::clamp(rest_ms_ * 2, 20.0, kLongestRestMs));
    return absl::OkStatus();
  }
  // A kernel that can't hold the highest clock even after long rests gains nothing by them.
  if (clock_gate_.reference_mhz() < reference_mhz) rest_ms_ = options_.rest_ms();
  sm_clock_mhz_ = clocks.second;
  return ReadBurst(executions);
}

absl::StatusOr<bool> KernelTimer::Contended(int samples, double wall_us, const GpuReading& before,
                                            const GpuReading& after) {
  AddReading(before, &seen_);
  AddReading(after, &seen_);
  BurstFacts facts;
  facts.foreign_processes = std::max(before.foreign_processes, after.foreign_processes);
  facts.wall_us = wall_us;
  RT_ASSIGN_OR_RETURN(const double span_us, events_[static_cast<size_t>(2 * samples - 1)].SinceUs(events_[0]));
  facts.device_us = span_us + (sample_us_ < kLeadInBelowUs ? sample_us_ : 0);
  facts.span_us = span_us / samples;
  facts.shortest_span_us = shortest_span_us_;
  if (shortest_span_us_ == 0 || facts.span_us < shortest_span_us_) shortest_span_us_ = facts.span_us;
  if (!IsContended(facts)) return false;
  ++contended_bursts_;
  seen_.set_contended(true);
  seen_.set_contended_samples(seen_.contended_samples() + samples);
  return true;
}

bool KernelTimer::GaveUp() const { return samples().empty() && contended_bursts_ >= kMostContendedBursts; }

absl::Status KernelTimer::EnqueueBurst(int samples, std::vector<int>* executions) {
  RT_RETURN_IF_ERROR(context_.support.Clock(clock_words_.ptr()));
  if (sample_us_ < kLeadInBelowUs) {
    RT_ASSIGN_OR_RETURN(const int lead_in, NextChunk());
    if (stop_.samples().empty()) warmup_launches_ += lead_in;
  }
  for (int i = 0; i < samples; ++i) {
    RT_RETURN_IF_ERROR(Flush(Rotation::kFlushed));
    RT_RETURN_IF_ERROR(events_[static_cast<size_t>(2 * i)].Record());
    RT_ASSIGN_OR_RETURN(const int count, NextChunk());
    RT_RETURN_IF_ERROR(events_[static_cast<size_t>(2 * i + 1)].Record());
    executions->push_back(count);
  }
  return context_.support.Clock(clock_words_.ptr() + kClockBytes);
}

absl::Status KernelTimer::ReadBurst(const std::vector<int>& executions) {
  std::vector<double> burst;
  for (size_t i = 0; i < executions.size(); ++i) {
    RT_ASSIGN_OR_RETURN(const double us, events_[2 * i + 1].SinceUs(events_[2 * i]));
    burst.push_back(us / executions[i]);
  }
  stop_.Add(burst);
  return absl::OkStatus();
}

absl::StatusOr<std::pair<double, double>> KernelTimer::ReadClocks() {
  uint64_t words[8] = {};
  const CudaDriver& driver = context_.gpu.driver();
  RT_RETURN_IF_ERROR(driver.Check(driver.MemcpyDtoH(words, clock_words_.ptr(), sizeof(words)), "reading the SM clock"));
  return std::make_pair(ClockMhz(words), ClockMhz(words + 4));
}

absl::Status KernelTimer::Measure(absl::Time deadline) {
  const double abandon_us = options_.abandon_above_us();
  while (!abandoned_ && !Enough()) {
    const bool first = samples().empty();
    const int left = options_.max_samples() - static_cast<int>(samples().size());
    RT_RETURN_IF_ERROR(Burst(first && abandon_us > 0 ? std::min(left, kFirstSamples) : left));
    if (abandon_us > 0 && !samples().empty()) {
      const bool seen_well = samples().size() >= static_cast<size_t>(kFirstSamples);
      abandoned_ = *std::min_element(samples().begin(), samples().end()) > abandon_us * (seen_well ? kCloserLook : 1);
    }
    if (absl::Now() > deadline) break;
  }
  return absl::OkStatus();
}

Verdict KernelTimer::Finish(v1::Measurement* measurement) const {
  measurement->set_launches_per_sample(chunks_.empty() ? 1 : chunks_[0].count);
  measurement->set_buffer_sets(work_.rotation == Rotation::kNone ? 1 : work_.sets);
  measurement->set_warmup_launches(warmup_launches_);
  measurement->set_l2(work_.rotation == Rotation::kNone ? v1::WARM : v1::COLD);
  measurement->set_clock(options_.clock());
  measurement->set_timing(chunks_.empty() ? v1::EVENTS : v1::GRAPH);
  measurement->set_sm_clock_mhz(sm_clock_mhz_);
  measurement->set_discarded_samples(discarded_ + stop_.drifting());
  AddReading({seen_.power_w(), seen_.temperature_c(), seen_.throttle_reasons(), seen_.foreign_processes()},
             measurement);
  measurement->set_contended(seen_.contended());
  measurement->set_contended_samples(seen_.contended_samples());
  measurement->set_throttled_samples(seen_.throttled_samples());
  if (!energy_uj_.empty()) {
    measurement->set_energy_uj(Median(energy_uj_));
    measurement->set_energy_low_uj(*std::min_element(energy_uj_.begin(), energy_uj_.end()));
    measurement->set_energy_high_uj(*std::max_element(energy_uj_.begin(), energy_uj_.end()));
    measurement->set_energy_launches(energy_launches_);
  }
  Verdict verdict = stop_.Finish(abandoned_, measurement);
  if (samples().empty() && contended_bursts_ > 0) {
    verdict.message = absl::StrCat("contended: ", seen_.foreign_processes(),
                                   " other processes hold the GPU and disturbed every burst (", contended_bursts_,
                                   "); measure again when it is idle");
  } else if (verdict.outcome == v1::TOO_NOISY && seen_.throttle_reasons() != 0) {
    const std::string why = ThrottleText(seen_.throttle_reasons());
    if (!why.empty()) absl::StrAppend(&verdict.message, "; the GPU slowed down: ", why);
  }
  return verdict;
}

}  // namespace rooftune

#include "costmodel/roofline.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "costmodel/ceilings.h"

namespace rooftune {
namespace {

double ToDouble(Int128 value) { return static_cast<double>(value); }

// Bandwidth at `bytes` by linear interpolation over log(bytes); the ends are held.
double CurveAt(const device::v1::BandwidthCurve& curve, double bytes) {
  std::vector<std::pair<double, double>> points;
  for (const device::v1::BandwidthPoint& point : curve.point()) {
    if (point.bytes() > 0 && point.gbps() > 0) points.emplace_back(std::log(point.bytes()), point.gbps());
  }
  if (points.empty()) return 0;
  std::sort(points.begin(), points.end());
  const double x = std::log(std::max(bytes, 1.0));
  if (x <= points.front().first) {
    // Below the smallest transfer the time is the launch's, not the bytes': bandwidth falls with size.
    return points.front().second * std::exp(x - points.front().first);
  }
  if (x >= points.back().first) return points.back().second;
  const auto right = std::lower_bound(points.begin(), points.end(), std::make_pair(x, 0.0));
  const auto left = right - 1;
  const double t = (x - left->first) / (right->first - left->first);
  return left->second + t * (right->second - left->second);
}

// Share of what the curve's transfers move that is read; -1 if they don't move device memory.
double ReadFraction(const device::v1::BandwidthCurve& curve) {
  if (curve.mix() == "copy") return 0.5;
  if (curve.mix() == "read") return 1;
  if (curve.mix() == "write") return 0;
  absl::string_view mix = curve.mix();
  int writes = 0;
  const bool named = absl::ConsumePrefix(&mix, "read_write_") && absl::SimpleAtoi(mix, &writes) && writes > 0;
  return named ? 1.0 / (1 + writes) : -1;
}

// Time of the operations by the pipe that needs longest; pipes overlap.
struct PipeTime {
  double us = 0;
  bool sfu = false;
};

double FloorUs(const Work& work, const DeviceProfile& profile) {
  double floor = 0;
  for (const PipeOps& pipe : work.pipe_ops) {
    const double peak = PeakOpsPerUs(profile, pipe.pipe, pipe.dtype);
    if (peak > 0) floor = std::max(floor, ToDouble(pipe.ops) / peak);
  }
  // Whatever the L2 state was meant to be, as much as fits may be there: reads left by the launch before, writes
  // not yet written back.
  const double bytes = std::max(0.0, ToDouble(work.bytes()) - static_cast<double>(profile.l2_bytes()));
  const double pins = profile.memory_gbps().value() * 1e3;
  if (pins > 0) floor = std::max(floor, bytes / pins);
  return floor;
}

PipeTime AttainablePipes(const Work& work, const DeviceProfile& profile, const Calibration* calibration,
                         bool* calibrated) {
  PipeTime time;
  for (const PipeOps& pipe : work.pipe_ops) {
    const double rate = AttainableOpsPerUs(profile, calibration, pipe.pipe, pipe.dtype, calibrated);
    const double us = rate > 0 ? ToDouble(pipe.ops) / rate : 0;
    if (us > time.us) time = {us, pipe.pipe == "sfu"};
  }
  return time;
}

// Time to move the bytes, and the part of it that no amount of bandwidth shortens.
struct MemoryTime {
  double us = 0;
  double start_us = 0;
};

MemoryTime AttainableMemory(const Work& work, const DeviceProfile& profile, const Calibration* calibration,
                            v1::L2State l2, bool* calibrated) {
  const double bytes = ToDouble(work.bytes());
  if (bytes <= 0) return {};
  if (l2 == v1::WARM && ToDouble(work.footprint_bytes) <= static_cast<double>(profile.l2_bytes())) {
    const double rate = L2BytesPerUs(profile, calibration);
    return rate > 0 ? MemoryTime{kStartUs + bytes / rate, kStartUs} : MemoryTime{};
  }
  const double read_fraction = ToDouble(work.bytes_read) / bytes;
  const double large = AttainableBytesPerUs(profile, calibration, read_fraction);
  if (calibration != nullptr) {
    const double gbps = CalibratedBandwidth(*calibration, bytes, read_fraction);
    if (gbps > 0) {
      *calibrated = true;
      const double us = bytes / (gbps * 1e3);
      return {us, std::max(0.0, us - bytes / large)};
    }
  }
  return large > 0 ? MemoryTime{kStartUs + bytes / large, kStartUs} : MemoryTime{};
}

}  // namespace

v1::Bounds ComputeBounds(const Work& work, const DeviceProfile& profile, const Calibration* calibration,
                         v1::L2State l2) {
  v1::Bounds bounds;
  bounds.set_floor_us(FloorUs(work, profile));
  bool calibrated = false;
  const PipeTime pipes = AttainablePipes(work, profile, calibration, &calibrated);
  const MemoryTime memory = AttainableMemory(work, profile, calibration, l2, &calibrated);
  const double launch = LaunchUs(calibration);
  const double attainable = std::max({pipes.us, memory.us, launch, bounds.floor_us()});
  bounds.set_attainable_us(attainable);
  bounds.set_attainable_source("profile");
  if (calibrated) {
    const absl::Time time = absl::FromUnixSeconds(calibration->time().seconds());
    bounds.set_attainable_source(absl::StrCat("calibration ", absl::FormatTime("%Y-%m-%d", time, absl::UTCTimeZone())));
  }
  if (pipes.us >= memory.us && pipes.us >= launch) {
    bounds.set_bound(pipes.sfu ? v1::SFU : v1::COMPUTE);
  } else {
    // Half of the time or more is start-up: a faster memory would hardly help.
    const bool starting = memory.us <= launch || memory.start_us >= 0.5 * memory.us;
    bounds.set_bound(starting ? v1::LAUNCH : v1::MEMORY);
  }
  return bounds;
}

double ArithmeticIntensity(const Work& work) {
  const double bytes = ToDouble(work.bytes());
  return bytes > 0 ? ToDouble(work.total_ops()) / bytes : 0;
}

double CalibratedBandwidth(const Calibration& calibration, double bytes, double read_fraction) {
  std::vector<std::pair<double, double>> mixes;
  for (const device::v1::BandwidthCurve& curve : calibration.curve()) {
    const double fraction = ReadFraction(curve), gbps = CurveAt(curve, bytes);
    if (fraction >= 0 && gbps > 0) mixes.emplace_back(fraction, gbps);
  }
  if (mixes.empty()) return 0;
  std::sort(mixes.begin(), mixes.end());
  const auto right = std::lower_bound(mixes.begin(), mixes.end(), std::make_pair(read_fraction, 0.0));
  if (right == mixes.begin()) return right->second;
  const auto left = right - 1;
  if (right == mixes.end()) return left->second;
  // A mix between two that were measured is some bytes of each: their times add up.
  const double share = (read_fraction - left->first) / (right->first - left->first);
  return 1.0 / ((1.0 - share) / left->second + share / right->second);
}

}  // namespace rooftune

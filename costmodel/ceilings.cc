#include "costmodel/ceilings.h"

#include <algorithm>
#include <cmath>

#include "costmodel/roofline.h"

namespace rooftune {
namespace {

// Shares of the data-sheet peak (at its stated clock) that the best kernels reach on a cool H200, 2026-11:
// bf16 802 to 892 of 989.4 TFLOP/s by shape, fp16 772, fp8 1583 of 1979 (cuBLASLt 13.1), int8 1681 of 1979 (gemm_wgmma at
// 4096^3, docs/evidence/nvidia-h200/gemm_int; cuBLASLt 965);
// fp32 63.8 of 66.9 (a loop of fused multiply-adds). Published best matmuls of A100, H100 and B200 lie at
// 0.87, 0.80 and 0.78 of peak in bf16.
double PeakShare(absl::string_view pipe, v1::DType dtype) {
  if (pipe == "fp32") return 0.95;
  switch (dtype) {
    case v1::BF16:
      return 0.88;
    case v1::FP16:
      return 0.78;
    case v1::FP8_E4M3:
    case v1::FP8_E5M2:
      return 0.80;
    case v1::INT8:
      return 0.85;
    default:
      return 0.80;
  }
}

// Shares of pin bandwidth reached by 4 GB transfers on an H200 (4814 GB/s), 2026-11: copy 4295, read 4623,
// write 4708 GB/s.
constexpr double kCopyShare = 0.892;
constexpr double kReadShare = 0.960;
constexpr double kWriteShare = 0.978;

// L2 bandwidth over pin bandwidth where nothing is measured: H200 8.8 TB/s of a 24 MB read loop over 4.81 (1.8);
// A100 and L40S are at 2.6 and 6, so this is low rather than high.
constexpr double kL2OverDram = 1.8;

// An empty kernel in a graph of a thousand on an H200, 132 blocks of 256 threads.
constexpr double kGraphNodeUs = 0.54;

// Size whose bandwidth stands for "large".
constexpr double kLargeBytes = 4e9;

double SfuOpsPerUs(const DeviceProfile& p) { return p.sfu_per_clk_sm() * p.sm_count() * p.max_clock_mhz(); }

// Rate in operations per microsecond at the clock the data sheet states.
double SheetOpsPerUs(const DeviceProfile& profile, absl::string_view pipe, v1::DType dtype) {
  for (const device::v1::Peak& peak : profile.peak()) {
    if (peak.pipe() == pipe && peak.dtype() == dtype) return peak.tera_ops().value() * 1e6;
  }
  return 0;
}

double ClockRatio(const DeviceProfile& p) {
  if (p.peak_clock_mhz() <= 0 || p.max_clock_mhz() <= 0) return 1;
  return std::max(1.0, static_cast<double>(p.max_clock_mhz()) / p.peak_clock_mhz());
}

}  // namespace

double PeakOpsPerUs(const DeviceProfile& profile, absl::string_view pipe, v1::DType dtype) {
  if (pipe == "sfu") return SfuOpsPerUs(profile);
  return SheetOpsPerUs(profile, pipe, dtype) * ClockRatio(profile);
}

double AttainableOpsPerUs(const DeviceProfile& profile, const Calibration* calibration, absl::string_view pipe,
                          v1::DType dtype, bool* calibrated) {
  if (calibration != nullptr) {
    double best = 0;
    bool best_is_cool = false;
    for (const device::v1::RateCeiling& rate : calibration->rate()) {
      if (rate.pipe() != pipe || (pipe == "tensor" && rate.dtype() != dtype)) continue;
      const bool cool = rate.clock() == v1::COOL;
      // A sustained figure only stands in where no cool one exists.
      if (cool == best_is_cool ? rate.tera_ops() > best : cool) {
        best = rate.tera_ops();
        best_is_cool = cool;
      }
    }
    if (best > 0) {
      *calibrated = true;
      return best * 1e6;
    }
  }
  if (pipe == "sfu") return SfuOpsPerUs(profile);
  // fp32 is stated at the tensor clock but runs at the maximum one: vector loops don't hit the power cap.
  if (pipe == "fp32") return PeakOpsPerUs(profile, pipe, dtype) * PeakShare(pipe, dtype);
  return SheetOpsPerUs(profile, pipe, dtype) * PeakShare(pipe, dtype);
}

double AttainableBytesPerUs(const DeviceProfile& profile, const Calibration* calibration, double read_fraction) {
  if (calibration != nullptr) {
    const double gbps = CalibratedBandwidth(*calibration, kLargeBytes, read_fraction);
    if (gbps > 0) return gbps * 1e3;
  }
  const double end = read_fraction >= 0.5 ? kReadShare : kWriteShare;
  // Distance from an even mix, 0 to 1.
  const double off = std::min(1.0, std::abs(read_fraction - 0.5) * 2.0);
  const double share = 1.0 / ((1.0 - off) / kCopyShare + off / end);
  return profile.memory_gbps().value() * 1e3 * share;
}

double L2BytesPerUs(const DeviceProfile& profile, const Calibration* calibration) {
  if (calibration != nullptr) {
    double best = 0;
    for (const device::v1::BandwidthCurve& curve : calibration->curve()) {
      if (curve.mix() != "l2_read") continue;
      for (const device::v1::BandwidthPoint& point : curve.point()) best = std::max(best, point.gbps());
    }
    if (best > 0) return best * 1e3;
  }
  return profile.memory_gbps().value() * 1e3 * kL2OverDram;
}

double LaunchUs(const Calibration* calibration) {
  return calibration != nullptr && calibration->graph_node_us() > 0 ? calibration->graph_node_us() : kGraphNodeUs;
}

}  // namespace rooftune

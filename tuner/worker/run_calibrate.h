// Measures what a card reaches: bandwidth by mix and size, launch overhead, rates of its pipes. Under a minute.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_CALIBRATE_H_
#define ROOFTUNE_TUNER_WORKER_RUN_CALIBRATE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rooftune/device/v1/profile.pb.h"
#include "tuner/worker/run_cublaslt.h"
#include "tuner/worker/run_gemm.h"
#include "tuner/worker/run_timer.h"

namespace rooftune {

class Calibrator {
 public:
  // What is missing at `deadline` is left out and named in notes(). All borrowed; `cublaslt` may be nullptr.
  Calibrator(TimerContext context, const CublasLt* cublaslt, absl::Time deadline)
      : context_(context), cublaslt_(cublaslt), deadline_(deadline) {}

  absl::Status Run(device::v1::Calibration* calibration);
  const std::string& notes() const { return notes_; }

 private:
  // `writes`: bytes written for each that is read; 0 = `mix` says it.
  absl::Status Curve(const std::string& mix, device::v1::BandwidthCurve* curve, int writes = 0);
  absl::Status L2Curve(device::v1::BandwidthCurve* curve);
  absl::Status Launches(device::v1::Calibration* calibration);
  absl::Status Pipes(device::v1::Calibration* calibration);
  absl::Status Products(device::v1::Calibration* calibration);
  absl::Status Product(v1::DType dtype, int64_t size, device::v1::Calibration* calibration);
  // Median microseconds of one execution.
  absl::StatusOr<double> Time(TimedWork work, v1::ClockState clock, double* sm_clock_mhz);
  // Work on `sets` pieces of `bytes` each, L2 cold.
  TimedWork Rotating(int64_t bytes, const std::function<absl::Status(cuda::DevicePtr)>& enqueue) const;
  bool Late(const std::string& what);
  void Note(const std::string& text);

  TimerContext context_;
  const CublasLt* const cublaslt_;
  const absl::Time deadline_;
  // All data lies here.
  DeviceBuffer pool_;
  double cool_clock_mhz_ = 0;
  std::string notes_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_CALIBRATE_H_

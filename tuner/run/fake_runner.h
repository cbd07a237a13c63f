// A runner that runs nothing: scripted times, noise and faults. For `fake:` devices and tests.
#ifndef ROOFTUNE_TUNER_RUN_FAKE_RUNNER_H_
#define ROOFTUNE_TUNER_RUN_FAKE_RUNNER_H_

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "expr/expression.h"
#include "rooftune/device/v1/fake.pb.h"
#include "tuner/run/runner.h"

namespace rooftune {

// Counters are readable from any thread.
class FakeRunner : public Runner {
 public:
  // INVALID_ARGUMENT for an expression that does not parse.
  static absl::StatusOr<std::unique_ptr<FakeRunner>> Create(const device::v1::FakeScript& script);

  absl::StatusOr<worker::v1::PrepareResult> Prepare(const worker::v1::PrepareRequest& request) override;
  absl::StatusOr<worker::v1::VendorResult> ListVendor(const worker::v1::VendorRequest& request) override;
  absl::StatusOr<worker::v1::RunResult> Run(const worker::v1::RunRequest& request) override;
  absl::StatusOr<worker::v1::RunResult> RunBaseline(const worker::v1::BaselineRequest& request) override;
  absl::StatusOr<worker::v1::RaceResult> Race(const worker::v1::RaceRequest& request) override;
  absl::StatusOr<worker::v1::CalibrateResult> Calibrate(const worker::v1::CalibrateRequest& request) override;
  void Interrupt() override { interrupted_ = true; }

  int runs() const { return runs_; }

 private:
  struct Rule {
    device::v1::FakeRule rule;
    std::optional<Expression> when;
  };
  FakeRunner(device::v1::FakeScript script, std::optional<Expression> time, std::optional<Expression> vendor_time,
             std::vector<Rule> rules)
      : script_(std::move(script)),
        time_(std::move(time)),
        vendor_time_(std::move(vendor_time)),
        rules_(std::move(rules)),
        random_(script_.seed()) {}

  absl::Status Pass(double seconds);
  bool Lost();
  void Measure(double true_us, const worker::v1::MeasureOptions& options, worker::v1::RunResult& result);

  const device::v1::FakeScript script_;
  const std::optional<Expression> time_;
  const std::optional<Expression> vendor_time_;
  const std::vector<Rule> rules_;
  std::mt19937_64 random_;
  std::string op_;
  int lost_calls_ = 0;
  std::atomic<int> runs_{0};
  std::atomic<bool> interrupted_{false};
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_RUN_FAKE_RUNNER_H_

// A runner that runs nothing: scripted times, noise and faults. For `fake:` devices and tests.
#ifndef ROOFTUNE_TUNER_RUN_FAKE_RUNNER_H_
#define ROOFTUNE_TUNER_RUN_FAKE_RUNNER_H_

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "expr/expression.h"
#include "rooftune/device/v1/fake.pb.h"
#include "tuner/run/runner.h"

namespace rooftune {

// Counters are readable from any thread.
class FakeRunner : public Runner {
 public:
  // INVALID_ARGUMENT for an expression that does not parse. With `virtual_time` delays and timed launches are slept on
  // `clock` (borrowed), which is then expected to skip them.
  static absl::StatusOr<std::unique_ptr<FakeRunner>> Create(const device::v1::FakeScript& script,
                                                            Clock& clock = Clock::Real());

  absl::StatusOr<worker::v1::PrepareResult> Prepare(const worker::v1::PrepareRequest& request) override;
  absl::StatusOr<worker::v1::VendorResult> ListVendor(const worker::v1::VendorRequest& request) override;
  absl::StatusOr<worker::v1::RunResult> Run(const worker::v1::RunRequest& request) override;
  absl::StatusOr<worker::v1::RunResult> RunBaseline(const worker::v1::BaselineRequest& request) override;
  absl::StatusOr<worker::v1::RaceResult> Race(const worker::v1::RaceRequest& request) override;
  absl::StatusOr<worker::v1::CalibrateResult> Calibrate(const worker::v1::CalibrateRequest& request) override;
  absl::StatusOr<worker::v1::IdleResult> Idle() override;
  void Interrupt() override { interrupted_ = true; }
  // "runs", "launches", "prepares".
  std::map<std::string, int64_t> Counters() const override;

  int runs() const { return runs_; }

 private:
  struct Rule {
    device::v1::FakeRule rule;
    std::optional<Expression> when;
  };
  FakeRunner(device::v1::FakeScript script, std::vector<Rule> rules, Clock& clock)
      : script_(std::move(script)), rules_(std::move(rules)), clock_(clock), random_(script_.seed()) {}

  absl::Status Pass(double seconds);
  bool Lost();
  // `energy_uj` ≤ 0 = not known.
  void Measure(double true_us, double energy_uj, const worker::v1::MeasureOptions& options,
               worker::v1::RunResult& result);

  const device::v1::FakeScript script_;
  std::optional<Expression> time_;
  std::optional<Expression> energy_;
  std::optional<Expression> vendor_time_;
  const std::vector<Rule> rules_;
  Clock& clock_;
  std::mt19937_64 random_;
  std::string op_;
  int lost_calls_ = 0;
  std::atomic<int> runs_{0};
  std::atomic<int64_t> launches_{0};
  std::atomic<int64_t> prepares_{0};
  int idle_polls_ = 0;
  std::atomic<bool> interrupted_{false};
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_RUN_FAKE_RUNNER_H_

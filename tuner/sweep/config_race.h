// Given configurations of one operator, compiled, verified and timed side by side, without a sweep. Stores nothing.
#ifndef ROOFTUNE_TUNER_SWEEP_CONFIG_RACE_H_
#define ROOFTUNE_TUNER_SWEEP_CONFIG_RACE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "rooftune/v1/service.pb.h"
#include "tuner/sweep/backend.h"
#include "tuner/sweep/planner.h"

namespace rooftune {

class ConfigRace {
 public:
  // Borrowed; alive until the race is.
  struct Context {
    const TemplateLibrary& library;
    Backend& backend;
    Clock& clock;
  };
  static constexpr int kMaxEntrants = 32;

  // Plans; touches no device. INVALID_ARGUMENT: BAD_SPEC for a wrong number of entrants, UNKNOWN_TEMPLATE,
  // WRONG_TEMPLATE, AMBIGUOUS_TEMPLATE (several implement the operator and none is named), BAD_CONFIG naming the
  // constraint that a configuration breaks.
  static absl::StatusOr<std::unique_ptr<ConfigRace>> Create(Context context, const v1::RaceConfigsRequest& request,
                                                            const Calibration* calibration);

  int size() const { return static_cast<int>(entrants_.size()); }
  // Once an entrant, before Run(); different entrants may compile at the same time.
  void Compile(int entrant);
  // On the thread that owns the device. What an entrant does wrong is the outcome of its trial; UNAVAILABLE
  // (DEVICE_LOST) if the device stopped answering. Without a runner trials stop at COMPILED.
  absl::StatusOr<v1::RaceConfigsResponse> Run();

 private:
  struct Entrant {
    const KernelTemplate* source = nullptr;
    Config config;
    v1::LaunchPlan plan;
    worker::v1::CompileResult compiled;
    v1::Trial trial;
    absl::Status status;  // infrastructure failure of its compile
  };

  ConfigRace(Context context, const v1::RaceConfigsRequest& request);
  absl::Status Add(const v1::RaceConfigsRequest::Entrant& wanted);
  absl::Status CompileEntrant(Entrant& entrant);
  worker::v1::RunRequest RequestFor(const Entrant& entrant) const;
  absl::Status RunOnDevice();
  absl::Status RunAlone(Entrant& entrant);
  absl::Status RunTogether(const std::vector<Entrant*>& entrants);
  absl::Status Take(const worker::v1::RunResult& result, double wall_s, Entrant& entrant);

  const Context context_;
  v1::SweepSpec spec_;
  std::optional<Calibration> calibration_;
  Plan plan_;
  std::vector<Entrant> entrants_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_CONFIG_RACE_H_

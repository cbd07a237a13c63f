// One sweep from planning to publishing, on the thread of its lane.
#ifndef ROOFTUNE_TUNER_SWEEP_SWEEP_RUN_H_
#define ROOFTUNE_TUNER_SWEEP_SWEEP_RUN_H_

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "kernels/template_library.h"
#include "tuner/search/policies.h"
#include "tuner/store/artifact_store.h"
#include "tuner/store/store.h"
#include "tuner/sweep/backend.h"
#include "tuner/sweep/compile_pool.h"
#include "tuner/sweep/intervals.h"
#include "tuner/sweep/planner.h"

namespace rooftune {

// What a sweep works with; all borrowed and alive as long as the lane.
struct SweepContext {
  const TemplateLibrary& library;
  Store& store;
  ArtifactStore& artifacts;
  Clock& clock;
  Backend& backend;
  CompilePool& pool;
  int compile_ahead;
  // Told after the store was; from the lane's thread.
  std::function<void(const v1::Sweep&)> on_change;
  std::function<void(const std::vector<v1::TuningRecord>&, int64_t)> on_publish;
  // Set from other threads: end as CANCELLED, or leave the sweep as it is for the next start.
  const std::atomic<bool>& cancelled;
  const std::atomic<bool>& stopping;
};

class SweepRun {
 public:
  // A participant of the final race.
  struct Racer {
    const v1::Trial* trial = nullptr;              // null: an incumbent of an earlier sweep
    const v1::TuningRecord* incumbent = nullptr;  // its record
    v1::LaunchPlan plan;
    std::string cubin;
    bool is_default = false;
    bool is_vendor() const { return plan.has_cublaslt(); }
  };
  // What is current for the sweep's key and could still be.
  struct Incumbents {
    std::optional<v1::TuningRecord> best_template;
    std::optional<v1::TuningRecord> vendor;
  };

  SweepRun(SweepContext context, v1::Sweep sweep);

  // Runs to a terminal state (or, when stopping, returns early with the state kept). Errors end as FAILED
  // with their message; never throws anything away that was measured.
  void Execute();

 private:
  // A candidate on its way through compile and lane.
  struct Candidate {
    int64_t position = 0;
    v1::Trial trial;
    v1::LaunchPlan plan;
    worker::v1::CompileResult compiled;
    // Infrastructure failure of the compiler, if any.
    absl::Status status;
    // When it was being compiled.
    absl::Time compile_begin, compile_end;
  };
  // Where compile threads put results; shared, because they may outlive this sweep.
  struct Compiled {
    absl::Mutex mutex;
    std::deque<Candidate> queue ABSL_GUARDED_BY(mutex);
  };

  absl::Status Run();
  absl::Status MakeStrategyAndPlan();
  absl::Status LoadFinished();
  absl::Status SetUpDevice();
  // Tries candidates until nothing is left or may be tried, and says how much of compiling overlapped with measuring.
  absl::Status Search();
  // Verifies and times what the vendor's library offers; an absent or broken library is a note, no failure.
  absl::Status SearchVendor();
  absl::Status RunVendor(const v1::LaunchPlan& plan, v1::Trial* trial);
  // Best of the library's trials for the final race, with the heuristic's first choice.
  void AddVendorRacers(std::vector<Racer>& racers) const;
  absl::Status SearchAll();
  absl::Status Confirm();
  // FAILED_PRECONDITION with counts by outcome and a sample of each.
  absl::Status AllFailed() const;

  // See AwaitIdle; what it waits for is the sweep's message meanwhile. CANCELLED only after Stop().
  absl::Status AwaitIdleDevice();
  // Starts compiles until enough are ahead, the budget is spent or nothing is left to try.
  absl::Status FillPipeline();
  bool BudgetSpent() const;
  void TellStrategy(int64_t position, const v1::Trial& trial);
  absl::StatusOr<Candidate> NewCandidate(int64_t position);
  void StartCompile(Candidate candidate);
  std::optional<Candidate> WaitCompiled();
  absl::Status Finish(Candidate candidate);
  // Resources, prediction and the verdict on them.
  absl::Status DescribeCompiled(Candidate& candidate);
  absl::Status RunOnDevice(Candidate& candidate);
  absl::Status Commit(const v1::Trial& trial);
  void Count(const v1::Trial& trial);

  // The plan of a trial with its artifact attached; compiles again only after a restart.
  absl::StatusOr<v1::LaunchPlan> PlanOf(const v1::Trial& trial);
  absl::StatusOr<v1::TuningRecord> RecordOf(const v1::Trial& trial, int rank);
  absl::Status ConfirmCompiled();
  absl::Status ConfirmMeasured();
  // Of the same template revision and environment.
  Incumbents FindIncumbents();
  absl::Status AddRacer(const v1::Trial& trial, bool is_default, std::vector<Racer>& racers);
  // Marks the racer that is this record, or adds one for it.
  void AddIncumbent(const v1::TuningRecord& record, std::vector<Racer>& racers);
  // Finalists, the default configurations, the library's best and the incumbents, each once.
  absl::StatusOr<std::vector<Racer>> CollectRacers(const Incumbents& incumbents);
  absl::StatusOr<worker::v1::RaceResult> RunRace(const std::vector<Racer>& racers);
  // Lines of the library's racers: its first choice and its best.
  void AddVendorBaselines(const std::vector<Racer>& racers, const std::vector<RaceEntry>& entries, int best);
  // The record of a racer with what the race measured.
  absl::StatusOr<v1::TuningRecord> RacerRecord(const Racer& racer, const RaceEntry& entry, int rank);
  absl::Status PublishRace(const std::vector<Racer>& racers, const std::vector<RaceEntry>& entries,
                           const ProviderVerdict& verdict);
  absl::Status Publish(std::vector<v1::TuningRecord> records);

  // Adds the time since then to the sweep's account.
  void Spend(const char* what, absl::Time since);
  v1::Objective Objective() const;
  // The binary of a trial; compiled again if it had to make room in the meantime.
  absl::StatusOr<std::string> CubinOf(const v1::Trial& trial);
  bool Stop() const;
  absl::Status SetState(v1::SweepState state);
  // Stores and tells; `force` ignores the limit of ten a second.
  absl::Status Save(bool force);

  SweepContext context_;
  v1::Sweep sweep_;
  std::optional<Plan> plan_;
  std::unique_ptr<Strategy> strategy_;
  std::shared_ptr<Compiled> compiled_ = std::make_shared<Compiled>();
  std::optional<Calibration> calibration_;
  // Finished trials of templates, of this start and earlier ones.
  std::vector<v1::Trial> trials_;
  // Those of the vendor's library, and the plans of what it offers now, by algorithm.
  std::vector<v1::Trial> vendor_trials_;
  std::map<std::string, v1::LaunchPlan> vendor_plans_;
  std::string vendor_note_;
  // Those of earlier starts that the strategy has not proposed again yet, by point.
  std::map<std::string, v1::Trial> finished_;
  // By trial index, of this start.
  std::map<int, v1::LaunchPlan> plans_;
  int in_flight_ = 0;
  int next_index_ = 0;
  bool device_lost_ = false;
  std::string device_message_;
  int64_t peak_bytes_ = 0;
  // When something was compiled, and when the lane verified or measured.
  Intervals compiling_, running_;
  // Least score so far; 0 = none.
  double best_value_ = 0;
  absl::Time started_;
  absl::Time saved_ = absl::InfinitePast();
};

// The device key a sweep's records are kept under, and whether a record's sweep ran on a real device.
bool HasGpu(const Backend& backend);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_SWEEP_SWEEP_RUN_H_

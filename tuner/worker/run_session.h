// The run role without its process: a problem on a device, and candidates and baselines that are verified, timed
// and raced on it. What a kernel does wrong is an outcome of its result.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_SESSION_H_
#define ROOFTUNE_TUNER_WORKER_RUN_SESSION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/worker/v1/worker.pb.h"
#include "tuner/worker/run_cublas.h"
#include "tuner/worker/run_cublaslt.h"
#include "tuner/worker/run_gemm.h"
#include "tuner/worker/run_problem.h"
#include "tuner/worker/run_timer.h"
#include "tuner/worker/run_verify.h"

namespace rooftune {

class RunSession {
 public:
  // Called before the device works for an entrant of a race: whoever dies afterwards is to blame.
  using Progress = std::function<void(int entrant)>;

  // What a session sees of the world around its GPU; borrowed.
  struct Surroundings {
    GpuMonitor* monitor = nullptr;  // null = nobody looks for throttling and other processes
    Clock* clock = &Clock::Real();
  };

  explicit RunSession(const GpuContext& context) : RunSession(context, Surroundings()) {}
  RunSession(const GpuContext& context, const Surroundings& surroundings)
      : context_(context), surroundings_(surroundings) {}

  worker::v1::PrepareResult Prepare(const worker::v1::PrepareRequest& request);
  // What the vendor's library offers for the prepared problem.
  worker::v1::VendorResult Vendor(const worker::v1::VendorRequest& request);
  worker::v1::RunResult Run(const worker::v1::RunRequest& request);
  worker::v1::RunResult Baseline(const worker::v1::BaselineRequest& request);
  worker::v1::RaceResult Race(const worker::v1::RaceRequest& request, const Progress& progress);
  worker::v1::CalibrateResult Calibrate(const worker::v1::CalibrateRequest& request);

  // True after a fault that only a new process gets rid of.
  bool IsPoisoned() const;

 private:
  // A candidate or a baseline, ready to be timed. Members are destroyed in reverse order: the timer's graphs
  // before the kernels they hold.
  struct Participant {
    std::unique_ptr<LoadedModule> module;
    DeviceBuffer workspace;
    std::vector<BoundPlan> plans;  // one a buffer set
    std::unique_ptr<CublasLt::Matmul> matmul;
    TimedWork work;
    std::unique_ptr<KernelTimer> timer;
    worker::v1::RunResult result;
    bool is_out = false;  // failed; takes no further part
    std::vector<double> round_us;  // RunResult.round_us
  };

  absl::Status SetUp(const worker::v1::PrepareRequest& request, worker::v1::PrepareResult* result);
  // `twice`: a candidate that is right is launched again on equal inputs, and other bits are noted.
  absl::Status SetUpCandidate(const worker::v1::RunRequest& request, bool twice, Participant* participant);
  absl::Status VerifyCandidate(const worker::v1::RunRequest& request, bool twice, Participant* participant);
  absl::Status VerifyAgain(const VerifyTarget& target, const std::function<absl::Status()>& reset,
                           const std::function<absl::Status()>& launch, Participant* participant);
  // The prepared operator as a product of the vendor's libraries. UNIMPLEMENTED (NO_VENDOR) if they can't do it.
  absl::StatusOr<GemmProblem> PreparedGemm() const;
  // The same for cuBLASLt, which is loaded.
  absl::StatusOr<v1::CublasLtMatmul> PreparedProduct();
  v1::LaunchPlan PlanOf(const CublasLt::Offer& offer) const;
  absl::Status SetUpVendor(const v1::LaunchPlan& plan, bool verify, bool twice, Participant* participant);
  // A call of a library that `enqueue` makes, on a rotation set.
  absl::Status VerifyLibrary(const std::function<absl::Status(const Bindings&)>& enqueue, int64_t workspace_bytes,
                             bool twice, Participant* participant);
  absl::Status TimeLibrary(const std::function<absl::Status(const Bindings&)>& enqueue, int64_t workspace_bytes,
                           Participant* participant);
  absl::Status SetUpBaseline(const std::string& name, Participant* participant);
  absl::Status SetUpFirst(Participant* participant);
  absl::Status SetUpCublas(Participant* participant);
  absl::Status SetUpCopy(Participant* participant);
  absl::Status SetUpTimer(const worker::v1::MeasureOptions& options, Participant* participant);
  // Some windows of each, in turn; what can't be had is said in the results.
  void MeasureEnergy(const std::function<void(size_t)>& progress, const std::vector<Participant*>& participants) const;
  absl::Status MeasureAlone(const worker::v1::MeasureOptions& options, int timeout_ms, Participant* participant);
  // Outcome of the verification into the result; true if it passed.
  static bool Passed(Participant* participant);
  void Fail(const absl::Status& status, bool is_baseline, Participant* participant) const;
  void SetUpEntrant(const worker::v1::RaceRequest& request, int i, Participant* participant);
  void RunRounds(const worker::v1::RaceRequest& request, const Progress& progress,
                 std::vector<Participant>* participants);

  const GpuContext& context_;
  const Surroundings surroundings_;
  double highest_clock_mhz_ = 0;
  std::string support_cubin_;
  std::unique_ptr<SupportModule> support_;
  std::unique_ptr<Verifier> verifier_;
  std::unique_ptr<PreparedProblem> problem_;
  CpuCheck cpu_check_;
  std::unique_ptr<CublasLt> cublaslt_;
  std::unique_ptr<Cublas> cublas_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_SESSION_H_

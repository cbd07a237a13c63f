#include "tuner/worker/run_session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "tuner/worker/run_outcome.h"

namespace rooftune {
namespace {

using worker::v1::PrepareRequest;
using worker::v1::PrepareResult;
using worker::v1::RunRequest;
using worker::v1::RunResult;

constexpr int kDefaultTimeoutMs = 10'000;
// Sampling ends at this share of the request's time, so that the parent's deadline only meets kernels that hang.
constexpr double kShareForSampling = 0.5;

absl::Time SamplingDeadline(int timeout_ms) {
  return absl::Now() + absl::Milliseconds((timeout_ms > 0 ? timeout_ms : kDefaultTimeoutMs) * kShareForSampling);
}

double MillisecondsSince(absl::Time start) { return absl::ToDoubleMilliseconds(absl::Now() - start); }

absl::Status NotPrepared() {
  return Error(absl::StatusCode::kFailedPrecondition, "NOT_PREPARED", "no problem is prepared");
}

absl::Status CheckDigest(const RunRequest& request) {
  const std::string digest = Sha256Hex(request.cubin());
  if (digest == request.digest()) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, "DIGEST_MISMATCH",
               absl::StrCat("cubin has digest ", digest, ", announced was '", request.digest(), "'"));
}

}  // namespace

bool RunSession::IsPoisoned() const { return IsStickyCudaError(CudaErrorOf(context_.FreeBytes().status())); }

PrepareResult RunSession::Prepare(const PrepareRequest& request) {
  const absl::Time start = absl::Now();
  PrepareResult result;
  const absl::Status status = SetUp(request, &result);
  if (!status.ok()) {
    problem_.reset();
    if (result.outcome() == v1::OUTCOME_UNSPECIFIED) result.set_outcome(OutcomeOfStatus(status));
    result.set_message(std::string(status.message()));
  } else {
    result.set_outcome(v1::OK);
    result.set_buffer_sets(problem_->sets());
    result.set_allocated_bytes(problem_->allocated_bytes());
  }
  result.set_wall_ms(MillisecondsSince(start));
  return result;
}

absl::Status RunSession::SetUp(const PrepareRequest& request, PrepareResult* result) {
  problem_.reset();
  if (support_ == nullptr || support_cubin_ != request.support_cubin()) {
    verifier_.reset();
    RT_ASSIGN_OR_RETURN(support_, SupportModule::Create(context_, request.support_cubin()));
    RT_ASSIGN_OR_RETURN(verifier_, Verifier::Create(context_, *support_));
    support_cubin_ = request.support_cubin();
  }
  RT_ASSIGN_OR_RETURN(problem_, PreparedProblem::Create(context_, *support_, request));
  RT_ASSIGN_OR_RETURN(cpu_check_, verifier_->CheckReference(*problem_));
  result->set_cpu_checked_elements(cpu_check_.elements);
  result->set_cpu_max_error_ratio(cpu_check_.max_error_ratio);
  if (cpu_check_.disagreement.empty()) return absl::OkStatus();
  result->set_outcome(v1::WRONG_RESULT);
  return Error(absl::StatusCode::kFailedPrecondition, "WRONG_REFERENCE", cpu_check_.disagreement);
}

void RunSession::Fail(const absl::Status& status, bool is_baseline, Participant* participant) const {
  participant->is_out = true;
  SetFailure(status, participant->result);
  // A baseline that can't be had says nothing bad about anything.
  const bool absent = status.code() == absl::StatusCode::kUnimplemented ||
                      status.code() == absl::StatusCode::kUnavailable ||
                      status.code() == absl::StatusCode::kInvalidArgument;
  if (is_baseline && absent) participant->result.set_outcome(v1::NOT_RUN);
}

bool RunSession::Passed(Participant* participant) {
  const v1::Outcome outcome = OutcomeOfVerification(participant->result.verification());
  if (outcome == v1::OK) return true;
  participant->is_out = true;
  participant->result.set_outcome(outcome);
  return false;
}

RunResult RunSession::Run(const RunRequest& request) {
  const absl::Time start = absl::Now();
  Participant participant;
  absl::Status status = SetUpCandidate(request, /*twice=*/false, &participant);
  if (status.ok() && !participant.is_out) {
    participant.result.set_outcome(v1::OK);
    if (request.measure()) status = MeasureAlone(request.options(), request.timeout_ms(), &participant);
  }
  if (!status.ok()) Fail(status, false, &participant);
  participant.result.set_wall_ms(MillisecondsSince(start));
  return participant.result;
}

RunResult RunSession::Baseline(const worker::v1::BaselineRequest& request) {
  const absl::Time start = absl::Now();
  Participant participant;
  absl::Status status = SetUpBaseline(request.name(), &participant);
  if (status.ok() && !participant.is_out) {
    status = MeasureAlone(request.options(), request.timeout_ms(), &participant);
  }
  if (!status.ok()) Fail(status, true, &participant);
  participant.result.set_wall_ms(MillisecondsSince(start));
  return participant.result;
}

absl::Status RunSession::SetUpCandidate(const RunRequest& request, bool twice, Participant* participant) {
  if (problem_ == nullptr) return NotPrepared();
  const bool of_library = request.plan().has_cublaslt();
  if (!of_library) RT_RETURN_IF_ERROR(CheckDigest(request));
  if (request.plan().op() != problem_->request().op()) {
    return Error(
        absl::StatusCode::kInvalidArgument, "BAD_PLAN",
        absl::StrCat("the plan is for '", request.plan().op(), "', prepared is '", problem_->request().op(), "'"));
  }
  if (of_library) return SetUpVendor(request.plan(), request.verify(), twice, participant);
  RT_ASSIGN_OR_RETURN(participant->module, LoadedModule::Load(context_, request.cubin(), "the candidate"));
  if (request.verify()) {
    const absl::Time begin = absl::Now();
    const absl::Status verified = VerifyCandidate(request, twice, participant);
    participant->result.set_verify_ms(MillisecondsSince(begin));
    RT_RETURN_IF_ERROR(verified);
    if (!Passed(participant)) return absl::OkStatus();
  }
  const int64_t workspace_bytes = std::max<int64_t>(request.plan().workspace_bytes().value(), 0);
  if (workspace_bytes > 0) {
    RT_ASSIGN_OR_RETURN(participant->workspace, DeviceBuffer::Create(context_, workspace_bytes));
  }
  for (int set = 0; set < problem_->sets(); ++set) {
    Bindings bindings = problem_->SetBindings(set);
    bindings.workspace = participant->workspace.ptr();
    bindings.workspace_bytes = workspace_bytes;
    RT_ASSIGN_OR_RETURN(BoundPlan plan, BoundPlan::Create(context_, *participant->module, request.plan(), bindings));
    participant->plans.push_back(std::move(plan));
  }
  // All sets share the workspace.
  RT_RETURN_IF_ERROR(participant->plans[0].Prepare(context_));
  participant->work.enqueue = [this, participant](int set) {
    return participant->plans[static_cast<size_t>(set)].Enqueue(context_);
  };
  participant->work.nodes = participant->plans[0].nodes();
  participant->result.set_peak_bytes(problem_->allocated_bytes() + workspace_bytes);
  return absl::OkStatus();
}

absl::Status RunSession::VerifyCandidate(const RunRequest& request, bool twice, Participant* participant) {
  constexpr int64_t kWorkspaceAlignment = 256;
  Bindings bindings = problem_->GuardedBindings();
  std::unique_ptr<GuardedBuffer> workspace;
  const int64_t workspace_bytes = request.plan().workspace_bytes().value();
  if (workspace_bytes > 0) {
    RT_ASSIGN_OR_RETURN(workspace, GuardedBuffer::Create(context_, workspace_bytes, kWorkspaceAlignment));
    bindings.workspace = workspace->ptr();
    bindings.workspace_bytes = workspace_bytes;
  }
  RT_ASSIGN_OR_RETURN(BoundPlan plan, BoundPlan::Create(context_, *participant->module, request.plan(), bindings));
  const auto reset = [&]() -> absl::Status {
    if (workspace != nullptr) RT_RETURN_IF_ERROR(workspace->FillOnes());
    RT_RETURN_IF_ERROR(plan.Prepare(context_));
    RT_RETURN_IF_ERROR(problem_->ResetGuarded());
    return support_->ScrubShared();
  };
  const auto launch = [&] { return plan.Enqueue(context_); };
  RT_RETURN_IF_ERROR(reset());
  VerifyTarget target;
  target.output = [this](int tensor) { return problem_->guarded(tensor).ptr(); };
  for (int i = 0; i < problem_->tensors().size(); ++i) target.guarded.push_back(&problem_->guarded(i));
  if (workspace != nullptr) target.guarded.push_back(workspace.get());
  std::string message;
  RT_RETURN_IF_ERROR(
      verifier_->Verify(*problem_, cpu_check_, target, launch, participant->result.mutable_verification(), &message));
  participant->result.set_message(message);
  if (!twice || !participant->result.verification().passed()) return absl::OkStatus();
  return VerifyAgain(target, reset, launch, participant);
}

absl::Status RunSession::VerifyAgain(const VerifyTarget& target, const std::function<absl::Status()>& reset,
                                     const std::function<absl::Status()>& launch, Participant* participant) {
  RT_ASSIGN_OR_RETURN(const uint64_t first, verifier_->Checksum(*problem_, target));
  RT_RETURN_IF_ERROR(reset());
  v1::Verification again;
  std::string message;
  RT_RETURN_IF_ERROR(verifier_->Verify(*problem_, cpu_check_, target, launch, &again, &message));
  RT_ASSIGN_OR_RETURN(const uint64_t second, verifier_->Checksum(*problem_, target));
  v1::Verification* const verification = participant->result.mutable_verification();
  // A race may go well once: the second launch counts, too.
  if (!again.passed()) {
    *verification = again;
    participant->result.set_message(absl::StrCat("right at the first launch, not at the second: ", message));
  }
  verification->set_nondeterministic(first != second);
  return absl::OkStatus();
}

absl::Status RunSession::SetUpTimer(const worker::v1::MeasureOptions& options, Participant* participant) {
  TimedWork work = participant->work;
  work.sets = problem_->sets();
  if (problem_->has_in_place()) work.restore = [this] { return problem_->RefillInPlace(); };
  if (options.l2() == v1::WARM) {
    work.rotation = Rotation::kNone;
  } else {
    work.rotation = problem_->cold_by_rotation() ? Rotation::kCold : Rotation::kFlushed;
    RT_ASSIGN_OR_RETURN(work.flush, problem_->FlushBuffer());
    work.flush_bytes = problem_->flush_bytes();
  }
  const TimerContext context = {context_, *support_, surroundings_.monitor, *surroundings_.clock, highest_clock_mhz_};
  RT_ASSIGN_OR_RETURN(participant->timer, KernelTimer::Create(context, std::move(work), options));
  return participant->timer->WarmUp();
}

absl::Status RunSession::MeasureAlone(const worker::v1::MeasureOptions& options, int timeout_ms,
                                      Participant* participant) {
  RT_RETURN_IF_ERROR(SetUpTimer(options, participant));
  RT_RETURN_IF_ERROR(participant->timer->Measure(SamplingDeadline(timeout_ms)));
  if (options.energy()) {
    MeasureEnergy([](size_t) {}, {participant});
    if (participant->is_out) return absl::OkStatus();
  }
  const Verdict verdict = participant->timer->Finish(participant->result.mutable_measurement());
  participant->result.set_outcome(verdict.outcome);
  participant->result.set_message(verdict.message);
  return absl::OkStatus();
}

}  // namespace rooftune

#include "server/sweep_core.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "kernels/candidate.h"
#include "server/rpc_status.h"

namespace rooftune {
namespace {

using google::longrunning::Operation;

constexpr size_t kMaxRequestId = 128;
constexpr char kSweeps[] = "sweeps/";
constexpr char kOperations[] = "operations/";

absl::StatusOr<std::string> SweepName(const std::string& operation) {
  RT_ASSIGN_OR_RETURN(const std::string id, ResourceId(operation, kOperations));
  return absl::StrCat(kSweeps, id);
}

}  // namespace

Operation OperationOf(const v1::Sweep& sweep) {
  Operation operation;
  if (!sweep.name().empty()) operation.set_name(absl::StrCat(kOperations, sweep.name().substr(sizeof(kSweeps) - 1)));
  operation.mutable_metadata()->PackFrom(sweep.progress());
  operation.set_done(IsTerminal(sweep.state()));
  if (sweep.state() == v1::DONE) {
    operation.mutable_response()->PackFrom(sweep);
  } else if (sweep.state() == v1::CANCELLED) {
    *operation.mutable_error() = ToRpcStatus(
        Error(absl::StatusCode::kCancelled, "SWEEP_CANCELLED",
              absl::StrCat(sweep.name(), " was cancelled; ResumeSweep continues it"), {{"sweep", sweep.name()}}));
  } else if (sweep.state() == v1::FAILED) {
    *operation.mutable_error() =
        ToRpcStatus(Error(absl::StatusCode::kFailedPrecondition, "SWEEP_FAILED",
                          absl::StrCat(sweep.name(), " failed: ", sweep.message()), {{"sweep", sweep.name()}}));
  }
  return operation;
}

absl::StatusOr<Operation> SweepCore::Create(const v1::CreateSweepRequest& request) {
  v1::SweepSpec spec = request.spec();
  RT_ASSIGN_OR_RETURN(const Op op, ParseOp(context_, spec.op()));
  spec.set_op(op.text);
  if (request.request_id().size() > kMaxRequestId) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE",
                 absl::StrCat("request_id is longer than ", kMaxRequestId, " bytes"), {{"field", "request_id"}});
  }
  RT_ASSIGN_OR_RETURN(const DevicePtr device, context_.devices.Resolve(spec.device()));
  spec.set_device(device->device.id());
  if (request.validate_only()) {
    RT_ASSIGN_OR_RETURN(const v1::Sweep planned, context_.sweeps->Validate(spec));
    Operation operation;
    operation.mutable_metadata()->PackFrom(planned.progress());
    operation.set_done(true);
    operation.mutable_response()->PackFrom(planned);
    return operation;
  }
  RT_ASSIGN_OR_RETURN(const v1::Sweep sweep, context_.sweeps->Start(spec, request.request_id()));
  return OperationOf(sweep);
}

absl::StatusOr<Operation> SweepCore::Resume(const v1::ResumeSweepRequest& request) {
  RT_RETURN_IF_ERROR(ResourceId(request.name(), kSweeps).status());
  RT_ASSIGN_OR_RETURN(const v1::Sweep sweep, context_.sweeps->Resume(request.name()));
  return OperationOf(sweep);
}

absl::StatusOr<v1::Sweep> SweepCore::Get(const v1::GetSweepRequest& request) {
  RT_RETURN_IF_ERROR(ResourceId(request.name(), kSweeps).status());
  return context_.sweeps->Get(request.name());
}

absl::StatusOr<v1::ListSweepsResponse> SweepCore::List(const v1::ListSweepsRequest& request) {
  RT_ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size()));
  std::optional<v1::SweepState> state;
  if (request.state() != v1::SWEEP_STATE_UNSPECIFIED) state = request.state();
  RT_ASSIGN_OR_RETURN(Page<v1::Sweep> page, context_.deps.store.ListSweeps(state, page_size, request.page_token()));
  v1::ListSweepsResponse response;
  for (v1::Sweep& sweep : page.items) *response.add_sweep() = std::move(sweep);
  response.set_next_page_token(page.next_token);
  return response;
}

absl::StatusOr<v1::Sweep> SweepCore::Cancel(const v1::CancelSweepRequest& request) {
  RT_RETURN_IF_ERROR(ResourceId(request.name(), kSweeps).status());
  return context_.sweeps->Cancel(request.name());
}

absl::StatusOr<Operation> SweepCore::Calibrate(const v1::CalibrateDeviceRequest& request) {
  RT_ASSIGN_OR_RETURN(const DevicePtr device, context_.devices.Resolve(request.name()));
  return calibrations_.Start(*device);
}

absl::StatusOr<Operation> SweepCore::GetOperation(const google::longrunning::GetOperationRequest& request) {
  if (CalibrationTable::Owns(request.name())) return calibrations_.Get(request.name());
  RT_ASSIGN_OR_RETURN(const std::string name, SweepName(request.name()));
  RT_ASSIGN_OR_RETURN(const v1::Sweep sweep, context_.sweeps->Get(name));
  return OperationOf(sweep);
}

absl::StatusOr<google::longrunning::ListOperationsResponse> SweepCore::ListOperations(
    const google::longrunning::ListOperationsRequest& request) {
  if (!request.filter().empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "FILTER_NOT_SUPPORTED",
                 "operations can't be filtered; SweepService.ListSweeps filters by state", {{"field", "filter"}});
  }
  RT_ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size()));
  google::longrunning::ListOperationsResponse response;
  // Calibrations (at most 100) come with the first page.
  if (request.page_token().empty()) {
    for (Operation& operation : calibrations_.List()) *response.add_operations() = std::move(operation);
  }
  RT_ASSIGN_OR_RETURN(const Page<v1::Sweep> page,
                      context_.deps.store.ListSweeps(std::nullopt, page_size, request.page_token()));
  for (const v1::Sweep& sweep : page.items) *response.add_operations() = OperationOf(sweep);
  response.set_next_page_token(page.next_token);
  return response;
}

absl::Status SweepCore::CancelOperation(const google::longrunning::CancelOperationRequest& request) {
  if (CalibrationTable::Owns(request.name())) {
    RT_RETURN_IF_ERROR(calibrations_.Get(request.name()).status());
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_CANCELLABLE",
                 "a calibration ends by itself within a minute and can't be cancelled");
  }
  RT_ASSIGN_OR_RETURN(const std::string name, SweepName(request.name()));
  return context_.sweeps->Cancel(name).status();
}

absl::StatusOr<v1::Sweep> SweepCore::StartOnce(const std::string& op, const KnownDevice& device,
                                               v1::Objective objective) {
  const std::string key = TargetKey(op, device.device.device_key(), objective);
  std::string running;
  {
    absl::MutexLock lock(&mutex_);
    const auto free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return starting_.count(key) == 0; };
    mutex_.Await(absl::Condition(&free));
    starting_.insert(key);
    const auto it = active_.find(key);
    if (it != active_.end()) running = it->second;
  }
  absl::StatusOr<v1::Sweep> sweep = absl::NotFoundError("none");
  if (!running.empty()) sweep = context_.sweeps->Get(running);
  if (!sweep.ok() || IsTerminal(sweep->state())) {
    v1::SweepSpec spec;
    spec.set_op(op);
    spec.set_device(device.device.id());
    if (objective != v1::TIME) spec.set_objective(objective);
    sweep = context_.sweeps->Start(spec, "");
  }
  absl::MutexLock lock(&mutex_);
  starting_.erase(key);
  if (sweep.ok()) active_[key] = sweep->name();
  return sweep;
}

void SweepCore::OnChange(const v1::Sweep& sweep) {
  const std::string key = TargetKey(sweep.spec().op(), sweep.device_key(), sweep.spec().objective());
  {
    absl::MutexLock lock(&mutex_);
    const auto it = active_.find(key);
    if (!IsTerminal(sweep.state()))
      active_[key] = sweep.name();
    else if (it != active_.end() && it->second == sweep.name())
      active_.erase(it);
  }
  context_.hub.Notify(sweep);
}

}  // namespace rooftune

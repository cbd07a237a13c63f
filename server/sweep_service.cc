#include "server/sweep_service.h"

#include <utility>

#include "base/error.h"
#include "server/stream_call.h"
#include "server/unary_call.h"

namespace rooftune {

using google::longrunning::Operation;
using google::protobuf::Empty;

grpc::ServerUnaryReactor* SweepServiceImpl::CreateSweep(Context*, const v1::CreateSweepRequest* request,
                                                        Operation* response) {
  return AnswerOn<v1::CreateSweepRequest, Operation>(core_.context.work, *request, response,
                                                     [this](const auto& r) { return core_.sweeps.Create(r); });
}

grpc::ServerUnaryReactor* SweepServiceImpl::GetSweep(Context*, const v1::GetSweepRequest* request,
                                                     v1::Sweep* response) {
  return AnswerOn<v1::GetSweepRequest, v1::Sweep>(core_.context.reads, *request, response,
                                                  [this](const auto& r) { return core_.sweeps.Get(r); });
}

grpc::ServerUnaryReactor* SweepServiceImpl::ListSweeps(Context*, const v1::ListSweepsRequest* request,
                                                       v1::ListSweepsResponse* response) {
  return AnswerOn<v1::ListSweepsRequest, v1::ListSweepsResponse>(
      core_.context.reads, *request, response, [this](const auto& r) { return core_.sweeps.List(r); });
}

grpc::ServerUnaryReactor* SweepServiceImpl::CancelSweep(Context*, const v1::CancelSweepRequest* request,
                                                        v1::Sweep* response) {
  return AnswerOn<v1::CancelSweepRequest, v1::Sweep>(core_.context.reads, *request, response,
                                                     [this](const auto& r) { return core_.sweeps.Cancel(r); });
}

grpc::ServerUnaryReactor* SweepServiceImpl::ResumeSweep(Context*, const v1::ResumeSweepRequest* request,
                                                        Operation* response) {
  return AnswerOn<v1::ResumeSweepRequest, Operation>(core_.context.work, *request, response,
                                                     [this](const auto& r) { return core_.sweeps.Resume(r); });
}

grpc::ServerWriteReactor<v1::Sweep>* SweepServiceImpl::WatchSweep(Context*, const v1::WatchSweepRequest* request) {
  auto [reactor, stream] = StreamCall<v1::Sweep>::Start();
  SweepFeed::Sink sink;
  sink.write = [stream = stream](const v1::Sweep& sweep, std::function<void(bool)> written) {
    stream->Write(sweep, std::move(written));
  };
  sink.finish = [stream = stream](const absl::Status& status) { stream->Finish(status); };
  core_.sweeps.Watch(*request, stream->token(), pace_, std::move(sink));
  return reactor;
}

grpc::ServerUnaryReactor* SweepServiceImpl::TryConfig(Context*, const v1::TryConfigRequest* request,
                                                      v1::Trial* response) {
  return AnswerLater<v1::TryConfigRequest, v1::Trial>(
      core_.context.work, *request, response,
      [this](const auto& r, const CallPtr& call, auto done) { core_.sweeps.TryConfig(r, call, std::move(done)); });
}

grpc::ServerUnaryReactor* SweepServiceImpl::RaceConfigs(Context*, const v1::RaceConfigsRequest* request,
                                                        v1::RaceConfigsResponse* response) {
  return AnswerLater<v1::RaceConfigsRequest, v1::RaceConfigsResponse>(
      core_.context.work, *request, response,
      [this](const auto& r, const CallPtr& call, auto done) { core_.sweeps.RaceConfigs(r, call, std::move(done)); });
}

grpc::ServerUnaryReactor* SweepServiceImpl::ReplayTrial(Context*, const v1::ReplayTrialRequest* request,
                                                        v1::ReplayTrialResponse* response) {
  return AnswerLater<v1::ReplayTrialRequest, v1::ReplayTrialResponse>(
      core_.context.work, *request, response,
      [this](const auto& r, const CallPtr& call, auto done) { core_.sweeps.ReplayTrial(r, call, std::move(done)); });
}

grpc::ServerUnaryReactor* OperationsServiceImpl::ListOperations(
    Context*, const google::longrunning::ListOperationsRequest* request,
    google::longrunning::ListOperationsResponse* response) {
  return AnswerOn<google::longrunning::ListOperationsRequest, google::longrunning::ListOperationsResponse>(
      core_.context.reads, *request, response, [this](const auto& r) { return core_.sweeps.ListOperations(r); });
}

grpc::ServerUnaryReactor* OperationsServiceImpl::GetOperation(Context*,
                                                              const google::longrunning::GetOperationRequest* request,
                                                              Operation* response) {
  return AnswerOn<google::longrunning::GetOperationRequest, Operation>(
      core_.context.reads, *request, response, [this](const auto& r) { return core_.sweeps.GetOperation(r); });
}

grpc::ServerUnaryReactor* OperationsServiceImpl::DeleteOperation(Context* context,
                                                                 const google::longrunning::DeleteOperationRequest*,
                                                                 Empty* response) {
  return Answer<Empty>(context, response,
                       Error(absl::StatusCode::kUnimplemented, "NOT_SUPPORTED",
                             "operations can't be deleted: sweeps are evidence and stay; CancelOperation stops one"));
}

grpc::ServerUnaryReactor* OperationsServiceImpl::CancelOperation(
    Context*, const google::longrunning::CancelOperationRequest* request, Empty* response) {
  return AnswerOn<google::longrunning::CancelOperationRequest, Empty>(
      core_.context.reads, *request, response, [this](const auto& r) -> absl::StatusOr<Empty> {
        const absl::Status cancelled = core_.sweeps.CancelOperation(r);
        if (!cancelled.ok()) return cancelled;
        return Empty();
      });
}

grpc::ServerUnaryReactor* OperationsServiceImpl::WaitOperation(Context*,
                                                               const google::longrunning::WaitOperationRequest* request,
                                                               Operation* response) {
  auto [reactor, call] = UnaryCall<Operation>::Start(response);
  const absl::Status posted = core_.context.reads.Post([this, call = call, request = *request] {
    core_.sweeps.WaitOperation(request, call->token(), [call](auto result) { call->Finish(std::move(result)); });
  });
  if (!posted.ok()) call->Finish(posted);
  return reactor;
}

}  // namespace rooftune

// rooftune.v1.SweepService and google.longrunning.Operations.
#ifndef ROOFTUNE_SERVER_SWEEP_SERVICE_H_
#define ROOFTUNE_SERVER_SWEEP_SERVICE_H_

#include "google/longrunning/operations_proto.grpc.pb.h"
#include "rooftune/v1/service.grpc.pb.h"
#include "server/server_core.h"

namespace rooftune {

class SweepServiceImpl : public v1::SweepService::CallbackService {
 public:
  SweepServiceImpl(ServerCore& core, SweepFeed::Options pace) : core_(core), pace_(pace) {}

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* CreateSweep(Context* context, const v1::CreateSweepRequest* request,
                                        google::longrunning::Operation* response) override;
  grpc::ServerUnaryReactor* GetSweep(Context* context, const v1::GetSweepRequest* request,
                                     v1::Sweep* response) override;
  grpc::ServerUnaryReactor* ListSweeps(Context* context, const v1::ListSweepsRequest* request,
                                       v1::ListSweepsResponse* response) override;
  grpc::ServerUnaryReactor* CancelSweep(Context* context, const v1::CancelSweepRequest* request,
                                        v1::Sweep* response) override;
  grpc::ServerUnaryReactor* ResumeSweep(Context* context, const v1::ResumeSweepRequest* request,
                                        google::longrunning::Operation* response) override;
  grpc::ServerWriteReactor<v1::Sweep>* WatchSweep(Context* context, const v1::WatchSweepRequest* request) override;
  grpc::ServerUnaryReactor* TryConfig(Context* context, const v1::TryConfigRequest* request,
                                      v1::Trial* response) override;
  grpc::ServerUnaryReactor* RaceConfigs(Context* context, const v1::RaceConfigsRequest* request,
                                        v1::RaceConfigsResponse* response) override;
  grpc::ServerUnaryReactor* ReplayTrial(Context* context, const v1::ReplayTrialRequest* request,
                                        v1::ReplayTrialResponse* response) override;

 private:
  ServerCore& core_;
  const SweepFeed::Options pace_;
};

class OperationsServiceImpl : public google::longrunning::Operations::CallbackService {
 public:
  explicit OperationsServiceImpl(ServerCore& core) : core_(core) {}

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* ListOperations(Context* context, const google::longrunning::ListOperationsRequest* request,
                                           google::longrunning::ListOperationsResponse* response) override;
  grpc::ServerUnaryReactor* GetOperation(Context* context, const google::longrunning::GetOperationRequest* request,
                                         google::longrunning::Operation* response) override;
  grpc::ServerUnaryReactor* DeleteOperation(Context* context,
                                            const google::longrunning::DeleteOperationRequest* request,
                                            google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* CancelOperation(Context* context,
                                            const google::longrunning::CancelOperationRequest* request,
                                            google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* WaitOperation(Context* context, const google::longrunning::WaitOperationRequest* request,
                                          google::longrunning::Operation* response) override;

 private:
  ServerCore& core_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_SWEEP_SERVICE_H_

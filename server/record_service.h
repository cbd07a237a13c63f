// rooftune.v1.RecordService.
#ifndef ROOFTUNE_SERVER_RECORD_SERVICE_H_
#define ROOFTUNE_SERVER_RECORD_SERVICE_H_

#include "rooftune/v1/service.grpc.pb.h"
#include "server/server_core.h"

namespace rooftune {

class RecordServiceImpl : public v1::RecordService::CallbackService {
 public:
  explicit RecordServiceImpl(ServerCore& core) : core_(core) {}

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* ListTrials(Context* context, const v1::ListTrialsRequest* request,
                                       v1::ListTrialsResponse* response) override;
  grpc::ServerUnaryReactor* ListRecords(Context* context, const v1::ListRecordsRequest* request,
                                        v1::ListRecordsResponse* response) override;
  grpc::ServerUnaryReactor* GetRecord(Context* context, const v1::GetRecordRequest* request,
                                      v1::TuningRecord* response) override;
  grpc::ServerWriteReactor<v1::ExportLine>* ExportEvidence(Context* context,
                                                           const v1::ExportEvidenceRequest* request) override;
  grpc::ServerReadReactor<v1::ExportLine>* ImportEvidence(Context* context,
                                                          v1::ImportEvidenceResponse* response) override;

 private:
  ServerCore& core_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_RECORD_SERVICE_H_

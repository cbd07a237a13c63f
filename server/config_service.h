// rooftune.v1.ConfigService.
#ifndef ROOFTUNE_SERVER_CONFIG_SERVICE_H_
#define ROOFTUNE_SERVER_CONFIG_SERVICE_H_

#include "rooftune/v1/service.grpc.pb.h"
#include "server/server_core.h"

namespace rooftune {

// GetBestConfig is served raw: its answer is put together from bytes that the index holds ready.
using ConfigServiceBase = v1::ConfigService::WithRawCallbackMethod_GetBestConfig<
    v1::ConfigService::WithCallbackMethod_BatchGetBestConfigs<v1::ConfigService::WithCallbackMethod_GetKernel<
        v1::ConfigService::WithCallbackMethod_Ping<v1::ConfigService::Service>>>>;

class ConfigServiceImpl : public ConfigServiceBase {
 public:
  explicit ConfigServiceImpl(ServerCore& core) : core_(core) {}

  grpc::ServerUnaryReactor* GetBestConfig(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* BatchGetBestConfigs(grpc::CallbackServerContext* context,
                                                const v1::BatchGetBestConfigsRequest* request,
                                                v1::BatchGetBestConfigsResponse* response) override;
  grpc::ServerWriteReactor<v1::GetKernelResponse>* GetKernel(grpc::CallbackServerContext* context,
                                                             const v1::GetKernelRequest* request) override;
  grpc::ServerUnaryReactor* Ping(grpc::CallbackServerContext* context, const v1::PingRequest* request,
                                 v1::PingResponse* response) override;

 private:
  ServerCore& core_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_CONFIG_SERVICE_H_

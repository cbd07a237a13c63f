// rooftune.v1.DeviceService, TemplateService and EstimateService.
#ifndef ROOFTUNE_SERVER_CATALOG_SERVICES_H_
#define ROOFTUNE_SERVER_CATALOG_SERVICES_H_

#include "rooftune/v1/service.grpc.pb.h"
#include "server/server_core.h"

namespace rooftune {

class DeviceServiceImpl : public v1::DeviceService::CallbackService {
 public:
  explicit DeviceServiceImpl(ServerCore& core) : core_(core) {}

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* ListDevices(Context* context, const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* GetDevice(Context* context, const v1::GetDeviceRequest* request,
                                      v1::Device* response) override;
  grpc::ServerUnaryReactor* CalibrateDevice(Context* context, const v1::CalibrateDeviceRequest* request,
                                            google::longrunning::Operation* response) override;

 private:
  ServerCore& core_;
};

class TemplateServiceImpl : public v1::TemplateService::CallbackService {
 public:
  explicit TemplateServiceImpl(ServerCore& core) : core_(core) {}

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* ListTemplates(Context* context, const v1::ListTemplatesRequest* request,
                                          v1::ListTemplatesResponse* response) override;
  grpc::ServerUnaryReactor* GetTemplate(Context* context, const v1::GetTemplateRequest* request,
                                        v1::TemplateInfo* response) override;
  grpc::ServerUnaryReactor* CheckTemplate(Context* context, const v1::CheckTemplateRequest* request,
                                          v1::CheckTemplateResponse* response) override;

 private:
  ServerCore& core_;
};

class EstimateServiceImpl : public v1::EstimateService::CallbackService {
 public:
  explicit EstimateServiceImpl(ServerCore& core) : core_(core) {}

  grpc::ServerUnaryReactor* Estimate(grpc::CallbackServerContext* context, const v1::EstimateRequest* request,
                                     v1::EstimateResponse* response) override;

 private:
  ServerCore& core_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_CATALOG_SERVICES_H_

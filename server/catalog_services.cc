#include "server/catalog_services.h"

#include "server/unary_call.h"

namespace rooftune {

grpc::ServerUnaryReactor* DeviceServiceImpl::ListDevices(Context*, const v1::ListDevicesRequest* request,
                                                         v1::ListDevicesResponse* response) {
  return AnswerOn<v1::ListDevicesRequest, v1::ListDevicesResponse>(
      core_.context.reads, *request, response, [this](const auto& r) { return core_.catalog.ListDevices(r); });
}

grpc::ServerUnaryReactor* DeviceServiceImpl::GetDevice(Context*, const v1::GetDeviceRequest* request,
                                                       v1::Device* response) {
  return AnswerOn<v1::GetDeviceRequest, v1::Device>(core_.context.reads, *request, response,
                                                    [this](const auto& r) { return core_.catalog.GetDevice(r); });
}

grpc::ServerUnaryReactor* DeviceServiceImpl::CalibrateDevice(Context*, const v1::CalibrateDeviceRequest* request,
                                                             google::longrunning::Operation* response) {
  return AnswerOn<v1::CalibrateDeviceRequest, google::longrunning::Operation>(
      core_.context.reads, *request, response, [this](const auto& r) { return core_.sweeps.Calibrate(r); });
}

grpc::ServerUnaryReactor* TemplateServiceImpl::ListTemplates(Context*, const v1::ListTemplatesRequest* request,
                                                             v1::ListTemplatesResponse* response) {
  return AnswerOn<v1::ListTemplatesRequest, v1::ListTemplatesResponse>(
      core_.context.reads, *request, response, [this](const auto& r) { return core_.catalog.ListTemplates(r); });
}

grpc::ServerUnaryReactor* TemplateServiceImpl::GetTemplate(Context*, const v1::GetTemplateRequest* request,
                                                           v1::TemplateInfo* response) {
  return AnswerOn<v1::GetTemplateRequest, v1::TemplateInfo>(
      core_.context.reads, *request, response, [this](const auto& r) { return core_.catalog.GetTemplate(r); });
}

grpc::ServerUnaryReactor* TemplateServiceImpl::CheckTemplate(Context*, const v1::CheckTemplateRequest* request,
                                                             v1::CheckTemplateResponse* response) {
  return AnswerOn<v1::CheckTemplateRequest, v1::CheckTemplateResponse>(
      core_.context.work, *request, response, [this](const auto& r) { return core_.catalog.CheckTemplate(r); });
}

grpc::ServerUnaryReactor* EstimateServiceImpl::Estimate(grpc::CallbackServerContext*,
                                                        const v1::EstimateRequest* request,
                                                        v1::EstimateResponse* response) {
  return AnswerOn<v1::EstimateRequest, v1::EstimateResponse>(
      core_.context.work, *request, response, [this](const auto& r) { return core_.catalog.Estimate(r); });
}

}  // namespace rooftune

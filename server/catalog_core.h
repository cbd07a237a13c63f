// What this daemon knows: devices, templates, operators, and what the cost model says of them.
#ifndef ROOFTUNE_SERVER_CATALOG_CORE_H_
#define ROOFTUNE_SERVER_CATALOG_CORE_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/context.h"
#include "server/estimates.h"

namespace rooftune {

// Thread-safe. All methods block: call them from an executor.
class CatalogCore {
 public:
  explicit CatalogCore(ServerContext& context) : context_(context) {}

  absl::StatusOr<v1::ListDevicesResponse> ListDevices(const v1::ListDevicesRequest& request);
  absl::StatusOr<v1::Device> GetDevice(const v1::GetDeviceRequest& request);
  // True if some device of this daemon can tune now.
  bool AnyDeviceUsable();

  absl::StatusOr<v1::ListTemplatesResponse> ListTemplates(const v1::ListTemplatesRequest& request);
  absl::StatusOr<v1::TemplateInfo> GetTemplate(const v1::GetTemplateRequest& request);
  absl::StatusOr<v1::CheckTemplateResponse> CheckTemplate(const v1::CheckTemplateRequest& request);

  absl::StatusOr<v1::EstimateResponse> Estimate(const v1::EstimateRequest& request);

 private:
  // Takes the lanes' state over; counters included.
  std::vector<v1::Device> RefreshDevices();
  absl::StatusOr<const KernelTemplate*> FindTemplate(const std::string& id) const;
  v1::CheckTemplateResponse::Result CheckOn(const KernelTemplate& kernel, const Op& op, const std::string& arch,
                                            v1::CheckTemplateResponse& response);
  absl::Status AddCandidates(const Op& op, const KnownDevice& device, int top, v1::EstimateResponse& response);

  ServerContext& context_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_CATALOG_CORE_H_

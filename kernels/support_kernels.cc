// The kernels that the harness itself needs on the device.
#include <utility>

#include "kernels/source_files.h"
#include "kernels/template_folders.h"
#include "kernels/template_library.h"

namespace rooftune {

worker::v1::CompileRequest SupportKernels(const DeviceProfile& device) {
  worker::v1::CompileRequest request;
  for (const auto& header : CommonHeaders()) {
    if (header.name() == "common/support.cuh") *request.mutable_source() = header;
  }
  for (auto& header : HeadersOf(request.source().text(), CommonHeaders())) *request.add_header() = std::move(header);
  request.set_arch(ArchName(device.cc(), /*arch_specific=*/false));
  request.set_option_list_version(kOptionListVersion);
  return request;
}

}  // namespace rooftune

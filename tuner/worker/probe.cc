#include "base/error.h"
#include "tuner/worker/nvrtc_library.h"
#include "tuner/worker/roles.h"

namespace rooftune {

worker::v1::Library DescribeNvrtc(const absl::StatusOr<NvrtcLibrary>& library) {
  worker::v1::Library entry;
  entry.set_name("nvrtc");
  if (library.ok()) {
    entry.set_path(library->path);
    entry.set_version(library->version);
  } else {
    entry.set_error(std::string(library.status().message()));
  }
  return entry;
}

worker::v1::Library ProbeNvrtc(const std::string& nvrtc_path) { return DescribeNvrtc(NvrtcLibrary::Load(nvrtc_path)); }

worker::v1::ProbeResult Probe() {
  worker::v1::ProbeResult result;
  *result.add_library() = ProbeNvrtc("");
  ProbeDriver(&result);
  return result;
}

}  // namespace rooftune

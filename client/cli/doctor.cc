// doctor: what works on this machine, and what to do about what does not.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/file_util.h"
#include "client/cli/cli.h"

namespace rooftune::cli {
namespace {

void Line(bool good, const std::string& what, const std::string& detail) {
  std::printf("%-4s  %-12s %s\n", good ? "ok" : "NO", what.c_str(), detail.c_str());
}

// The worker's own words: it alone may load the driver and NVRTC.
bool PrintProbe() {
  const std::string command = absl::StrCat("'", ExecutableDir(), "/rooftune-worker' probe");
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return false;
  char line[4096];
  while (std::fgets(line, sizeof(line), pipe) != nullptr) std::printf("      %s", line);
  return pclose(pipe) == 0;
}

}  // namespace

absl::Status Doctor(Context& context) {
  const std::string address = context.address.empty() ? DefaultAddress() : context.address;
  const absl::Status ping = context.client->Ping();
  Line(ping.ok(), "daemon", ping.ok() ? address : std::string(ping.message()));
  if (ping.ok()) {
    const auto devices = context.client->ListDevices(false);
    if (devices.ok()) {
      for (const auto& device : devices->device()) {
        const bool good = device.state() != v1::Device::UNAVAILABLE;
        Line(good, device.id(), absl::StrCat(device.device_key(), good ? "" : absl::StrCat(": ", device.message()),
                                             device.kind() == v1::Device::MODELLED ? " (modelled: estimates and compiles, measures nothing)" : ""));
      }
    }
    const auto templates = context.client->ListTemplates();
    if (templates.ok()) {
      for (const auto& info : templates->template_()) {
        if (!info.error().empty()) Line(false, "template", absl::StrCat(info.id(), ": ", info.error(0)));
      }
    }
  }
  const std::string worker = absl::StrCat(ExecutableDir(), "/rooftune-worker");
  std::printf("this machine, as %s sees it:\n", worker.c_str());
  std::fflush(stdout);
  const bool probed = PrintProbe();
  if (!probed) Line(false, "worker", absl::StrCat(worker, " could not probe this machine"));
  if (!ping.ok()) return ping;
  if (!probed) return Error(absl::StatusCode::kFailedPrecondition, "NO_WORKER", "the worker does not run");
  return absl::OkStatus();
}

}  // namespace rooftune::cli

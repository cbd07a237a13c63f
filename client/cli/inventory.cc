// templates and devices.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"
#include "client/cli/skeleton.h"

namespace rooftune::cli {
namespace {

constexpr size_t kMaxNameLength = 48;

void PrintCalibration(const device::v1::Calibration& calibration) {
  std::vector<std::vector<std::string>> rows = {{"MEASURED", "SIZE", "GB/s"}};
  for (const auto& curve : calibration.curve()) {
    for (const auto& point : curve.point()) {
      rows.push_back({curve.mix(), absl::StrFormat("%.2f MB", static_cast<double>(point.bytes()) / 1e6),
                      absl::StrFormat("%.0f", point.gbps())});
    }
  }
  PrintTable(rows);
  rows = {{"MEASURED", "TYPE", "CLOCK", "RATE", "METHOD"}};
  for (const auto& rate : calibration.rate()) {
    rows.push_back({rate.pipe(), v1::DType_Name(rate.dtype()), v1::ClockState_Name(rate.clock()),
                    absl::StrFormat("%.1f T/s", rate.tera_ops()), rate.method()});
  }
  PrintTable(rows);
  std::printf("empty kernel in a graph %.2f µs, event-kernel-event %.2f µs, took %.1f s\n", calibration.graph_node_us(),
              calibration.event_kernel_us(), calibration.wall_s());
}

}  // namespace

absl::Status TemplatesList(Context& context) {
  RT_ASSIGN_OR_RETURN(const auto response, context.client->ListTemplates());
  if (context.json) {
    PrintJson(response);
    return absl::OkStatus();
  }
  std::vector<std::vector<std::string>> rows = {{"TEMPLATE", "OPERATOR", "ARCH", "ORIGIN", "DESCRIPTION"}};
  for (const auto& info : response.template_()) {
    rows.push_back({info.id(), info.op(), info.arch(), info.origin(),
                    info.error().empty() ? info.description() : absl::StrCat("BROKEN: ", info.error(0))});
  }
  PrintTable(rows);
  std::printf("\n");
  rows = {{"OPERATOR", "EXAMPLE", "USAGE"}};
  for (const auto& op : response.op()) rows.push_back({op.kind(), op.example(), op.usage()});
  PrintTable(rows);
  return absl::OkStatus();
}

absl::Status TemplatesShow(Context& context, const std::string& id) {
  RT_ASSIGN_OR_RETURN(const auto info, context.client->GetTemplate(id));
  if (context.json) {
    PrintJson(info);
    return absl::OkStatus();
  }
  std::printf("# %s for %s, revision %s, from %s\n%s", info.id().c_str(), info.op().c_str(), info.revision().c_str(),
              info.origin().c_str(), info.manifest().c_str());
  return absl::OkStatus();
}

absl::Status TemplatesCheck(Context& context, const std::string& target, const std::vector<std::string>& archs,
                            const std::vector<std::string>& words) {
  RT_ASSIGN_OR_RETURN(const auto info, context.client->GetTemplate(target));
  if (!info.error().empty()) {
    return Error(absl::StatusCode::kFailedPrecondition, "BROKEN_TEMPLATE", absl::StrJoin(info.error(), "\n"));
  }
  v1::CheckTemplateRequest request;
  request.set_id(target);
  for (const std::string& arch : archs) request.add_arch(arch);
  request.set_op(absl::StrJoin(words, " "));
  RT_ASSIGN_OR_RETURN(const auto response, context.client->CheckTemplate(request));
  bool good = true;
  for (const auto& result : response.result()) good = good && result.outcome() == v1::OK;
  if (context.json) {
    PrintJson(response);
  } else {
    std::printf("%s: %lld points, %lld valid\n", target.c_str(), static_cast<long long>(response.space_points()),
                static_cast<long long>(response.valid_points()));
    std::vector<std::vector<std::string>> rows = {{"ARCH", "OUTCOME", "REGS", "SPILL", "SHARED", "MESSAGE"}};
    for (const auto& r : response.result()) {
      rows.push_back({r.arch(), v1::Outcome_Name(r.outcome()), absl::StrCat(r.resources().registers_per_thread()),
                      absl::StrCat(r.resources().spill_store_bytes()),
                      absl::StrCat(r.resources().static_shared_bytes() + r.resources().dynamic_shared_bytes()),
                      Clip(r.message(), 80)});
    }
    PrintTable(rows);
    for (const auto& r : response.result()) {
      if (r.outcome() != v1::OK) std::fprintf(stderr, "%s: %s\n", r.arch().c_str(), r.message().c_str());
    }
  }
  if (!good)
    return Error(absl::StatusCode::kFailedPrecondition, "CHECK_FAILED",
                 absl::StrCat(target, " does not compile everywhere"));
  return absl::OkStatus();
}

absl::Status TemplatesNew(Context&, const std::string& name, const std::string& dir) {
  // It becomes an identifier of the kernel's source too, hence the limit and no leading digit.
  const bool valid = !name.empty() && name.size() <= kMaxNameLength &&
                     name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos &&
                     name[0] >= 'a' && name[0] <= 'z';
  if (!valid) {
    return Error(
        absl::StatusCode::kInvalidArgument, "BAD_NAME",
        absl::StrCat("`", name, "`: a name has lower-case letters, digits and _, starts with a letter and is at most ",
                     kMaxNameLength, " long"));
  }
  RT_RETURN_IF_ERROR(MakeDirs(dir, 0755));
  const std::string folder = absl::StrCat(dir, "/", name);
  if (mkdir(folder.c_str(), 0755) != 0) {
    const int error = errno;
    if (error != EEXIST) return ErrnoStatus(error, absl::StrCat("create folder ", folder));
    return Error(absl::StatusCode::kAlreadyExists, "EXISTS", absl::StrCat(folder, " exists; nothing was written"));
  }
  for (const EmbeddedFile& file : SkeletonFiles()) {
    const absl::Status written =
        WriteOutput(absl::StrCat(folder, "/", file.path), absl::StrReplaceAll(file.data, {{"@NAME@", name}}));
    if (written.ok()) continue;
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    return written;
  }
  for (const EmbeddedFile& file : SkeletonFiles()) std::printf("%s/%s\n", folder.c_str(), file.path.c_str());
  std::fprintf(stderr,
               "rooftune: an operator `%s` with a reference and one kernel; %s/README.md explains. Next:\n"
               "  rooftune --local --template-dir %s templates check %s\n"
               "  rooftune --local --template-dir %s tune %s rows=4096 cols=4096 dtype=bf16\n",
               name.c_str(), folder.c_str(), dir.c_str(), name.c_str(), dir.c_str(), name.c_str());
  return absl::OkStatus();
}

absl::Status DevicesList(Context& context, bool all) {
  RT_ASSIGN_OR_RETURN(const auto response, context.client->ListDevices(all));
  if (context.json) {
    PrintJson(response);
    return absl::OkStatus();
  }
  std::vector<std::vector<std::string>> rows = {
      {"DEVICE", "KIND", "STATE", "NAME", "ARCH", "KEY", "CALIBRATED", "NOTE"}};
  for (const auto& device : response.device()) {
    rows.push_back({device.id(), v1::Device::Kind_Name(device.kind()), v1::Device::State_Name(device.state()),
                    device.profile().name(), device.arch(), device.device_key(),
                    device.has_calibration() ? "yes" : "no", device.message()});
  }
  PrintTable(rows);
  return absl::OkStatus();
}

absl::Status DevicesShow(Context& context, const std::string& name) {
  RT_ASSIGN_OR_RETURN(const auto device, context.client->GetDevice(name));
  if (context.json) {
    PrintJson(device);
    return absl::OkStatus();
  }
  const auto& profile = device.profile();
  std::printf("%s  %s  %s\n", device.id().c_str(), profile.name().c_str(), device.device_key().c_str());
  std::printf("%d SMs, cc %d.%d, %d MHz, L2 %.0f MiB, memory %.1f GB at %.0f GB/s\n", profile.sm_count(),
              profile.cc() / 10, profile.cc() % 10, profile.max_clock_mhz(),
              static_cast<double>(profile.l2_bytes()) / (1 << 20), static_cast<double>(profile.memory_bytes()) / 1e9,
              profile.memory_gbps().value());
  std::vector<std::vector<std::string>> rows = {{"PIPE", "TYPE", "PEAK (dense)", "SOURCE"}};
  for (const auto& peak : profile.peak()) {
    rows.push_back(
        {peak.pipe(), v1::DType_Name(peak.dtype()), absl::StrFormat("%.1f T/s", peak.tera_ops().value()),
         absl::StrCat(absl::StrJoin(peak.tera_ops().source(), " "), peak.tera_ops().unsure() ? " (unsure)" : "")});
  }
  PrintTable(rows);
  if (device.has_calibration()) {
    PrintCalibration(device.calibration());
  } else {
    std::printf("not calibrated%s\n", device.kind() == v1::Device::CUDA ? ": rooftune devices calibrate" : "");
  }
  std::vector<std::string> counters;
  for (const auto& [name, count] : device.counter()) counters.push_back(absl::StrCat(name, " ", count));
  std::sort(counters.begin(), counters.end());
  if (!counters.empty()) std::printf("since start: %s\n", absl::StrJoin(counters, ", ").c_str());
  return absl::OkStatus();
}

absl::Status DevicesCalibrate(Context& context, const std::string& name) {
  const std::string device = name.empty() ? context.device : name;
  std::fprintf(stderr, "rooftune: measuring ceilings, up to a minute\n");
  RT_ASSIGN_OR_RETURN(const auto calibration, context.client->CalibrateDevice(device));
  if (context.json) {
    PrintJson(calibration);
    return absl::OkStatus();
  }
  return DevicesShow(context, calibration.device_key());
}

}  // namespace rooftune::cli

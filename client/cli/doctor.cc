// doctor: what works on this machine, and what to do about what does not.
#include <fcntl.h>
#include <google/protobuf/struct.pb.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "base/file_util.h"
#include "client/cli/cli.h"

extern char** environ;

namespace rooftune::cli {
namespace {

constexpr size_t kMaxProbeBytes = 1 << 20;

// One thing that was looked at.
struct Finding {
  bool good;
  std::string what;
  std::string detail;
};

// The worker's own words: it alone may load the driver and NVRTC.
std::pair<bool, std::string> Probe(const std::string& worker) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return {false, ""};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::string path = worker, command = "probe";
  char* argv[] = {path.data(), command.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, path.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; error == 0 && text.size() < kMaxProbeBytes && (n = read(out[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(out[0]);
  int status = -1;
  if (error == 0) waitpid(pid, &status, 0);
  return {WIFEXITED(status) && WEXITSTATUS(status) == 0, text};
}

void AddDaemon(Context& context, std::vector<Finding>& findings) {
  const auto devices = context.client->ListDevices(false);
  if (!devices.ok()) findings.push_back({false, "devices", std::string(devices.status().message())});
  if (devices.ok()) {
    for (const auto& device : devices->device()) {
      const bool good = device.state() != v1::Device::UNAVAILABLE;
      const bool modelled = device.kind() == v1::Device::MODELLED;
      findings.push_back({good, device.id(),
                          absl::StrCat(device.device_key(), good ? "" : absl::StrCat(": ", device.message()),
                                       modelled ? " (modelled: estimates and compiles, measures nothing)" : "")});
    }
  }
  const auto templates = context.client->ListTemplates();
  if (!templates.ok()) return;
  for (const auto& info : templates->template_()) {
    if (info.error_size() > 0) findings.push_back({false, "template", absl::StrCat(info.id(), ": ", info.error(0))});
  }
}

void PrintFindings(const std::vector<Finding>& findings, const std::string& worker, const std::string& probe) {
  for (const Finding& f : findings)
    std::printf("%-4s  %-12s %s\n", f.good ? "ok" : "NO", f.what.c_str(), f.detail.c_str());
  if (probe.empty()) return;
  std::printf("this machine, as %s sees it:\n", worker.c_str());
  for (const absl::string_view line : absl::StrSplit(probe, '\n', absl::SkipEmpty())) {
    std::printf("      %s\n", std::string(line).c_str());
  }
}

// {"finding": [{"what", "ok", "detail"}], "probe": ["line", …]}
void PrintFindingsJson(const std::vector<Finding>& findings, const std::string& probe) {
  google::protobuf::Struct report;
  auto& list = *(*report.mutable_fields())["finding"].mutable_list_value();
  for (const Finding& finding : findings) {
    auto& fields = *list.add_values()->mutable_struct_value()->mutable_fields();
    fields["what"].set_string_value(finding.what);
    fields["ok"].set_bool_value(finding.good);
    fields["detail"].set_string_value(finding.detail);
  }
  auto& lines = *(*report.mutable_fields())["probe"].mutable_list_value();
  for (const absl::string_view line : absl::StrSplit(probe, '\n', absl::SkipEmpty())) {
    lines.add_values()->set_string_value(std::string(line));
  }
  PrintJson(report);
}

}  // namespace

absl::Status Doctor(Context& context) {
  std::vector<Finding> findings;
  const std::string address = context.address.empty() ? DefaultAddress() : context.address;
  const absl::Status ping = context.client->Ping();
  findings.push_back({ping.ok(), "daemon", ping.ok() ? address : std::string(ping.message())});
  if (ping.ok()) AddDaemon(context, findings);
  const std::string worker = absl::StrCat(ExecutableDir(), "/rooftune-worker");
  const auto [probed, probe] = Probe(worker);
  if (!probed) findings.push_back({false, "worker", absl::StrCat(worker, " could not probe this machine")});
  if (context.json) {
    PrintFindingsJson(findings, probe);
  } else {
    PrintFindings(findings, worker, probe);
  }
  if (!ping.ok()) return ping;
  if (!probed)
    return Error(absl::StatusCode::kFailedPrecondition, "NO_WORKER", "the worker beside this program does not run");
  return absl::OkStatus();
}

}  // namespace rooftune::cli

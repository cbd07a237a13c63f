#include <google/protobuf/util/json_util.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"

namespace rooftune::cli {
namespace {

// Lock-free, so that the handler may use them.
std::atomic<int> interrupts{0};
std::atomic<int> ends_with_us{0};

void OnInterrupt(int) {
  const int pid = ends_with_us;
  if (pid > 0) kill(pid, SIGTERM);
  if (++interrupts > 1) _exit(kInterrupted);
}

// Characters a UTF-8 text takes on a terminal (one a code point is right for what we print).
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
      return kUsage;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return kDenied;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kUnavailable;
    case absl::StatusCode::kFailedPrecondition:
      return kPrecondition;
    case absl::StatusCode::kCancelled:
      return Interrupted() ? kInterrupted : kPending;
    default:
      return kError;
  }
}

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  return status.ok() ? text : absl::StrCat("{\"error\": \"", std::string(status.message()), "\"}");
}

void PrintJson(const google::protobuf::Message& message) { std::puts(ToJson(message).c_str()); }

void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  const bool bold = IsTerminal(STDOUT_FILENO);
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows[r].size(); ++i) {
      line += rows[r][i];
      if (i + 1 < rows[r].size()) line += std::string(widths[i] - Width(rows[r][i]) + 2, ' ');
    }
    std::puts(r == 0 && bold ? absl::StrCat("\033[1m", line, "\033[0m").c_str() : line.c_str());
  }
}

std::string ConfigText(const google::protobuf::Map<std::string, int64_t>& config) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : config) parts.push_back(absl::StrCat(name, "=", value));
  std::sort(parts.begin(), parts.end());
  return absl::StrJoin(parts, ",");
}

std::string TimeText(double us) {
  if (!(us > 0)) return "-";
  if (us < 1000) return absl::StrFormat("%.2f µs", us);
  if (us < 1e6) return absl::StrFormat("%.3f ms", us / 1e3);
  return absl::StrFormat("%.3f s", us / 1e6);
}

std::string EnergyText(const v1::Measurement& measurement) {
  return absl::StrFormat("%.4g µJ (%.4g … %.4g) a launch", measurement.energy_uj(), measurement.energy_low_uj(),
                         measurement.energy_high_uj());
}

std::string MeasurementText(const v1::Measurement& measurement) {
  if (!(measurement.median_us() > 0)) return "-";
  const double half = (measurement.ci_high_us() - measurement.ci_low_us()) / 2 / measurement.median_us() * 100;
  return absl::StrFormat("%s ±%.1f %%", TimeText(measurement.median_us()), half);
}

absl::StatusOr<std::string> OpText(const std::vector<std::string>& words) {
  if (words.empty()) {
    return Error(
        absl::StatusCode::kInvalidArgument, "NO_OPERATOR",
        "which operator? For example: gemm m=1024 n=1024 k=1024 dtype=bf16 (`rooftune templates list` shows all)");
  }
  return absl::StrJoin(words, " ");
}

absl::StatusOr<int> EnumValue(const google::protobuf::EnumDescriptor* descriptor, const std::string& name,
                              const char* option) {
  if (name.empty()) return 0;
  const auto* value = descriptor->FindValueByName(absl::AsciiStrToUpper(name));
  if (value != nullptr && value->number() != 0) return value->number();
  std::vector<std::string> known;
  for (int i = 0; i < descriptor->value_count(); ++i) {
    if (descriptor->value(i)->number() != 0) known.push_back(absl::AsciiStrToLower(descriptor->value(i)->name()));
  }
  return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE",
               absl::StrCat(option, " ", name, ": use one of ", absl::StrJoin(known, ", ")));
}

std::string Clip(const std::string& text, size_t columns) {
  std::string line = text.substr(0, text.find('\n'));
  if (Width(line) <= columns) return line;
  size_t end = 0;
  for (size_t width = 0; end < line.size(); ++end) {
    const bool starts = (line[end] & 0xC0) != 0x80;
    if (starts && width == columns - 1) break;
    width += starts;
  }
  return line.substr(0, end) + "…";
}

std::string ResourceName(const std::string& prefix, const std::string& name) {
  return absl::StartsWith(name, prefix) ? name : absl::StrCat(prefix, name);
}

absl::Status WriteOutput(const std::string& path, const std::string& data) {
  RT_RETURN_IF_ERROR(WriteFileAtomic(path, data));
  const mode_t mask = umask(0);
  umask(mask);
  if (chmod(path.c_str(), 0666 & ~mask) != 0) return ErrnoStatus(errno, absl::StrCat("set the mode of ", path));
  return absl::OkStatus();
}

absl::Status FlushOutput() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  // An earlier write may have failed, of which only the flag is left: most likely the disk is full.
  return ErrnoStatus(errno != 0 ? errno : ENOSPC, "write standard output");
}

bool IsTerminal(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  return std::getenv("ROOFTUNE_FORCE_TTY") != nullptr || isatty(fd) == 1;
}

void CatchInterrupt() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return interrupts > 0; }

void EndWithInterrupt(int pid) { ends_with_us = pid; }

}  // namespace rooftune::cli

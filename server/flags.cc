#include "server/flags.h"

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/status_macros.h"
#include "base/suggest.h"
#include "server/listen_address.h"

namespace rooftune {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;

struct FlagSpec {
  const char* name;
  // Shown in the usage; empty = a switch.
  const char* value;
  bool repeatable;
  const char* help;
};

constexpr FlagSpec kSpecs[] = {
    {"listen", "ADDRESS", true, "unix:PATH or HOST:PORT (port 0 = any free one)"},
    {"data-dir", "DIR", false, "where records and binaries are kept"},
    {"device", "DEVICE", true,
     "auto, cuda:N, model:PROFILE or fake:FILE (default auto: every GPU, else model:h200-sxm)"},
    {"template-dir", "DIR", true, "more kernel templates and operators; whoever can write there can run code here"},
    {"profile-dir", "DIR", true, "more GPU profiles (*.txtpb)"},
    {"config", "FILE", false, "`name = value` lines of these same names; the command line goes first"},
    {"allow-remote", "", false,
     "permit --listen on addresses that other machines reach (no encryption, no authentication)"},
    {"artifact-limit", "SIZE", false,
     "bytes of binaries to keep, e.g. 2GiB; past it those that are neither served nor used lately go (default: no "
     "limit)"},
    {"idle-only", "", false, "measure only while no other process computes on the GPU; sweeps wait for that"},
    {"idle-patience", "SECONDS", false, "how long a sweep waits for an idle GPU before it fails (default 600)"},
    {"gpu-memory-limit", "SIZE", false, "most device memory to use, e.g. 8GiB (default: 90 % of what is free)"},
    {"drain-timeout", "SECONDS", false, "how long calls may take to end after SIGTERM (default 20)"},
    {"worker", "PATH", false, "rooftune-worker (default: beside this executable)"},
    {"ready-fd", "N", false, "write the bound addresses to this file descriptor when serving, then close it"},
    {"log-level", "LEVEL", false, "debug, info, warning or error (default info)"},
    {"version", "", false, "print the version and exit"},
    {"help", "", false, "print this and exit"},
};

// Values by flag name; absent = not given.
using Values = std::map<std::string, std::vector<std::string>>;

const FlagSpec* FindSpec(absl::string_view name) {
  for (const FlagSpec& spec : kSpecs) {
    if (name == spec.name) return &spec;
  }
  return nullptr;
}

absl::Status Bad(absl::string_view where, absl::string_view why) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FLAG", absl::StrCat(where, ": ", why));
}

absl::Status Unknown(absl::string_view where, absl::string_view name) {
  std::vector<std::string> names;
  for (const FlagSpec& spec : kSpecs) names.emplace_back(spec.name);
  const std::string nearest = Nearest(name, names);
  return Bad(where,
             absl::StrCat("unknown flag \"", name, "\"",
                          nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"), " (--help lists all)"));
}

absl::Status AddValue(const FlagSpec& spec, const std::string& value, absl::string_view where, Values& values) {
  std::vector<std::string>& list = values[spec.name];
  if (!list.empty() && !spec.repeatable) return Bad(where, absl::StrCat(spec.name, " is given twice"));
  if (value.empty()) return Bad(where, absl::StrCat(spec.name, " needs a value (", spec.value, ")"));
  list.push_back(value);
  return absl::OkStatus();
}

absl::StatusOr<Values> ReadArgs(const std::vector<std::string>& args) {
  Values values;
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view rest = args[i];
    if (!absl::ConsumePrefix(&rest, "--")) {
      return Bad(args[i], "rooftuned takes flags only (--help lists them)");
    }
    const size_t equals = rest.find('=');
    const absl::string_view name = rest.substr(0, equals);
    const FlagSpec* spec = FindSpec(name);
    const std::string where = absl::StrCat("--", name);
    if (spec == nullptr) return Unknown(where, name);
    std::string value = "true";
    if (equals != absl::string_view::npos)
      value = std::string(rest.substr(equals + 1));
    else if (spec->value[0] != '\0')
      value = ++i < args.size() ? args[i] : "";
    RT_RETURN_IF_ERROR(AddValue(*spec, value, where, values));
  }
  return values;
}

absl::StatusOr<Values> ReadConfig(const std::string& path) {
  Values values;
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (!text.ok()) return Annotate(text.status(), "--config");
  int number = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::string where = absl::StrCat(path, ":", ++number);
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) return Bad(where, "not of the form name = value");
    const absl::string_view name = absl::StripAsciiWhitespace(line.substr(0, equals));
    const FlagSpec* spec = FindSpec(name);
    if (spec == nullptr || name == "config" || name == "help" || name == "version") return Unknown(where, name);
    RT_RETURN_IF_ERROR(
        AddValue(*spec, std::string(absl::StripAsciiWhitespace(line.substr(equals + 1))), where, values));
  }
  return values;
}

absl::StatusOr<bool> AsBool(const std::string& name, const std::string& text) {
  if (text == "true" || text == "yes" || text == "1") return true;
  if (text == "false" || text == "no" || text == "0") return false;
  return Bad(absl::StrCat("--", name), absl::StrCat("\"", text, "\" is neither true nor false"));
}

absl::StatusOr<LogLevel> AsLevel(const std::string& text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  return Bad("--log-level", absl::StrCat("\"", text, "\" is not one of debug, info, warning, error"));
}

// "8GiB", "500MB" or plain bytes; from 1 MiB to 1 EiB.
absl::StatusOr<int64_t> AsBytes(const std::string& name, const std::string& text) {
  constexpr struct {
    const char* suffix;
    double bytes;
  } kUnits[] = {{"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
                {"kB", 1e3},     {"MB", 1e6},        {"GB", 1e9},           {"TB", 1e12}};
  constexpr double kLeast = 1048576.0, kMost = 1152921504606846976.0;
  absl::string_view number = text;
  double unit = 1;
  for (const auto& known : kUnits) {
    if (absl::ConsumeSuffix(&number, known.suffix)) {
      unit = known.bytes;
      break;
    }
  }
  double value = 0;
  const bool parsed = absl::SimpleAtod(absl::StripAsciiWhitespace(number), &value);
  if (!parsed || !(value * unit >= kLeast && value * unit <= kMost)) {
    return Bad(
        absl::StrCat("--", name),
        absl::StrCat("\"", text,
                     "\" is not a size from 1MiB to 1048576TiB (bytes, or with kB, MB, GB, TB, KiB, MiB, GiB, TiB)"));
  }
  return static_cast<int64_t>(value * unit);
}

absl::StatusOr<absl::Duration> AsSeconds(const std::string& name, const std::string& text) {
  double seconds = 0;
  absl::string_view number = text;
  absl::ConsumeSuffix(&number, "s");
  if (!absl::SimpleAtod(number, &seconds) || !(seconds >= 0 && seconds <= 3600)) {
    return Bad(absl::StrCat("--", name), absl::StrCat("\"", text, "\" is not a number of seconds from 0 to 3600"));
  }
  return absl::Seconds(seconds);
}

std::vector<std::string> All(const Values& values, const std::string& name) {
  const auto it = values.find(name);
  return it == values.end() ? std::vector<std::string>() : it->second;
}

std::optional<std::string> One(const Values& values, const std::string& name) {
  const auto it = values.find(name);
  if (it == values.end()) return std::nullopt;
  return it->second.front();
}

absl::StatusOr<DaemonFlags> FromValues(const Values& values) {
  DaemonFlags flags;
  flags.listen = All(values, "listen");
  flags.device = All(values, "device");
  flags.template_dir = All(values, "template-dir");
  flags.profile_dir = All(values, "profile-dir");
  flags.data_dir = One(values, "data-dir").value_or(DefaultDataDir());
  flags.worker = One(values, "worker").value_or(absl::StrCat(ExecutableDir(), "/rooftune-worker"));
  if (flags.listen.empty()) flags.listen = {absl::StrCat("unix:", DefaultSocketPath())};
  if (flags.device.empty()) flags.device = {"auto"};
  if (const auto text = One(values, "allow-remote")) {
    RT_ASSIGN_OR_RETURN(flags.allow_remote, AsBool("allow-remote", *text));
  }
  if (const auto text = One(values, "drain-timeout")) {
    RT_ASSIGN_OR_RETURN(flags.drain_timeout, AsSeconds("drain-timeout", *text));
  }
  if (const auto text = One(values, "artifact-limit")) {
    RT_ASSIGN_OR_RETURN(flags.artifact_limit_bytes, AsBytes("artifact-limit", *text));
  }
  if (const auto text = One(values, "idle-only")) {
    RT_ASSIGN_OR_RETURN(flags.policy.idle_only, AsBool("idle-only", *text));
  }
  if (const auto text = One(values, "idle-patience")) {
    RT_ASSIGN_OR_RETURN(flags.policy.idle_patience, AsSeconds("idle-patience", *text));
  }
  if (const auto text = One(values, "gpu-memory-limit")) {
    RT_ASSIGN_OR_RETURN(flags.policy.memory_cap_bytes, AsBytes("gpu-memory-limit", *text));
  }
  if (const auto text = One(values, "log-level")) {
    RT_ASSIGN_OR_RETURN(flags.log_level, AsLevel(*text));
  }
  if (const auto text = One(values, "ready-fd")) {
    if (!absl::SimpleAtoi(*text, &flags.ready_fd) || flags.ready_fd < 0) {
      return Bad("--ready-fd", absl::StrCat("\"", *text, "\" is not a file descriptor"));
    }
  }
  return flags;
}

}  // namespace

std::string DefaultDataDir() {
  const char* data = std::getenv("XDG_DATA_HOME");
  if (data != nullptr && data[0] == '/') return absl::StrCat(data, "/rooftune");
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return absl::StrCat(home, "/.local/share/rooftune");
  return absl::StrCat("/tmp/rooftune-", getuid(), "/data");
}

absl::StatusOr<DaemonFlags> ParseDaemonFlags(const std::vector<std::string>& args) {
  RT_ASSIGN_OR_RETURN(Values values, ReadArgs(args));
  DaemonFlags flags;
  flags.help = values.count("help") != 0;
  flags.version = values.count("version") != 0;
  if (flags.help || flags.version) return flags;
  if (const auto config = One(values, "config")) {
    RT_ASSIGN_OR_RETURN(const Values file, ReadConfig(*config));
    values.insert(file.begin(), file.end());  // keeps what the command line says
  }
  return FromValues(values);
}

std::string DaemonUsage() {
  std::string text =
      "rooftuned: estimates, tunes and serves GPU kernels over gRPC.\n\nUsage: rooftuned [--flag value]...\n\n";
  for (const FlagSpec& spec : kSpecs) {
    const std::string left = absl::StrCat("--", spec.name, spec.value[0] == '\0' ? "" : " ", spec.value);
    absl::StrAppend(&text, absl::StrFormat("  %-24s %s%s\n", left, spec.help, spec.repeatable ? "; repeatable" : ""));
  }
  absl::StrAppend(&text, "\nBy default it listens on unix:", DefaultSocketPath(), " and keeps its data in ",
                  DefaultDataDir(), ".\n\nExample: rooftuned --device model:h200-sxm --listen 127.0.0.1:7070\n");
  return text;
}

}  // namespace rooftune

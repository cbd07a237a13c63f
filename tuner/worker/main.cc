// rooftune-worker: the process that compiles or runs kernels for rooftuned. See roles.h.
#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tuner/wire/frame.h"
#include "tuner/worker/batch.h"
#include "tuner/worker/roles.h"
#include "tuner/worker/version.h"

namespace {

constexpr int kUsageError = 2;
constexpr int kDefaultFd = 3;
constexpr char kUsage[] =
    "usage: rooftune-worker compile [--fd N | --batch FILE] [--nvrtc PATH]\n"
    "       rooftune-worker run --device N [--fd N | --batch FILE]\n"
    "       rooftune-worker probe [--json | --fd N] [--nvrtc PATH]\n"
    "       rooftune-worker --version | --help\n"
    "compile and run are started by rooftuned, which talks to them on descriptor 3. --batch reads the\n"
    "same frames from FILE and writes the answers to standard output. probe lists what this machine has.\n";

struct Arguments {
  std::string command;
  // -1: not given; the roles then use kDefaultFd.
  int fd = -1;
  int device = -1;
  bool json = false;
  std::string batch;
  std::string nvrtc;
  std::string error;
};

Arguments Parse(int argc, char** argv) {
  Arguments parsed;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&](auto* out) {
      const char* text = i + 1 < argc ? argv[++i] : nullptr;
      bool ok = text != nullptr;
      if constexpr (std::is_same_v<decltype(out), int*>) {
        ok = ok && absl::SimpleAtoi(text, out) && *out >= 0;
      } else if (ok) {
        *out = text;
      }
      if (!ok) parsed.error = absl::StrCat(argument, " needs a value");
    };
    if (argument == "--fd") {
      value(&parsed.fd);
    } else if (argument == "--device") {
      value(&parsed.device);
    } else if (argument == "--batch") {
      value(&parsed.batch);
    } else if (argument == "--nvrtc") {
      value(&parsed.nvrtc);
    } else if (argument == "--json") {
      parsed.json = true;
    } else if (parsed.command.empty()) {
      parsed.command = argument;
    } else {
      parsed.error = absl::StrCat("unexpected argument '", argument, "'");
    }
    if (!parsed.error.empty()) break;
  }
  return parsed;
}

int Usage(const std::string& error) {
  fprintf(stderr, "rooftune-worker: %s\n%s", error.c_str(), kUsage);
  return kUsageError;
}

int Serve(const Arguments& arguments, int fd) {
  if (arguments.command == "compile") return rooftune::ServeCompile(fd, arguments.nvrtc);
  return rooftune::ServeRun(fd, arguments.device);
}

int ServeRole(const Arguments& arguments) {
  if (arguments.command == "run" && arguments.device < 0) return Usage("run needs --device N");
  signal(SIGPIPE, SIG_IGN);
  if (!arguments.batch.empty()) {
    // Frames alone go to standard output; what libraries and kernels print goes to standard error.
    const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    return rooftune::RunBatch(arguments.batch, out, [&](int fd) { return Serve(arguments, fd); });
  }
  const int fd = arguments.fd < 0 ? kDefaultFd : arguments.fd;
  if (fcntl(fd, F_GETFD) < 0) {
    return Usage(absl::StrCat("descriptor ", fd, " is not open: this role is started by rooftuned"));
  }
  // An orphan would hold memory and, in the run role, the GPU.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return Serve(arguments, fd);
}

int RunProbe(const Arguments& arguments) {
  if (!arguments.nvrtc.empty()) setenv("ROOFTUNE_NVRTC", arguments.nvrtc.c_str(), 1);
  const rooftune::worker::v1::ProbeResult result = rooftune::Probe();
  if (arguments.fd >= 0) {
    rooftune::worker::v1::Frame frame;
    *frame.mutable_probe_result() = result;
    return rooftune::WriteFrame(arguments.fd, frame).ok() ? 0 : 1;
  }
  if (arguments.json) {
    std::string json;
    google::protobuf::util::JsonPrintOptions options;
    options.add_whitespace = true;
    if (!google::protobuf::util::MessageToJsonString(result, &json, options).ok()) return 1;
    fputs(json.c_str(), stdout);
    return 0;
  }
  for (const auto& library : result.library()) {
    if (library.error().empty()) {
      printf("%s %s %s\n", library.name().c_str(), library.version().c_str(), library.path().c_str());
    } else {
      printf("%s missing: %s\n", library.name().c_str(), library.error().c_str());
    }
  }
  for (const auto& device : result.device()) {
    printf("device %d %s, compute capability %d.%d, %d SMs\n", device.ordinal(), device.name().c_str(),
           device.cc() / 10, device.cc() % 10, device.sm_count());
  }
  if (result.device().empty()) printf("no device: %s\n", result.message().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  if (!arguments.error.empty()) return Usage(arguments.error);
  if (arguments.command == "compile" || arguments.command == "run") return ServeRole(arguments);
  if (arguments.command == "probe") return RunProbe(arguments);
  if (arguments.command == "--version") {
    printf("rooftune-worker %s\n", rooftune::kWorkerVersion);
    return 0;
  }
  if (arguments.command == "--help") {
    fputs(kUsage, stdout);
    return 0;
  }
  return Usage(arguments.command.empty() ? "no command" : "unknown command '" + arguments.command + "'");
}

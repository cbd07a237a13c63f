#include "tuner/worker/nvrtc.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "kernels/candidate.h"
#include "tuner/compile/cubin.h"
#include "tuner/compile/log_text.h"
#include "tuner/worker/compile_check.h"

namespace rooftune {
namespace {

using worker::v1::CompileRequest;
using worker::v1::CompileResult;

class Program {
 public:
  explicit Program(const NvrtcApi& api) : api_(api) {}
  ~Program() {
    if (program_ != nullptr) api_.destroy_program(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int Create(const CompileRequest& request) {
    std::vector<const char*> texts, names;
    for (const auto& header : request.header()) {
      texts.push_back(header.text().c_str());
      names.push_back(header.name().c_str());
    }
    return api_.create_program(&program_, request.source().text().c_str(), request.source().name().c_str(),
                               request.header_size(), texts.data(), names.data());
  }

  int Compile(const std::vector<std::string>& options) {
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    return api_.compile_program(program_, static_cast<int>(pointers.size()), pointers.data());
  }

  std::string Log() const { return Text(api_.log_size, api_.log); }
  std::string Cubin() const { return Text(api_.cubin_size, api_.cubin); }

 private:
  std::string Text(int (*size)(NvrtcApi::Program, size_t*), int (*get)(NvrtcApi::Program, char*)) const {
    size_t bytes = 0;
    if (size(program_, &bytes) != kNvrtcSuccess) return "";
    std::string text(bytes, '\0');
    return get(program_, text.data()) == kNvrtcSuccess ? text : "";
  }

  const NvrtcApi& api_;
  NvrtcApi::Program program_ = nullptr;
};

CompileResult Failed(const NvrtcLibrary& library, absl::string_view log) {
  CompileResult result;
  result.set_outcome(v1::COMPILE_FAILED);
  result.set_log(CleanLog(log));
  result.set_nvrtc_version(library.version);
  return result;
}

// NVRTC's own message names neither the architecture nor what it knows.
absl::Status CheckArch(const NvrtcLibrary& library, const std::string& arch) {
  int number = 0;
  if (absl::SimpleAtoi(absl::StrReplaceAll(arch, {{"sm_", ""}, {"a", ""}}), &number) &&
      std::binary_search(library.archs.begin(), library.archs.end(), number)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("NVRTC ", library.version, " (", library.path, ") does not compile for ", arch, "; it knows ",
                   absl::StrJoin(library.archs, ", ", [](std::string* out, int a) { absl::StrAppend(out, "sm_", a); }),
                   ". A newer or older CUDA may: name its NVRTC with --nvrtc or ROOFTUNE_NVRTC."));
}

// Times differ from run to run, and equal requests shall give equal results.
std::string WithoutTimes(absl::string_view log) {
  std::vector<absl::string_view> lines = absl::StrSplit(log, '\n');
  lines.erase(std::remove_if(lines.begin(), lines.end(),
                             [](absl::string_view line) { return absl::StrContains(line, ": Compile time = "); }),
              lines.end());
  return absl::StrJoin(lines, "\n");
}

// What a compiled module must be, whatever NVRTC says of itself.
absl::Status CheckModule(const CompileRequest& request, const Cubin& cubin) {
  if (cubin.arch != request.arch()) {
    return absl::InternalError(absl::StrCat("asked for ", request.arch(), ", the cubin is for ", cubin.arch));
  }
  std::vector<std::string> found;
  for (const auto& kernel : cubin.kernel) found.push_back(kernel.symbol());
  for (const std::string& symbol : request.symbol()) {
    if (std::find(found.begin(), found.end(), symbol) == found.end()) {
      return absl::NotFoundError(absl::StrCat("kernel '", symbol, "' is not in the compiled module, which holds: ",
                                              found.empty() ? "no kernel" : absl::StrJoin(found, ", "),
                                              ". Is it declared extern \"C\" __global__?"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CompileResult> Compile(const NvrtcLibrary& library, const CompileRequest& request) {
  Program program(library.api);
  int code = program.Create(request);
  if (code == kNvrtcSuccess) code = program.Compile(CompileOptions(request));
  const std::string raw_log = program.Log();
  const std::string log = WithoutTimes(raw_log);
  if (code == kNvrtcBuiltinFailure) {
    return Error(absl::StatusCode::kUnavailable, "NO_NVRTC",
                 absl::StrCat("NVRTC at ", library.path, " has no usable builtins: ", CleanLog(log, 1024)));
  }
  if (code != kNvrtcSuccess) {
    absl::string_view hint = code == kNvrtcOutOfMemory ? " (the compile role may use 2 GiB)" : "";
    const std::string reason = absl::StrCat(library.api.error_string(code), hint);
    return Failed(library, CleanLog(log, 1).empty() ? reason : absl::StrCat(log, "\n", reason));
  }
  CompileResult result;
  result.set_cubin(program.Cubin());
  absl::StatusOr<Cubin> cubin = ParseCubin(result.cubin());
  if (!cubin.ok()) return Failed(library, absl::StrCat(log, "\n", std::string(cubin.status().message())));
  const absl::Status module = CheckModule(request, *cubin);
  if (!module.ok()) return Failed(library, absl::StrCat(log, "\n", std::string(module.message())));
  AddPtxasUsage(log, &*cubin);
  for (auto& kernel : cubin->kernel) *result.add_kernel() = std::move(kernel);
  result.set_outcome(v1::OK);
  result.set_log(CleanLog(log));
  result.set_digest(Sha256Hex(result.cubin()));
  result.set_nvrtc_version(library.version);
  return result;
}

}  // namespace

std::vector<std::string> CompileOptions(const CompileRequest& request) {
  // Any change here must raise kOptionListVersion.
  std::vector<std::string> options = {
      absl::StrCat("--gpu-architecture=", request.arch()),
      "--std=c++17",
      "-default-device",
      // Without it NVRTC opens the GPU and caches behind our back.
      "-no-cache",
      // Else NVRTC changes the stack limit of the whole process.
      "-modify-stack-limit=false",
      // Spill bytes stand nowhere else. It changes a note in the cubin, so it is always there.
      "--ptxas-options=-v",
  };
  for (const std::string& define : request.define()) options.push_back(absl::StrCat("-D", define));
  return options;
}

absl::StatusOr<CompileResult> CompileWithNvrtc(const NvrtcLibrary& library, const CompileRequest& request) {
  if (request.option_list_version() != kOptionListVersion) {
    return Error(absl::StatusCode::kFailedPrecondition, "OPTION_LIST_VERSION",
                 absl::StrCat("request wants version ", request.option_list_version(),
                              " of the compile options, this worker has ", kOptionListVersion,
                              ": daemon and worker must be of one release"));
  }
  const absl::Time start = absl::Now();
  absl::Status allowed = CheckCompileRequest(request);
  if (allowed.ok()) allowed = CheckArch(library, request.arch());
  if (!allowed.ok()) return Failed(library, std::string(allowed.message()));
  RT_ASSIGN_OR_RETURN(CompileResult result, Compile(library, request));
  result.set_compile_ms(absl::ToDoubleMilliseconds(absl::Now() - start));
  return result;
}

}  // namespace rooftune

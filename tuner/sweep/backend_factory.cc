#include "tuner/sweep/backend_factory.h"

#include <google/protobuf/text_format.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "kernels/candidate.h"
#include "rooftune/device/v1/fake.pb.h"
#include "tuner/compile/caching_compiler.h"
#include "tuner/compile/fake_compiler.h"
#include "tuner/compile/worker_compiler.h"
#include "tuner/run/fake_runner.h"
#include "tuner/run/worker_runner.h"
#include "tuner/wire/frame.h"
#include "tuner/wire/subprocess.h"

namespace rooftune {
namespace {

constexpr absl::Duration kProbeTimeout = absl::Seconds(30);
constexpr char kDefaultModel[] = "h200-sxm";

absl::StatusOr<device::v1::FakeScript> ReadScript(const std::string& path) {
  RT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 1 << 20));
  device::v1::FakeScript script;
  if (google::protobuf::TextFormat::ParseFromString(text, &script)) return script;
  return Error(absl::StatusCode::kInvalidArgument, "BAD_DEVICE",
               absl::StrCat(path, " is no fake device (rooftune.device.v1.FakeScript as textproto)"));
}

// A failure that can't be remembered is compiled again after a restart, no more than that.
CachingCompiler::FailureMemory FailuresIn(Store* store) {
  if (store == nullptr) return {};
  CachingCompiler::FailureMemory memory;
  memory.recall = [store](const std::string& key) -> std::optional<worker::v1::CompileResult> {
    const auto known = store->GetCompileFailure(key);
    return known.ok() ? std::optional<worker::v1::CompileResult>(*known) : std::nullopt;
  };
  memory.remember = [store](const std::string& key, const worker::v1::CompileResult& result) {
    const absl::Status kept = store->PutCompileFailure(key, result);
    if (!kept.ok()) LogWarning("a failed compile is not remembered: ", kept.message());
  };
  return memory;
}

// Makes backends one after another; what they share (compiler, probe) is made when first needed.
class Factory {
 public:
  Factory(const ProfileCatalog& catalog, const BackendFactoryOptions& options) : catalog_(catalog), options_(options) {}

  absl::Status AddCompiler();
  absl::Status Add(const std::string& flag);
  BackendSet Take() { return std::move(set_); }

 private:
  absl::Status AddAuto();
  absl::Status AddCuda(const worker::v1::DeviceInfo& info);
  absl::Status AddCudaByOrdinal(const std::string& ordinal);
  absl::Status AddModel(const std::string& id);
  absl::Status AddFake(const std::string& path);
  absl::StatusOr<const worker::v1::ProbeResult*> ProbeOnce();

  const ProfileCatalog& catalog_;
  const BackendFactoryOptions& options_;
  std::string nvrtc_;
  std::optional<worker::v1::ProbeResult> probe_;
  BackendSet set_;
};

absl::Status Factory::AddCompiler() {
  WorkerCompiler::Options options;
  options.worker_path = options_.worker_path;
  options.max_processes = options_.compile_processes;
  RT_ASSIGN_OR_RETURN(auto workers, WorkerCompiler::Create(options));
  const auto version = workers->NvrtcVersion();
  if (version.ok()) {
    nvrtc_ = *version;
  } else {
    // Lookups and estimates go on; sweeps will fail with this text.
    set_.notes.push_back(absl::StrCat("nothing can be compiled: ", std::string(version.status().message())));
  }
  CachingCompiler::Options cache;
  cache.failures = FailuresIn(options_.store);
  auto caching = std::make_unique<CachingCompiler>(std::move(workers), CompileKey, std::move(cache));
  set_.compiler = caching.get();
  set_.compilers.push_back(std::move(caching));
  return absl::OkStatus();
}

absl::StatusOr<const worker::v1::ProbeResult*> Factory::ProbeOnce() {
  if (!probe_) {
    RT_ASSIGN_OR_RETURN(probe_, RunProbe(options_.worker_path));
  }
  return &*probe_;
}

absl::Status Factory::Add(const std::string& flag) {
  absl::string_view rest = flag;
  if (flag == "auto") return AddAuto();
  if (absl::ConsumePrefix(&rest, "cuda:")) return AddCudaByOrdinal(std::string(rest));
  if (absl::ConsumePrefix(&rest, "model:")) return AddModel(std::string(rest));
  if (absl::ConsumePrefix(&rest, "fake:")) return AddFake(std::string(rest));
  return Error(absl::StatusCode::kInvalidArgument, "BAD_DEVICE",
               absl::StrCat("`", flag, "` is no device; use auto, cuda:N, model:ID or fake:FILE"));
}

absl::Status Factory::AddAuto() {
  const auto probe = ProbeOnce();
  if (probe.ok() && (*probe)->device_size() > 0) {
    for (const auto& info : (*probe)->device()) RT_RETURN_IF_ERROR(AddCuda(info));
    return absl::OkStatus();
  }
  set_.notes.push_back(absl::StrCat("no GPU (", probe.ok() ? (*probe)->message() : std::string(probe.status().message()),
                                    "): using model:", kDefaultModel, "; sweeps stop at COMPILED"));
  return AddModel(kDefaultModel);
}

absl::Status Factory::AddCudaByOrdinal(const std::string& ordinal) {
  int wanted = -1;
  if (!absl::SimpleAtoi(ordinal, &wanted) || wanted < 0) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_DEVICE", absl::StrCat("`cuda:", ordinal, "`: N is a number from 0"));
  }
  RT_ASSIGN_OR_RETURN(const auto* probe, ProbeOnce());
  for (const auto& info : probe->device()) {
    if (info.ordinal() == wanted) return AddCuda(info);
  }
  return Error(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
               absl::StrCat("there is no cuda:", wanted, " here (", probe->device_size(), " GPUs found",
                            probe->message().empty() ? "" : ": ", probe->message(),
                            "); `rooftune doctor` shows what is missing, --device model:", kDefaultModel, " needs none"));
}

absl::Status Factory::AddCuda(const worker::v1::DeviceInfo& info) {
  Backend backend;
  backend.id = absl::StrCat("cuda:", info.ordinal());
  backend.device_key = DeviceKey(info);
  backend.kind = v1::Device::CUDA;
  backend.profile = ProfileOfDevice(info, catalog_);
  backend.environment.set_driver(info.driver());
  backend.environment.set_nvrtc(nvrtc_);
  backend.environment.set_rooftune(options_.version);
  backend.compiler = set_.compiler;
  backend.sharing = info.sharing();
  backend.environment.set_sharing(info.sharing());
  backend.policy = options_.policy;
  if (!info.sharing().empty()) set_.notes.push_back(absl::StrCat(backend.id, ": ", info.sharing()));
  WorkerRunner::Options options;
  options.worker_path = options_.worker_path;
  options.device = info.ordinal();
  RT_ASSIGN_OR_RETURN(backend.runner, WorkerRunner::Create(options));
  set_.backends.push_back(std::move(backend));
  return absl::OkStatus();
}

absl::Status Factory::AddModel(const std::string& id) {
  Backend backend;
  RT_ASSIGN_OR_RETURN(backend.profile, catalog_.ById(id));
  backend.id = absl::StrCat("model:", id);
  backend.device_key = ModelDeviceKey(backend.profile);
  backend.kind = v1::Device::MODELLED;
  backend.environment.set_nvrtc(nvrtc_);
  backend.environment.set_rooftune(options_.version);
  backend.compiler = set_.compiler;
  set_.backends.push_back(std::move(backend));
  return absl::OkStatus();
}

absl::Status Factory::AddFake(const std::string& path) {
  RT_ASSIGN_OR_RETURN(const device::v1::FakeScript script, ReadScript(path));
  Backend backend;
  RT_ASSIGN_OR_RETURN(backend.profile, catalog_.ById(script.profile()));
  const bool skips = script.virtual_time() && options_.virtual_clock != nullptr;
  Clock& clock = skips ? *options_.virtual_clock : Clock::Real();
  backend.policy = options_.policy;
  backend.id = absl::StrCat("fake:", script.name());
  backend.device_key = absl::StrCat("fake/", script.name());
  backend.kind = v1::Device::FAKE;
  backend.environment.set_driver("fake");
  backend.environment.set_nvrtc("fake 1.0");
  backend.environment.set_rooftune(options_.version);
  RT_ASSIGN_OR_RETURN(auto compiler, FakeCompiler::Create(script, clock));
  RT_ASSIGN_OR_RETURN(backend.runner, FakeRunner::Create(script, clock));
  CachingCompiler::Options cache;
  cache.failures = FailuresIn(options_.store);
  // Rules are the fake's toolchain: another script, other failures.
  const std::string toolchain = Fingerprint().Add("fake").Add(script.SerializeAsString()).Key();
  auto caching = std::make_unique<CachingCompiler>(
      std::move(compiler),
      [toolchain](const worker::v1::CompileRequest& request, absl::string_view nvrtc) {
        return Fingerprint().Add(toolchain).Add(CompileKey(request, nvrtc)).Key();
      },
      std::move(cache));
  backend.compiler = caching.get();
  set_.compilers.push_back(std::move(caching));
  set_.backends.push_back(std::move(backend));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<worker::v1::ProbeResult> RunProbe(const std::string& worker_path) {
  Subprocess::Options options;
  options.argv = {worker_path, "probe", "--fd", "3"};
  options.log_prefix = "probe";
  RT_ASSIGN_OR_RETURN(const auto process, Subprocess::Spawn(options));
  const auto frame = ReadFrame(process->fd(), absl::Now() + kProbeTimeout);
  if (!frame.ok()) return Annotate(frame.status(), absl::StrCat("probing with ", worker_path));
  if (!frame->has_probe_result()) return absl::DataLossError(absl::StrCat(worker_path, " answered the probe with something else"));
  return frame->probe_result();
}

absl::StatusOr<ScriptedWorld> ReadScriptedWorld(const std::vector<std::string>& flags) {
  ScriptedWorld world;
  for (const std::string& flag : flags) {
    absl::string_view path = flag;
    if (!absl::ConsumePrefix(&path, "fake:")) continue;
    RT_ASSIGN_OR_RETURN(const device::v1::FakeScript script, ReadScript(std::string(path)));
    world.virtual_time = world.virtual_time || script.virtual_time();
    world.store_faults.insert(world.store_faults.end(), script.store_fault().begin(), script.store_fault().end());
  }
  return world;
}

absl::StatusOr<BackendSet> MakeBackends(const std::vector<std::string>& flags, const ProfileCatalog& catalog,
                                        const BackendFactoryOptions& options) {
  Factory factory(catalog, options);
  RT_RETURN_IF_ERROR(factory.AddCompiler());
  for (const std::string& flag : flags.empty() ? std::vector<std::string>{"auto"} : flags) {
    RT_RETURN_IF_ERROR(factory.Add(flag));
  }
  return factory.Take();
}

}  // namespace rooftune

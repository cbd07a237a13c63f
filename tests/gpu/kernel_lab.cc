#include "tests/gpu/kernel_lab.h"

#include <atomic>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/file_util.h"
#include "base/status_macros.h"
#include "tuner/worker/roles.h"

namespace rooftune {
namespace {

constexpr uint64_t kSeed = 42;
constexpr int kCompileTimeoutMs = 120'000;
constexpr int kRunTimeoutMs = 5'000;

std::string EnvOr(const char* name, const std::string& fallback) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

absl::StatusOr<DeviceProfile> DeviceOf(const std::string& profile) {
  RT_ASSIGN_OR_RETURN(const ProfileCatalog catalog, ProfileCatalog::Builtin());
  if (!profile.empty()) return catalog.ById(profile);
  worker::v1::ProbeResult probe;
  ProbeDriver(&probe);
  if (probe.device().empty()) return absl::UnavailableError(absl::StrCat("no GPU: ", probe.message()));
  return ProfileOfDevice(probe.device(0), catalog);
}

}  // namespace

std::string KernelLab::WorkerPath() {
  return absl::StrCat(EnvOr("ROOFTUNE_BIN_DIR", ExecutableDir()), "/rooftune-worker");
}

absl::StatusOr<std::unique_ptr<KernelLab>> KernelLab::Create(Options options) {
  std::unique_ptr<KernelLab> lab(new KernelLab);
  lab->every_lane_arrives_ = options.every_lane_arrives;
  if (options.source_dir.empty()) options.source_dir = EnvOr("ROOFTUNE_SOURCE_DIR", ".");
  RT_ASSIGN_OR_RETURN(lab->device_, DeviceOf(options.profile));
  RT_ASSIGN_OR_RETURN(lab->library_, LoadLibraryWithExamples(options.source_dir));
  RT_ASSIGN_OR_RETURN(lab->suite_, LoadMutants(options.source_dir));
  WorkerCompiler::Options compiler;
  compiler.worker_path = WorkerPath();
  RT_ASSIGN_OR_RETURN(lab->compiler_, WorkerCompiler::Create(compiler));
  RT_ASSIGN_OR_RETURN(const auto support, lab->Compile(SupportKernels(lab->device_)));
  lab->support_cubin_ = support.cubin();
  return lab;
}

absl::StatusOr<worker::v1::CompileResult> KernelLab::Compile(const worker::v1::CompileRequest& request) {
  worker::v1::CompileRequest patient = request;
  patient.set_timeout_ms(kCompileTimeoutMs);
  RT_ASSIGN_OR_RETURN(worker::v1::CompileResult result, compiler_->Compile(patient));
  if (result.outcome() == v1::OK) return result;
  return absl::FailedPreconditionError(
      absl::StrCat(request.source().name(), ": ", v1::Outcome_Name(result.outcome()), " ", result.log()));
}

absl::StatusOr<worker::v1::PrepareRequest> KernelLab::PrepareOf(const std::string& text, double mean) {
  RT_ASSIGN_OR_RETURN(const Op op, library_->ops().Parse(text));
  RT_ASSIGN_OR_RETURN(worker::v1::PrepareRequest request, MakePrepare(*library_, op, device_, kSeed));
  RT_ASSIGN_OR_RETURN(const auto reference, library_->ReferenceOf(op, device_));
  RT_ASSIGN_OR_RETURN(const auto compiled, Compile(reference.compile));
  request.set_reference_cubin(compiled.cubin());
  request.set_support_cubin(support_cubin_);
  request.set_l2(v1::WARM);
  if (mean != 0) request.set_cpu_check_elements(0);
  for (worker::v1::ProblemTensor& tensor : *request.mutable_tensor()) {
    if (tensor.spec().name() == "x") tensor.mutable_fill()->set_mean(tensor.fill().mean() + mean);
  }
  return request;
}

absl::StatusOr<worker::v1::RunRequest> KernelLab::RunOf(const KernelTemplate& kernel, const Op& op,
                                                        const Config& config, const Mutant* mutant) {
  RT_ASSIGN_OR_RETURN(worker::v1::CompileRequest input, kernel.CompileInput(op, config, device_));
  if (mutant != nullptr) RT_RETURN_IF_ERROR(Plant(*mutant, &input));
  if (every_lane_arrives_) input.add_define("RT_EVERY_LANE_ARRIVES=1");
  RT_ASSIGN_OR_RETURN(const auto compiled, Compile(input));
  worker::v1::RunRequest request;
  RT_ASSIGN_OR_RETURN(*request.mutable_plan(), kernel.Plan(op, config, device_));
  RT_RETURN_IF_ERROR(AttachArtifact(compiled, *request.mutable_plan()));
  request.set_cubin(compiled.cubin());
  request.set_digest(compiled.digest());
  request.set_verify(true);
  request.set_timeout_ms(kRunTimeoutMs);
  return request;
}

void KernelLab::InParallel(const std::vector<std::function<void()>>& work) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < compiler_->parallelism(); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < work.size(); i = next++) work[i]();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace rooftune

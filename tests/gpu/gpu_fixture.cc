#include "tests/gpu/gpu_fixture.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/file_util.h"
#include "tuner/worker/roles.h"

namespace rooftune {
namespace {

constexpr uint64_t kSeed = 42;
constexpr int kBlock = 256;

template <typename T>
T Take(absl::StatusOr<T> value, const char* what) {
  if (!value.ok()) {
    ADD_FAILURE() << what << ": " << value.status();
    std::abort();
  }
  return *std::move(value);
}

std::string EnvOr(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

GpuLab* GpuTest::lab_ = nullptr;

std::string GpuTest::WorkerPath() {
  const std::string bin = EnvOr("ROOFTUNE_BIN_DIR");
  return absl::StrCat(bin.empty() ? ExecutableDir() : bin, "/rooftune-worker");
}

void GpuTest::SetUpTestSuite() {
  if (lab_ != nullptr) return;
  lab_ = new GpuLab;
  worker::v1::ProbeResult probe;
  ProbeDriver(&probe);
  ASSERT_GT(probe.device_size(), 0) << probe.message();
  lab_->info = probe.device(0);
  std::printf("%s\n", probe.DebugString().c_str());
  const ProfileCatalog catalog = Take(ProfileCatalog::Builtin(), "profiles");
  lab_->profile = ProfileOfDevice(lab_->info, catalog);
  lab_->library = Take(TemplateLibrary::Load({}), "templates");
  WorkerCompiler::Options options;
  options.worker_path = WorkerPath();
  lab_->compiler = Take(WorkerCompiler::Create(options), "compiler");
  lab_->support_cubin = Compile(SupportKernels(lab_->profile)).cubin();
}

void GpuTest::SetUp() {
  ASSERT_NE(lab_, nullptr);
  ASSERT_FALSE(lab_->support_cubin.empty());
  runner_ = MakeRunner();
}

std::unique_ptr<WorkerRunner> GpuTest::MakeRunner(bool spare) {
  WorkerRunner::Options options;
  options.worker_path = WorkerPath();
  options.spare = spare;
  return Take(WorkerRunner::Create(options), "runner");
}

worker::v1::CompileResult GpuTest::Compile(const worker::v1::CompileRequest& request) {
  const worker::v1::CompileResult result = Take(lab_->compiler->Compile(request), "compile");
  EXPECT_EQ(result.outcome(), v1::OK) << request.source().name() << ": " << result.log();
  return result;
}

worker::v1::CompileResult GpuTest::CompileText(const std::string& text, const std::string& arch) {
  worker::v1::CompileRequest request;
  request.mutable_source()->set_name("test.cu");
  request.mutable_source()->set_text(text);
  request.set_arch(arch.empty() ? ArchName(lab_->profile.cc(), false) : arch);
  request.set_option_list_version(kOptionListVersion);
  request.add_symbol("k");
  request.set_timeout_ms(60'000);
  return Compile(request);
}

Op GpuTest::Parse(const std::string& op) { return Take(lab_->library->ops().Parse(op), op.c_str()); }

worker::v1::PrepareRequest GpuTest::PrepareRequestOf(const std::string& text) {
  const Op op = Parse(text);
  worker::v1::PrepareRequest request = Take(MakePrepare(*lab_->library, op, lab_->profile, kSeed), "MakePrepare");
  request.set_support_cubin(lab_->support_cubin);
  const auto reference = Take(lab_->library->ReferenceOf(op, lab_->profile), "ReferenceOf");
  request.set_reference_cubin(Compile(reference.compile).cubin());
  return request;
}

void GpuTest::Prepare(const std::string& text) {
  const worker::v1::PrepareRequest request = PrepareRequestOf(text);
  op_ = request.op();
  elements_ = request.tensor(request.tensor_size() - 1).elements();
  const auto result = runner_->Prepare(request);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->outcome(), v1::OK) << text << ": " << result->message();
  std::printf("prepared %s: %d sets, %lld MiB, %lld elements checked by the CPU, ratio %.3g, %.1f ms\n", op_.c_str(),
              result->buffer_sets(), static_cast<long long>(result->allocated_bytes() >> 20),
              static_cast<long long>(result->cpu_checked_elements()), result->cpu_max_error_ratio(), result->wall_ms());
}

worker::v1::RunRequest GpuTest::DefaultOf(const KernelTemplate& kernel, const std::string& text) {
  const Op op = Parse(text);
  const Config config = Take(kernel.DefaultConfig(op, lab_->profile), "DefaultConfig");
  worker::v1::CompileRequest input = Take(kernel.CompileInput(op, config, lab_->profile), "CompileInput");
  input.set_timeout_ms(120'000);
  const worker::v1::CompileResult compiled = Compile(input);
  worker::v1::RunRequest request;
  *request.mutable_plan() = Take(kernel.Plan(op, config, lab_->profile), "Plan");
  const absl::Status attached = AttachArtifact(compiled, *request.mutable_plan());
  EXPECT_TRUE(attached.ok()) << attached;
  request.set_cubin(compiled.cubin());
  request.set_digest(compiled.digest());
  request.set_verify(true);
  request.set_measure(true);
  *request.mutable_options() = QuickOptions();
  request.set_timeout_ms(20'000);
  return request;
}

worker::v1::RunRequest GpuTest::Custom(const std::string& body, bool measure) {
  const std::string text = absl::StrCat(
      "typedef long long i64;\n"
      "extern \"C\" __global__ void k(float* a, const float* b, float* y, i64 n) {\n"
      "  const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;\n",
      body, "\n}\n");
  const worker::v1::CompileResult compiled = CompileText(text);
  worker::v1::RunRequest request;
  v1::LaunchPlan* const plan = request.mutable_plan();
  plan->set_op(op_);
  v1::Launch* const launch = plan->add_launch();
  launch->set_symbol("k");
  launch->mutable_grid_x()->set_value((elements_ + kBlock - 1) / kBlock);
  launch->mutable_block_x()->set_value(kBlock);
  for (const char* tensor : {"a", "b", "y"}) {
    v1::Argument* const argument = launch->add_argument();
    argument->set_tensor(tensor);
    argument->set_size(8);
  }
  v1::Argument* const n = launch->add_argument();
  n->mutable_integer()->set_value(elements_);
  n->set_size(8);
  request.set_cubin(compiled.cubin());
  request.set_digest(compiled.digest());
  request.set_verify(true);
  request.set_measure(measure);
  *request.mutable_options() = QuickOptions();
  return request;
}

worker::v1::RunResult GpuTest::Run(const worker::v1::RunRequest& request) {
  const worker::v1::RunResult result = Take(runner_->Run(request), "Run");
  std::printf("%s: %s, error %d, median %.3f us [%.3f, %.3f] of %d, SM %.0f MHz, %.1f ms\n",
              request.plan().template_id().c_str(), v1::Outcome_Name(result.outcome()).c_str(), result.cuda_error(),
              result.measurement().median_us(), result.measurement().ci_low_us(), result.measurement().ci_high_us(),
              result.measurement().sample_us_size(), result.measurement().sm_clock_mhz(), result.wall_ms());
  if (!result.message().empty()) std::printf("  %s\n", result.message().c_str());
  return result;
}

worker::v1::RunResult GpuTest::Baseline(const std::string& name) {
  worker::v1::BaselineRequest request;
  request.set_name(name);
  *request.mutable_options() = QuickOptions();
  request.set_timeout_ms(30'000);
  const worker::v1::RunResult result = Take(runner_->RunBaseline(request), "RunBaseline");
  std::printf("%s on %s: %s, median %.3f us, %s %s\n", name.c_str(), op_.c_str(),
              v1::Outcome_Name(result.outcome()).c_str(), result.measurement().median_us(), result.version().c_str(),
              result.message().c_str());
  return result;
}

worker::v1::MeasureOptions GpuTest::QuickOptions() {
  worker::v1::MeasureOptions options;
  options.set_l2(v1::COLD);
  options.set_clock(v1::COOL);
  options.set_rest_ms(20);
  options.set_max_samples(60);
  return options;
}

}  // namespace rooftune

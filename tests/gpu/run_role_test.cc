// The run role on a real GPU: what is right is verified, timed, raced and compared.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "tests/gpu/gpu_fixture.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;

constexpr char kAdd[] = "elementwise n=1000003 dtype=fp32 chain=add(a,b)";
constexpr char kRight[] = "  if (i < n) y[i] = a[i] + b[i];";

using RunRoleTest = GpuTest;

TEST_F(RunRoleTest, TheReferencesAgreeWithTheCpu) {
  for (const char* op : {
           "gemm m=257 n=129 k=515 dtype=bf16",
           "gemm m=64 n=96 k=128 dtype=fp16 layout=nn out=fp32",
           "gemm m=65 n=33 k=127 batch=3 dtype=fp32 layout=tn bias=1 act=gelu",
           "gemm m=40 n=72 k=56 dtype=bf16 layout=tt beta=1 act=silu",
           "softmax rows=33 cols=1000 dtype=fp32",
           "softmax rows=5 cols=70001 dtype=bf16",
           "rmsnorm rows=17 cols=4096 dtype=fp16",
           "rmsnorm rows=64 cols=1111 dtype=bf16 residual=1",
           "elementwise n=100003 dtype=fp32 chain=relu(add(a,b))",
           "elementwise n=4097 dtype=bf16 chain=mul(silu(a),b)",
       }) {
    SCOPED_TRACE(op);
    const auto result = runner_->Prepare(PrepareRequestOf(op));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->outcome(), v1::OK) << result->message();
    EXPECT_GT(result->cpu_checked_elements(), 0);
    EXPECT_LE(result->cpu_max_error_ratio(), 1);
  }
}

TEST_F(RunRoleTest, TemplatesAreRightAndTimed) {
  for (const char* op :
       {"gemm m=1000 n=1100 k=520 dtype=bf16", "gemm m=300 n=200 k=100 dtype=fp32",
        "softmax rows=4096 cols=1024 dtype=bf16", "rmsnorm rows=4096 cols=4096 dtype=bf16",
        "rmsnorm rows=64 cols=4096 dtype=fp32 residual=1", "elementwise n=33554432 dtype=bf16 chain=relu(add(a,b))"}) {
    ASSERT_NO_FATAL_FAILURE(Prepare(op));
    const auto kernels = lab_->library->For(Parse(op), lab_->profile);
    EXPECT_FALSE(kernels.empty()) << op;
    for (const KernelTemplate* kernel : kernels) {
      SCOPED_TRACE(absl::StrCat(kernel->id(), " for ", op));
      const auto result = Run(DefaultOf(*kernel, op_));
      EXPECT_EQ(result.outcome(), v1::OK) << result.message();
      EXPECT_TRUE(result.verification().passed());
      EXPECT_EQ(result.verification().redzone_bytes(), 0);
      EXPECT_GT(result.measurement().median_us(), 0);
      EXPECT_GT(result.peak_bytes(), 0);
    }
  }
}

TEST_F(RunRoleTest, MeasuresColdSlowerThanMemoryAndWarmFaster) {
  // 48 MiB move; a cold run can't beat the pins, a warm one on a large L2 can.
  ASSERT_NO_FATAL_FAILURE(Prepare("elementwise n=4194304 dtype=fp32 chain=add(a,b)"));
  auto request = Custom(kRight, true);
  const auto cold = Run(request);
  ASSERT_EQ(cold.outcome(), v1::OK) << cold.message();
  EXPECT_EQ(cold.measurement().l2(), v1::COLD);
  EXPECT_GT(cold.measurement().buffer_sets(), 1);
  const double bytes = 3.0 * 4 * 4194304;
  const double gbps = lab_->profile.memory_gbps().value();
  if (gbps > 0) {
    EXPECT_GT(cold.measurement().median_us(), bytes / gbps * 1e-3);
  }
  EXPECT_GT(cold.measurement().sm_clock_mhz(), 100);
  request.mutable_options()->set_l2(v1::WARM);
  const auto warm = Run(request);
  ASSERT_EQ(warm.outcome(), v1::OK) << warm.message();
  EXPECT_EQ(warm.measurement().buffer_sets(), 1);
  EXPECT_LT(warm.measurement().median_us(), cold.measurement().median_us() * 1.05);
}

TEST_F(RunRoleTest, SustainedFloorsAndAbandoning) {
  ASSERT_NO_FATAL_FAILURE(Prepare(kAdd));
  auto request = Custom(kRight, true);
  request.mutable_options()->set_clock(v1::SUSTAINED);
  const auto sustained = Run(request);
  EXPECT_EQ(sustained.outcome(), v1::OK) << sustained.message();
  EXPECT_EQ(sustained.measurement().clock(), v1::SUSTAINED);
  EXPECT_GT(sustained.wall_ms(), 500);
  request.mutable_options()->set_clock(v1::COOL);
  request.mutable_options()->set_floor_us(1e9);
  EXPECT_EQ(Run(request).outcome(), v1::IMPLAUSIBLE);
  request.mutable_options()->set_floor_us(0);
  request.mutable_options()->set_abandon_above_us(1e-3);
  const auto abandoned = Run(request);
  EXPECT_EQ(abandoned.outcome(), v1::OK);
  EXPECT_THAT(abandoned.message(), HasSubstr("abandoned"));
  EXPECT_LE(abandoned.measurement().sample_us_size(), 3);
}

TEST_F(RunRoleTest, CopyReachesMostOfTheMemoryBandwidth) {
  ASSERT_NO_FATAL_FAILURE(Prepare("elementwise n=134217728 dtype=bf16 chain=relu(a)"));
  const auto copy = Baseline("copy");
  ASSERT_EQ(copy.outcome(), v1::OK) << copy.message();
  const double gbps = 2.0 * 2 * 134217728 / copy.measurement().median_us() * 1e-3;
  std::printf("copy: %.0f GB/s\n", gbps);
  if (lab_->profile.memory_gbps().value() > 0) {
    EXPECT_GT(gbps, 0.7 * lab_->profile.memory_gbps().value());
    EXPECT_LE(gbps, lab_->profile.memory_gbps().value());
  }
}

TEST_F(RunRoleTest, CublasLtIsVerifiedForEveryLayoutAndType) {
  for (const char* op :
       {"gemm m=512 n=768 k=256 dtype=bf16", "gemm m=512 n=768 k=256 dtype=fp16 layout=nn",
        "gemm m=512 n=768 k=256 dtype=bf16 layout=tn out=fp32", "gemm m=256 n=128 k=64 dtype=fp32 layout=tt",
        "gemm m=128 n=64 k=32 batch=5 dtype=bf16", "gemm m=4096 n=4096 k=4096 dtype=bf16",
        "gemm m=256 n=512 k=128 dtype=bf16 bias=1 act=gelu", "gemm m=256 n=512 k=128 dtype=fp16 act=relu beta=1"}) {
    ASSERT_NO_FATAL_FAILURE(Prepare(op));
    const auto result = Baseline("cublaslt_first");
    if (result.outcome() == v1::NOT_RUN && result.version().empty()) {
      std::printf("no cuBLASLt here: %s\n", result.message().c_str());
      return;
    }
    EXPECT_EQ(result.outcome(), v1::OK) << op << ": " << result.message();
    EXPECT_TRUE(result.verification().passed()) << op;
    EXPECT_THAT(result.version(), HasSubstr("cublasLt "));
  }
}

TEST_F(RunRoleTest, EveryAlgorithmOfCublasLtIsACandidate) {
  for (const char* op : {"gemm m=512 n=768 k=2048 dtype=bf16", "gemm m=16 n=4096 k=4096 dtype=fp16 bias=1 act=relu"}) {
    ASSERT_NO_FATAL_FAILURE(Prepare(op));
    worker::v1::VendorRequest request;
    request.set_max_algorithms(32);
    request.set_workspace_bytes(64 << 20);
    const auto listed = runner_->ListVendor(request);
    ASSERT_TRUE(listed.ok()) << listed.status();
    if (listed->outcome() == v1::NOT_RUN && listed->version().empty()) {
      std::printf("no cuBLASLt here: %s\n", listed->message().c_str());
      return;
    }
    ASSERT_EQ(listed->outcome(), v1::OK) << op << ": " << listed->message();
    EXPECT_GT(listed->plan_size(), 1) << op;
    for (const v1::LaunchPlan& plan : listed->plan()) {
      worker::v1::RunRequest run;
      *run.mutable_plan() = plan;
      run.set_verify(true);
      const auto result = Run(run);
      EXPECT_EQ(result.outcome(), v1::OK) << op << " " << plan.cublaslt().ShortDebugString() << result.message();
    }
  }
}

TEST_F(RunRoleTest, BaselinesThatCannotBeAreNotRun) {
  ASSERT_NO_FATAL_FAILURE(Prepare("gemm m=64 n=64 k=64 dtype=bf16 act=silu"));
  EXPECT_EQ(Baseline("cublaslt_first").outcome(), v1::NOT_RUN);
  EXPECT_EQ(Baseline("cublas").outcome(), v1::NOT_RUN);
  EXPECT_EQ(Baseline("nonsense").outcome(), v1::NOT_RUN);
  ASSERT_NO_FATAL_FAILURE(Prepare(kAdd));
  EXPECT_EQ(Baseline("cublaslt_first").outcome(), v1::NOT_RUN);
}

TEST_F(RunRoleTest, RacesInterleaved) {
  ASSERT_NO_FATAL_FAILURE(Prepare("elementwise n=16777216 dtype=fp32 chain=add(a,b)"));
  worker::v1::RaceRequest race;
  *race.add_entrant()->mutable_candidate() = Custom(kRight);
  // The same with half of the threads' work thrown away: slower.
  *race.add_entrant()->mutable_candidate() = Custom(
      "  if (i < n) { float s = a[i]; for (int r = 0; r < 2000; ++r) s = s * 1.0f + 0.0f * r; y[i] = s + b[i]; }");
  race.add_entrant()->mutable_baseline()->set_name("copy");
  *race.mutable_options() = QuickOptions();
  race.set_rounds(5);
  const auto result = runner_->Race(race);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome(), v1::OK) << result->message();
  ASSERT_EQ(result->result_size(), 3);
  for (const auto& entrant : result->result()) {
    EXPECT_EQ(entrant.outcome(), v1::OK) << entrant.message();
    EXPECT_GT(entrant.measurement().sample_us_size(), 0);
    std::printf("race: %.3f us of %d\n", entrant.measurement().median_us(), entrant.measurement().sample_us_size());
  }
}

TEST_F(RunRoleTest, CalibratesWithinAMinute) {
  worker::v1::CalibrateRequest request;
  request.set_support_cubin(lab_->support_cubin);
  const auto result = runner_->Calibrate(request);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->outcome(), v1::OK) << result->message();
  std::printf("%s\n%s\n", result->message().c_str(), result->calibration().DebugString().c_str());
  const auto& calibration = result->calibration();
  EXPECT_LT(calibration.wall_s(), 60);
  ASSERT_EQ(calibration.curve_size(), 7);
  for (const auto& curve : calibration.curve()) {
    ASSERT_GT(curve.point_size(), 0) << curve.mix();
    for (const auto& point : curve.point()) EXPECT_GT(point.gbps(), 0);
    if (curve.mix() != "l2_read" && lab_->profile.memory_gbps().value() > 0) {
      for (const auto& point : curve.point())
        EXPECT_LE(point.gbps(), lab_->profile.memory_gbps().value()) << curve.mix();
    }
  }
  EXPECT_GT(calibration.graph_node_us(), 0);
  EXPECT_GT(calibration.event_kernel_us(), calibration.graph_node_us());
  EXPECT_GE(calibration.rate_size(), 2);
  // And the runner is fit for work again.
  ASSERT_NO_FATAL_FAILURE(Prepare(kAdd));
  EXPECT_EQ(Run(Custom(kRight)).outcome(), v1::OK);
}

TEST_F(RunRoleTest, OneHolderOfTheGpu) {
  ASSERT_NO_FATAL_FAILURE(Prepare(kAdd));
  auto second = MakeRunner();
  const absl::Status status = second->Prepare(PrepareRequestOf(kAdd)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("leased by process"));
  EXPECT_EQ(Run(Custom(kRight)).outcome(), v1::OK);
}

}  // namespace
}  // namespace rooftune

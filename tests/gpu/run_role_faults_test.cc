// The run role on a real GPU: every way to be wrong is recorded as what it is, and the next candidate runs.
#include <gmock/gmock.h>

#include "absl/time/clock.h"
#include "tests/gpu/gpu_fixture.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;

// 4000012 bytes: 4 bytes of padding up to the next 16.
constexpr char kAdd[] = "elementwise n=1000003 dtype=fp32 chain=add(a,b)";
constexpr char kRight[] = "  if (i < n) y[i] = a[i] + b[i];";

class RunRoleFaultsTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    ASSERT_NO_FATAL_FAILURE(Prepare(kAdd));
  }
  // Whatever came before, a right kernel is right.
  void TearDown() override {
    const auto result = Run(Custom(kRight));
    EXPECT_EQ(result.outcome(), v1::OK) << result.message();
    EXPECT_EQ(result.verification().wrong_elements(), 0);
    EXPECT_EQ(result.verification().elements(), elements_);
  }
};

TEST_F(RunRoleFaultsTest, OneWrongElement) {
  const auto result = Run(Custom("  if (i < n) y[i] = a[i] + b[i] + (i == 777777 ? 1e-3f : 0.0f);"));
  EXPECT_EQ(result.outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(result.verification().wrong_elements(), 1);
  EXPECT_EQ(result.verification().first_wrong_index(), 777777);
  EXPECT_GT(result.verification().max_error_ratio(), 1);
  EXPECT_NEAR(result.verification().first_wrong_value() - result.verification().first_wrong_expected(), 1e-3, 1e-5);
  EXPECT_FALSE(result.verification().passed());
  EXPECT_EQ(result.measurement().sample_us_size(), 0);
}

TEST_F(RunRoleFaultsTest, AnUnwrittenTail) {
  const auto result = Run(Custom("  if (i < n - 5) y[i] = a[i] + b[i];"));
  EXPECT_EQ(result.outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(result.verification().unwritten_elements(), 5);
}

TEST_F(RunRoleFaultsTest, NotANumber) {
  const auto result = Run(Custom("  if (i < n) y[i] = i == 3 ? __int_as_float(0x7fc00000) : a[i] + b[i];"));
  EXPECT_EQ(result.outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(result.verification().wrong_elements(), 1);
}

TEST_F(RunRoleFaultsTest, OneElementPastTheEnd) {
  const auto result = Run(Custom("  if (i < n) y[i] = a[i] + b[i]; if (i == 0) y[n] = 0.0f;"));
  EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
  EXPECT_EQ(result.verification().redzone_bytes(), 4);
  EXPECT_EQ(result.cuda_error(), 0);
}

TEST_F(RunRoleFaultsTest, OneElementBeforeTheStart) {
  const auto result = Run(Custom("  if (i < n) y[i] = a[i] + b[i]; if (i == 0) y[-1] = 0.0f;"));
  EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
}

TEST_F(RunRoleFaultsTest, PastTheMapping) {
  const auto result = Run(Custom("  if (i < n) y[i] = a[i] + b[i]; if (i == 0) y[n + 1] = 0.0f;"));
  EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
  EXPECT_EQ(result.cuda_error(), 700) << result.message();
}

TEST_F(RunRoleFaultsTest, ReadsPastAnInput) {
  const auto result = Run(Custom("  if (i < n) y[i] = a[i] + b[i + 4];"));
  EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
}

TEST_F(RunRoleFaultsTest, WritesToAnInput) {
  const auto result = Run(Custom("  if (i < n) { y[i] = a[i] + b[i]; a[i] = 0.0f; }"));
  EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
}

TEST_F(RunRoleFaultsTest, AnIllegalAddress) {
  const auto result = Run(Custom("  if (i == 0) *(volatile int*)16 = 1;"));
  EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
  EXPECT_EQ(result.cuda_error(), 700);
  EXPECT_THAT(result.message(), HasSubstr("ILLEGAL_ADDRESS"));
}

TEST_F(RunRoleFaultsTest, AMisalignedAddress) {
  const auto result = Run(Custom("  if (i == 0) *(volatile int*)((char*)y + 1) = 1;"));
  EXPECT_EQ(result.outcome(), v1::CRASHED);
  EXPECT_EQ(result.cuda_error(), 716);
}

TEST_F(RunRoleFaultsTest, ATrap) {
  const auto result = Run(Custom("  if (i == 0) asm volatile(\"trap;\");"));
  EXPECT_EQ(result.outcome(), v1::CRASHED);
  EXPECT_EQ(result.cuda_error(), 719);
}

TEST_F(RunRoleFaultsTest, AKernelThatSpins) {
  // Ends by itself after 60 s, to spare the GPU if nobody kills it.
  auto request = Custom(
      "  unsigned long long start, now;\n"
      "  asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(start));\n"
      "  do asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(now)); while (now - start < 60000000000ull);\n"
      "  if (i < n) y[i] = a[i] + b[i];");
  request.set_timeout_ms(1500);
  const absl::Time start = absl::Now();
  const auto result = Run(request);
  EXPECT_EQ(result.outcome(), v1::TIMEOUT);
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST_F(RunRoleFaultsTest, WhatCannotBeLaunched) {
  auto request = Custom(kRight);
  request.mutable_plan()->mutable_launch(0)->mutable_block_x()->set_value(2048);
  EXPECT_EQ(Run(request).outcome(), v1::LAUNCH_FAILED);
  request = Custom(kRight);
  request.mutable_plan()->mutable_launch(0)->set_symbol("missing");
  EXPECT_EQ(Run(request).outcome(), v1::LAUNCH_FAILED);
  request = Custom(kRight);
  request.mutable_plan()->mutable_launch(0)->mutable_argument(0)->mutable_tensor_map()->set_tensor("a");
  const auto map = Run(request);
  EXPECT_EQ(map.outcome(), v1::LAUNCH_FAILED);
  EXPECT_THAT(map.message(), HasSubstr("the tensor map of 'a' has 0 dims"));
  request = Custom(kRight);
  request.mutable_plan()->mutable_launch(0)->mutable_dynamic_shared_bytes()->set_value(100 << 10);
  EXPECT_EQ(Run(request).outcome(), v1::LAUNCH_FAILED);
}

TEST_F(RunRoleFaultsTest, BinariesThatAreNotWhatTheySay) {
  auto request = Custom(kRight);
  request.mutable_cubin()->back() ^= 1;
  const auto corrupt = Run(request);
  EXPECT_EQ(corrupt.outcome(), v1::LAUNCH_FAILED);
  EXPECT_THAT(corrupt.message(), HasSubstr("digest"));
  // A cubin of another major architecture.
  const std::string other = lab_->profile.cc() / 10 == 8 ? "sm_90" : "sm_80";
  const auto foreign =
      CompileText("extern \"C\" __global__ void k(float* a, const float* b, float* y, long long n) {}", other);
  request = Custom(kRight);
  request.set_cubin(foreign.cubin());
  request.set_digest(foreign.digest());
  EXPECT_EQ(Run(request).outcome(), v1::LAUNCH_FAILED);
  request.mutable_plan()->set_op("another operator");
  EXPECT_EQ(Run(request).outcome(), v1::LAUNCH_FAILED);
}

TEST_F(RunRoleFaultsTest, ARaceGoesOnWithoutAFaultyEntrant) {
  worker::v1::RaceRequest race;
  *race.add_entrant()->mutable_candidate() = Custom(kRight);
  *race.add_entrant()->mutable_candidate() = Custom("  if (i == 0) *(volatile int*)16 = 1;");
  *race.add_entrant()->mutable_candidate() = Custom("  if (i < n) y[i] = a[i] - b[i];");
  race.add_entrant()->mutable_baseline()->set_name("copy");
  *race.mutable_options() = QuickOptions();
  race.set_rounds(3);
  const auto result = runner_->Race(race);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->result_size(), 4);
  EXPECT_EQ(result->result(0).outcome(), v1::OK) << result->result(0).message();
  EXPECT_EQ(result->result(1).outcome(), v1::OUT_OF_BOUNDS);
  EXPECT_EQ(result->result(2).outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(result->result(3).outcome(), v1::OK) << result->result(3).message();
}

TEST_F(RunRoleFaultsTest, ASpareTakesOverAtOnce) {
  runner_ = nullptr;
  runner_ = MakeRunner(/*spare=*/true);
  ASSERT_NO_FATAL_FAILURE(Prepare(kAdd));
  const auto right = Custom(kRight);
  EXPECT_EQ(Run(right).outcome(), v1::OK);
  EXPECT_EQ(Run(Custom("  if (i == 0) *(volatile int*)16 = 1;")).outcome(), v1::OUT_OF_BOUNDS);
  const absl::Time start = absl::Now();
  EXPECT_EQ(Run(right).outcome(), v1::OK);
  std::printf("spare: %.1f ms from fault to the next result\n", absl::ToDoubleMilliseconds(absl::Now() - start));
}

}  // namespace
}  // namespace rooftune

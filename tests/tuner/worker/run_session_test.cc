// What a session prepares, runs and verifies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tuner/worker/run_session_fixture.h"

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(RunSessionTest, PreparesAndChecksTheReference) {
  const auto result = session_->Prepare(Request());
  EXPECT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_GE(result.cpu_checked_elements(), 500);
  EXPECT_EQ(result.cpu_max_error_ratio(), 0);
  EXPECT_EQ(result.buffer_sets(), 256);
  EXPECT_GT(result.allocated_bytes(), 256 * 3 * 4012);
}

TEST_F(RunSessionTest, AReferenceThatIsWrongStopsEverything) {
  reference_error_ = 1e-6;
  const auto result = session_->Prepare(Request());
  EXPECT_EQ(result.outcome(), v1::WRONG_RESULT);
  EXPECT_THAT(result.message(), HasSubstr("reference kernel disagrees with CPU"));
  EXPECT_GT(result.cpu_max_error_ratio(), 1);
  EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::LAUNCH_FAILED);
}

TEST_F(RunSessionTest, WhatDoesNotFitIsOutOfMemory) {
  auto request = Request();
  request.set_memory_cap_bytes(1 << 20);
  EXPECT_EQ(session_->Prepare(request).outcome(), v1::OUT_OF_MEMORY);
  cuda_.free_bytes = 1 << 20;
  EXPECT_EQ(session_->Prepare(Request()).outcome(), v1::OUT_OF_MEMORY);
}

TEST_F(RunSessionTest, FindsWhatIsWrong) {
  for (const bool virtual_memory : {true, false}) {
    SCOPED_TRACE(virtual_memory);
    cuda_.has_virtual_memory = virtual_memory;
    Open();
    PrepareOk();
    auto result = RunAdd([](const float* a, const float* b, float* y, int64_t n) {
      Right(a, b, y, n);
      y[777] += 1;
    });
    EXPECT_EQ(result.outcome(), v1::WRONG_RESULT);
    EXPECT_EQ(result.verification().first_wrong_index(), 777);
    EXPECT_NEAR(result.verification().first_wrong_value() - result.verification().first_wrong_expected(), 1, 1e-5);
    result = RunAdd([](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, n - 2); });
    EXPECT_EQ(result.outcome(), v1::WRONG_RESULT);
    EXPECT_EQ(result.verification().unwritten_elements(), 2);
    result = RunAdd([](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, n), y[n] = 0; });
    EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
    EXPECT_EQ(result.verification().redzone_bytes(), 4);
    result = RunAdd([](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, n), y[-1] = 0; });
    EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
    EXPECT_FALSE(result.verification().passed());
    EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::OK);
  }
}

TEST_F(RunSessionTest, InputsThatCannotBeProtectedAreRestored) {
  cuda_.has_virtual_memory = false;
  Open();
  PrepareOk();
  RunAdd([](const float* a, const float* b, float* y, int64_t n) {
    Right(a, b, y, n);
    const_cast<float*>(a)[5] = 1e9f;
  });
  EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::OK);
}

TEST_F(RunSessionTest, AFaultIsTheCandidatesAndPoisonsTheProcess) {
  PrepareOk();
  EXPECT_FALSE(session_->IsPoisoned());
  const auto result = RunAdd([this](const float*, const float*, float*, int64_t) { cuda_.sticky = 700; });
  EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
  EXPECT_EQ(result.cuda_error(), 700);
  EXPECT_THAT(result.message(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  EXPECT_TRUE(session_->IsPoisoned());
}

TEST_F(RunSessionTest, RefusesWhatCannotRun) {
  EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::LAUNCH_FAILED);  // nothing prepared
  PrepareOk();
  auto request = Candidate("right");
  request.set_digest("0123");
  EXPECT_THAT(session_->Run(request).message(), HasSubstr("announced was '0123'"));
  request = Candidate("right");
  request.mutable_plan()->set_op("softmax rows=1 cols=1 dtype=fp32");
  EXPECT_EQ(session_->Run(request).outcome(), v1::LAUNCH_FAILED);
  EXPECT_EQ(session_->Run(Candidate("missing")).outcome(), v1::LAUNCH_FAILED);
  request = Candidate("right");
  request.set_cubin(std::string(200, 'x'));
  request.set_digest(Sha256Hex(request.cubin()));
  EXPECT_THAT(session_->Run(request).message(), HasSubstr("not a CUDA ELF file"));
  EXPECT_EQ(cuda_.launches["right"], 0);
}

TEST_F(RunSessionTest, LaunchesAreCooperativeWhereThePlanSaysSo) {
  PrepareOk();
  EXPECT_EQ(session_->Run(Candidate("right", true)).outcome(), v1::OK);
  EXPECT_THAT(cuda_.attributes["right"], IsEmpty());
  auto request = Candidate("right", true);
  request.mutable_plan()->mutable_launch(0)->set_cooperative(true);
  EXPECT_EQ(session_->Run(request).outcome(), v1::OK);
  EXPECT_THAT(cuda_.attributes["right"], ElementsAre(cuda::kAttributeCooperative));
}

TEST_F(RunSessionTest, WorkspaceIsZeroedBeforeEveryExecution) {
  PrepareOk();
  auto request = Candidate("accumulates", true);
  request.mutable_plan()->mutable_workspace_bytes()->set_value(8);
  request.mutable_plan()->set_workspace_init(v1::LaunchPlan::ZERO);
  request.mutable_plan()->mutable_launch(0)->add_argument()->mutable_workspace_offset()->set_value(0);
  int dirty = 0;
  cuda_.kernels["accumulates"] = {5, [&](void** x) {
                                    Right(ArgumentAt<const float*>(x, 0), ArgumentAt<const float*>(x, 1),
                                          ArgumentAt<float*>(x, 2), kElements);
                                    uint64_t* const counter = ArgumentAt<uint64_t*>(x, 4);
                                    dirty += *counter != 0;
                                    ++*counter;
                                  }};
  EXPECT_EQ(session_->Run(request).outcome(), v1::OK);
  EXPECT_GT(cuda_.launches["accumulates"], 10);
  EXPECT_EQ(dirty, 0);
}

TEST_F(RunSessionTest, WorkspaceIsZeroedBeforeTheFirstExecutionAlone) {
  PrepareOk();
  auto request = Candidate("counts", true);
  request.mutable_plan()->mutable_workspace_bytes()->set_value(8);
  request.mutable_plan()->set_workspace_init(v1::LaunchPlan::ZERO_ONCE);
  request.mutable_plan()->mutable_launch(0)->add_argument()->mutable_workspace_offset()->set_value(0);
  std::vector<uint64_t> before;
  cuda_.kernels["counts"] = {5, [&](void** x) {
                               Right(ArgumentAt<const float*>(x, 0), ArgumentAt<const float*>(x, 1),
                                     ArgumentAt<float*>(x, 2), kElements);
                               before.push_back((*ArgumentAt<uint64_t*>(x, 4))++);
                             }};
  EXPECT_EQ(session_->Run(request).outcome(), v1::OK);
  // Verified in a workspace of its own, then timed in another.
  ASSERT_GT(before.size(), 10);
  EXPECT_EQ(before[0], 0);
  for (size_t i = 1; i < before.size(); ++i) EXPECT_EQ(before[i], i - 1);
}

TEST_F(RunSessionTest, TensorMapsAreEncodedOnceForEachSetOfBuffers) {
  PrepareOk();
  FakeCuda::Kernel kernel = {4, [](void** x) {
                               const auto a = ArgumentAt<FakeCuda::EncodedMap>(x, 0);
                               const auto y = ArgumentAt<FakeCuda::EncodedMap>(x, 2);
                               Right(reinterpret_cast<const float*>(a.address), ArgumentAt<const float*>(x, 1),
                                     reinterpret_cast<float*>(y.address), static_cast<int64_t>(a.dims[0]));
                             }};
  kernel.maps = {0, 2};
  cuda_.kernels["mapped"] = kernel;
  cuda_.duration_us["mapped"] = 50;
  auto request = Candidate("mapped", /*measure=*/true);
  for (const int i : {0, 2}) {
    v1::TensorMap* const map = request.mutable_plan()->mutable_launch(0)->mutable_argument(i)->mutable_tensor_map();
    map->set_tensor(i == 0 ? "a" : "y");
    map->set_dtype(v1::FP32);
    map->add_dim()->set_value(kElements);
    map->add_box()->set_value(64);
    map->add_element_stride()->set_value(1);
  }
  const auto result = session_->Run(request);
  EXPECT_EQ(result.outcome(), v1::OK) << result.message();
  // Far fewer than launches: two maps for the check and two a set.
  EXPECT_EQ(cuda_.encoded_maps % 2, 0);
  EXPECT_GE(cuda_.encoded_maps, 4);
  EXPECT_LE(cuda_.encoded_maps, 2 + 2 * 256);
  EXPECT_GT(cuda_.launches["mapped"], cuda_.encoded_maps);
  request.mutable_plan()->mutable_launch(0)->mutable_argument(0)->mutable_tensor_map()->mutable_box(0)->set_value(300);
  const auto refused = session_->Run(request);
  EXPECT_EQ(refused.outcome(), v1::LAUNCH_FAILED);
  EXPECT_THAT(refused.message(), HasSubstr("tensor map of 'a' (dims 1003, strides  bytes, box 300"));
}

TEST_F(RunSessionTest, B8_InputsAreSeededAndNeverZero) {
  auto request = Request();
  request.mutable_tensor(0)->mutable_fill()->set_mean(0);
  request.mutable_tensor(0)->mutable_fill()->set_stddev(0);
  const auto refused = session_->Prepare(request);
  EXPECT_NE(refused.outcome(), v1::OK);
  EXPECT_THAT(refused.message(), HasSubstr("all zeros"));
  PrepareOk();
  EXPECT_EQ(session_->Run(Candidate("right")).verification().seed(), 7u);
}

TEST_F(RunSessionTest, C4_InPlaceIsJudgedAfterOneLaunchOnPristineInputs) {
  const auto prepared = session_->Prepare(InPlaceRequest());
  ASSERT_EQ(prepared.outcome(), v1::OK) << prepared.message();
  const auto in_place = [](const float* a, const float*, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] += a[i];
  };
  // Twice: what the first left is restored for the second.
  for (int i = 0; i < 2; ++i) {
    const auto result = RunAdd(in_place);
    EXPECT_EQ(result.outcome(), v1::OK) << result.message();
  }
  const auto twice =
      RunAdd([&](const float* a, const float* b, float* y, int64_t n) { in_place(a, b, y, n), in_place(a, b, y, n); });
  EXPECT_EQ(twice.outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(RunAdd(in_place).outcome(), v1::OK);
}

TEST_F(RunSessionTest, C2_WhatTheLastCandidateWroteDoesNotCount) {
  PrepareOk();
  EXPECT_EQ(RunAdd([](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, n / 2); }).outcome(),
            v1::WRONG_RESULT);
  const auto other_half = RunAdd(
      [](const float* a, const float* b, float* y, int64_t n) { Right(a + n / 2, b + n / 2, y + n / 2, n - n / 2); });
  EXPECT_EQ(other_half.outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(other_half.verification().unwritten_elements(), kElements / 2);
}

TEST_F(RunSessionTest, C3_NothingAndRefusedLaunchesNeverPass) {
  PrepareOk();
  const auto nothing = RunAdd([](const float*, const float*, float*, int64_t) {});
  EXPECT_EQ(nothing.outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(nothing.verification().unwritten_elements(), kElements);
  auto request = Candidate("right");
  request.mutable_plan()->mutable_launch(0)->mutable_block_x()->set_value(2048);
  const auto refused = session_->Run(request);
  EXPECT_EQ(refused.outcome(), v1::LAUNCH_FAILED);
  EXPECT_FALSE(refused.verification().passed());
  // Not verified is not passed.
  request = Candidate("right");
  request.set_verify(false);
  EXPECT_FALSE(session_->Run(request).verification().passed());
}

TEST_F(RunSessionTest, C5_OneElementOutsideIsFound) {
  PrepareOk();
  for (const int64_t at : {int64_t{-1}, kElements}) {
    const auto result =
        RunAdd([at](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, n), y[at] = 0; });
    EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS) << at;
  }
}

TEST_F(RunSessionTest, D6_CorruptBinariesAreRefusedAndLeaveNothing) {
  PrepareOk();
  const int64_t alive = cuda_.allocations;
  std::string truncated = FakeCuda::Cubin();
  truncated.resize(truncated.size() / 2);
  for (const std::string& bytes : {std::string(), std::string(4096, '\0'),
                                   std::string("\x7f"
                                               "ELF"),
                                   truncated}) {
    auto request = Candidate("right");
    request.set_cubin(bytes);
    request.set_digest(Sha256Hex(bytes));
    EXPECT_EQ(session_->Run(request).outcome(), v1::LAUNCH_FAILED);
    EXPECT_EQ(cuda_.allocations, alive);
  }
  EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::OK);
}

TEST_F(RunSessionTest, D8_NothingPilesUpOverManyCandidates) {
  // One buffer set: 256 recipes a candidate would take the test's time.
  auto problem = Request();
  problem.set_l2(v1::WARM);
  ASSERT_EQ(session_->Prepare(problem).outcome(), v1::OK);
  cuda_.kernels["wrong"] = AddKernel([](const float*, const float*, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = 0;
  });
  session_->Run(Candidate("right", true));
  const auto alive = [this] {
    return std::vector<int64_t>{cuda_.allocations, static_cast<int64_t>(cuda_.live_modules.size()), cuda_.graphs,
                                cuda_.events};
  };
  const std::vector<int64_t> before = alive();
  const int64_t loads = cuda_.module_loads;
  constexpr int kCandidates = 5000;
  // Made once: the helper parses all operators.
  const auto right = Candidate("right"), timed = Candidate("right", true), wrong = Candidate("wrong"),
             unknown = Candidate("unknown");
  for (int i = 0; i < kCandidates; ++i) {
    // Some are timed, some wrong, some can't be loaded or launched.
    auto request = i % 10 == 3 ? wrong : i % 10 == 4 ? unknown : i % 100 == 0 ? timed : right;
    if (i % 10 == 5) request.set_digest("not this");
    const v1::Outcome outcome = session_->Run(request).outcome();
    ASSERT_EQ(outcome, i % 10 == 3 ? v1::WRONG_RESULT : i % 10 == 4 || i % 10 == 5 ? v1::LAUNCH_FAILED : v1::OK) << i;
  }
  EXPECT_EQ(alive(), before);
  EXPECT_GE(cuda_.module_loads - loads, kCandidates * 9 / 10);
  EXPECT_EQ(cuda_.uses_after_unload, 0);
}

TEST_F(RunSessionTest, E5_TooLargeLeavesNothingAndASmallProblemWorksNext) {
  cuda_.free_bytes = 1 << 20;
  EXPECT_EQ(session_->Prepare(Request()).outcome(), v1::OUT_OF_MEMORY);
  const int64_t alive = cuda_.allocations;  // the verifier's own
  EXPECT_EQ(session_->Prepare(Request()).outcome(), v1::OUT_OF_MEMORY);
  EXPECT_EQ(cuda_.allocations, alive);
  cuda_.free_bytes = int64_t{1} << 40;
  PrepareOk();
  EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::OK);
}

}  // namespace
}  // namespace rooftune

// Races, baselines and calibration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tuner/worker/run_session_fixture.h"

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(RunSessionTest, Baselines) {
  PrepareOk();
  cuda_.duration_us["rt_read_write"] = 33;
  worker::v1::BaselineRequest request;
  request.set_name("copy");
  const auto copy = session_->Baseline(request);
  EXPECT_EQ(copy.outcome(), v1::OK) << copy.message();
  EXPECT_NEAR(copy.measurement().median_us(), 33, 1e-3);
  EXPECT_FALSE(copy.has_verification());
  request.set_name("cublaslt_first");
  EXPECT_EQ(session_->Baseline(request).outcome(), v1::NOT_RUN);
  request.set_name("magic");
  const auto unknown = session_->Baseline(request);
  EXPECT_EQ(unknown.outcome(), v1::NOT_RUN);
  EXPECT_THAT(unknown.message(), HasSubstr("unknown baseline 'magic'"));
}

TEST_F(RunSessionTest, RacesTakeTurns) {
  PrepareOk();
  cuda_.kernels["faster"] = cuda_.kernels["right"];
  cuda_.duration_us["faster"] = 20;
  cuda_.kernels["wrong"] = AddKernel([](const float*, const float*, float*, int64_t) {});
  worker::v1::RaceRequest request = RaceOf({"right", "wrong", "faster"});
  request.mutable_options()->set_burst_ms(0.001);
  request.mutable_options()->set_min_samples(2);
  request.set_rounds(3);
  std::vector<int> order;
  const auto race = session_->Race(request, [&](int entrant) { order.push_back(entrant); });
  EXPECT_EQ(race.outcome(), v1::OK);
  ASSERT_EQ(race.result_size(), 3);
  EXPECT_NEAR(race.result(0).measurement().median_us(), 50, 1e-3);
  EXPECT_EQ(race.result(1).outcome(), v1::WRONG_RESULT);
  EXPECT_NEAR(race.result(2).measurement().median_us(), 20, 1e-3);
  // Set up in order, then three rounds that begin one further each time, without the loser.
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 0, 2, 2, 0, 2, 0));
}

TEST_F(RunSessionTest, RacersAreLaunchedTwiceAndMustAgreeWithThemselves) {
  PrepareOk();
  int launch = 0;
  // Right within the bound, but never the same bits twice.
  cuda_.kernels["unsteady"] = AddKernel([&](const float* a, const float* b, float* y, int64_t n) {
    Right(a, b, y, n);
    if (++launch % 2 == 0) y[5] = std::nextafter(y[5], 1e9f);
  });
  // Right once, then half-written.
  int other = 0;
  cuda_.kernels["lucky"] =
      AddKernel([&](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, ++other == 1 ? n : n / 2); });
  EXPECT_EQ(session_->Run(Candidate("unsteady")).outcome(), v1::OK);
  EXPECT_EQ(launch, 1) << "screening launches once";
  EXPECT_EQ(cuda_.launches["rt_scrub_shared"], 1);
  worker::v1::RaceRequest request = RaceOf({"right", "unsteady", "lucky"});
  request.set_rounds(1);
  const auto race = session_->Race(request, [](int) {});
  ASSERT_EQ(race.result_size(), 3);
  EXPECT_EQ(race.result(0).outcome(), v1::OK) << race.result(0).message();
  EXPECT_FALSE(race.result(0).verification().nondeterministic());
  EXPECT_EQ(race.result(1).outcome(), v1::OK) << race.result(1).message();
  EXPECT_TRUE(race.result(1).verification().passed());
  EXPECT_TRUE(race.result(1).verification().nondeterministic());
  EXPECT_EQ(race.result(1).verification().elements(), kElements);
  EXPECT_EQ(race.result(2).outcome(), v1::WRONG_RESULT);
  EXPECT_THAT(race.result(2).message(), HasSubstr("not at the second"));
  EXPECT_TRUE(race.result(2).verification().nondeterministic());
}

TEST_F(RunSessionTest, AFaultInARaceEndsItForAll) {
  PrepareOk();
  cuda_.kernels["fault"] = AddKernel([this](const float*, const float*, float*, int64_t) { cuda_.sticky = 719; });
  int last = -1;
  const auto race = session_->Race(RaceOf({"right", "fault", "right"}), [&](int entrant) { last = entrant; });
  EXPECT_NE(race.outcome(), v1::OK);
  EXPECT_EQ(last, 1);
  EXPECT_EQ(race.result(0).outcome(), v1::NOT_RUN);
  EXPECT_EQ(race.result(1).outcome(), v1::CRASHED);
  EXPECT_EQ(race.result(2).outcome(), v1::NOT_RUN);
}

TEST_F(RunSessionTest, CalibratesWhatIsThere) {
  cuda_.free_bytes = int64_t{1} << 30;
  cuda_.duration_us["rt_copy"] = 100;
  cuda_.duration_us["rt_widen"] = 33;
  cuda_.duration_us["rt_empty"] = 0.5;
  worker::v1::CalibrateRequest request;
  request.set_support_cubin(FakeCuda::Cubin());
  const auto result = session_->Calibrate(request);
  ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_THAT(result.message(), HasSubstr("no rates of matrix products"));
  ASSERT_EQ(result.calibration().curve_size(), 7);
  EXPECT_EQ(result.calibration().curve(3).mix(), "read_write_2");
  EXPECT_NEAR(result.calibration().curve(3).point(0).gbps(), 65536 / 33.0 * 1e-3, 1e-3);
  const auto& copy = result.calibration().curve(0);
  EXPECT_EQ(copy.mix(), "copy");
  ASSERT_GE(copy.point_size(), 5);
  EXPECT_EQ(copy.point(0).bytes(), 65536);
  EXPECT_NEAR(copy.point(0).gbps(), 0.65536, 1e-3);
  EXPECT_NEAR(result.calibration().graph_node_us(), 0.5, 1e-3);
  EXPECT_EQ(result.calibration().rate_size(), 2);
  EXPECT_NEAR(result.calibration().sm_clock_mhz(), 1980, 1);
}

}  // namespace
}  // namespace rooftune

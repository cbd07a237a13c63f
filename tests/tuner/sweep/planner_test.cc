#include "tuner/sweep/planner.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tuner/sweep/intervals.h"

namespace rooftune {
namespace {

class PlannerTest : public testing::Test {
 protected:
  PlannerTest() : library_(*TemplateLibrary::Load({})), profiles_(*ProfileCatalog::Builtin()) {}
  absl::StatusOr<Plan> Make(const std::string& op, const std::string& device, const std::vector<std::string>& ids = {}) {
    return MakePlan(*library_, op, *profiles_.ById(device), nullptr, ids);
  }
  std::unique_ptr<TemplateLibrary> library_;
  ProfileCatalog profiles_;
};

TEST_F(PlannerTest, EveryBuiltInOperatorCanBePlanned) {
  for (const OpSchema* schema : library_->ops().schemas()) {
    for (const char* device : {"h200-sxm", "a100-sxm-80"}) {
      if (!profiles_.ById(device).ok()) continue;
      const auto plan = Make(schema->proto().example(), device);
      ASSERT_TRUE(plan.ok()) << schema->kind() << " on " << device << ": " << plan.status();
      EXPECT_FALSE(plan->points.empty());
      EXPECT_GE(plan->valid_points, static_cast<int64_t>(plan->points.size()));
      EXPECT_GT(plan->bounds.attainable_us(), 0);
      EXPECT_LE(plan->bounds.floor_us(), plan->bounds.attainable_us());
      // Exactly one default a template.
      for (size_t t = 0; t < plan->templates.size(); ++t) {
        int defaults = 0;
        for (const SearchPoint& point : plan->points) defaults += point.template_index == static_cast<int>(t) && point.is_default;
        EXPECT_EQ(defaults, 1) << plan->templates[t]->id();
      }
    }
  }
}

TEST_F(PlannerTest, BestPredictedIsSorted) {
  const auto plan = Make("gemm m=4096 n=4096 k=4096 dtype=bf16", "h200-sxm");
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto best = BestPredicted(*plan, 10);
  ASSERT_EQ(best.size(), 10u);
  for (size_t i = 1; i < best.size(); ++i) {
    EXPECT_LE(plan->points[static_cast<size_t>(best[i - 1])].predicted_us, plan->points[static_cast<size_t>(best[i])].predicted_us);
  }
}

TEST_F(PlannerTest, KeepsTheBestPredictedAndTheDefaults) {
  auto plan = Make("gemm m=4096 n=4096 k=4096 dtype=bf16", "h200-sxm");
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto all = static_cast<int64_t>(plan->points.size());
  const double limit = plan->points[static_cast<size_t>(BestPredicted(*plan, 10).back())].predicted_us;
  KeepBestPredicted(10, *plan);
  int64_t defaults = 0;
  for (const SearchPoint& point : plan->points) {
    defaults += point.is_default;
    EXPECT_TRUE(point.is_default || point.predicted_us <= limit);
  }
  EXPECT_GE(defaults, 1);
  EXPECT_GE(plan->points.size(), 10u);
  EXPECT_LE(static_cast<int64_t>(plan->points.size()), 10 + defaults);
  EXPECT_EQ(plan->pruned.at("not among the 10 best predicted"), all - static_cast<int64_t>(plan->points.size()));
}

TEST_F(PlannerTest, SaysWhyNoTemplateFits) {
  // Volta has neither cp.async nor bf16.
  const auto old = Make("gemm m=64 n=64 k=64 dtype=bf16", "v100-sxm2-16");
  EXPECT_EQ(ErrorReason(old.status()), "NO_TEMPLATE");
  EXPECT_NE(old.status().message().find("gemm_mma needs arch"), std::string::npos) << old.status();
  EXPECT_EQ(ErrorReason(Make("gemm m=64 n=64 k=64 dtype=bf16", "h200-sxm", {"softmax"}).status()), "WRONG_TEMPLATE");
}

TEST_F(PlannerTest, PointsStayWithinTheLimit) {
  const auto plan = MakePlan(*library_, "gemm m=4096 n=4096 k=4096 dtype=bf16", *profiles_.ById("h200-sxm"), nullptr, {}, 100);
  ASSERT_TRUE(plan.ok());
  // And the default of each template.
  EXPECT_LE(plan->points.size(), 100 + plan->templates.size());
}

TEST(IntervalsTest, CountsOverlapsOnce) {
  const auto at = [](int s) { return absl::FromUnixSeconds(s); };
  const Intervals a = {{at(5), at(8)}, {at(0), at(2)}, {at(1), at(3)}, {at(9), at(9)}, {at(7), at(4)}};
  EXPECT_EQ(Covered(a), absl::Seconds(6));
  EXPECT_EQ(Covered({}), absl::ZeroDuration());
  EXPECT_EQ(CoveredByBoth(a, {{at(2), at(6)}, {at(7), at(20)}}), absl::Seconds(1 + 1 + 1));
  EXPECT_EQ(CoveredByBoth(a, {{at(3), at(5)}}), absl::ZeroDuration());
  EXPECT_EQ(CoveredByBoth(a, {}), absl::ZeroDuration());
}

}  // namespace
}  // namespace rooftune

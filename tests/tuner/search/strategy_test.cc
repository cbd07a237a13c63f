#include "tuner/search/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<SearchPoint> Points(const std::vector<double>& predicted, const std::set<size_t>& defaults = {}) {
  std::vector<SearchPoint> points(predicted.size());
  for (size_t i = 0; i < predicted.size(); ++i) {
    points[i].space_index = static_cast<int64_t>(i);
    points[i].predicted_us = predicted[i];
    points[i].is_default = defaults.count(i) != 0;
  }
  return points;
}

// 100 points, the last the best predicted.
std::vector<SearchPoint> Hundred(const std::set<size_t>& defaults = {}) {
  std::vector<double> predicted(100);
  for (size_t i = 0; i < predicted.size(); ++i) predicted[i] = 100.0 - static_cast<double>(i);
  return Points(predicted, defaults);
}

std::vector<int64_t> Order(v1::StrategyKind kind, std::vector<SearchPoint> points, uint64_t seed = 1) {
  auto strategy = MakeStrategy(kind, std::move(points), seed);
  EXPECT_TRUE(strategy.ok()) << strategy.status();
  std::vector<int64_t> order;
  while (const auto position = (*strategy)->Next()) order.push_back(*position);
  EXPECT_EQ((*strategy)->Next(), std::nullopt) << "stays at the end";
  return order;
}

class EveryStrategyTest : public ::testing::TestWithParam<v1::StrategyKind> {};

TEST_P(EveryStrategyTest, ProposesEachPointOnceAndDefaultsFirst) {
  std::vector<int64_t> order = Order(GetParam(), Hundred({7, 42}));
  ASSERT_EQ(order.size(), 100u);
  EXPECT_EQ(order[0], 7);
  EXPECT_EQ(order[1], 42);
  std::sort(order.begin(), order.end());
  std::vector<int64_t> all(100);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(order, all);
}

TEST_P(EveryStrategyTest, IsDeterministicForASeedWhateverItIsTold) {
  EXPECT_EQ(Order(GetParam(), Hundred(), 9), Order(GetParam(), Hundred(), 9));
  auto told = MakeStrategy(GetParam(), Hundred(), 9);
  std::vector<int64_t> order;
  while (const auto position = (*told)->Next()) {
    (*told)->Tell(*position, v1::CRASHED, std::nullopt);
    order.push_back(*position);
  }
  EXPECT_EQ(order, Order(GetParam(), Hundred(), 9));
}

TEST_P(EveryStrategyTest, EmptySpaceEndsAtOnce) { EXPECT_THAT(Order(GetParam(), {}), IsEmpty()); }

INSTANTIATE_TEST_SUITE_P(Kinds, EveryStrategyTest, ::testing::Values(v1::EXHAUSTIVE, v1::RANDOM, v1::MODEL),
                         [](const auto& info) { return v1::StrategyKind_Name(info.param); });

TEST(ExhaustiveTest, KeepsTheOrderOfPoints) {
  EXPECT_THAT(Order(v1::EXHAUSTIVE, Points({3, 1, 2}, {2})), ElementsAre(2, 0, 1));
}

TEST(RandomTest, SeedsDifferAndTheOrderIsPinned) {
  EXPECT_NE(Order(v1::RANDOM, Hundred(), 1), Order(v1::RANDOM, Hundred(), 2));
  // Pinned: a resumed sweep of an older build must go on in the same order.
  EXPECT_THAT(Order(v1::RANDOM, Points({0, 0, 0, 0, 0, 0}), 1), ElementsAre(0, 1, 3, 2, 4, 5));
}

TEST(RandomTest, FirstPlaceIsUniform) {
  std::vector<int> first(4);
  for (uint64_t seed = 0; seed < 4000; ++seed)
    ++first[static_cast<size_t>(Order(v1::RANDOM, Points({0, 0, 0, 0}), seed)[0])];
  // 1000 expected each; 5 standard deviations are 137.
  for (const int count : first) EXPECT_NEAR(count, 1000, 137);
}

TEST(ModelTest, FollowsThePredictionButForEveryFifth) {
  const std::vector<int64_t> order = Order(v1::MODEL, Hundred(), 3);
  std::set<int64_t> taken;
  int surprises = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t best = 99;
    while (taken.count(best) != 0) --best;
    if ((i + 1) % 5 != 0) {
      EXPECT_EQ(order[i], best) << "place " << i;
    } else {
      surprises += order[i] != best;
    }
    taken.insert(order[i]);
  }
  EXPECT_GE(surprises, 15) << "of 20 random places";
}

TEST(ModelTest, HopelessPointsComeLastButAreNotLost) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_THAT(Order(v1::MODEL, Points({infinite, std::nan(""), 2, 1})), ElementsAre(3, 2, 0, 1));
}

TEST(ModelTest, IsTheDefaultAndUnknownKindsAreRefused) {
  EXPECT_EQ((*MakeStrategy(v1::STRATEGY_KIND_UNSPECIFIED, Hundred(), 1))->name(), "MODEL");
  EXPECT_EQ(MakeStrategy(static_cast<v1::StrategyKind>(77), {}, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace rooftune

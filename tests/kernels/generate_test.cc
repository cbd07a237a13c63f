#include "kernels/generate.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include <cmath>
#include <limits>

#include "kernels/philox.h"
#include "kernels/tolerance.h"

namespace rooftune {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers published with the generator (Random123, kat_vectors).
TEST(GenerateTest, IndicesAreUniformInTheirRange) {
  std::vector<int> count(7);
  for (uint64_t i = 0; i < 7000; ++i) {
    const int64_t place = GenerateIndex(42, 1, i, 7);
    ASSERT_TRUE(place >= 0 && place < 7);
    ++count[static_cast<size_t>(place)];
    ASSERT_EQ(place, GenerateIndex(42, 1, i, 7));
  }
  for (const int n : count) EXPECT_NEAR(n, 1000, 150);
  EXPECT_EQ(GenerateIndex(42, 1, 5, 1), 0);
  EXPECT_LT(GenerateIndex(42, 1, 5, int64_t{1} << 31), int64_t{1} << 31);
}

TEST(GenerateTest, DistinctIndicesAreAPermutation) {
  for (const int64_t range : {1, 2, 3, 16, 17, 1000, 4097}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < range; ++i) {
      const int64_t place = GenerateDistinctIndex(42, 3, static_cast<uint64_t>(i), range);
      ASSERT_TRUE(place >= 0 && place < range) << range;
      ASSERT_TRUE(seen.insert(place).second) << range << ": " << place << " twice";
    }
  }
  // Another tensor or seed has another order, and neighbours are not neighbours.
  int kept = 0, behind = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const int64_t place = GenerateDistinctIndex(42, 3, i, 1000);
    kept += place == GenerateDistinctIndex(42, 4, i, 1000);
    kept += place == GenerateDistinctIndex(43, 3, i, 1000);
    behind += place + 1 == GenerateDistinctIndex(42, 3, i + 1 < 1000 ? i + 1 : 0, 1000);
  }
  EXPECT_LT(kept, 20);
  EXPECT_LT(behind, 20);
}

TEST(GenerateTest, SomeIndicesAreSkipped) {
  int skipped = 0;
  for (uint64_t i = 0; i < 64000; ++i) skipped += GenerateSkip(42, 3, i, 64);
  EXPECT_NEAR(skipped, 1000, 150);
  EXPECT_FALSE(GenerateSkip(42, 3, 0, 0));
}

TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(GenerateTest, FirstElementByHand) {
  // From the known answer of zero counter and key: upper 24 bits, sum, minus 2·(2^24 − 1).
  const int64_t g = int64_t{0x6627e8} + 0xe169c5 + 0xbc57ac + 0x9b00db - 2 * 0xffffff;
  const float scale = static_cast<float>(std::sqrt(3.0) / 16777216.0);
  const float expected = static_cast<float>(g) * scale;
  EXPECT_EQ(GenerateElement(0, 0, 0, 0, 1, v1::FP32), static_cast<double>(expected));
}

TEST(GenerateTest, SeedTensorAndWideIndicesMatter) {
  const double base = GenerateElement(7, 1, 5, 0, 1, v1::FP32);
  EXPECT_NE(base, GenerateElement(8, 1, 5, 0, 1, v1::FP32));
  EXPECT_NE(base, GenerateElement(uint64_t{7} | uint64_t{1} << 40, 1, 5, 0, 1, v1::FP32));
  EXPECT_NE(base, GenerateElement(7, 2, 5, 0, 1, v1::FP32));
  EXPECT_NE(base, GenerateElement(7, 1, 5 + (uint64_t{1} << 32), 0, 1, v1::FP32));
  EXPECT_EQ(base, GenerateElement(7, 1, 5, 0, 1, v1::FP32));
}

TEST(GenerateTest, MomentsAndRange) {
  const int n = 200000;
  double sum = 0, squares = 0, largest = 0;
  for (int i = 0; i < n; ++i) {
    const double x = GenerateElement(3, 0, i, 0, 1, v1::FP32);
    sum += x;
    squares += x * x;
    largest = std::max(largest, std::fabs(x));
  }
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.01);
  // Four uniform numbers reach 2·√3 = 3.46.
  EXPECT_GT(largest, 3.0);
  EXPECT_LT(largest, 3.4642);
  EXPECT_NEAR(GenerateElement(3, 0, 9, 4, 0.5, v1::FP32), 4 + 0.5 * GenerateElement(3, 0, 9, 0, 1, v1::FP32), 1e-6);
}

TEST(RoundTest, EveryFormat) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(RoundToDType(1.0f + 0x1p-11f, v1::FP16), 1.0);               // tie to even
  EXPECT_EQ(RoundToDType(1.0f + 3 * 0x1p-11f, v1::FP16), 1.0 + 0x1p-9);  // tie to even, upwards
  EXPECT_EQ(RoundToDType(65519.0f, v1::FP16), 65504.0);
  EXPECT_EQ(RoundToDType(65520.0f, v1::FP16), static_cast<double>(inf));
  EXPECT_EQ(RoundToDType(0x1p-24f, v1::FP16), 0x1p-24);
  EXPECT_EQ(RoundToDType(0x1p-25f, v1::FP16), 0.0);
  EXPECT_EQ(RoundToDType(3 * 0x1p-26f, v1::FP16), 0x1p-24);
  EXPECT_EQ(RoundToDType(-0x1.ff9p-15f, v1::FP16), -0x1.ff8p-15);
  EXPECT_EQ(RoundToDType(1.0f + 0x1p-8f, v1::BF16), 1.0);
  EXPECT_EQ(RoundToDType(1.0f + 3 * 0x1p-8f, v1::BF16), 1.0 + 0x1p-6);
  EXPECT_EQ(RoundToDType(0x1.fffffep127f, v1::BF16), static_cast<double>(inf));
  EXPECT_TRUE(std::isnan(RoundToDType(std::nanf(""), v1::BF16)));
  EXPECT_TRUE(std::isnan(RoundToDType(std::nanf(""), v1::FP16)));
  EXPECT_EQ(RoundToDType(inf, v1::FP16), static_cast<double>(inf));
  EXPECT_EQ(RoundToDType(1000.0f, v1::FP8_E4M3), 448.0);
  EXPECT_EQ(RoundToDType(-1e9f, v1::FP8_E5M2), -57344.0);
  EXPECT_EQ(RoundToDType(1.0625f, v1::FP8_E4M3), 1.0);
  EXPECT_EQ(RoundToDType(0x1p-9f, v1::FP8_E4M3), 0x1p-9);
  EXPECT_EQ(RoundToDType(2.5f, v1::INT8), 2.0);
  EXPECT_EQ(RoundToDType(-300.0f, v1::INT8), -128.0);
  EXPECT_EQ(RoundToDType(3e9f, v1::INT32), 2147483647.0);
  EXPECT_EQ(RoundToDType(7.6f, v1::INT4), 7.0);
  EXPECT_EQ(RoundToDType(-9.0f, v1::INT4), -8.0);
  EXPECT_EQ(RoundToDType(2.5f, v1::INT4), 2.0);
  EXPECT_EQ(RoundToDType(0.1f, v1::FP32), static_cast<double>(0.1f));
}

TEST(ToleranceTest, FollowsTheDocumentedFormula) {
  const ErrorBound bf16 = MakeErrorBound(v1::BF16, 4096, 1);
  EXPECT_EQ(bf16.relative, 0x1p-7);
  EXPECT_EQ(bf16.accumulate, 0x1p-23 * (8 + 4 * 64));
  EXPECT_EQ(bf16.tiny, 0x1p-133);
  EXPECT_EQ(MakeErrorBound(v1::FP16, 1, 1).relative, 0x1p-10);
  EXPECT_EQ(MakeErrorBound(v1::FP32, 1, 1).relative, 0x1p-23);
  EXPECT_EQ(MakeErrorBound(v1::FP32, 1, 1).accumulate, 12 * 0x1p-23);
  EXPECT_EQ(MakeErrorBound(v1::FP16, 16, 3).relative, 3 * 0x1p-10);
  EXPECT_EQ(DescribeErrorBound(v1::BF16, 4096, 1), "1 ulp(bf16)·|ref| + 3.1e-05·Σ|terms|");
  EXPECT_EQ(DescribeErrorBound(v1::FP8_E4M3, 1, 1), "0.5 spacings of fp8_e4m3 at ref + 1.4e-06·Σ|terms|");
  EXPECT_EQ(DescribeErrorBound(v1::INT4, 1, 1), "0.5 + 1.4e-06·Σ|terms|");
}

}  // namespace
}  // namespace rooftune

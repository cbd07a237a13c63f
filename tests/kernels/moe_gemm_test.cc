// Work, validity, generated groups and CPU reference of moe_gemm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kernels/generate.h"
#include "tests/kernels/host_reference_instance.h"

namespace rooftune {
namespace {

using ::testing::Each;
using ::testing::Ge;

std::vector<int64_t> Sizes(int64_t groups, int64_t total, uint64_t seed = kSeed) {
  std::vector<int64_t> sizes;
  for (int64_t g = 0; g < groups; ++g) {
    sizes.push_back(GenerateGroupStart(seed, 4, g + 1, groups, total) - GenerateGroupStart(seed, 4, g, groups, total));
  }
  return sizes;
}

TEST(GroupsTest, AddUpAreUnevenAndOneIsEmpty) {
  for (const auto& [groups, total] : std::vector<std::pair<int64_t, int64_t>>{
           {8, 8192}, {128, 32768}, {32, 4096}, {2, 5}, {512, 511}, {512, int64_t{1} << 31}, {3, 4}}) {
    for (const uint64_t seed : {uint64_t{1}, uint64_t{7}, kSeed}) {
      std::vector<int64_t> sizes = Sizes(groups, total, seed);
      EXPECT_EQ(GenerateGroupStart(seed, 4, 0, groups, total), 0);
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), total);
      EXPECT_EQ(sizes[groups / 2], 0);
      sizes.erase(sizes.begin() + groups / 2);
      // Every other group has a row, and none more than about three times the mean.
      EXPECT_THAT(sizes, Each(Ge(total >= groups - 1 ? 1 : 0)));
      EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()), 1 + (3 * total + groups - 2) / (groups - 1));
      if (total > 16 * groups && groups > 3) {
        EXPECT_GT(std::set<int64_t>(sizes.begin(), sizes.end()).size(), 2u);
      }
    }
  }
  EXPECT_EQ(Sizes(1, 77), std::vector<int64_t>{77});
}

TEST(GroupsTest, FewRowsAreOneAGroup) {
  const std::vector<int64_t> sizes = Sizes(64, 10);
  EXPECT_EQ(std::count(sizes.begin(), sizes.end(), 1), 10);
  EXPECT_EQ(std::count(sizes.begin(), sizes.end(), 0), 54);
}

TEST(MoeGemmTest, WorkCountsExpertsThatHaveRows) {
  const int64_t m = 100, n = 24, k = 40, experts = 8;
  const Work work = WorkOf("moe_gemm m=100 n=24 k=40 experts=8 dtype=bf16");
  EXPECT_EQ(OpsOn(work, "tensor"), 2 * m * n * k);
  EXPECT_EQ(OpsOn(work, "fp32"), 0);
  EXPECT_EQ(work.bytes_read, 2 * m * k + 2 * (experts - 1) * n * k + 4 * (experts + 1));
  EXPECT_EQ(work.bytes_written, 2 * m * n);
  EXPECT_EQ(WorkOf("moe_gemm m=3 n=24 k=40 experts=8 dtype=bf16").bytes_read, 2 * 3 * k + 2 * 3 * n * k + 4 * 9);
  // A row of x serves both of its experts; the factors are products of their own.
  const Work routed = WorkOf("moe_gemm m=100 n=24 k=40 experts=8 topk=2 dtype=bf16 gather=1 scatter=1 weighted=1");
  EXPECT_EQ(routed.bytes_read, work.bytes_read - 2 * m / 2 * k + 2 * 4 * m);
  EXPECT_EQ(OpsOn(routed, "fp32"), m * n);
  // Scales: three of k for each row of x and for the one block of columns; 3 operations an element and 128 of k.
  const Work blocks = WorkOf("moe_gemm m=100 n=24 k=272 experts=8 dtype=fp8_e4m3");
  EXPECT_EQ(blocks.bytes_read, m * (272 + 4 * 3) + 7 * (n * 272 + 4 * 3) + 4 * 9);
  EXPECT_EQ(blocks.bytes_written, 2 * m * n);
  EXPECT_EQ(OpsOn(blocks, "fp32"), 3 * 3 * m * n);
  // Rows past an expert's count are not counted, whatever there is room for.
  EXPECT_EQ(WorkOf("moe_gemm m=100 n=24 k=40 experts=8 rows_max=64 dtype=bf16 layout=masked").bytes_read,
            work.bytes_read - 4);
}

TEST(MoeGemmTest, RefusesWhatDoesNotGoTogether) {
  const std::string plain = "moe_gemm m=96 n=8 k=8 experts=4 dtype=bf16";
  EXPECT_EQ(Catalog().Parse(plain + " gather=0 layout=contiguous topk=1 rows_max=1")->text, plain);
  for (const char* good : {" topk=2 gather=1", " scatter=1 weighted=1", " rows_max=97 layout=masked"}) {
    EXPECT_TRUE(Catalog().Parse(plain + good).ok()) << good;
  }
  for (const char* bad : {" topk=2", " topk=5 gather=1", " weighted=1", " gather=1 weighted=1", " rows_max=97",
                          " rows_max=97 layout=masked scatter=1", " rows_max=95 layout=masked", " layout=masked"}) {
    EXPECT_FALSE(Catalog().Parse(plain + bad).ok()) << bad;
  }
}

// One row of y by its definition.
void ExpectRow(const Instance& in, const std::vector<ReferenceValue>& y, int64_t to, int64_t from, int64_t expert,
               double factor) {
  const int64_t n = in.op.names.at("n"), k = in.op.names.at("k"), blocks = (k + 127) / 128;
  const bool scaled = in.data.count("scale_x") > 0;
  for (int64_t j = 0; j < n; ++j) {
    double sum = 0, size = 0;
    for (int64_t l = 0; l < k; ++l) {
      double term = factor * in.data.at("x")[from * k + l] * in.data.at("w")[(expert * n + j) * k + l];
      if (scaled) {
        term *= in.data.at("scale_x")[from * blocks + l / 128] *
                in.data.at("scale_w")[(expert * ((n + 127) / 128) + j / 128) * blocks + l / 128];
      }
      sum += term;
      size += std::fabs(term);
    }
    EXPECT_NEAR(y[to * n + j].value, sum, 1e-11) << in.op.text << " row " << to << " column " << j;
    EXPECT_NEAR(y[to * n + j].magnitude, size, 1e-11) << in.op.text << " row " << to << " column " << j;
  }
}

TEST(MoeGemmTest, RoutedRowsByTheirDefinition) {
  for (const std::string attributes :
       {"dtype=bf16", "topk=3 dtype=bf16 gather=1", "dtype=fp16 scatter=1", "dtype=bf16 scatter=1 weighted=1",
        "topk=3 dtype=bf16 gather=1 scatter=1 weighted=1", "topk=3 dtype=fp8_e4m3 gather=1", "dtype=fp8_e4m3"}) {
    const int64_t topk = attributes.find("topk=3") != std::string::npos ? 3 : 1;
    const Instance in = Make("moe_gemm m=30 n=136 k=144 experts=5 " + attributes);
    const auto y = in.All("y");
    const auto& offsets = in.data.at("groups");
    std::set<int64_t> rows;
    for (int64_t expert = 0; expert < 5; ++expert) {
      for (int64_t t = static_cast<int64_t>(offsets[expert]); t < static_cast<int64_t>(offsets[expert + 1]); ++t) {
        const int64_t slot = in.data.count("slots") > 0 ? static_cast<int64_t>(in.data.at("slots")[t]) : t;
        const int64_t to = in.op.names.at("scatter") == 1 ? slot : t;
        const int64_t from = in.op.names.at("gather") == 1 ? slot / topk : t;
        ExpectRow(in, y, to, from, expert, in.data.count("weights") > 0 ? in.data.at("weights")[slot] : 1);
        rows.insert(to);
      }
    }
    EXPECT_EQ(rows.size(), 30u);
  }
}

TEST(MoeGemmTest, RowsPastAMaskedCountStay) {
  const Instance in = Make("moe_gemm m=30 n=8 k=144 experts=5 rows_max=24 dtype=bf16 layout=masked");
  const auto y = in.All("y_masked");
  int64_t kept = 0;
  for (int64_t expert = 0; expert < 5; ++expert) {
    for (int64_t row = 0; row < 24; ++row) {
      const int64_t at = expert * 24 + row;
      if (row < in.data.at("groups")[expert]) {
        ExpectRow(in, y, at, at, expert, 1);
        continue;
      }
      ++kept;
      for (int64_t j = 0; j < 8; ++j) EXPECT_EQ(y[at * 8 + j].value, in.data.at("y_masked")[at * 8 + j]);
    }
  }
  EXPECT_EQ(kept, 5 * 24 - 30);
}

}  // namespace
}  // namespace rooftune

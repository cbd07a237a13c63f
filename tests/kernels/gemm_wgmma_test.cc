// The Hopper GEMM's manifest: where it is offered, and that its launches are those its kernel is written for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "kernels/template_library.h"
#include "tests/kernels/builtins.h"

namespace rooftune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const KernelTemplate& Wgmma() { return *Builtins().Find("gemm_wgmma"); }

Op Gemm(const std::string& rest) {
  const auto op = Builtins().ops().Parse("gemm " + rest);
  EXPECT_TRUE(op.ok()) << op.status();
  return *op;
}

const Op& Square() {
  static const auto& op = *new Op(Gemm("m=4096 n=4096 k=4096 dtype=bf16"));
  return op;
}

TEST(GemmWgmmaTest, IsForHopperAlone) {
  for (const char* id : {"h100-sxm", "h200-sxm", "gh200-96"})
    EXPECT_TRUE(Wgmma().Supports(Square(), Profile(id))) << id;
  for (const char* id : {"t4", "a100-sxm-80", "l40s", "b200", "rtx-5090"}) {
    EXPECT_FALSE(Wgmma().Supports(Square(), Profile(id))) << id;
  }
  const auto compile =
      Wgmma().CompileInput(Square(), *Wgmma().DefaultConfig(Square(), Profile("h200-sxm")), Profile("h200-sxm"));
  ASSERT_TRUE(compile.ok()) << compile.status();
  EXPECT_EQ(compile->arch(), "sm_90a");
}

TEST(GemmWgmmaTest, TakesWhatTmaCanCarry) {
  const DeviceProfile h200 = Profile("h200-sxm");
  for (const char* good :
       {"m=1 n=8 k=8 dtype=fp16", "m=7 n=8 k=16 dtype=bf16 bias=1 act=gelu out=fp16",
        "m=7 n=24 k=8 dtype=bf16 layout=nn", "m=8 n=8 k=3 dtype=bf16 layout=tn",
        "m=8 n=16 k=8 batch=5 dtype=bf16 layout=tt", "m=8 n=8 k=8 dtype=bf16 out=fp32", "m=8 n=8 k=8 dtype=bf16 beta=1",
        "m=8 n=8 k=8 dtype=bf16 out=int8", "m=8 n=8 k=16 dtype=fp8_e4m3 out=fp8_e4m3 scale=tensor",
        "m=8 n=8 k=8 dtype=bf16 lda=16 ldb=24"}) {
    EXPECT_TRUE(Wgmma().Supports(Gemm(good), h200)) << good;
    EXPECT_TRUE(Wgmma().DefaultConfig(Gemm(good), h200).ok())
        << good << Wgmma().DefaultConfig(Gemm(good), h200).status();
  }
  for (const char* bad :
       {"m=8 n=8 k=8 dtype=fp32", "m=8 n=12 k=8 dtype=bf16", "m=8 n=8 k=12 dtype=bf16",
        "m=8 n=8 k=12 dtype=bf16 layout=nn", "m=12 n=8 k=8 dtype=bf16 layout=tn", "m=8 n=8 k=12 dtype=bf16 layout=tt",
        "m=8 n=8 k=8 dtype=bf16 lda=12", "m=8 n=8 k=16 dtype=int8 out=fp16 ldb=24"}) {
    EXPECT_FALSE(Wgmma().Supports(Gemm(bad), h200)) << bad;
  }
}

TEST(GemmWgmmaTest, EightBitsLieAlongK) {
  const DeviceProfile h200 = Profile("h200-sxm");
  for (const char* good : {"m=64 n=4096 k=1024 dtype=fp8_e4m3 out=bf16", "m=7 n=8 k=16 dtype=int8 out=fp16 scale=row",
                           "m=4096 n=4096 k=4096 dtype=fp8_e5m2 out=fp32 scale=tensor bias=1 act=silu beta=1"}) {
    const Op op = Gemm(good);
    ASSERT_TRUE(Wgmma().Supports(op, h200)) << good;
    const auto config = Wgmma().DefaultConfig(op, h200);
    ASSERT_TRUE(config.ok()) << good << config.status();
    EXPECT_GE(config->at("block_k"), 128);
    const auto plan = Wgmma().Plan(op, *config, h200);
    ASSERT_TRUE(plan.ok()) << good << plan.status();
    EXPECT_EQ(plan->launch(0).argument(0).tensor_map().box(0).value(), 128);
    EXPECT_EQ(plan->launch(0).argument(0).tensor_map().stride_bytes(0).value(), op.names.at("k"));
  }
  EXPECT_FALSE(Wgmma().Supports(Gemm("m=8 n=8 k=8 dtype=int8 out=bf16"), h200));
  EXPECT_FALSE(Wgmma().Supports(Gemm("m=8 n=8 k=16 dtype=int8 out=bf16"), Profile("a100-sxm-80")));
  // Integers have fewer widths.
  const auto space = Wgmma().Space(Gemm("m=64 n=7168 k=8192 dtype=int8 out=bf16"), h200);
  ASSERT_TRUE(space.ok());
  for (int64_t i = 0; i < space->size(); ++i) EXPECT_NE(space->At(i).at("block_n"), 56);
}

TEST(GemmWgmmaTest, DefaultsFollowTheRowsOfM) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const auto tile = [&](const std::string& op) {
    const Config config = *Wgmma().DefaultConfig(Gemm(op), h200);
    return absl::StrCat(config.at("block_m"), "x", config.at("block_n"), config.at("swap_ab") != 0 ? "t" : "", " ",
                        config.at("stages"), config.at("cluster_m") > 1 ? " shared" : "");
  };
  EXPECT_EQ(tile("m=4096 n=4096 k=4096 dtype=bf16"), "128x256 4 shared");
  EXPECT_EQ(tile("m=512 n=28672 k=4096 dtype=bf16"), "128x256 4 shared");
  EXPECT_EQ(tile("m=64 n=4096 k=14336 dtype=bf16"), "64x64 12");
  EXPECT_EQ(tile("m=16 n=28672 k=4096 dtype=bf16"), "16x256t 4");
  EXPECT_EQ(tile("m=1 n=6144 k=4096 dtype=bf16"), "8x64t 12");
}

TEST(GemmWgmmaTest, EveryPointOfEveryRegimeCanBePlannedAndFits) {
  const DeviceProfile h200 = Profile("h200-sxm");
  for (const char* text :
       {"m=4096 n=4096 k=4096 dtype=bf16", "m=512 n=1280 k=8192 dtype=bf16 layout=tn", "m=128 n=4096 k=4096 dtype=fp16",
        "m=64 n=576 k=7168 dtype=bf16 layout=nn bias=1", "m=1 n=6144 k=4096 dtype=bf16",
        "m=512 n=28672 k=4096 dtype=fp8_e4m3 out=bf16 scale=row",
        "m=16 n=28672 k=4096 dtype=int8 out=fp32 scale=tensor", "m=200 n=264 k=136 batch=2 dtype=bf16 layout=tt"}) {
    const Op op = Gemm(text);
    const auto space = Wgmma().Space(op, h200);
    ASSERT_TRUE(space.ok()) << space.status();
    EXPECT_GT(space->size(), 0) << text;
    EXPECT_LE(space->size(), 2000) << text;
    const int64_t step = std::max<int64_t>(1, space->size() / 60);
    for (int64_t i = 0; i < space->size(); i += step) {
      const Config config = space->At(i);
      const auto plan = Wgmma().Plan(op, config, h200);
      ASSERT_TRUE(plan.ok()) << text << " " << ConfigToString(config) << ": " << plan.status();
      EXPECT_LE(plan->launch(0).dynamic_shared_bytes().value(), 232448 - 1024);
      const v1::Resources resources = Wgmma().Analyse(op, config, h200)->resources;
      EXPECT_LE(resources.registers_per_thread() * resources.threads_per_block(), 65536) << ConfigToString(config);
    }
  }
}

// What the kernel's static geometry comes to, worked out by hand from its constants.
TEST(GemmWgmmaTest, TheLargeTilesLaunch) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const auto plan = Wgmma().Plan(Square(), *Wgmma().DefaultConfig(Square(), h200), h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launch_size(), 1);
  const v1::Launch& launch = plan->launch(0);
  EXPECT_EQ(launch.grid_x().value(), 132);
  // Two consumer warpgroups with 128 sums a thread, and one that produces.
  EXPECT_EQ(launch.block_x().value(), 384);
  EXPECT_EQ(launch.cluster_x().value(), 2);
  // Of b, shared by two blocks, each brings 128 rows of 64 columns.
  EXPECT_EQ(launch.argument(0).tensor_map().box(1).value(), 128);
  EXPECT_EQ(launch.argument(1).tensor_map().box(1).value(), 128);
  // Four stages of 48 KiB, two boxes of 8 KiB a warpgroup, two barriers a stage.
  EXPECT_EQ(launch.dynamic_shared_bytes().value(), 4 * 49152 + 2 * 2 * 8192 + 64);
  const v1::TensorMap& d = launch.argument(2).tensor_map();
  EXPECT_EQ(d.box(0).value(), 64);
  EXPECT_EQ(d.box(1).value(), 64);
  EXPECT_EQ(d.swizzle(), 3);
  const auto compile = Wgmma().CompileInput(Square(), *Wgmma().DefaultConfig(Square(), h200), h200);
  EXPECT_THAT(compile->define(), Contains("RT_STORE_BUFFERS=2"));
  EXPECT_THAT(compile->define(), Contains("RT_REALLOCATE=1"));
}

TEST(GemmWgmmaTest, SplitKHasItsOwnArguments) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const Op op = Gemm("m=64 n=576 k=7168 dtype=bf16 bias=1");
  const auto kinds = [](const v1::Launch& launch) {
    std::vector<std::string> all;
    for (const auto& a : launch.argument()) {
      all.push_back(a.has_tensor_map()         ? "map " + a.tensor_map().tensor()
                    : a.has_tensor()           ? a.tensor()
                    : a.has_scalar()           ? a.scalar()
                    : a.has_workspace_offset() ? "workspace"
                                               : absl::StrCat(a.integer().value()));
    }
    return all;
  };
  Config config = {{"block_m", 64},   {"block_n", 64}, {"block_k", 64},  {"swap_ab", 0},        {"groups_x", 1},
                   {"groups_y", 1},   {"stages", 8},   {"split_k", 8},   {"cluster_reduce", 1}, {"raster_group", 8},
                   {"persistent", 1}, {"pingpong", 0}, {"cluster_m", 1}, {"cluster_n", 1},      {"stream_b", 1}};
  auto plan = Wgmma().Plan(op, config, h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launch_size(), 1);
  EXPECT_EQ(plan->launch(0).cluster_x().value(), 8);
  EXPECT_EQ(plan->launch(0).grid_x().value(), 72);
  EXPECT_EQ(plan->workspace_bytes().value(), 0);
  EXPECT_THAT(kinds(plan->launch(0)), ElementsAre("map a", "map b", "bias", "d", "alpha", "64", "576", "7168", "1"));
  config["cluster_reduce"] = 0;
  plan = Wgmma().Plan(op, config, h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launch_size(), 2);
  EXPECT_EQ(plan->launch(0).cluster_x().value(), 1);
  EXPECT_EQ(plan->workspace_bytes().value(), 8 * 64 * 576 * 4);
  EXPECT_THAT(kinds(plan->launch(0)), ElementsAre("map a", "map b", "workspace", "64", "576", "7168", "1"));
  EXPECT_THAT(kinds(plan->launch(1)), ElementsAre("workspace", "bias", "d", "alpha", "36864", "576"));
  config["split_k"] = 1;
  EXPECT_THAT(kinds(Wgmma().Plan(op, config, h200)->launch(0)),
              ElementsAre("map a", "map b", "map d", "bias", "alpha", "64", "576", "7168", "1"));
}

TEST(GemmWgmmaTest, ResultsThatDoNotLeaveThroughTmaAndBeta) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const Op op = Gemm("m=4096 n=4096 k=4096 dtype=bf16 beta=1 out=fp32");
  const auto config = Wgmma().DefaultConfig(op, h200);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto plan = Wgmma().Plan(op, *config, h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launch_size(), 1);
  const v1::Launch& launch = plan->launch(0);
  ASSERT_EQ(launch.argument_size(), 10);
  EXPECT_EQ(launch.argument(2).tensor(), "c");
  EXPECT_EQ(launch.argument(3).tensor(), "d");
  EXPECT_EQ(launch.argument(5).scalar(), "beta_value");
}

// TMA moves multiples of 16 bytes; a plan that stores by it does not serve rows that are none.
TEST(GemmWgmmaTest, ResultsOfBytesLeaveThroughTmaWhereItCanCarryThem) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const Op wide = Gemm("m=4096 n=4096 k=4096 dtype=bf16 out=int8"),
           narrow = Gemm("m=4096 n=4104 k=4096 dtype=bf16 out=int8");
  Config config = *Wgmma().DefaultConfig(wide, h200);
  auto plan = Wgmma().Plan(wide, config, h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const v1::TensorMap& d = plan->launch(0).argument(2).tensor_map();
  ASSERT_EQ(d.tensor(), "d");
  EXPECT_EQ(d.stride_bytes(0).value(), 4096);
  // Rows of 128 bytes, or of 64 where n has the side of 64 rows.
  EXPECT_EQ(d.box(0).value(), 128);
  EXPECT_EQ(d.box(1).value(), 64);
  EXPECT_EQ(d.swizzle(), 3);
  EXPECT_EQ(CheckPreconditions(*plan, narrow).code(), absl::StatusCode::kFailedPrecondition);
  const Op few = Gemm("m=16 n=4096 k=4096 dtype=bf16 out=int8");
  config = *Wgmma().DefaultConfig(few, h200);
  ASSERT_EQ(config.at("swap_ab"), 1);
  ASSERT_EQ(config.at("split_k"), 1);
  plan = Wgmma().Plan(few, config, h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->launch(0).argument(2).tensor_map().box(0).value(), 64);
  EXPECT_EQ(plan->launch(0).argument(2).tensor_map().swizzle(), 2);
  plan = Wgmma().Plan(narrow, *Wgmma().DefaultConfig(narrow, h200), h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const auto& argument : plan->launch(0).argument()) {
    EXPECT_FALSE(argument.has_tensor_map() && argument.tensor_map().tensor() == "d");
  }
}

// Warpgroups that take turns have a whole tile each; clusters divide the tiles and are not used to add shares of k.
TEST(GemmWgmmaTest, TurnsAndClustersAreOfferedWhereTheyWork) {
  const DeviceProfile h200 = Profile("h200-sxm");
  int turns = 0, clusters = 0;
  for (const char* text : {"m=4096 n=32768 k=512 dtype=bf16", "m=384 n=2048 k=4096 dtype=bf16"}) {
    const Op op = Gemm(text);
    const auto space = Wgmma().Space(op, h200);
    ASSERT_TRUE(space.ok()) << space.status();
    for (int64_t i = 0; i < space->size(); ++i) {
      const Config c = space->At(i);
      if (c.at("pingpong") == 1) {
        ++turns;
        EXPECT_EQ(c.at("groups_x") * c.at("groups_y"), 1);
        EXPECT_EQ(c.at("cluster_reduce"), 0);
      }
      if (c.at("cluster_m") * c.at("cluster_n") > 1) {
        ++clusters;
        EXPECT_EQ(c.at("split_k"), 1);
        const auto plan = Wgmma().Plan(op, c, h200);
        ASSERT_TRUE(plan.ok()) << ConfigToString(c) << plan.status();
        EXPECT_EQ(plan->launch(0).grid_x().value() % plan->launch(0).cluster_x().value(), 0);
      }
    }
  }
  EXPECT_GT(turns, 50);
  EXPECT_GT(clusters, 100);
}

TEST(GemmWgmmaTest, APlanServesOtherShapesOnlyWithinItsPreconditions) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const auto plan = Wgmma().Plan(Square(), *Wgmma().DefaultConfig(Square(), h200), h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(CheckPreconditions(*plan, Gemm("m=4097 n=4104 k=4088 dtype=bf16")).ok());
  EXPECT_THAT(std::string(CheckPreconditions(*plan, Gemm("m=4096 n=4100 k=4096 dtype=bf16")).message()),
              HasSubstr("n is a multiple of 8"));
  EXPECT_THAT(std::string(CheckPreconditions(*plan, Gemm("m=4096 n=4096 k=4095 dtype=bf16")).message()),
              HasSubstr("rows of a are a multiple of 16 bytes"));
}

}  // namespace
}  // namespace rooftune

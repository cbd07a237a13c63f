// The manifest of the Hopper kernel of gemm_wq: where it is offered, and that its launches are those its kernel is
// written for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "kernels/template_library.h"
#include "tests/kernels/builtins.h"

namespace rooftune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

const KernelTemplate& Wgmma() { return *Builtins().Find("gemm_wq_wgmma"); }

Op Weights(const std::string& rest) {
  const auto op = Builtins().ops().Parse("gemm_wq " + rest);
  EXPECT_TRUE(op.ok()) << op.status();
  return *op;
}

std::vector<std::string> Kinds(const v1::Launch& launch) {
  std::vector<std::string> all;
  for (const auto& a : launch.argument()) {
    all.push_back(a.has_tensor_map()         ? "map " + a.tensor_map().tensor()
                  : a.has_tensor()           ? a.tensor()
                  : a.has_workspace_offset() ? absl::StrCat("workspace ", a.workspace_offset().value())
                                             : absl::StrCat(a.integer().value()));
  }
  return all;
}

TEST(GemmWqWgmmaTest, IsForHopperAndWholeRowsOfResults) {
  const Op op = Weights("m=16 n=4096 k=4096 dtype=bf16");
  for (const char* id : {"h100-sxm", "h200-sxm"}) EXPECT_TRUE(Wgmma().Supports(op, Profile(id))) << id;
  for (const char* id : {"a100-sxm-80", "l40s", "b200"}) EXPECT_FALSE(Wgmma().Supports(op, Profile(id))) << id;
  EXPECT_FALSE(Wgmma().Supports(Weights("m=16 n=4092 k=4096 dtype=bf16"), Profile("h200-sxm")));
}

TEST(GemmWqWgmmaTest, EveryPointOfEveryRegimeCanBePlannedAndFits) {
  const DeviceProfile h200 = Profile("h200-sxm");
  for (const char* text :
       {"m=1 n=28672 k=4096 dtype=bf16", "m=16 n=8192 k=28672 dtype=fp16 zero=1", "m=40 n=1000 k=2048 dtype=bf16",
        "m=256 n=28672 k=4096 dtype=fp16 zero=1", "m=16 n=28672 k=4096 dtype=bf16 weight=int8 group=0",
        "m=4096 n=4096 k=4096 dtype=bf16 weight=int8", "m=70 n=200 k=1056 dtype=bf16 group=32 zero=1 bias=1"}) {
    const Op op = Weights(text);
    const auto space = Wgmma().Space(op, h200);
    ASSERT_TRUE(space.ok()) << space.status();
    EXPECT_GT(space->size(), 0) << text;
    EXPECT_LE(space->size(), 500) << text;
    for (int64_t i = 0; i < space->size(); ++i) {
      const Config config = space->At(i);
      const auto plan = Wgmma().Plan(op, config, h200);
      ASSERT_TRUE(plan.ok()) << text << " " << ConfigToString(config) << ": " << plan.status();
      EXPECT_LE(MainLaunch(*plan).dynamic_shared_bytes().value(), 232448 - 1024);
      const v1::Resources resources = Wgmma().Analyse(op, config, h200)->resources;
      EXPECT_LE(resources.registers_per_thread() * resources.threads_per_block(), 65536) << ConfigToString(config);
      EXPECT_EQ(resources.threads_per_block(), 128 * (config.at("groups_x") + 1));
    }
  }
}

// Worked out by hand from the kernel's constants.
TEST(GemmWqWgmmaTest, XIsArrangedFirst) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const Op op = Weights("m=256 n=28672 k=4096 dtype=fp16 zero=1");
  const Config config = {{"block_m", 128}, {"groups_x", 2},       {"block_k", 128},    {"stages", 4},
                         {"split_k", 1},   {"cluster_reduce", 1}, {"raster_group", 8}, {"persistent", 1}};
  const auto plan = Wgmma().Plan(op, config, h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launch_size(), 2);
  // 32 of k of a row a thread.
  EXPECT_EQ(plan->launch(0).grid_x().value(), 256 * 4096 / 32 / 128);
  EXPECT_THAT(Kinds(plan->launch(0)), ElementsAre("x", "workspace 0", "256", "4096", "128"));
  const v1::Launch& main = MainLaunch(*plan);
  EXPECT_EQ(&main, &plan->launch(1));
  EXPECT_THAT(Kinds(main), ElementsAre("workspace 0", "map w", "scales", "zeros", "map y", "256", "28672", "4096"));
  EXPECT_EQ(main.block_x().value(), 384);
  EXPECT_EQ(plan->workspace_bytes().value(), 256 * 4096 * 2);
  // Four stages of 8 KiB of codes and 32 KiB of x, two boxes of 8 KiB a warpgroup; scale and zero point of 128 rows and
  // two barriers a stage.
  EXPECT_EQ(main.dynamic_shared_bytes().value(), 4 * (8192 + 32768) + 2 * 2 * 8192 + 4 * (128 * 4 * 2 + 16));
  const v1::TensorMap& w = main.argument(1).tensor_map();
  EXPECT_EQ(w.dim(0).value(), 2048);
  EXPECT_EQ(w.box(0).value(), 64);
  EXPECT_EQ(w.box(1).value(), 128);
  EXPECT_EQ(w.swizzle(), 2);
  const auto compile = Wgmma().CompileInput(op, config, h200);
  EXPECT_THAT(compile->define(), Contains("RT_REALLOCATE=1"));
  EXPECT_EQ(compile->arch(), "sm_90a");
}

TEST(GemmWqWgmmaTest, SharesOfKHaveTheirOwnArguments) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const Op op = Weights("m=16 n=8192 k=28672 dtype=bf16 bias=1");
  Config config = {{"block_m", 16}, {"groups_x", 2},       {"block_k", 128},    {"stages", 8},
                   {"split_k", 2},  {"cluster_reduce", 1}, {"raster_group", 8}, {"persistent", 1}};
  const int64_t arranged = 16 * 28672 * 2;
  auto plan = Wgmma().Plan(op, config, h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launch_size(), 2);
  EXPECT_EQ(plan->launch(1).cluster_x().value(), 2);
  EXPECT_EQ(plan->launch(1).grid_x().value(), 128);
  EXPECT_EQ(plan->workspace_bytes().value(), arranged);
  EXPECT_THAT(Kinds(plan->launch(1)),
              ElementsAre("workspace 0", "map w", "scales", "bias", "y", "16", "8192", "28672"));
  config["cluster_reduce"] = 0;
  plan = Wgmma().Plan(op, config, h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launch_size(), 3);
  EXPECT_EQ(plan->launch(1).cluster_x().value(), 1);
  EXPECT_EQ(plan->workspace_bytes().value(), arranged + 2 * 16 * 8192 * 4);
  const std::string partial = absl::StrCat("workspace ", arranged);
  EXPECT_THAT(Kinds(plan->launch(1)), ElementsAre("workspace 0", "map w", "scales", partial, "16", "8192", "28672"));
  EXPECT_THAT(Kinds(plan->launch(2)), ElementsAre(partial, "bias", "y", "1065353216", "131072", "8192"));
}

}  // namespace
}  // namespace rooftune

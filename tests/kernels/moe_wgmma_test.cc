// Manifests of the grouped GEMM: where each template is offered, and that its launches are those its kernel is written
// for.
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

Op Moe(const std::string& rest) {
  const auto op = Builtins().ops().Parse("moe_gemm " + rest);
  EXPECT_TRUE(op.ok()) << op.status();
  return *op;
}

const KernelTemplate& Wgmma() { return *Builtins().Find("moe_wgmma"); }
const KernelTemplate& Mma() { return *Builtins().Find("moe_mma"); }

std::vector<std::string> Arguments(const v1::Launch& launch) {
  std::vector<std::string> all;
  for (const auto& a : launch.argument()) {
    all.push_back(a.has_tensor_map() ? "map " + a.tensor_map().tensor()
                  : a.has_tensor()   ? a.tensor()
                                     : absl::StrCat(a.integer().value()));
  }
  return all;
}

TEST(MoeTemplatesTest, WhereEachIsOffered) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const Op bf16 = Moe("m=8192 n=28672 k=4096 experts=8 dtype=bf16");
  const Op fp8 = Moe("m=4096 n=4096 k=7168 experts=32 dtype=fp8_e4m3");
  EXPECT_TRUE(Wgmma().Supports(bf16, h200));
  EXPECT_TRUE(Wgmma().Supports(fp8, h200));
  EXPECT_FALSE(Wgmma().Supports(Moe("m=64 n=12 k=64 experts=4 dtype=bf16"), h200));
  EXPECT_FALSE(Wgmma().Supports(Moe("m=64 n=16 k=72 experts=4 dtype=fp8_e4m3"), h200));
  EXPECT_FALSE(Mma().Supports(fp8, h200));
  for (const char* id : {"a100-sxm-80", "l40s", "h200-sxm", "b200", "rtx-5090"}) {
    EXPECT_TRUE(Mma().Supports(bf16, Profile(id))) << id;
    EXPECT_EQ(Wgmma().Supports(bf16, Profile(id)), std::string(id) == "h200-sxm") << id;
    EXPECT_TRUE(Mma().DefaultConfig(Moe("m=77 n=33 k=75 experts=3 dtype=fp16"), Profile(id)).ok()) << id;
  }
}

TEST(MoeTemplatesTest, ArgumentsAreTheKernels) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const auto arguments = [&](const KernelTemplate& kernel, const std::string& text) {
    const Op op = Moe(text);
    const auto plan = kernel.Plan(op, *kernel.DefaultConfig(op, h200), h200);
    EXPECT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->launch_size(), 1);
    return Arguments(plan->launch(0));
  };
  const std::string shape = "m=512 n=256 k=128 experts=8 ";
  EXPECT_THAT(arguments(Wgmma(), shape + "dtype=bf16"),
              ElementsAre("map x", "map w", "groups", "y", "256", "128", "8", "1", "1"));
  EXPECT_THAT(arguments(Wgmma(), shape + "topk=2 dtype=bf16 gather=1"),
              ElementsAre("x", "map w", "groups", "slots", "y", "256", "128", "8", "1", "2"));
  EXPECT_THAT(arguments(Wgmma(), shape + "dtype=fp8_e4m3 scatter=1 weighted=1"),
              ElementsAre("map x", "map w", "scale_x", "scale_w", "groups", "slots", "weights", "y", "256", "128", "8",
                          "1", "1"));
  EXPECT_THAT(arguments(Wgmma(), shape + "rows_max=256 dtype=bf16 layout=masked"),
              ElementsAre("map x", "map w", "groups", "y_masked", "256", "128", "8", "256", "1"));
  EXPECT_THAT(arguments(Mma(), shape + "topk=2 dtype=bf16 gather=1 scatter=1 weighted=1"),
              ElementsAre("x", "w", "groups", "slots", "weights", "y", "256", "128", "8", "1", "2"));
}

TEST(MoeTemplatesTest, DefaultsFollowTheRowsOfAnExpert) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const auto tile = [&](const std::string& op) {
    const auto config = Wgmma().DefaultConfig(Moe(op), h200);
    EXPECT_TRUE(config.ok()) << op << config.status();
    return config.ok()
               ? absl::StrCat(config->at("block_m"), "x", config->at("block_n"), config->at("swap_ab") != 0 ? "t" : "")
               : "";
  };
  EXPECT_EQ(tile("m=8192 n=28672 k=4096 experts=8 dtype=bf16"), "128x256");
  EXPECT_EQ(tile("m=32768 n=1536 k=2048 experts=128 dtype=bf16"), "128x256");
  EXPECT_EQ(tile("m=4096 n=4096 k=7168 experts=32 dtype=fp8_e4m3"), "128x128");
  // Few rows an expert take the narrow side.
  EXPECT_THAT(tile("m=128 n=28672 k=4096 experts=8 dtype=bf16"), HasSubstr("t"));
  EXPECT_THAT(tile("m=512 n=1536 k=2048 experts=128 dtype=bf16"), HasSubstr("t"));
}

TEST(MoeTemplatesTest, EveryPointOfEveryRegimeCanBePlannedAndFits) {
  const DeviceProfile h200 = Profile("h200-sxm");
  for (const char* text :
       {"m=8192 n=28672 k=4096 experts=8 dtype=bf16", "m=128 n=4096 k=14336 experts=8 dtype=bf16 scatter=1",
        "m=512 n=1536 k=2048 experts=128 topk=8 dtype=fp16 gather=1", "m=32768 n=2048 k=768 experts=128 dtype=bf16",
        "m=4096 n=4096 k=7168 experts=32 topk=8 dtype=fp8_e4m3 gather=1",
        "m=4096 n=7168 k=2048 experts=32 rows_max=1024 dtype=fp8_e4m3 layout=masked",
        "m=64 n=7168 k=2048 experts=32 dtype=fp8_e4m3"}) {
    const Op op = Moe(text);
    for (const KernelTemplate* kernel : Builtins().For(op, h200)) {
      const auto space = kernel->Space(op, h200);
      ASSERT_TRUE(space.ok()) << space.status();
      EXPECT_GT(space->size(), 8) << kernel->id() << " " << text;
      EXPECT_LE(space->size(), 2500) << kernel->id() << " " << text;
      const int64_t step = std::max<int64_t>(1, space->size() / 60);
      for (int64_t i = 0; i < space->size(); i += step) {
        const Config config = space->At(i);
        const auto plan = kernel->Plan(op, config, h200);
        ASSERT_TRUE(plan.ok()) << text << " " << ConfigToString(config) << ": " << plan.status();
        EXPECT_LE(plan->launch(0).dynamic_shared_bytes().value(), 232448 - (kernel == &Wgmma() ? 1024 : 0));
        const v1::Resources resources = kernel->Analyse(op, config, h200)->resources;
        EXPECT_LE(resources.registers_per_thread() * resources.threads_per_block(), 65536) << ConfigToString(config);
      }
    }
  }
}

// What the kernel's static geometry comes to, worked out by hand from its constants.
TEST(MoeTemplatesTest, TheLargeTilesLaunch) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const Op op = Moe("m=8192 n=28672 k=4096 experts=8 dtype=bf16");
  const auto plan = Wgmma().Plan(op, *Wgmma().DefaultConfig(op, h200), h200);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const v1::Launch& launch = plan->launch(0);
  EXPECT_EQ(launch.grid_x().value(), 132);
  // Two consumer warpgroups with 128 sums a thread, and one that produces.
  EXPECT_EQ(launch.block_x().value(), 384);
  EXPECT_EQ(launch.cluster_x().value(), 1);
  EXPECT_EQ(launch.argument(1).tensor_map().box(1).value(), 256);
  // Four stages of 48 KiB, a box of 8 KiB a warpgroup, two barriers a stage, two tables of 513 numbers.
  EXPECT_EQ(launch.dynamic_shared_bytes().value(), 4 * 49152 + 2 * 8192 + 64 + 2 * 513 * 4);
  EXPECT_EQ(launch.argument(1).tensor_map().dim(2).value(), 8);
  EXPECT_EQ(launch.argument(1).tensor_map().stride_bytes(1).value(), 2 * 28672 * 4096);
  const auto compile = Wgmma().CompileInput(op, *Wgmma().DefaultConfig(op, h200), h200);
  EXPECT_THAT(compile->define(), Contains("RT_REALLOCATE=1"));
  EXPECT_EQ(compile->arch(), "sm_90a");
  // In a cluster two row tiles of an expert share w, of which each block brings half.
  Config shared = *Wgmma().DefaultConfig(op, h200);
  shared["cluster_m"] = 2;
  const auto cluster = Wgmma().Plan(op, shared, h200);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->launch(0).grid_x().value(), 132);
  EXPECT_EQ(cluster->launch(0).cluster_x().value(), 2);
  EXPECT_EQ(cluster->launch(0).argument(0).tensor_map().box(1).value(), 128);
  EXPECT_EQ(cluster->launch(0).argument(1).tensor_map().box(1).value(), 128);
  // Or two tiles of the same rows share x. Of an odd number of them the last cluster's second is empty.
  const Op odd = Moe("m=4096 n=4224 k=7168 experts=32 dtype=fp8_e4m3");
  shared = *Wgmma().DefaultConfig(odd, h200);
  ASSERT_EQ(shared.at("block_n"), 128);
  const int64_t alone = Wgmma().Plan(odd, shared, h200)->launch(0).grid_x().value();
  shared["cluster_n"] = 2;
  const auto rows = Wgmma().Plan(odd, shared, h200);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->launch(0).grid_x().value(), alone);
  EXPECT_EQ(rows->launch(0).cluster_x().value(), 2);
  EXPECT_EQ(rows->launch(0).argument(0).tensor_map().box(1).value(), shared.at("block_m") / 2);
  EXPECT_EQ(rows->launch(0).argument(1).tensor_map().box(1).value(), 128);
  // Rows that are gathered are copied for one block.
  const auto gathered = Wgmma().Space(Moe("m=4096 n=4224 k=7168 experts=32 topk=8 dtype=fp8_e4m3 gather=1"), h200);
  for (int64_t i = 0; i < gathered->size(); ++i) EXPECT_EQ(gathered->At(i).at("cluster_n"), 1);
  // More rows or experts need no other binary.
  EXPECT_TRUE(CheckPreconditions(*plan, Moe("m=1000 n=264 k=4096 experts=100 dtype=bf16")).ok());
  EXPECT_FALSE(CheckPreconditions(*plan, Moe("m=1000 n=260 k=4096 experts=100 dtype=bf16")).ok());
}

// The model sees an expert's rows, not all of them as one matrix.
TEST(MoeTemplatesTest, TheModelSeesGroups) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const Op op = Moe("m=512 n=1536 k=2048 experts=128 dtype=bf16");
  const auto analysis = Wgmma().Analyse(op, *Wgmma().DefaultConfig(op, h200), h200);
  ASSERT_TRUE(analysis.ok()) << analysis.status();
  EXPECT_EQ(analysis->mapped.batch, 127);
  EXPECT_EQ(analysis->mapped.m, 5);
  EXPECT_EQ(analysis->mapped.n, 1536);
}

}  // namespace
}  // namespace rooftune

// The manifest of the softmax whose rows SMs share: where it is offered, and that its grid is what the device holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/template_library.h"
#include "tests/kernels/builtins.h"

namespace rooftune {
namespace {

const KernelTemplate& Grid() { return *Builtins().Find("softmax_grid"); }

Op Softmax(const std::string& rest) {
  const auto op = Builtins().ops().Parse("softmax " + rest);
  EXPECT_TRUE(op.ok()) << op.status();
  return *op;
}

TEST(SoftmaxGridTest, IsForLongRowsOfWholeVectors) {
  const DeviceProfile h200 = Profile("h200-sxm");
  for (const char* text : {"rows=64 cols=1048576 dtype=bf16", "rows=4096 cols=131072 dtype=fp16 log=1",
                           "rows=100 cols=65540 dtype=fp32 scaled=1"}) {
    EXPECT_TRUE(Grid().Supports(Softmax(text), h200)) << text;
    EXPECT_FALSE(Grid().Supports(Softmax(text), Profile("a100-sxm-80"))) << text;
  }
  for (const char* text : {"rows=64 cols=1048576 dtype=bf16 causal=1", "rows=64 cols=1048576 dtype=bf16 mask=1",
                           "rows=64 cols=1048580 dtype=bf16", "rows=4 cols=1048576 dtype=bf16",
                           "rows=4096 cols=65536 dtype=bf16", "rows=64 cols=8388608 dtype=bf16"}) {
    EXPECT_FALSE(Grid().Supports(Softmax(text), h200)) << text;
  }
}

TEST(SoftmaxGridTest, BlocksAreAsManyAsTheDeviceHoldsAtATime) {
  for (const char* id : {"h200-sxm", "h100-pcie", "b200", "rtx-5090"}) {
    SCOPED_TRACE(id);
    const DeviceProfile device = Profile(id);
    int points = 0;
    for (const char* text : {"rows=64 cols=1048576 dtype=bf16", "rows=4096 cols=131072 dtype=bf16",
                             "rows=200 cols=131080 dtype=fp32 log=1 scaled=1"}) {
      const Op op = Softmax(text);
      if (!Grid().Supports(op, device)) continue;
      const auto space = Grid().Space(op, device);
      ASSERT_TRUE(space.ok()) << space.status();
      EXPECT_LE(space->size(), 500) << text;
      for (int64_t i = 0; i < space->size(); ++i, ++points) {
        const Config config = space->At(i);
        const auto plan = Grid().Plan(op, config, device);
        ASSERT_TRUE(plan.ok()) << text << " " << ConfigToString(config) << ": " << plan.status();
        const v1::Launch& launch = plan->launch(0);
        EXPECT_TRUE(launch.cooperative());
        EXPECT_LE(launch.grid_x().value(), device.sm_count());
        EXPECT_EQ(launch.grid_x().value() % config.at("teams"), 0);
        const v1::Resources resources = Grid().Analyse(op, config, device)->resources;
        EXPECT_LE(resources.registers_per_thread() * resources.threads_per_block(), 65536) << ConfigToString(config);
        EXPECT_LE(launch.dynamic_shared_bytes().value() + 3584, device.shared_per_block_optin_bytes());
      }
    }
    EXPECT_GT(points, 0);
  }
}

TEST(SoftmaxGridTest, TheWorkspaceIsZeroedOnce) {
  const auto plan =
      Grid().Plan(Softmax("rows=64 cols=1048576 dtype=bf16"),
                  {{"teams", 1}, {"chunks", 1}, {"threads", 128}, {"flight", 3}, {"learners", 2}}, Profile("h200-sxm"));
  ASSERT_TRUE(plan.ok()) << plan.status();
  // Stages of 16000 bytes: 14, so that blocks may be 28 rows apart.
  EXPECT_EQ(plan->launch(0).dynamic_shared_bytes().value(), 14 * 16000);
  EXPECT_EQ(plan->workspace_bytes().value(), 132 * (32 + 28 * 16));
  EXPECT_EQ(plan->workspace_init(), v1::LaunchPlan::ZERO_ONCE);
}

}  // namespace
}  // namespace rooftune

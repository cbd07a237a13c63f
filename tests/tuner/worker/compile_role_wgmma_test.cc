// The Hopper GEMM through the real compiler: registers, spills, parameters, and the architecture in the binary.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "kernels/template_library.h"
#include "tuner/worker/nvrtc.h"

namespace rooftune {
namespace {

struct Compiled {
  worker::v1::CompileResult result;
  v1::LaunchPlan plan;
};

Compiled CompileWgmma(const std::string& text, const Config& changes) {
  static const auto* const library = TemplateLibrary::Load({})->release();
  static const auto* const nvrtc = new absl::StatusOr<NvrtcLibrary>(NvrtcLibrary::Load(""));
  EXPECT_TRUE(nvrtc->ok()) << nvrtc->status();
  const DeviceProfile h200 = *ProfileCatalog::Builtin()->ById("h200-sxm");
  const KernelTemplate& wgmma = *library->Find("gemm_wgmma");
  const Op op = *library->ops().Parse(text);
  Config config = *wgmma.DefaultConfig(op, h200);
  for (const auto& [name, value] : changes) config[name] = value;
  const auto input = wgmma.CompileInput(op, config, h200);
  const auto plan = wgmma.Plan(op, config, h200);
  EXPECT_TRUE(input.ok()) << input.status();
  EXPECT_TRUE(plan.ok()) << plan.status();
  const auto result = CompileWithNvrtc(**nvrtc, *input);
  EXPECT_TRUE(result.ok()) << result.status();
  return {*result, *plan};
}

// e_flags of the ELF header, at offset 48 of the 64-bit one: the architecture in the second byte.
uint32_t ElfFlags(const std::string& cubin) {
  uint32_t flags = 0;
  if (cubin.size() >= 64) std::memcpy(&flags, cubin.data() + 48, sizeof(flags));
  return flags;
}

void ExpectGood(Compiled compiled, int least_registers, int most_registers) {
  const worker::v1::CompileResult& result = compiled.result;
  ASSERT_EQ(result.outcome(), v1::OK) << result.log();
  const v1::Resources& resources = result.kernel(0).resources();
  EXPECT_EQ(resources.spill_store_bytes() + resources.spill_load_bytes(), 0);
  EXPECT_GE(resources.registers_per_thread(), least_registers);
  EXPECT_LE(resources.registers_per_thread(), most_registers);
  EXPECT_TRUE(AttachArtifact(result, compiled.plan).ok()) << AttachArtifact(result, compiled.plan);
  // The second map starts where the first ends.
  EXPECT_EQ(compiled.plan.launch(0).argument(0).size(), 128);
  EXPECT_EQ(compiled.plan.launch(0).argument(1).offset() - compiled.plan.launch(0).argument(0).offset(), 128);
  EXPECT_EQ(compiled.plan.arch(), "sm_90a");
  EXPECT_EQ(ElfFlags(result.cubin()) >> 8 & 0xff, 90u);
  // The compiler notes its target; the flags of sm_90 and sm_90a are the same.
  EXPECT_NE(result.cubin().find("sm_90a"), std::string::npos);
}

TEST(WgmmaCompileTest, TheLargeTileHasRegistersToLend) {
  // 384 threads share 65536 registers.
  ExpectGood(CompileWgmma("gemm m=4096 n=4096 k=4096 dtype=bf16", {}), 168, 168);
}

TEST(WgmmaCompileTest, FewRowsAddedWithinACluster) {
  ExpectGood(CompileWgmma("gemm m=64 n=576 k=7168 dtype=fp16 bias=1 act=silu",
                          {{"split_k", 8}, {"cluster_reduce", 1}, {"stages", 8}}),
             40, 160);
}

}  // namespace
}  // namespace rooftune

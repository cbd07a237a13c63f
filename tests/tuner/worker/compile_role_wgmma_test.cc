// The Hopper GEMMs through the real compiler: registers, spills, parameters, the architecture in the binary, and the
// instructions that it is made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kernels/template_library.h"
#include "tests/mutants/machine_code.h"
#include "tuner/worker/nvrtc.h"

namespace rooftune {
namespace {

struct Compiled {
  worker::v1::CompileResult result;
  v1::LaunchPlan plan;
};

// `text` is of the operator that the template implements.
Compiled CompileWgmma(const std::string& text, const Config& changes, const std::string& id = "gemm_wgmma") {
  static const auto* const library = TemplateLibrary::Load({})->release();
  static const auto* const nvrtc = new absl::StatusOr<NvrtcLibrary>(NvrtcLibrary::Load(""));
  EXPECT_TRUE(nvrtc->ok()) << nvrtc->status();
  const DeviceProfile h200 = *ProfileCatalog::Builtin()->ById("h200-sxm");
  const KernelTemplate& wgmma = *library->Find(id);
  const Op op = *library->ops().Parse(text);
  Config config = *wgmma.DefaultConfig(op, h200);
  // 128 bytes of k a stage, whatever the default of the shape is.
  const int64_t dtype = op.names.at("dtype");
  config["block_k"] = dtype == v1::FP16 || dtype == v1::BF16 ? 64 : 128;
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

using namespace opcode;

// How often each instruction is in the code.
std::map<int, int> Opcodes(const std::string& cubin) {
  std::map<int, int> counts;
  for (const auto& section : MachineCode(cubin)) {
    for (const Instruction& code : section) ++counts[code.name()];
  }
  return counts;
}

struct Variant {
  std::string name, op;
  Config changes;
  int product;
  bool stores_by_tma = true;
};

std::vector<Variant> Variants() {
  const std::string large = "gemm m=4096 n=4096 k=4096 ", few = "gemm m=64 n=1024 k=8192 ";
  const Config plain = {{"cluster_m", 1}};
  const Config turns = {{"pingpong", 1}, {"block_n", 192}, {"groups_x", 1}};
  const Config turned = {{"swap_ab", 1}, {"block_m", 64}, {"block_n", 64}, {"groups_x", 1}};
  const Config shares = {{"split_k", 4}, {"cluster_reduce", 0}, {"stages", 8}};
  const Config cluster = {{"split_k", 4}, {"cluster_reduce", 1}, {"stages", 8}};
  std::vector<Variant> all = {
      {"MulticastOfB", large + "dtype=bf16", {}, kHgmma},
      {"MulticastOfA", large + "dtype=bf16", {{"cluster_m", 1}, {"cluster_n", 2}}, kHgmma},
      {"Alone", large + "dtype=fp16 layout=nn", plain, kHgmma},
      {"Across", large + "dtype=bf16 layout=tn bias=1 act=gelu", plain, kHgmma},
      {"Turns", large + "dtype=bf16", turns, kHgmma},
      {"Beta", large + "dtype=bf16 beta=1 bias=1", {}, kHgmma},
      {"Fp32", large + "dtype=bf16 out=fp32 bias=1", plain, kHgmma, false},
      {"SidesChanged", few + "dtype=bf16", turned, kHgmma},
      {"Shares", few + "dtype=bf16", shares, kHgmma, false},
      {"SharesInACluster", few + "dtype=bf16 beta=1", cluster, kHgmma, false},
  };
  for (const std::string dtype : {"fp8_e4m3", "fp8_e5m2", "int8"}) {
    const int product = dtype == "int8" ? kIgmma : kQgmma;
    const std::string type = "dtype=" + dtype + " out=bf16 ";
    all.push_back({dtype + "Tensor", large + type + "scale=tensor", {}, product});
    all.push_back({dtype + "Row", large + type + "scale=row bias=1 act=silu", {}, product});
    all.push_back({dtype + "Turns", large + type + "scale=tensor", turns, product});
    all.push_back({dtype + "Shares", few + type + "scale=row", shares, product, false});
    all.push_back({dtype + "SharesInACluster", few + type + "scale=row", cluster, product, false});
    all.push_back({dtype + "SidesChanged", few + type + "scale=row", turned, product});
  }
  const std::string blocks = "dtype=fp8_e4m3 out=bf16 scale=block128";
  all.push_back({"Blocks", large + blocks, {{"block_n", 128}, {"stages", 5}}, kQgmma});
  all.push_back(
      {"BlocksInTurns", large + blocks, {{"block_m", 64}, {"block_n", 128}, {"groups_x", 1}, {"pingpong", 1}}, kQgmma});
  all.push_back({"BlocksShares", few + blocks, shares, kQgmma, false});
  all.push_back({"BlocksSidesChanged", few + blocks, turned, kQgmma});
  return all;
}

class WgmmaInstructionsTest : public testing::TestWithParam<Variant> {};

TEST_P(WgmmaInstructionsTest, HasTheInstructionsItIsFor) {
  const Variant& variant = GetParam();
  Compiled compiled = CompileWgmma(variant.op, variant.changes);
  ASSERT_EQ(compiled.result.outcome(), v1::OK) << compiled.result.log();
  EXPECT_TRUE(AttachArtifact(compiled.result, compiled.plan).ok());
  for (const auto& kernel : compiled.result.kernel()) {
    EXPECT_EQ(kernel.resources().spill_store_bytes() + kernel.resources().spill_load_bytes(), 0);
  }
  std::map<int, int> opcodes = Opcodes(compiled.result.cubin());
  for (const int product : {kHgmma, kIgmma, kQgmma}) {
    EXPECT_EQ(opcodes[product] > 0, product == variant.product) << std::hex << product;
  }
  EXPECT_GE(opcodes[kUtmaldg], 2);
  EXPECT_EQ(opcodes[kUtmastg] > 0, variant.stores_by_tma);
  EXPECT_EQ(opcodes[kLdl] + opcodes[kStl], 0);
}

INSTANTIATE_TEST_SUITE_P(Variants, WgmmaInstructionsTest, testing::ValuesIn(Variants()),
                         [](const auto& info) { return info.param.name; });

std::vector<Variant> MoeVariants() {
  const std::string large = "moe_gemm m=8192 n=4096 k=4096 experts=8 ", few = "moe_gemm m=128 n=4096 k=4096 experts=8 ";
  const std::string routed = "topk=2 dtype=bf16 gather=1 scatter=1 weighted=1";
  const Config turns = {{"pingpong", 1}, {"block_n", 128}, {"groups_x", 1}, {"stages", 5}};
  const Config turned = {{"swap_ab", 1}, {"block_m", 16}, {"block_n", 128}, {"stages", 8}};
  return {
      {"Contiguous", large + "dtype=bf16", {}, kHgmma},
      {"MulticastOfW", large + "dtype=bf16", {{"cluster_m", 2}}, kHgmma},
      {"Masked", "moe_gemm m=8192 n=4096 k=4096 experts=8 rows_max=4096 dtype=fp16 layout=masked", {}, kHgmma},
      {"Routed", large + routed, {}, kHgmma},
      {"Turns", large + "dtype=bf16", turns, kHgmma},
      {"RoutedInTurns", large + routed, turns, kHgmma},
      {"SidesChanged", few + "dtype=bf16 scatter=1", turned, kHgmma},
      {"RoutedSidesChanged", few + routed, turned, kHgmma},
      {"Blocks", large + "dtype=fp8_e4m3", {{"block_n", 128}, {"stages", 5}}, kQgmma},
      {"BlocksGathered", large + "topk=2 dtype=fp8_e4m3 gather=1", {{"block_n", 128}, {"stages", 5}}, kQgmma},
      {"BlocksSidesChanged", few + "dtype=fp8_e4m3 scatter=1 weighted=1", turned, kQgmma},
      {"BlocksInTurns", large + "dtype=fp8_e4m3", {{"pingpong", 1}, {"block_m", 64}, {"block_n", 128}, {"groups_x", 1}},
       kQgmma},
  };
}

class MoeInstructionsTest : public testing::TestWithParam<Variant> {};

TEST_P(MoeInstructionsTest, HasTheInstructionsItIsFor) {
  const Variant& variant = GetParam();
  Compiled compiled = CompileWgmma(variant.op, variant.changes, "moe_wgmma");
  ASSERT_EQ(compiled.result.outcome(), v1::OK) << compiled.result.log();
  EXPECT_TRUE(AttachArtifact(compiled.result, compiled.plan).ok());
  const v1::Resources& resources = compiled.result.kernel(0).resources();
  EXPECT_EQ(resources.spill_store_bytes() + resources.spill_load_bytes(), 0);
  std::map<int, int> opcodes = Opcodes(compiled.result.cubin());
  for (const int product : {kHgmma, kIgmma, kQgmma}) {
    EXPECT_EQ(opcodes[product] > 0, product == variant.product) << std::hex << product;
  }
  // Weights always come by TMA; x does where its rows lie together. Rows of y never leave by it.
  const bool gathers = variant.op.find("gather=1") != std::string::npos;
  EXPECT_GE(opcodes[kUtmaldg], gathers ? 1 : 2);
  EXPECT_EQ(opcodes[kUtmastg], 0);
  EXPECT_EQ(opcodes[kLdl] + opcodes[kStl], 0);
}

INSTANTIATE_TEST_SUITE_P(Variants, MoeInstructionsTest, testing::ValuesIn(MoeVariants()),
                         [](const auto& info) { return info.param.name; });

// Codes become fragments in registers, which must not spill.
TEST(WgmmaCompileTest, QuantisedWeights) {
  static const auto* const library = TemplateLibrary::Load({})->release();
  const auto nvrtc = NvrtcLibrary::Load("");
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  const DeviceProfile h200 = *ProfileCatalog::Builtin()->ById("h200-sxm");
  const KernelTemplate& wgmma = *library->Find("gemm_wq_wgmma");
  const Config few = {{"block_m", 16}, {"groups_x", 4}, {"stages", 6}, {"split_k", 1}};
  const Config half = {{"block_m", 16}, {"groups_x", 2}, {"stages", 6}, {"split_k", 1}};
  const Config shares = {{"block_m", 16}, {"groups_x", 2}, {"split_k", 4}, {"cluster_reduce", 0}};
  const Config added = {{"block_m", 32}, {"groups_x", 1}, {"split_k", 2}, {"cluster_reduce", 1}};
  const Config many = {{"block_m", 128}, {"groups_x", 2}, {"stages", 4}, {"split_k", 1}};
  const Config deep = {{"block_m", 64}, {"groups_x", 2}, {"block_k", 256}, {"stages", 3}, {"split_k", 1}};
  const Config wide = {{"block_m", 256}, {"groups_x", 2}, {"block_k", 64}, {"stages", 4}, {"split_k", 1}};
  struct {
    std::string op;
    Config changes;
    bool stores_by_tma;
  } const variants[] = {
      {"gemm_wq m=16 n=28672 k=4096 dtype=bf16", few, true},
      {"gemm_wq m=16 n=1024 k=8192 dtype=fp16 weight=int8 group=0 zero=1", half, true},
      {"gemm_wq m=16 n=1024 k=8192 dtype=bf16 zero=1", shares, false},
      {"gemm_wq m=32 n=1024 k=8192 dtype=bf16 weight=int8 group=64", added, false},
      {"gemm_wq m=256 n=28672 k=4096 dtype=fp16 zero=1 bias=1 act=gelu", many, true},
      {"gemm_wq m=256 n=28672 k=4096 dtype=bf16", deep, true},
      {"gemm_wq m=256 n=28672 k=4096 dtype=bf16 weight=int8 group=0", wide, true},
  };
  for (const auto& variant : variants) {
    const Op op = *library->ops().Parse(variant.op);
    Config config = *wgmma.DefaultConfig(op, h200);
    for (const auto& [name, value] : variant.changes) config[name] = value;
    SCOPED_TRACE(variant.op + " " + ConfigToString(config));
    const auto input = wgmma.CompileInput(op, config, h200);
    auto plan = wgmma.Plan(op, config, h200);
    ASSERT_TRUE(input.ok() && plan.ok()) << input.status() << plan.status();
    const auto result = CompileWithNvrtc(*nvrtc, *input);
    ASSERT_TRUE(result.ok() && result->outcome() == v1::OK) << result.status() << result->log();
    EXPECT_TRUE(AttachArtifact(*result, *plan).ok()) << AttachArtifact(*result, *plan);
    EXPECT_THAT(result->log(), testing::Not(testing::HasSubstr("serialized")));
    for (const auto& kernel : result->kernel()) {
      EXPECT_EQ(kernel.resources().spill_store_bytes() + kernel.resources().spill_load_bytes(), 0);
    }
    std::map<int, int> opcodes = Opcodes(result->cubin());
    EXPECT_GE(opcodes[kHgmma], config.at("block_k") / 16);
    EXPECT_GE(opcodes[kUtmaldg], 1);
    EXPECT_EQ(opcodes[kUtmastg] > 0, variant.stores_by_tma);
    EXPECT_EQ(opcodes[kLdl] + opcodes[kStl], 0);
  }
}

// A kernel without warpgroup products has none of these opcodes.
TEST(WgmmaCompileTest, OtherKernelsHaveOtherInstructions) {
  static const auto* const library = TemplateLibrary::Load({})->release();
  const auto nvrtc = NvrtcLibrary::Load("");
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  const DeviceProfile h200 = *ProfileCatalog::Builtin()->ById("h200-sxm");
  const Op op = *library->ops().Parse("gemm m=512 n=512 k=512 dtype=bf16");
  const KernelTemplate& mma = *library->Find("gemm_mma");
  const auto result = CompileWithNvrtc(*nvrtc, *mma.CompileInput(op, *mma.DefaultConfig(op, h200), h200));
  ASSERT_TRUE(result.ok()) << result.status();
  std::map<int, int> opcodes = Opcodes(result->cubin());
  EXPECT_GT(opcodes.size(), 10u);
  for (const int opcode : {kHgmma, kIgmma, kQgmma, kUtmaldg, kUtmastg}) EXPECT_EQ(opcodes[opcode], 0) << opcode;
}

}  // namespace
}  // namespace rooftune

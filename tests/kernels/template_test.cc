// Manifests, and what one makes of an operator, a configuration and a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "tests/kernels/manifest_text.h"

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One expression or field a line, so that places are easy to count.
constexpr char kManifest[] = R"manifest(id: "toy"
op: "gemm"
arch: "cc >= 80"
when: "dtype == BF16 and layout == LAYOUT_NT"
param { name: "bm" value: [64, 128, 256] }
param { name: "split" value: [1, 2, 4] }
param { name: "atomic" value: [0, 1] when: "split > 1" }
let { name: "tiles" expr: "ceildiv(m, bm) * ceildiv(n, 64)" }
let { name: "two" expr: "split > 1 and not atomic" }
let { name: "partial" expr: "split * m * n * 4" }
define { name: "RT_SPLIT" expr: "split" }
define { name: "RT_BM" expr: "bm" }
define { name: "RT_K" expr: "k" }
constraint { name: "k splits" expr: "k % split == 0" }
constraint { name: "shared" expr: "bm * 512 <= shared_max" }
default_config { name: "bm" value: 128 }
default_config { name: "split" value: 2 }
default_config { name: "atomic" value: 1 }
launch {
  symbol: "rt_main"
  grid_x: "tiles"
  grid_z: "split"
  block_x: "bm"
  block_y: "2"
  shared_bytes: "bm * 512"
  arg { tensor: "a" }
  arg { tensor: "b" }
  arg { tensor: "bias" }
  arg { tensor: "d" }
  arg { workspace: "0" }
  arg { scalar: "alpha" }
  arg { scalar: "beta_value" }
  arg { int32: "m" }
  arg { int64: "batch * m" }
}
launch {
  symbol: "rt_reduce"
  when: "two" cooperative: true
  grid_x: "ceildiv(m * n, 256)"
  block_x: "256"
  arg { workspace: "partial // 2" }
  arg { tensor: "d" }
}
workspace_bytes: "partial if two else 0"
workspace_zero: true
precondition { name: "rows of a" expr: "m % 8 == 0" }
cost { cost_class: TILE_GEMM pipe: "tensor" tile_m: "bm" tile_n: "64" split_k: "split" }
shared_bytes: "bm * 512 + 100"
registers: "96"
deterministic: "not atomic or split == 1"
)manifest";

const KernelTemplate& Toy() {
  static const auto& toy = *Load(kManifest)->release();
  return toy;
}

DeviceProfile Hopper() {
  DeviceProfile profile;
  profile.set_cc(90);
  profile.set_sm_count(132);
  profile.set_shared_per_block_optin_bytes(232448);
  profile.set_threads_per_block_max(1024);
  return profile;
}

const Op& Gemm() {
  static const auto& op = *new Op(MustParse("gemm m=256 n=128 k=64 dtype=bf16"));
  return op;
}

v1::LaunchPlan MustPlan(const Op& op, const Config& config) {
  const auto plan = Toy().Plan(op, config, Hopper());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

TEST(ManifestTest, ErrorsSayLineAndColumn) {
  const struct {
    const char* from;
    const char* to;
    const char* error;
  } cases[] = {
      {"id: \"toy\"", "id \"toy\"", "1:4: Expected \":\", found \"\"toy\"\"."},
      {"workspace_zero: true", "workspace_zer: true", "45:14: "},
      {"id: \"toy\"", "id: \"Toy\"", "1:1: id must be a lower-case identifier"},
      {"op: \"gemm\"", "op: \"gem\"", "2:1: unknown operator 'gem'"},
      {"cc >= 80", "cc >= m", "3:1: arch: unknown name 'm'"},
      {"LAYOUT_NT\"", "LAYOUT_NX\"", "4:1: when: unknown name 'LAYOUT_NX'; did you mean LAYOUT_N"},
      {"value: [64, 128, 256]", "value: [64, 128, 64]", "5:20: 'bm' has the value 64 twice"},
      {"param { name: \"bm\" value: [64, 128, 256] }", "param { name: \"bm\" }", "5:9: 'bm' has no values"},
      {"name: \"split\" value", "name: \"bm\" value", "6:9: 'bm' is defined twice"},
      {"name: \"split\" value", "name: \"m\" value", "6:9: 'm' is already a name of the operator or the device"},
      {"name: \"split\" value", "name: \"2x\" value", "6:9: '2x' is not a name"},
      {"name: \"split\" value", "name: \"min\" value", "6:9: 'min' is not a name"},
      {"split > 1\" }", "atomic > 1\" }", "7:38: when: uses 'atomic', which does not come before it"},
      {"ceildiv(m, bm)", "ceildiv(m, bm", "8:21: expr: column 31: expected ')', found the end"},
      {"not atomic", "not atmic", "9:19: expr: unknown name 'atmic'; did you mean atomic?"},
      {"\"two\" expr", "\"tiles\" expr", "9:7: 'tiles' is defined twice"},
      {"define { name: \"RT_BM\"", "define { name: \"RT_SPLIT\"", "12:10: 'RT_SPLIT' is defined twice"},
      {"define { name: \"RT_BM\"", "define { name: \"RT-BM\"", "12:10: 'RT-BM' is not a name"},
      {"\"RT_BM\" expr: \"bm\"", "\"RT_BM\"", "12:10: 'RT_BM' needs either expr or list"},
      {"\"RT_BM\" expr: \"bm\"", "\"RT_BM\" list: \"chain\"",
       "12:24: 'chain' is not a chain of operator gemm; there are none"},
      {"name: \"shared\" expr", "name: \"k splits\" expr", "15:14: a second constraint 'k splits'"},
      {"constraint { name: \"shared\"", "constraint { name: \"\"", "15:14: a constraint needs a name to show"},
      {"\"bm\" value: 128 }", "\"bm\" value: 100 }", "16:29: the default 100 is not a value of 'bm': 64, 128, 256"},
      {"default_config { name: \"bm\"", "default_config { name: \"bn\"", "16:18: unknown parameter 'bn'"},
      {"default_config { name: \"bm\" value: 128 }", "", "5:9: 'bm' has no value in default_config"},
      {"symbol: \"rt_main\"", "symbol: \"rt main\"", "20:3: 'rt main' is not the name of a kernel"},
      {"grid_z: \"split\"", "grid_z: \"spit\"", "22:3: grid_z: unknown name 'spit'; did you mean split?"},
      {"arg { tensor: \"bias\" }", "arg { tensor: \"bais\" }",
       "28:9: operator gemm has no tensor 'bais'; there are a, b, c, scale_a, scale_b, scale_d, bias, d"},
      {"arg { scalar: \"alpha\" }", "arg { scalar: \"eps\" }",
       "31:9: operator gemm has no scalar 'eps'; there are alpha, beta_value"},
      {"arg { int32: \"m\" }", "arg { }", "33:3: an arg needs one of"},
      {"arg { int32: \"m\" }", "arg { reference_value: \"d\" }", "33:9: is for reference kernels only"},
      {"workspace_bytes: \"partial if two else 0\"", "", "30:9: needs workspace_bytes"},
      {"precondition { name: \"rows of a\"", "precondition { name: \"\"", "46:16: a precondition needs a name to show"},
      {"pipe: \"tensor\"", "pipe: \"cuda\"", "47:30: pipe must be \"tensor\", \"tensor_wgmma\" or \"fp32\""},
      {"tile_n: \"64\"", "tile_n: \"64 +\"", "47:58: tile_n: column 5: expected a value, found the end"},
      {"registers: \"96\"", "registers: \"96.5\"", "49:1: registers: column 3: "},
  };
  for (const auto& c : cases) {
    const auto loaded = Load(Replaced(kManifest, c.from, c.to));
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument) << c.to;
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(absl::StrCat("dir/toy/template.txtpb:", c.error)));
    EXPECT_EQ(ErrorReason(loaded.status()), "BAD_MANIFEST");
  }
  EXPECT_TRUE(Load(kManifest).ok()) << Load(kManifest).status();
}

TEST(ManifestTest, LetsThatGrowWithoutLimitAreRefused) {
  std::string lets = "let { name: \"l0\" expr: \"m + n\" }\n";
  for (int i = 1; i < 60; ++i) {
    absl::StrAppend(&lets, "let { name: \"l", i, "\" expr: \"l", i - 1, " * l", i - 1, "\" }\n");
  }
  const auto loaded = Load(Replaced(kManifest, "define {", lets + "define {"));
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("with its lets written out: column 4097"));
}

TEST(ManifestTest, AnEmptyKernelOrNoLaunchIsRefused) {
  const auto empty = KernelTemplate::Create({"dir/toy", kManifest, "", {}}, Catalog());
  EXPECT_EQ(empty.status().message(), "dir/toy/kernel.cuh is empty");
  const std::string text = kManifest;
  EXPECT_THAT(std::string(Load(text.substr(0, text.find("launch {"))).status().message()),
              HasSubstr("there is no launch"));
}

TEST(KernelTemplateTest, SupportsByArchAndOperator) {
  EXPECT_TRUE(Toy().Supports(Gemm(), Hopper()));
  DeviceProfile turing = Hopper();
  turing.set_cc(75);
  EXPECT_FALSE(Toy().Supports(Gemm(), turing));
  EXPECT_FALSE(Toy().Supports(MustParse("gemm m=1 n=1 k=1 dtype=fp16"), Hopper()));
  EXPECT_FALSE(Toy().Supports(MustParse("gemm m=1 n=1 k=1 dtype=bf16 layout=nn"), Hopper()));
  EXPECT_FALSE(Toy().Supports(MustParse("softmax rows=1 cols=1 dtype=bf16"), Hopper()));
}

TEST(KernelTemplateTest, DefaultIsTheNearestValidPoint) {
  EXPECT_EQ(*Toy().DefaultConfig(Gemm(), Hopper()), (Config{{"bm", 128}, {"split", 2}, {"atomic", 1}}));
  // k = 63 does not split; then `atomic` does not exist, which makes it 0.
  EXPECT_EQ(*Toy().DefaultConfig(MustParse("gemm m=8 n=8 k=63 dtype=bf16"), Hopper()),
            (Config{{"bm", 128}, {"split", 1}, {"atomic", 0}}));
  DeviceProfile small = Hopper();
  small.set_shared_per_block_optin_bytes(40000);
  EXPECT_EQ(Toy().DefaultConfig(Gemm(), small)->at("bm"), 64);
  small.set_shared_per_block_optin_bytes(1000);
  const auto none = Toy().DefaultConfig(Gemm(), small);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(none.status()), "EMPTY_SPACE");
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("shared: 18"));
}

TEST(KernelTemplateTest, CompileInput) {
  const auto request = Toy().CompileInput(Gemm(), {{"bm", 128}, {"split", 2}, {"atomic", 0}}, Hopper());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->source().name(), "toy/kernel.cuh");
  EXPECT_THAT(request->define(), ElementsAre("RT_BM=128", "RT_K=64", "RT_SPLIT=2"));
  EXPECT_THAT(request->symbol(), ElementsAre("rt_main", "rt_reduce"));
  EXPECT_EQ(request->arch(), "sm_90");
  EXPECT_EQ(request->option_list_version(), kOptionListVersion);
  const auto one = Toy().CompileInput(Gemm(), {{"bm", 128}, {"split", 1}, {"atomic", 0}}, Hopper());
  EXPECT_THAT(one->symbol(), ElementsAre("rt_main"));
}

TEST(KernelTemplateTest, ConfigurationsAreChecked) {
  const auto error = [](const Config& config) {
    const auto request = Toy().CompileInput(Gemm(), config, Hopper());
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ErrorReason(request.status()), "BAD_CONFIG");
    EXPECT_FALSE(Toy().Plan(Gemm(), config, Hopper()).ok());
    EXPECT_FALSE(Toy().Analyse(Gemm(), config, Hopper()).ok());
    return std::string(request.status().message());
  };
  EXPECT_THAT(error({{"bm", 128}, {"split", 2}}), HasSubstr("missing parameter atomic"));
  EXPECT_THAT(error({{"bm", 128}, {"split", 3}, {"atomic", 0}}),
              HasSubstr("value 3 of split is not one of its values"));
  EXPECT_THAT(error({{"bm", 128}, {"split", 2}, {"atomic", 0}, {"x", 1}}), HasSubstr("unknown parameter x"));
}

TEST(KernelTemplateTest, ListsBecomeDefines) {
  const std::string manifest = R"manifest(id: "toy" op: "elementwise"
define { name: "RT_CHAIN" list: "chain" }
define { name: "RT_INPUTS" expr: "chain" }
launch { symbol: "k" grid_x: "n" arg { tensor: "inputs" } arg { tensor: "y" } }
)manifest";
  const auto loaded = Load(manifest);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Op op = MustParse("elementwise n=10 dtype=fp32 chain=relu(add(a,b))");
  EXPECT_THAT((*loaded)->CompileInput(op, {}, Hopper())->define(), ElementsAre("RT_CHAIN=100,101,1,12", "RT_INPUTS=2"));
  const auto plan = (*loaded)->Plan(op, {}, Hopper());
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> tensors;
  for (const auto& argument : plan->launch(0).argument()) tensors.push_back(argument.tensor());
  EXPECT_THAT(tensors, ElementsAre("a", "b", "y"));
  // Another chain of as many inputs is another kernel.
  EXPECT_TRUE(CheckPreconditions(*plan, MustParse("elementwise n=99 dtype=fp32 chain=relu(add(a,b))")).ok());
  EXPECT_FALSE(CheckPreconditions(*plan, MustParse("elementwise n=10 dtype=fp32 chain=relu(mul(a,b))")).ok());
}

TEST(LaunchPlanTest, OneLaunch) {
  const v1::LaunchPlan plan = MustPlan(Gemm(), {{"bm", 64}, {"split", 1}, {"atomic", 0}});
  EXPECT_EQ(plan.op(), Gemm().text);
  EXPECT_EQ(plan.arch(), "sm_90");
  EXPECT_EQ(plan.template_id(), "toy");
  EXPECT_TRUE(plan.deterministic());
  ASSERT_EQ(plan.launch_size(), 1);
  const v1::Launch& launch = plan.launch(0);
  EXPECT_EQ(launch.symbol(), "rt_main");
  EXPECT_EQ(launch.grid_x().value(), 8);
  EXPECT_EQ(launch.grid_x().expr(), "ceildiv(m, bm) * ceildiv(n, 64)");
  EXPECT_EQ(launch.grid_y().value(), 1);
  EXPECT_EQ(launch.grid_y().expr(), "1");
  EXPECT_EQ(launch.block_y().value(), 2);
  EXPECT_EQ(launch.cluster_x().value(), 1);
  EXPECT_EQ(launch.dynamic_shared_bytes().value(), 32768);
  EXPECT_FALSE(launch.shared_opt_in());
  EXPECT_FALSE(launch.cooperative());
  EXPECT_EQ(plan.workspace_bytes().value(), 0);
  EXPECT_EQ(plan.workspace_bytes().expr(), "(split * m * n * 4) if (split > 1 and not atomic) else 0");
  EXPECT_EQ(plan.workspace_init(), v1::LaunchPlan::NONE);
  // bias and beta_value do not exist for this operator.
  std::vector<int> sizes;
  for (const auto& argument : launch.argument()) sizes.push_back(argument.size());
  EXPECT_THAT(sizes, ElementsAre(8, 8, 8, 8, 4, 4, 8));
  EXPECT_EQ(launch.argument(3).workspace_offset().value(), 0);
  EXPECT_EQ(launch.argument(4).scalar(), "alpha");
  EXPECT_EQ(launch.argument(5).integer().value(), 256);
  EXPECT_EQ(launch.argument(6).integer().expr(), "batch * m");
}

TEST(LaunchPlanTest, SplitKAddsALaunchAndAWorkspace) {
  const v1::LaunchPlan plan = MustPlan(Gemm(), {{"bm", 128}, {"split", 4}, {"atomic", 0}});
  ASSERT_EQ(plan.launch_size(), 2);
  EXPECT_EQ(plan.launch(1).symbol(), "rt_reduce");
  EXPECT_EQ(plan.launch(1).grid_x().value(), 128);
  EXPECT_EQ(plan.launch(1).argument(0).workspace_offset().value(), 4 * 256 * 128 * 4 / 2);
  EXPECT_EQ(plan.workspace_bytes().value(), 4 * 256 * 128 * 4);
  EXPECT_EQ(plan.workspace_init(), v1::LaunchPlan::ZERO);
  EXPECT_TRUE(plan.launch(0).shared_opt_in());  // 64 KiB
  EXPECT_FALSE(plan.launch(1).shared_opt_in());
  const v1::LaunchPlan atomic = MustPlan(Gemm(), {{"bm", 128}, {"split", 4}, {"atomic", 1}});
  EXPECT_EQ(atomic.launch_size(), 1);
  EXPECT_FALSE(atomic.deterministic());
}

TEST(LaunchPlanTest, ArgumentsThatExistAreThere) {
  const v1::LaunchPlan plan =
      MustPlan(MustParse("gemm m=8 n=8 k=64 dtype=bf16 bias=1 beta=1"), {{"bm", 64}, {"split", 1}, {"atomic", 0}});
  EXPECT_EQ(plan.launch(0).argument(2).tensor(), "bias");
  EXPECT_EQ(plan.launch(0).argument(6).scalar(), "beta_value");
  EXPECT_EQ(plan.launch(0).argument_size(), 9);
  EXPECT_EQ(plan.tensor_size(), 5);
  EXPECT_EQ(plan.constant().at("bias"), 1);
}

TEST(LaunchPlanTest, ExpressionsGiveTheValuesOfOtherDims) {
  const Config config = {{"bm", 128}, {"split", 2}, {"atomic", 0}};
  const v1::LaunchPlan plan = MustPlan(Gemm(), config);
  const Op other = MustParse("gemm m=1000 n=72 k=64 dtype=bf16");
  const v1::LaunchPlan direct = MustPlan(other, config);
  Names names(plan.constant().begin(), plan.constant().end());
  names.insert(plan.config().begin(), plan.config().end());
  names.insert(other.dims.begin(), other.dims.end());
  const auto value = [&](const v1::IntExpr& quantity) { return *Expression::Parse(quantity.expr())->Eval(names); };
  EXPECT_EQ(value(plan.workspace_bytes()), direct.workspace_bytes().value());
  for (int i = 0; i < plan.launch_size(); ++i) {
    EXPECT_EQ(value(plan.launch(i).grid_x()), direct.launch(i).grid_x().value());
  }
  for (int i = 0; i < plan.tensor_size(); ++i) {
    for (int d = 0; d < plan.tensor(i).dim_size(); ++d) {
      EXPECT_EQ(value(plan.tensor(i).dim(d)), direct.tensor(i).dim(d).value());
    }
  }
}

TEST(LaunchPlanTest, PreconditionsSayWhereAPlanIsValid) {
  const v1::LaunchPlan plan = MustPlan(Gemm(), {{"bm", 128}, {"split", 2}, {"atomic", 0}});
  const auto check = [&](const std::string& text) {
    const absl::Status status = CheckPreconditions(plan, MustParse(text));
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kFailedPrecondition);
    return ErrorMetadata(status)["precondition"];
  };
  EXPECT_EQ(check("gemm m=256 n=128 k=64 dtype=bf16"), "");
  EXPECT_EQ(check("gemm m=264 n=1 k=64 dtype=bf16"), "");
  EXPECT_EQ(check("gemm m=257 n=128 k=64 dtype=bf16"), "rows of a");
  // k was compiled in.
  EXPECT_EQ(check("gemm m=256 n=128 k=65 dtype=bf16"), "compiled for RT_K=64");
  EXPECT_EQ(check("gemm m=256 n=128 k=64 dtype=fp16"), "attributes");
  EXPECT_EQ(check("gemm m=256 n=128 k=64 dtype=bf16 bias=1"), "attributes");
  EXPECT_EQ(check("softmax rows=256 cols=64 dtype=bf16"), "attributes");
}

TEST(LaunchPlanTest, LaunchesThatDependOnDimsAreAPrecondition) {
  const auto loaded = Load(Replaced(kManifest, "when: \"two\"", "when: \"two and m * n > 1000\""));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Config config = {{"bm", 64}, {"split", 2}, {"atomic", 0}};
  const auto plan = (*loaded)->Plan(Gemm(), config, Hopper());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Op small = MustParse("gemm m=8 n=8 k=64 dtype=bf16");
  EXPECT_EQ(ErrorMetadata(CheckPreconditions(*plan, small))["precondition"], "planned with rt_reduce");
  const auto without = (*loaded)->Plan(small, config, Hopper());
  EXPECT_EQ(ErrorMetadata(CheckPreconditions(*without, Gemm()))["precondition"], "planned without rt_reduce");
  EXPECT_TRUE(CheckPreconditions(*without, small).ok());
}

TEST(LaunchPlanTest, WhatCannotBeLaunchedIsRefused) {
  const Config config = {{"bm", 128}, {"split", 2}, {"atomic", 1}};
  const auto error = [&](const std::string& from, const std::string& to, const std::string& op) {
    const auto loaded = Load(Replaced(kManifest, from, to));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    const auto plan = (*loaded)->Plan(MustParse(op), config, Hopper());
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kOutOfRange) << plan.status();
    return absl::StrCat(ErrorReason(plan.status()), " ", plan.status().message());
  };
  const std::string op = "gemm m=256 n=128 k=64 dtype=bf16";
  EXPECT_THAT(error("grid_z: \"split\"", "grid_z: \"split - 2\"", op), HasSubstr("LAUNCH_GEOMETRY"));
  EXPECT_THAT(error("grid_z: \"split\"", "grid_z: \"65536\"", op), HasSubstr("grid_z is 65536"));
  EXPECT_THAT(error("block_y: \"2\"", "block_y: \"16\"", op), HasSubstr("threads of a block is 2048"));
  EXPECT_THAT(error("block_y: \"2\"", "cluster_x: \"3\"", op), HasSubstr("no multiple of the cluster"));
  EXPECT_THAT(error("block_y: \"2\"", "cluster_x: \"32\"", op), HasSubstr("cluster_x is 32"));
  EXPECT_THAT(error("shared_bytes: \"bm * 512\"", "shared_bytes: \"bm * 5120\"", op),
              HasSubstr("shared memory of a block"));
  EXPECT_THAT(error("int32: \"m\"", "int32: \"m * 2**30\"", op), HasSubstr("does not fit an int32"));
  EXPECT_THAT(error("int64: \"batch * m\"", "int64: \"m * 2**62\"", op), HasSubstr("OVERFLOW"));
  EXPECT_THAT(error("grid_z: \"split\"", "grid_z: \"1 // (split - 2)\"", op), HasSubstr("DIVISION_BY_ZERO"));
  EXPECT_THAT(error("workspace_bytes: \"partial if two else 0\"", "workspace_bytes: \"-1\"", op),
              HasSubstr("workspace_bytes"));
}

TEST(KernelTemplateTest, MappingAndEstimates) {
  const Config config = {{"bm", 128}, {"split", 4}, {"atomic", 0}};
  const auto analysis = Toy().Analyse(MustParse("gemm m=256 n=128 k=64 batch=3 dtype=bf16"), config, Hopper());
  ASSERT_TRUE(analysis.ok()) << analysis.status();
  const MappedConfig& mapped = analysis->mapped;
  EXPECT_EQ(mapped.cost_class, manifest::v1::TILE_GEMM);
  EXPECT_EQ(mapped.pipe, "tensor");
  EXPECT_EQ(mapped.dtype, v1::BF16);
  EXPECT_EQ(mapped.element_bytes, 2);
  EXPECT_EQ(mapped.m * 1000000 + mapped.n * 1000 + mapped.k, 256128064);
  EXPECT_EQ(mapped.batch, 3);
  EXPECT_EQ(mapped.tile_m, 128);
  EXPECT_EQ(mapped.tile_n, 64);
  EXPECT_EQ(mapped.tile_k, 1);
  EXPECT_EQ(mapped.split_k, 4);
  EXPECT_EQ(mapped.grid_ctas, 16);
  EXPECT_EQ(mapped.threads, 256);
  EXPECT_EQ(mapped.launches, 2);
  const v1::Resources resources = Toy().Analyse(Gemm(), config, Hopper())->resources;
  EXPECT_EQ(resources.threads_per_block(), 256);
  EXPECT_EQ(resources.dynamic_shared_bytes(), 65536);
  EXPECT_EQ(resources.static_shared_bytes(), 100);
  EXPECT_EQ(resources.registers_per_thread(), 96);
}

worker::v1::CompileResult Compiled(const v1::LaunchPlan& plan) {
  worker::v1::CompileResult compiled;
  compiled.set_digest("d1");
  for (const auto& launch : plan.launch()) {
    auto* kernel = compiled.add_kernel();
    kernel->set_symbol(launch.symbol());
    int offset = 0;
    // Backwards: the order in the binary is not that of the arguments.
    for (int i = launch.argument_size() - 1; i >= 0; --i) {
      auto* parameter = kernel->add_parameter();
      parameter->set_ordinal(i);
      parameter->set_size(launch.argument(i).size());
      parameter->set_offset(offset += 8);
    }
  }
  return compiled;
}

TEST(AttachArtifactTest, TakesOffsetsAndDigest) {
  v1::LaunchPlan plan = MustPlan(Gemm(), {{"bm", 64}, {"split", 2}, {"atomic", 0}});
  worker::v1::CompileResult compiled = Compiled(plan);
  ASSERT_TRUE(AttachArtifact(compiled, plan).ok());
  EXPECT_EQ(plan.artifact_digest(), "d1");
  EXPECT_EQ(plan.launch(1).argument(0).offset(), 16);
  EXPECT_EQ(plan.launch(1).argument(1).offset(), 8);
  EXPECT_FALSE(plan.launch(0).shared_opt_in());
  // 32 KiB dynamic and 20 KiB static need the attribute.
  compiled.mutable_kernel(0)->mutable_resources()->set_static_shared_bytes(20 * 1024);
  ASSERT_TRUE(AttachArtifact(compiled, plan).ok());
  EXPECT_TRUE(plan.launch(0).shared_opt_in());
}

TEST(AttachArtifactTest, WhatDoesNotFitIsRefusedAndThePlanKept) {
  const v1::LaunchPlan plan = MustPlan(Gemm(), {{"bm", 64}, {"split", 2}, {"atomic", 0}});
  const auto error = [&](const std::function<void(worker::v1::CompileResult&)>& change) {
    worker::v1::CompileResult compiled = Compiled(plan);
    change(compiled);
    v1::LaunchPlan copy = plan;
    const absl::Status status = AttachArtifact(compiled, copy);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ErrorReason(status), "ABI_MISMATCH");
    EXPECT_EQ(copy.DebugString(), plan.DebugString());
    return std::string(status.message());
  };
  EXPECT_EQ(error([](auto& c) { c.mutable_kernel()->RemoveLast(); }), "kernel rt_reduce: is not in the binary");
  EXPECT_EQ(error([](auto& c) { c.mutable_kernel(1)->mutable_parameter()->RemoveLast(); }),
            "kernel rt_reduce: the binary has 1 parameters, the manifest 2 arguments");
  EXPECT_EQ(error([](auto& c) { c.mutable_kernel(0)->mutable_parameter(1)->set_size(8); }),
            "kernel rt_main: argument 5 (integer m) has 4 bytes, in the binary 8");
  EXPECT_EQ(error([](auto& c) { c.mutable_kernel(0)->mutable_parameter(1)->set_ordinal(6); }),
            "kernel rt_main: the binary numbers a parameter 6");
  EXPECT_EQ(error([](auto& c) { c.mutable_kernel(0)->mutable_parameter(1)->set_ordinal(-1); }),
            "kernel rt_main: the binary numbers a parameter -1");
}

}  // namespace
}  // namespace rooftune

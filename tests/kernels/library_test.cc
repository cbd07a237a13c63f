// The built-in templates and folders of a user's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "tests/kernels/builtins.h"
#include "tests/support/temp_dir.h"

namespace rooftune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

DeviceProfile Hopper() { return Profile("h200-sxm"); }

Op MustParse(const TemplateLibrary& library, const std::string& text) {
  const auto op = library.ops().Parse(text);
  EXPECT_TRUE(op.ok()) << op.status();
  return *op;
}

TEST(BuiltinTemplatesTest, AllLoad) {
  for (const BrokenTemplate& broken : Builtins().broken()) ADD_FAILURE() << broken.id << ": " << broken.error;
  for (const OpSchema* schema : Builtins().ops().schemas()) {
    ASSERT_FALSE(schema->proto().example().empty()) << schema->kind();
    const Op op = MustParse(Builtins(), schema->proto().example());
    EXPECT_THAT(Builtins().For(op, Hopper()), Not(IsEmpty())) << op.text;
  }
}

// Every expression of a plan, with the value it was planned with.
std::vector<v1::IntExpr> Quantities(const v1::LaunchPlan& plan) {
  std::vector<v1::IntExpr> all = {plan.workspace_bytes()};
  for (const auto& tensor : plan.tensor()) all.insert(all.end(), tensor.dim().begin(), tensor.dim().end());
  for (const auto& launch : plan.launch()) {
    for (const auto& quantity : {launch.grid_x(), launch.grid_y(), launch.grid_z(), launch.block_x(), launch.block_y(),
                                 launch.block_z(), launch.cluster_x(), launch.dynamic_shared_bytes()}) {
      all.push_back(quantity);
    }
    for (const auto& argument : launch.argument()) {
      if (argument.has_integer()) all.push_back(argument.integer());
      if (argument.has_workspace_offset()) all.push_back(argument.workspace_offset());
      const v1::TensorMap& map = argument.tensor_map();
      for (const auto* list : {&map.dim(), &map.stride_bytes(), &map.box(), &map.element_stride()}) {
        all.insert(all.end(), list->begin(), list->end());
      }
    }
  }
  return all;
}

// A plan is enough on its own: dims, configuration and its constants give every value.
void ExpectSelfContained(const v1::LaunchPlan& plan, const Op& op) {
  Names names(plan.constant().begin(), plan.constant().end());
  names.insert(plan.config().begin(), plan.config().end());
  names.insert(op.dims.begin(), op.dims.end());
  for (const v1::IntExpr& quantity : Quantities(plan)) {
    const auto expression = Expression::Parse(quantity.expr());
    ASSERT_TRUE(expression.ok()) << expression.status();
    const auto value = expression->Eval(names);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(*value, quantity.value()) << quantity.expr();
  }
  for (const auto& precondition : plan.precondition()) {
    const auto value = Expression::Parse(precondition.expr())->Eval(names);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_NE(*value, 0) << precondition.name();
  }
  EXPECT_TRUE(CheckPreconditions(plan, op).ok()) << CheckPreconditions(plan, op);
}

TEST(BuiltinTemplatesTest, ExamplesCanBePlannedCompiledAndPredicted) {
  std::vector<std::string> texts;
  for (const OpSchema* schema : Builtins().ops().schemas()) texts.push_back(schema->proto().example());
  for (const char* text :
       {"gemm m=4096 n=4096 k=4096 dtype=bf16",
        "gemm m=1 n=4096 k=4096 dtype=fp16 bias=1 act=gelu",
        "gemm m=37 n=1001 k=513 dtype=fp32 beta=1",
        "gemm m=128 n=8192 k=8192 dtype=bf16 layout=nn out=fp32",
        "gemm m=130 n=101 k=75 dtype=bf16 out=int8 bias=1",
        "gemm m=4096 n=4096 k=4096 dtype=fp8_e4m3 out=fp8_e4m3 scale=row act=silu",
        "gemm m=130 n=101 k=74 dtype=int8 out=fp16 scale=row",
        "gemm m=8 n=4096 k=4096 dtype=bf16 lda=4104 ldb=6144",
        "gemm m=37 n=1001 k=513 dtype=fp32 layout=nn lda=514 ldb=1003",
        "gemm m=4096 n=4100 k=4096 dtype=fp8_e4m3 out=bf16 scale=tensor bias=1",
        "softmax rows=4096 cols=32000 dtype=fp32",
        "rmsnorm rows=7 cols=8192 dtype=bf16 residual=1",
        "softmax rows=4096 cols=32000 dtype=fp32 mask=1 scaled=1",
        "softmax rows=64 cols=131072 dtype=bf16 log=1 causal=1",
        "layernorm rows=7 cols=8192 dtype=fp16 residual=1 act=relu",
        "layernorm rows=5 cols=1000003 dtype=fp32",
        "rmsnorm rows=7 cols=8192 dtype=bf16 residual=1 quant=fp8_e4m3",
        "layernorm rows=9 cols=1001 dtype=fp32 quant=int8",
        "glu rows=3 cols=14336 dtype=bf16 packed=0 act=gelu",
        "glu rows=1000 cols=7 dtype=fp32",
        "glu rows=200001 cols=1032 dtype=bf16",
        "gemm m=5 n=77 k=1000 dtype=fp16 beta=1 bias=1 out=fp32",
        "gemm m=1 n=1 k=8 dtype=bf16 batch=3",
        "gemm_wq m=1 n=1 k=32 dtype=bf16 group=32",
        "gemm_wq m=17 n=101 k=1056 dtype=fp16 weight=int8 group=0 zero=1",
        "gemm_wq m=16 n=28672 k=4096 dtype=bf16",
        "gemm_wq m=333 n=1000 k=1088 dtype=bf16 group=64 zero=1 bias=1",
        "moe_gemm m=1 n=1 k=1 experts=1 dtype=fp16",
        "moe_gemm m=333 n=1000 k=1088 experts=7 topk=3 dtype=bf16 gather=1 scatter=1 weighted=1",
        "moe_gemm m=100 n=264 k=144 experts=5 rows_max=100 dtype=fp8_e4m3 layout=masked",
        "elementwise n=1000003 dtype=fp32 chain=fma(a,b,c)",
        "elementwise n=4096 d1=33 d2=7 dtype=bf16 chain=where(gt(a,b:2:fp32),a,c:0) inplace=1",
        "elementwise n=3 d1=5 dtype=fp16 chain=add(a,b:1) out=fp32",
        "softmax rows=333 cols=777 dtype=fp32",
        "softmax rows=64 cols=1048576 dtype=bf16",
        "softmax rows=4096 cols=131072 dtype=bf16 mask=1 scaled=1",
        "softmax rows=301 cols=40000 dtype=fp32 mask=1 causal=1 log=1",
        "layernorm rows=301 cols=262144 dtype=bf16 bias=1 residual=1 act=gelu",
        "rmsnorm rows=8192 cols=32768 dtype=bf16 act=silu",
        "softmax rows=16 cols=1000001 dtype=fp16 mask=1",
        "layernorm rows=8192 cols=32768 dtype=bf16 bias=1 pre=relu residual=1",
        "layernorm rows=16384 cols=8192 dtype=bf16 bias=1 pre=gelu residual=1",
        "rmsnorm rows=5 cols=1000003 dtype=fp32 pre=silu quant=int8",
        "permute d0=1 d1=16 d2=13 d3=1 d4=45 d5=2 d6=80 d7=2 dtype=bf16 perm=2461357",
        "permute d0=4096 d1=1000 dtype=int8 perm=10",
        "contiguous d0=77 d1=33 d2=5 dtype=fp16 s0=1000 s2=3",
        "contiguous d0=1000 d1=64 dtype=fp8_e4m3 s0=96 s1=1",
        "contiguous d0=77 d1=33 d2=5 dtype=fp16 s0=1000 s1=1 s2=40",
        "contiguous d0=16 d1=12 d2=2 d3=24 d4=2 dtype=bf16 s0=4 s1=1536 s2=2 s3=64 s4=1",
        "contiguous d0=1 dtype=fp32",
        "cross_entropy rows=8192 vocab=128256 dtype=bf16 grad=1",
        "cross_entropy rows=1 vocab=1 dtype=fp32",
        "rope tokens=1 heads_q=1 heads_kv=1 head_dim=2 dtype=fp32",
        "rope tokens=300001 heads_q=2 heads_kv=1 head_dim=64 dtype=bf16",
        "rope tokens=77 heads_q=5 heads_kv=3 head_dim=80 dtype=bf16 style=interleaved",
        "permute d0=1 dtype=fp16 perm=0",
        "permute d0=16384 d1=16383 dtype=bf16 perm=10",
        "permute d0=3 d1=5 d2=7 d3=11 d4=13 dtype=fp32 perm=43210",
        "reduce rows=1 cols=1 dtype=fp32",
        "reduce rows=1 cols=100003 dtype=bf16 axis=full kind=var",
        "reduce rows=100003 cols=3 dtype=fp16 axis=col kind=argmax",
        "reduce rows=16384 cols=8192 dtype=bf16 axis=col",
        "glu rows=16384 cols=14336 dtype=bf16 quant=fp8_e4m3",
        "glu rows=3 cols=100001 dtype=fp32 packed=0 quant=int8",
        "quantize rows=16384 cols=8192 dtype=bf16 qtype=fp8_e4m3",
        "quantize rows=16384 cols=8192 dtype=bf16 qtype=int4 granularity=group128 scale_layout=col",
        "quantize rows=7 cols=1001 dtype=fp32 qtype=int8 granularity=tensor",
        "quantize rows=300 cols=201 dtype=bf16 qtype=fp8_e5m2 granularity=block128 scale_pow2=1",
        "dequantize rows=16384 cols=8192 dtype=bf16 qtype=int4 granularity=group32",
        "dequantize rows=1 cols=1 dtype=fp32 qtype=int8",
        "rope tokens=16384 heads_q=32 heads_kv=8 head_dim=128 blocks=1024 dtype=bf16 inplace=1 kv_cache=1"}) {
    texts.push_back(text);
  }
  const DeviceProfile device = Hopper();
  for (const std::string& text : texts) {
    const Op op = MustParse(Builtins(), text);
    for (const KernelTemplate* candidate : Builtins().For(op, device)) {
      SCOPED_TRACE(absl::StrCat(candidate->id(), " for ", text));
      const auto config = candidate->DefaultConfig(op, device);
      ASSERT_TRUE(config.ok()) << config.status();
      const auto plan = candidate->Plan(op, *config, device);
      ASSERT_TRUE(plan.ok()) << plan.status();
      ExpectSelfContained(*plan, op);
      const auto compile = candidate->CompileInput(op, *config, device);
      ASSERT_TRUE(compile.ok()) << compile.status();
      EXPECT_TRUE(std::is_sorted(compile->define().begin(), compile->define().end()));
      for (const auto& launch : plan->launch()) EXPECT_THAT(compile->symbol(), Contains(launch.symbol()));
      const auto analysis = candidate->Analyse(op, *config, device);
      ASSERT_TRUE(analysis.ok()) << analysis.status();
      EXPECT_GE(analysis->mapped.grid_ctas, 1);
      EXPECT_EQ(analysis->resources.threads_per_block(), analysis->mapped.threads);
      EXPECT_GT(analysis->resources.registers_per_thread(), 0);
    }
  }
}

TEST(BuiltinTemplatesTest, EveryPointOfASpaceCanBePlanned) {
  const DeviceProfile device = Hopper();
  for (const OpSchema* schema : Builtins().ops().schemas()) {
    const Op op = MustParse(Builtins(), schema->proto().example());
    for (const KernelTemplate* candidate : Builtins().For(op, device)) {
      const auto space = candidate->Space(op, device);
      ASSERT_TRUE(space.ok()) << space.status();
      EXPECT_GT(space->size(), 0) << candidate->id();
      // A spread of at most 500, so that it stays quick.
      for (int64_t i = 0; i < space->size(); i += std::max<int64_t>(1, space->size() / 500)) {
        const auto plan = candidate->Plan(op, space->At(i), device);
        ASSERT_TRUE(plan.ok()) << candidate->id() << " " << ConfigToString(space->At(i)) << ": " << plan.status();
      }
    }
  }
}

TEST(BuiltinTemplatesTest, EveryOperatorHasAReference) {
  for (const OpSchema* schema : Builtins().ops().schemas()) {
    const Op op = MustParse(Builtins(), schema->proto().example());
    const auto reference = Builtins().ReferenceOf(op, Hopper());
    ASSERT_TRUE(reference.ok()) << reference.status();
    EXPECT_EQ(reference->compile.source().name(), absl::StrCat(op.kind, "/reference.cuh"));
    EXPECT_EQ(reference->compile.arch(), "sm_90");
    EXPECT_EQ(reference->plan.symbol(), "rt_reference");
    EXPECT_EQ(reference->plan.block_x(), 256);
    EXPECT_THAT(reference->plan.name(), HasSubstr(absl::StrCat(op.kind, "/reference.cuh@")));
  }
}

TEST(BuiltinTemplatesTest, Fp8OutputNeedsItsConversions) {
  const DeviceProfile ampere = Profile("a100-sxm-80");
  for (const std::string kind : {"rmsnorm", "layernorm"}) {
    const KernelTemplate* const found = Builtins().Find(kind);
    ASSERT_NE(found, nullptr);
    const Op fp8 = MustParse(Builtins(), kind + " rows=64 cols=1024 dtype=bf16 quant=fp8_e4m3");
    const auto none = found->Space(fp8, ampere);
    EXPECT_TRUE(!none.ok() || none->size() == 0);
    const Op int8 = MustParse(Builtins(), kind + " rows=64 cols=1024 dtype=bf16 quant=int8");
    const auto some = found->Space(int8, ampere);
    ASSERT_TRUE(some.ok()) << some.status();
    EXPECT_GT(some->size(), 0);
  }
}

TEST(BuiltinTemplatesTest, OneTemplateForEachGranularityAndOutput) {
  const auto ids = [](const std::string& text) {
    std::vector<std::string> found;
    for (const KernelTemplate* kernel : Builtins().For(MustParse(Builtins(), text), Hopper()))
      found.push_back(kernel->id());
    return found;
  };
  const std::string quantize = "quantize rows=64 cols=1024 dtype=bf16 qtype=fp8_e4m3 granularity=";
  for (const char* flat : {"tensor", "group32", "group64", "group128"}) {
    EXPECT_THAT(ids(quantize + flat), ElementsAre("quantize_flat"));
  }
  EXPECT_THAT(ids(quantize + "token"), ElementsAre("quantize_row"));
  EXPECT_THAT(ids(quantize + "block128"), ElementsAre("quantize_block"));
  EXPECT_THAT(ids("glu rows=64 cols=1024 dtype=bf16"), ElementsAre("glu"));
  EXPECT_THAT(ids("glu rows=64 cols=1024 dtype=bf16 quant=int8"), ElementsAre("glu_quant"));
}

TEST(ReferenceTest, ArgumentsAreThoseThatExist) {
  const auto arguments = [](const std::string& text) {
    const auto reference = Builtins().ReferenceOf(MustParse(Builtins(), text), Hopper());
    EXPECT_TRUE(reference.ok()) << reference.status();
    std::vector<std::string> all;
    for (const auto& argument : reference->plan.argument()) {
      all.push_back(argument.has_tensor()                ? argument.tensor()
                    : argument.has_scalar()              ? argument.scalar()
                    : argument.has_reference_value()     ? absl::StrCat("value ", argument.reference_value())
                    : argument.has_reference_magnitude() ? absl::StrCat("magnitude ", argument.reference_magnitude())
                                                         : absl::StrCat(argument.int64()));
    }
    return all;
  };
  EXPECT_THAT(arguments("gemm m=3 n=5 k=7 dtype=bf16"),
              ElementsAre("a", "b", "alpha", "value d", "magnitude d", "3", "5", "7", "1", "7", "7"));
  EXPECT_THAT(arguments("gemm m=3 n=5 k=7 batch=2 dtype=bf16 bias=1 beta=1"),
              ElementsAre("a", "b", "c", "bias", "alpha", "beta_value", "value d", "magnitude d", "3", "5", "7", "2",
                          "7", "7"));
  EXPECT_THAT(arguments("elementwise n=9 dtype=fp32 chain=fma(a,b,c)"),
              ElementsAre("a", "b", "c", "value y", "magnitude y", "9", "1", "1", "1"));
  EXPECT_THAT(arguments("elementwise n=9 d1=4 dtype=fp32 chain=add(a,b:1) inplace=1"),
              ElementsAre("io", "b", "value io", "magnitude io", "9", "4", "1", "1"));
  const auto reference = Builtins().ReferenceOf(MustParse(Builtins(), "gemm m=300 n=5 k=7 dtype=bf16"), Hopper());
  EXPECT_EQ(reference->plan.grid_x(), 6);  // 1500 elements
  EXPECT_THAT(reference->compile.define(), Contains("RT_LAYOUT=1"));
}

TEST(SupportKernelsTest, HoldsItsHeaders) {
  const auto request = SupportKernels(Hopper());
  EXPECT_EQ(request.source().name(), "common/support.cuh");
  EXPECT_THAT(request.source().text(), Not(IsEmpty()));
  EXPECT_EQ(request.arch(), "sm_90");
  std::vector<std::string> headers;
  for (const auto& header : request.header()) headers.push_back(header.name());
  EXPECT_THAT(headers, Contains("common/types.cuh"));
  EXPECT_THAT(headers, Not(Contains("common/row.cuh")));
}

constexpr char kScaleOp[] = R"manifest(kind: "scale"
description: "y = s * x"
dim { name: "n" }
attribute { name: "dtype" type: DTYPE default_value: "fp32" symbol { name: "fp32" } }
tensor { name: "x" role: "input" dtype: "dtype" dim: "n" }
tensor { name: "y" role: "output" dtype: "dtype" dim: "n" }
scalar { name: "s" default_value: 2 }
work { fp32_ops: "n" }
reference {
  symbol: "rt_reference"
  grid_x: "ceildiv(n, 256)"
  block_x: "256"
  arg { tensor: "x" }
  arg { scalar: "s" }
  arg { reference_value: "y" }
  arg { reference_magnitude: "y" }
  arg { int32: "n" }
}
example: "scale n=1000"
)manifest";

constexpr char kScaleTemplate[] = R"manifest(id: "scale_simple"
op: "scale"
param { name: "block" value: [128, 256] }
define { name: "RT_BLOCK" expr: "block" }
default_config { name: "block" value: 256 }
launch {
  symbol: "rt_scale"
  grid_x: "ceildiv(n, block)"
  block_x: "block"
  arg { tensor: "x" }
  arg { tensor: "y" }
  arg { scalar: "s" }
  arg { int32: "n" }
}
)manifest";

class UserTemplatesTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void WriteScale(const std::string& folder) {
    Write(folder + "/op.txtpb", kScaleOp);
    Write(folder + "/reference.cuh", "#include \"common/types.cuh\"\n// reference\n");
    Write(folder + "/template.txtpb", kScaleTemplate);
    Write(folder + "/kernel.cuh", "#include \"helper.cuh\"\n#include \"common/types.cuh\"\n");
    Write(folder + "/helper.cuh", "// helper\n");
    Write(folder + "/unused.cuh", "// unused\n");
  }
  std::unique_ptr<TemplateLibrary> Load() {
    auto library = TemplateLibrary::Load({root_.string()});
    EXPECT_TRUE(library.ok()) << library.status();
    return *std::move(library);
  }
  std::string OnlyError() {
    const auto library = Load();
    EXPECT_EQ(library->broken().size(), 1u);
    if (library->broken().empty()) return "";
    std::string error = library->broken()[0].error;
    const std::string prefix = root_.string() + "/";
    return error.rfind(prefix, 0) == 0 ? error.substr(prefix.size()) : error;
  }

  const TempDir temp_;
  const std::filesystem::path root_ = temp_.path();
};

TEST_F(UserTemplatesTest, ADeclaredOperatorIsLikeAnyOther) {
  WriteScale("mine/scale_simple");
  const auto library = Load();
  for (const BrokenTemplate& broken : library->broken()) ADD_FAILURE() << broken.error;
  const Op op = MustParse(*library, "scale n=1000");
  const auto able = library->For(op, Hopper());
  ASSERT_EQ(able.size(), 1u);
  EXPECT_EQ(able[0]->id(), "scale_simple");
  const auto compile = able[0]->CompileInput(op, {{"block", 128}}, Hopper());
  ASSERT_TRUE(compile.ok()) << compile.status();
  ASSERT_EQ(compile->header_size(), 2);
  EXPECT_EQ(compile->header(0).name(), "common/types.cuh");
  EXPECT_EQ(compile->header(1).name(), "helper.cuh");
  EXPECT_THAT(compile->define(), ElementsAre("RT_BLOCK=128"));
  const auto reference = library->ReferenceOf(op, Hopper());
  ASSERT_TRUE(reference.ok()) << reference.status();
  EXPECT_EQ(reference->plan.grid_x(), 4);
  EXPECT_EQ(reference->plan.argument(4).int32(), 1000);
  EXPECT_EQ(reference->compile.header_size(), 1);
}

TEST_F(UserTemplatesTest, ChangesOfOnlyWhatIsIncludedChangeTheRevision) {
  WriteScale("scale_simple");
  const std::string before = Load()->Find("scale_simple")->revision();
  Write("scale_simple/unused.cuh", "// changed\n");
  EXPECT_EQ(Load()->Find("scale_simple")->revision(), before);
  Write("scale_simple/helper.cuh", "// changed\n");
  EXPECT_NE(Load()->Find("scale_simple")->revision(), before);
}

TEST_F(UserTemplatesTest, AFolderOverridesABuiltin) {
  const auto builtin = TemplateLibrary::Load({});
  const KernelTemplate* softmax = (*builtin)->Find("softmax");
  ASSERT_NE(softmax, nullptr);
  Write("softmax/template.txtpb", softmax->files().manifest);
  Write("softmax/kernel.cuh", softmax->files().kernel + "// mine\n");
  const auto library = Load();
  EXPECT_THAT(library->broken(), IsEmpty());
  EXPECT_EQ(library->templates().size(), (*builtin)->templates().size());
  EXPECT_EQ(library->Find("softmax")->files().origin, std::filesystem::canonical(root_ / "softmax").string());
  EXPECT_NE(library->Find("softmax")->revision(), softmax->revision());
}

TEST_F(UserTemplatesTest, ABrokenTemplateIsListedAndTheRestWorks) {
  WriteScale("good/scale_simple");
  Write("bad/template.txtpb", "id: \"bad\"\nop: \"gemm\"\nparam { nam: \"x\" }\n");
  Write("bad/kernel.cuh", "//");
  const auto library = Load();
  ASSERT_EQ(library->broken().size(), 1u);
  EXPECT_EQ(library->broken()[0].id, "bad");
  EXPECT_THAT(library->broken()[0].error, HasSubstr("bad/template.txtpb:3:"));
  EXPECT_NE(library->Find("scale_simple"), nullptr);
  EXPECT_NE(library->Find("softmax"), nullptr);
}

TEST_F(UserTemplatesTest, WhatPinsTheCacheIsRefused) {
  WriteScale("scale_simple");
  Write("scale_simple/unused.cuh", "// L2::evict_last\n");
  EXPECT_THAT(Load()->broken(), IsEmpty()) << "nobody includes it";
  Write("scale_simple/helper.cuh", "// ld.global.L2::evict_last\n");
  EXPECT_THAT(OnlyError(), HasSubstr("scale_simple/helper.cuh: evict_last keeps data in the L2"));
  Write("scale_simple/helper.cuh", "// helper\n");
  Write("scale_simple/kernel.cuh", "asm(\"createpolicy.fractional.L2::evict_last.b64 %0;\")");
  EXPECT_THAT(OnlyError(), HasSubstr("scale_simple/kernel.cuh: evict_last"));
}

TEST_F(UserTemplatesTest, OperatorErrorsSayWhere) {
  const auto error = [&](const std::string& from, const std::string& to) {
    WriteScale("s");
    std::filesystem::remove(root_ / "s/template.txtpb");
    std::string text = kScaleOp;
    EXPECT_NE(text.find(from), std::string::npos);
    text.replace(text.find(from), from.size(), to);
    Write("s/op.txtpb", text);
    return OnlyError();
  };
  EXPECT_THAT(error("arg { scalar: \"s\" }", "arg { scalar: \"t\" }"),
              HasSubstr("s/op.txtpb:14:9: unknown scalar 't'"));
  EXPECT_THAT(error("arg { int32: \"n\" }", "arg { int32: \"m\" }"),
              HasSubstr("s/op.txtpb:17:9: int32: unknown name 'm'"));
  EXPECT_THAT(error("reference_magnitude: \"y\"", "reference_magnitude: \"x\""), HasSubstr("'x' is not an output"));
  EXPECT_THAT(error("  arg { reference_magnitude: \"y\" }\n", ""), HasSubstr("output 'y' needs an arg"));
  EXPECT_THAT(error("fp32_ops: \"n\"", "fp32_ops: \"q\""), HasSubstr("s/op.txtpb:8:8: "));
  EXPECT_THAT(error("role: \"output\"", "role: \"result\""), HasSubstr("s/op.txtpb:6:"));
  EXPECT_THAT(error("kind: \"scale\"", "kind: \"gemm\""), HasSubstr("gemm"));
  std::filesystem::remove(root_ / "s/reference.cuh");
  Write("s/op.txtpb", kScaleOp);
  EXPECT_THAT(OnlyError(), HasSubstr("s/op.txtpb:9:1: there is no reference.cuh beside it"));
}

TEST_F(UserTemplatesTest, FoldersAreChecked) {
  EXPECT_EQ(TemplateLibrary::Load({(root_ / "none").string()}).status().code(), absl::StatusCode::kNotFound);
  WriteScale("a/b/scale_simple");  // three levels down
  EXPECT_EQ(Load()->Find("scale_simple"), nullptr);
  EXPECT_NE((*TemplateLibrary::Load({(root_ / "a").string()}))->Find("scale_simple"), nullptr);
  EXPECT_NE((*TemplateLibrary::Load({(root_ / "a/b/scale_simple/").string()}))->Find("scale_simple"), nullptr);
  std::filesystem::remove_all(root_ / "a");
  WriteScale("other");
  EXPECT_THAT(OnlyError(), HasSubstr("id 'scale_simple' differs from its folder's name 'other'"));
  Write("other/template.txtpb", std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(OnlyError(), HasSubstr("template.txtpb"));
  std::filesystem::remove_all(root_ / "other");
  WriteScale("scale_simple");
  std::filesystem::remove(root_ / "scale_simple/kernel.cuh");
  EXPECT_THAT(OnlyError(), HasSubstr("kernel.cuh is missing"));
}

TEST_F(UserTemplatesTest, AnOperatorWithoutReferenceIsToldSo) {
  std::string text = kScaleOp;
  text.erase(text.find("reference {"), text.find("example") - text.find("reference {"));
  Write("s/op.txtpb", text);
  const auto library = Load();
  EXPECT_THAT(library->broken(), IsEmpty());
  const auto reference = library->ReferenceOf(MustParse(*library, "scale n=4"), Hopper());
  EXPECT_EQ(reference.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(reference.status()), "NO_REFERENCE");
}

}  // namespace
}  // namespace rooftune

// Tensor maps of a manifest, up to the plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "tests/kernels/manifest_text.h"

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kManifest[] = R"manifest(id: "toy"
op: "gemm"
param { name: "bm" value: [64, 320] }
let { name: "span" expr: "64 if dtype == BF16 else 8 * FP32" }
default_config { name: "bm" value: 64 }
launch {
  symbol: "rt_main"
  arg {
    tensor_map {
      tensor: "a"
      dim: ["k", "m", "batch"]
      stride_bytes: ["k * 2", "k * m * 2"]
      box: ["span", "bm", "1"]
      swizzle: "3 if layout == LAYOUT_NT else 0"
      l2_promotion: "2"
    }
  }
  arg { tensor_map { tensor: "bias" dim: "n" box: "8" element_stride: "1" } }
  arg { tensor: "d" }
}
)manifest";

absl::StatusOr<v1::LaunchPlan> Plan(const std::string& manifest, const std::string& op_text, int64_t bm = 64) {
  const auto loaded = Load(manifest);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  DeviceProfile device;
  device.set_cc(90);
  return (*loaded)->Plan(MustParse(op_text), {{"bm", bm}}, device);
}

std::vector<int64_t> ValuesOf(const google::protobuf::RepeatedPtrField<v1::IntExpr>& list) {
  std::vector<int64_t> values;
  for (const auto& quantity : list) values.push_back(quantity.value());
  return values;
}

TEST(TensorMapTest, ErrorsSayLineAndColumn) {
  const struct {
    const char* from;
    const char* to;
    const char* error;
  } cases[] = {
      {"tensor: \"a\"", "tensor: \"x\"", "10:7: operator gemm has no tensor 'x'; there are a, b, c, scale_a, scale_b, scale_d, bias, d"},
      {"\"m\", \"batch\"]", "\"mm\", \"batch\"]", "11:7: dim: unknown name 'mm'"},
      {"\"m\", \"batch\"]", "\"\", \"batch\"]", "11:7: dim is empty"},
      {"\"k * m * 2\"]", "\"k * m *\"]", "12:7: stride_bytes: column 8: "},
      {", \"k * m * 2\"]", "]", "12:7: 2 of stride_bytes are needed for 3 dims, not 1"},
      {", \"1\"]", "]", "13:7: 3 of box are needed for 3 dims, not 2"},
      {"swizzle: \"3 if layout == LAYOUT_NT else 0\"", "swizzle: \"3 if m > 8 else 0\"",
       "14:7: swizzle must not depend on dim 'm'"},
      {"l2_promotion: \"2\"", "l2_promotion: \"2\" element_stride: \"1\"",
       "15:25: 3 of element_stride are needed for 3 dims, not 1"},
      {"tensor: \"bias\" dim: \"n\"", "tensor: \"bias\"", "18:9: a tensor map has 1 to 5 dims"},
      {"l2_promotion: \"2\"", "oob_fill: \"nan\"", "15:7: oob_fill: unknown name 'nan'"},
  };
  for (const auto& c : cases) {
    const auto loaded = Load(Replaced(kManifest, c.from, c.to));
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument) << c.to;
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(absl::StrCat("dir/toy/template.txtpb:", c.error)));
  }
}

TEST(TensorMapTest, ListsOfTensorsHaveNone) {
  const auto loaded = KernelTemplate::Create({"dir/toy",
                                              R"(id: "toy" op: "elementwise"
launch { symbol: "k" arg { tensor_map { tensor: "inputs" dim: "n" box: "8" } } })",
                                              "//",
                                              {}},
                                             Catalog());
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("2:41: 'inputs' is a list of tensors"));
}

TEST(TensorMapTest, ThePlanHasValuesAndExpressions) {
  const auto plan = Plan(kManifest, "gemm m=10 n=24 k=40 batch=3 dtype=bf16 bias=1");
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launch(0).argument_size(), 3);
  EXPECT_EQ(plan->launch(0).argument(0).size(), 128);
  const v1::TensorMap& a = plan->launch(0).argument(0).tensor_map();
  EXPECT_EQ(a.tensor(), "a");
  EXPECT_EQ(a.dtype(), v1::BF16);
  EXPECT_THAT(ValuesOf(a.dim()), ElementsAre(40, 10, 3));
  EXPECT_THAT(ValuesOf(a.stride_bytes()), ElementsAre(80, 800));
  EXPECT_THAT(ValuesOf(a.box()), ElementsAre(64, 64, 1));
  EXPECT_THAT(ValuesOf(a.element_stride()), ElementsAre(1, 1, 1));
  EXPECT_EQ(a.stride_bytes(1).expr(), "k * m * 2");
  EXPECT_EQ(a.swizzle(), 3);
  EXPECT_EQ(a.interleave(), 0);
  EXPECT_EQ(a.l2_promotion(), 2);
  EXPECT_EQ(a.oob_fill(), 0);
  // What the box's expression uses beside dims and parameters.
  EXPECT_EQ(plan->constant().at("FP32"), v1::FP32);
  const v1::TensorMap& bias = plan->launch(0).argument(1).tensor_map();
  EXPECT_THAT(ValuesOf(bias.dim()), ElementsAre(24));
  EXPECT_EQ(bias.stride_bytes_size(), 0);
}

TEST(TensorMapTest, LeftOutWithItsTensor) {
  const auto plan = Plan(kManifest, "gemm m=10 n=24 k=40 dtype=bf16");
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launch(0).argument_size(), 2);
  EXPECT_EQ(plan->launch(0).argument(1).tensor(), "d");
}

TEST(TensorMapTest, WhatTheDriverWouldRefuseIsNamed) {
  const auto error = [](const std::string& from, const std::string& to, const std::string& op, int64_t bm = 64) {
    const auto plan = Plan(Replaced(kManifest, from, to), op, bm);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kOutOfRange) << to;
    EXPECT_EQ(ErrorReason(plan.status()), "LAUNCH_GEOMETRY");
    return std::string(plan.status().message());
  };
  const std::string op = "gemm m=10 n=24 k=40 dtype=bf16";
  EXPECT_THAT(error("", "", op, 320), HasSubstr("template toy: tensor map of a: box 1 is 320 with bm=320"));
  EXPECT_THAT(error("", "", "gemm m=10 n=24 k=36 dtype=bf16"),
              HasSubstr("stride_bytes 0, which must be a multiple of 16, is 72"));
  EXPECT_THAT(error("\"k * m * 2\"", "\"2 ** 40\"", op),
              HasSubstr("stride_bytes 1, which must be a multiple of 16, is 1099511627776"));
  EXPECT_THAT(error("\"batch\"", "\"batch - 1\"", op), HasSubstr("dim 2 is 0"));
  EXPECT_THAT(error("\"batch\"", "\"2 ** 32 + 1\"", op), HasSubstr("dim 2 is 4294967297"));
  EXPECT_THAT(error("[\"span\"", "[\"12\"", op), HasSubstr("which must be a multiple of 16, is 24"));
  EXPECT_THAT(error("[\"span\"", "[\"72\"", op), HasSubstr("at most 128 with swizzle 3, is 144"));
  EXPECT_THAT(error("3 if", "7 if", op), HasSubstr("swizzle is 7"));
  EXPECT_THAT(error("l2_promotion: \"2\"", "l2_promotion: \"4\"", op), HasSubstr("l2_promotion is 4"));
  EXPECT_THAT(error("l2_promotion: \"2\"", "interleave: \"-1\"", op), HasSubstr("interleave is -1"));
  EXPECT_THAT(error("l2_promotion: \"2\"", "oob_fill: \"2\"", op), HasSubstr("oob_fill is 2"));
  EXPECT_THAT(error("l2_promotion: \"2\"", "element_stride: [\"1\", \"9\", \"1\"]", op),
              HasSubstr("element_stride 1 is 9"));
}

TEST(TensorMapTest, TheBinaryMustHave128Bytes) {
  auto plan = Plan(kManifest, "gemm m=10 n=24 k=40 dtype=bf16");
  ASSERT_TRUE(plan.ok()) << plan.status();
  worker::v1::CompileResult compiled;
  auto* kernel = compiled.add_kernel();
  kernel->set_symbol("rt_main");
  for (int i = 0; i < 2; ++i) {
    auto* parameter = kernel->add_parameter();
    parameter->set_ordinal(i);
    parameter->set_size(i == 0 ? 64 : 8);
    parameter->set_offset(i * 128);
  }
  EXPECT_EQ(AttachArtifact(compiled, *plan).message(),
            "kernel rt_main: argument 0 (tensor map of a) has 128 bytes, in the binary 64");
  kernel->mutable_parameter(0)->set_size(128);
  ASSERT_TRUE(AttachArtifact(compiled, *plan).ok());
  EXPECT_EQ(plan->launch(0).argument(1).offset(), 128);
}

}  // namespace
}  // namespace rooftune

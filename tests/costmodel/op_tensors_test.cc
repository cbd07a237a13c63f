// Tensors and scalars of operators.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "tests/costmodel/builtins.h"

namespace rooftune {
namespace {

TEST(OpTensorsTest, GemmOfEightBits) {
  const Op op = MustParse("gemm m=16 n=32 k=64 dtype=fp8_e4m3 scale=row out=bf16 bias=1");
  EXPECT_EQ(op.text, "gemm m=16 n=32 k=64 dtype=fp8_e4m3 out=bf16 bias=1 scale=row");
  EXPECT_EQ(op.names.at("bias_dtype"), v1::BF16);
  const auto tensors = TensorsOf(op.text);
  ASSERT_EQ(tensors.size(), 6u);
  EXPECT_EQ(tensors[2].spec.name(), "scale_a");
  EXPECT_EQ(tensors[2].elements, 16);
  EXPECT_EQ(tensors[3].elements, 32);
  const Work work = WorkOf(op.text);
  EXPECT_EQ(OpsOn(work, "tensor"), 2 * 16 * 32 * 64);
  EXPECT_EQ(OpsOn(work, "fp32"), 16 * 32 * 3);
  EXPECT_EQ(work.bytes_read, 16 * 64 + 32 * 64 + 4 * (16 + 32) + 2 * 32);
  const Op blocks = MustParse("gemm m=16 n=136 k=272 dtype=fp8_e5m2 out=fp32 scale=block128");
  EXPECT_EQ(TensorsOf(blocks.text)[2].elements, 16 * 3);
  EXPECT_EQ(TensorsOf(blocks.text)[3].elements, 2 * 3);
  EXPECT_EQ(OpsOn(WorkOf(blocks.text), "fp32"), 16 * 136 * 3 * 3);
  const Op whole = MustParse("gemm m=16 n=32 k=64 dtype=int8 out=fp32 scale=tensor");
  EXPECT_EQ(TensorsOf(whole.text)[2].elements, 1);
}

TEST(OpTensorsTest, QuantizedResultsOfAGemmHaveOneScale) {
  const Op op = MustParse("gemm m=16 n=32 k=64 dtype=fp8_e4m3 out=fp8_e4m3 scale=tensor bias=1 act=relu");
  const auto tensors = TensorsOf(op.text);
  ASSERT_EQ(tensors.size(), 7u);
  EXPECT_EQ(tensors[4].spec.name(), "scale_d");
  EXPECT_EQ(tensors[4].elements, 1);
  const Work work = WorkOf(op.text);
  EXPECT_EQ(OpsOn(work, "fp32"), 16 * 32 * 3);
  EXPECT_EQ(work.bytes_read, 16 * 64 + 32 * 64 + 4 * 3 + 2 * 32);
  EXPECT_EQ(work.bytes_written, 16 * 32);
  // Without 8-bit operands the bias has their type.
  EXPECT_EQ(WorkOf("gemm m=16 n=32 k=64 dtype=fp16 out=int8 bias=1").bytes_read, 2 * (16 * 64 + 32 * 64 + 32) + 4);
}

TEST(OpTensorsTest, WhatLiesBetweenTheRowsOfAGemmIsNotRead) {
  for (const std::string layout : {"nn", "nt", "tn", "tt"}) {
    const std::string text = "gemm m=16 n=32 k=64 batch=2 dtype=bf16 beta=1 bias=1 layout=" + layout;
    const bool a_turned = layout[0] == 't', b_turned = layout[1] == 't';
    const Op op = MustParse(text + " lda=72 ldb=80");
    const auto tensors = TensorsOf(op.text);
    EXPECT_EQ(tensors[0].elements, 2 * (a_turned ? 64 : 16) * 72) << layout;
    EXPECT_EQ(tensors[1].elements, 2 * (b_turned ? 32 : 64) * 80) << layout;
    EXPECT_EQ(WorkOf(op.text).bytes_read, WorkOf(text).bytes_read);
    EXPECT_EQ(WorkOf(text).bytes_read, 2 * (2 * (16 * 64 + 32 * 64 + 16 * 32) + 32));
  }
}

TEST(OpTensorsTest, GemmTensorsFollowLayoutAndFlags) {
  const auto dims = [](const std::string& text) {
    std::map<std::string, std::string> all;
    for (const OpTensorInstance& t : TensorsOf(text)) {
      std::string shape = DTypeName(t.spec.dtype());
      for (const auto& d : t.spec.dim()) shape += " " + std::to_string(d.value());
      all[t.spec.name()] = shape;
    }
    return all;
  };
  using Shapes = std::map<std::string, std::string>;
  EXPECT_EQ(dims("gemm m=2 n=3 k=5 dtype=bf16"),
            (Shapes{{"a", "bf16 1 2 5"}, {"b", "bf16 1 3 5"}, {"d", "bf16 1 2 3"}}));
  EXPECT_EQ(dims("gemm m=2 n=3 k=5 dtype=bf16 layout=nn").at("b"), "bf16 1 5 3");
  EXPECT_EQ(dims("gemm m=2 n=3 k=5 dtype=bf16 layout=tn").at("a"), "bf16 1 5 2");
  EXPECT_EQ(dims("gemm m=2 n=3 k=5 dtype=bf16 layout=tn").at("b"), "bf16 1 5 3");
  EXPECT_EQ(dims("gemm m=2 n=3 k=5 dtype=bf16 layout=tt").at("b"), "bf16 1 3 5");
  EXPECT_EQ(
      dims("gemm m=2 n=3 k=5 batch=7 dtype=fp16 out=fp32 beta=1 bias=1"),
      (Shapes{{"a", "fp16 7 2 5"}, {"b", "fp16 7 3 5"}, {"c", "fp32 7 2 3"}, {"bias", "fp16 3"}, {"d", "fp32 7 2 3"}}));
}

TEST(OpTensorsTest, OptionalTensorsAndScalars) {
  EXPECT_EQ(TensorsOf("rmsnorm rows=2 cols=3 dtype=fp16").size(), 3u);
  EXPECT_EQ(TensorsOf("rmsnorm rows=2 cols=3 dtype=fp16 residual=1").size(), 5u);
  const OpSchema* gemm = Catalog().Find("gemm");
  EXPECT_EQ(gemm->Scalars(MustParse("gemm m=1 n=1 k=1 dtype=fp16")).size(), 1u);
  EXPECT_EQ(gemm->Scalars(MustParse("gemm m=1 n=1 k=1 dtype=fp16 beta=1")).size(), 2u);
  const auto tensors = TensorsOf("elementwise n=4 dtype=fp32 chain=log(fma(a,b,c))");
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[2].spec.name(), "c");
  EXPECT_EQ(tensors[3].spec.name(), "y");
  // log needs positive inputs.
  EXPECT_EQ(tensors[0].fill_mean, 4);
}

TEST(OpTensorsTest, ChainInputsMayLackAxesAndHaveTheirOwnType) {
  const Op op = MustParse("elementwise n=6 d1=5 d2=4 dtype=bf16 chain=add(mul(a,b:2:fp32),c:02) out=fp32");
  const auto tensors = TensorsOf(op.text);
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors.at(0).bytes, 240);
  EXPECT_EQ(tensors.at(1).bytes, 16);  // 4 of fp32
  EXPECT_EQ(tensors.at(1).spec.dim(0).value(), 1);
  EXPECT_EQ(tensors.at(1).spec.dim(2).value(), 4);
  EXPECT_EQ(tensors.at(2).bytes, 48);   // 6·4 of bf16
  EXPECT_EQ(tensors.at(3).bytes, 480);  // 120 of fp32
  const Work work = WorkOf(op.text);
  EXPECT_EQ(work.bytes_read, 240 + 16 + 48);
  EXPECT_EQ(work.bytes_written, 480);
}

TEST(OpTensorsTest, ChainsInPlaceHaveOneTensorLess) {
  const Op op = MustParse("elementwise n=8 dtype=fp16 chain=add(a,sqrt(b)) inplace=1");
  const auto tensors = TensorsOf(op.text);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors.at(0).spec.name(), "io");
  EXPECT_EQ(tensors.at(0).spec.role(), v1::TensorSpec::INOUT);
  EXPECT_EQ(tensors.at(0).fill_mean, tensors.at(1).fill_mean);
  EXPECT_EQ(tensors.at(1).spec.name(), "b");
  const Work work = WorkOf(op.text);
  EXPECT_EQ(work.bytes_read, 32);
  EXPECT_EQ(work.bytes_written, 16);
  for (const char* text : {"elementwise n=8 dtype=fp16 chain=add(a:0,b) inplace=1",
                           "elementwise n=8 dtype=fp16 chain=add(a:fp32,b) inplace=1",
                           "elementwise n=8 dtype=fp16 chain=add(a,b) out=fp16",
                           "elementwise n=8 dtype=fp16 chain=add(a,b) out=fp32 inplace=1"}) {
    EXPECT_EQ(ErrorReason(Catalog().Parse(text).status()), "CONSTRAINT") << text;
  }
}

TEST(OpTensorsTest, ViewsReadWhatTheyReach) {
  // Every second column of 4 rows of 10: the last element reached is 3·10 + 8.
  const Op op = MustParse("contiguous d0=4 d1=5 dtype=bf16 s0=10 s1=2");
  const auto tensors = TensorsOf(op.text);
  EXPECT_EQ(tensors.at(0).elements, 39);
  EXPECT_EQ(WorkOf(op.text).bytes_read, 40);
  EXPECT_EQ(WorkOf(op.text).bytes_written, 40);
  // A row repeated, and windows that overlap.
  EXPECT_EQ(WorkOf("contiguous d0=8 d1=5 dtype=fp32 s1=1").bytes_read, 20);
  EXPECT_EQ(WorkOf("contiguous d0=8 d1=5 dtype=fp32 s0=1 s1=1").bytes_read, 48);
  for (const char* text : {"contiguous d0=4 d1=5 dtype=bf16 s0=10 s1=-2", "contiguous d0=4 dtype=bf16 s0=1 s1=3"}) {
    EXPECT_FALSE(Catalog().Parse(text).ok()) << text;
  }
}

TEST(OpTensorsTest, PermutationsMustBePermutations) {
  const auto extents = [](const std::string& text) {
    std::vector<int64_t> dims;
    const auto tensors = TensorsOf(text);
    for (const auto& dim : tensors.at(1).spec.dim()) dims.push_back(dim.value());
    return dims;
  };
  EXPECT_EQ(extents("permute d0=2 d1=3 dtype=fp32 perm=10"), (std::vector<int64_t>{3, 2, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(extents("permute d0=2 d1=3 d2=4 d3=5 dtype=fp32 perm=231"), (std::vector<int64_t>{2, 4, 5, 3, 1, 1, 1, 1}));
  EXPECT_EQ(extents("permute d0=2 d1=3 d2=4 d3=5 d4=6 dtype=fp32 perm=43210"),
            (std::vector<int64_t>{6, 5, 4, 3, 2, 1, 1, 1}));
  // Patches of a video: (B, C, T, pt, H, ph, W, pw) to (B, T, H, W, C, pt, ph, pw).
  EXPECT_EQ(extents("permute d0=2 d1=3 d2=4 d3=5 d4=6 d5=7 d6=8 d7=9 dtype=int8 perm=2461357"),
            (std::vector<int64_t>{2, 4, 6, 8, 3, 5, 7, 9}));
  for (const char* text : {"permute d0=2 d1=3 dtype=fp32 perm=11", "permute d0=2 d1=3 d2=4 dtype=fp32 perm=10",
                           "permute d0=2 d1=3 dtype=fp32 perm=30", "permute d0=2 dtype=fp32 perm=50",
                           "permute d0=2 d1=3 d2=2 dtype=fp32 perm=2010"}) {
    EXPECT_FALSE(Catalog().Parse(text).ok()) << text;
  }
}

TEST(OpTensorsTest, IndexTensorsHaveARange) {
  const auto tensors = TensorsOf("cross_entropy rows=3 vocab=5 dtype=bf16");
  EXPECT_EQ(tensors.at(0).fill_range, 0);
  EXPECT_EQ(tensors.at(1).spec.dtype(), v1::INT32);
  EXPECT_EQ(tensors.at(1).fill_range, 5);
  manifest::v1::Op proto = Catalog().Find("cross_entropy")->proto();
  proto.mutable_tensor(0)->set_fill_range("vocab");
  const auto floats = OpSchema::Create(proto, "test");
  EXPECT_EQ(ErrorReason(floats.status()), "BAD_VALUE") << "only int32 tensors are indices";
}

TEST(OpTensorsTest, DistinctIndicesNeedRoom) {
  manifest::v1::Op proto = Catalog().Find("cross_entropy")->proto();
  proto.clear_example();
  for (auto& tensor : *proto.mutable_tensor()) {
    if (tensor.name() == "targets") tensor.set_fill_distinct(true);
  }
  const auto schema = OpSchema::Create(proto, "test");
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_TRUE((*schema)->Parse("cross_entropy rows=5 vocab=5 dtype=bf16").ok());
  EXPECT_EQ(ErrorReason((*schema)->Parse("cross_entropy rows=6 vocab=5 dtype=bf16").status()), "BAD_VALUE");
  proto.mutable_tensor(0)->set_fill_skip(1);
  EXPECT_EQ(ErrorReason(OpSchema::Create(proto, "test").status()), "BAD_OP_SCHEMA") << "nothing would be left";
  proto.mutable_tensor(0)->set_fill_skip(0);
  proto.mutable_tensor(0)->set_fill_divisor("rows - 6");
  const auto divided = OpSchema::Create(proto, "test");
  ASSERT_TRUE(divided.ok()) << divided.status();
  EXPECT_FALSE((*divided)->Parse("cross_entropy rows=5 vocab=5 dtype=bf16").ok());
}

TEST(OpTensorsTest, QuantisedTensorsAndTheirFills) {
  const auto tensors = TensorsOf("quantize rows=3 cols=64 dtype=bf16 qtype=fp8_e4m3 granularity=tensor");
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[1].spec.name(), "scale");
  EXPECT_DOUBLE_EQ(tensors[1].fill_mean, 2.5 / 448);
  EXPECT_DOUBLE_EQ(tensors[1].fill_stddev, 0.05 / 448);
  const auto packed = TensorsOf("quantize rows=3 cols=64 dtype=bf16 qtype=int4 granularity=group32 scale_layout=col");
  EXPECT_EQ(packed[1].elements, 3 * 64);
  EXPECT_EQ(packed[1].bytes, 3 * 32);
  EXPECT_EQ(packed[2].spec.dim(0).value(), 2);
  EXPECT_EQ(packed[2].spec.dim(1).value(), 4);
}

TEST(OpTensorsTest, RopeCountsWhatItWritesOfTheCache) {
  const std::string shape = "rope tokens=20 heads_q=4 heads_kv=2 head_dim=6 dtype=bf16";
  const Work plain = WorkOf(shape), cached = WorkOf(shape + " blocks=100 kv_cache=1");
  EXPECT_EQ(OpsOn(cached, "fp32"), OpsOn(plain, "fp32"));
  const int row = 20 * 2 * 6 * 2;
  EXPECT_EQ(cached.bytes_read, plain.bytes_read + row + 20 * 8);
  EXPECT_EQ(cached.bytes_written, plain.bytes_written + 2 * row);
  EXPECT_EQ(WorkOf(shape + " blocks=100 kv_cache=1 slot_type=int32").bytes_read, plain.bytes_read + row + 20 * 4);
  const Work inplace = WorkOf(shape + " inplace=1");
  EXPECT_EQ(inplace.bytes_read, plain.bytes_read);
  EXPECT_EQ(inplace.bytes_written, plain.bytes_written);
  EXPECT_LT(inplace.footprint_bytes, plain.footprint_bytes);
  const auto tensors = TensorsOf(shape + " blocks=100 kv_cache=1");
  const auto slots =
      std::find_if(tensors.begin(), tensors.end(), [](const auto& t) { return t.spec.name() == "slots"; });
  ASSERT_NE(slots, tensors.end());
  EXPECT_EQ(slots->spec.dtype(), v1::INT64);
  EXPECT_EQ(slots->fill_range, 1600);
  EXPECT_TRUE(slots->fill_distinct);
  EXPECT_EQ(slots->fill_skip, 64);
}

}  // namespace
}  // namespace rooftune

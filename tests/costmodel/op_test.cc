#include "costmodel/op.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "costmodel/suggest.h"
#include "costmodel/text_proto.h"

namespace rooftune {
namespace {

const OpCatalog& Catalog() {
  static const OpCatalog* const catalog = [] {
    auto built = OpCatalog::Builtin();
    EXPECT_TRUE(built.ok()) << built.status();
    return new OpCatalog(built.ok() ? *std::move(built) : OpCatalog());
  }();
  return *catalog;
}

Op MustParse(const std::string& text) {
  const auto op = Catalog().Parse(text);
  EXPECT_TRUE(op.ok()) << text << ": " << op.status();
  return op.ok() ? *op : Op();
}

Work WorkOf(const std::string& text) {
  const Op op = MustParse(text);
  const auto work = Catalog().Find(op.kind)->ComputeWork(op);
  EXPECT_TRUE(work.ok()) << work.status();
  return work.ok() ? *work : Work();
}

Int128 OpsOn(const Work& work, const std::string& pipe) {
  Int128 ops = 0;
  for (const PipeOps& p : work.pipe_ops) {
    if (p.pipe == pipe) ops += p.ops;
  }
  return ops;
}

TEST(OpTest, BuiltinKindsAndTheirExamples) {
  std::vector<std::string> kinds;
  for (const OpSchema* schema : Catalog().schemas()) {
    kinds.push_back(schema->kind());
    const Op op = MustParse(schema->proto().example());
    EXPECT_EQ(op.kind, schema->kind());
    EXPECT_TRUE(schema->ComputeWork(op).ok());
    EXPECT_TRUE(schema->AccumulationLength(op).ok());
    EXPECT_EQ(schema->proto().reference().symbol(), "rt_reference");
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"contiguous", "cross_entropy", "dequantize", "elementwise", "gemm",
                                             "gemm_wq", "glu", "layernorm", "moe_gemm", "permute", "quantize", "reduce",
                                             "rmsnorm", "rope", "softmax"}));
}

TEST(OpTest, CanonicalTextIsInSchemaOrderWithoutDefaults) {
  const Op op = MustParse("  gemm  dtype=bf16 act=none k=64 batch=1   n=32 m=16 layout=nt bias=1 ");
  EXPECT_EQ(op.text, "gemm m=16 n=32 k=64 dtype=bf16 bias=1");
  EXPECT_EQ(MustParse(op.text).text, op.text);
  EXPECT_EQ(op.attributes.at("layout"), "nt");
  EXPECT_EQ(op.attributes.at("bias"), "1");
  EXPECT_EQ(op.dims, (std::vector<std::pair<std::string, int64_t>>{{"m", 16}, {"n", 32}, {"k", 64}, {"batch", 1}}));
  EXPECT_EQ(op.names.at("dtype"), v1::BF16);
  EXPECT_EQ(op.names.at("BF16"), v1::BF16);
  EXPECT_EQ(op.names.at("LAYOUT_TT"), 3);
  EXPECT_EQ(op.names.at("layout"), 1);
  EXPECT_EQ(op.names.at("ACT_GELU"), 2);
  EXPECT_EQ(op.names.at("out_dtype"), v1::BF16);
}

TEST(OpTest, GemmOfEightBits) {
  const Op op = MustParse("gemm m=16 n=32 k=64 dtype=fp8_e4m3 scale=row out=bf16 bias=1");
  EXPECT_EQ(op.text, "gemm m=16 n=32 k=64 dtype=fp8_e4m3 out=bf16 bias=1 scale=row");
  EXPECT_EQ(op.names.at("bias_dtype"), v1::BF16);
  const auto tensors = Catalog().Find("gemm")->Tensors(op);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 6u);
  EXPECT_EQ((*tensors)[2].spec.name(), "scale_a");
  EXPECT_EQ((*tensors)[2].elements, 16);
  EXPECT_EQ((*tensors)[3].elements, 32);
  const Work work = WorkOf(op.text);
  EXPECT_EQ(OpsOn(work, "tensor"), 2 * 16 * 32 * 64);
  EXPECT_EQ(OpsOn(work, "fp32"), 16 * 32 * 3);
  EXPECT_EQ(work.bytes_read, 16 * 64 + 32 * 64 + 4 * (16 + 32) + 2 * 32);
  const Op blocks = MustParse("gemm m=16 n=136 k=272 dtype=fp8_e5m2 out=fp32 scale=block128");
  EXPECT_EQ((*Catalog().Find("gemm")->Tensors(blocks))[2].elements, 16 * 3);
  EXPECT_EQ((*Catalog().Find("gemm")->Tensors(blocks))[3].elements, 2 * 3);
  EXPECT_EQ(OpsOn(WorkOf(blocks.text), "fp32"), 16 * 136 * 3 * 3);
  const Op whole = MustParse("gemm m=16 n=32 k=64 dtype=int8 out=fp32 scale=tensor");
  EXPECT_EQ((*Catalog().Find("gemm")->Tensors(whole))[2].elements, 1);
}

TEST(OpTest, QuantizedResultsOfAGemmHaveOneScale) {
  const Op op = MustParse("gemm m=16 n=32 k=64 dtype=fp8_e4m3 out=fp8_e4m3 scale=tensor bias=1 act=relu");
  const auto tensors = Catalog().Find("gemm")->Tensors(op);
  ASSERT_TRUE(tensors.ok());
  ASSERT_EQ(tensors->size(), 7u);
  EXPECT_EQ((*tensors)[4].spec.name(), "scale_d");
  EXPECT_EQ((*tensors)[4].elements, 1);
  const Work work = WorkOf(op.text);
  EXPECT_EQ(OpsOn(work, "fp32"), 16 * 32 * 3);
  EXPECT_EQ(work.bytes_read, 16 * 64 + 32 * 64 + 4 * 3 + 2 * 32);
  EXPECT_EQ(work.bytes_written, 16 * 32);
  // Without 8-bit operands the bias has their type.
  EXPECT_EQ(WorkOf("gemm m=16 n=32 k=64 dtype=fp16 out=int8 bias=1").bytes_read, 2 * (16 * 64 + 32 * 64 + 32) + 4);
}

TEST(OpTest, WhatLiesBetweenTheRowsOfAGemmIsNotRead) {
  for (const std::string layout : {"nn", "nt", "tn", "tt"}) {
    const std::string text = "gemm m=16 n=32 k=64 batch=2 dtype=bf16 beta=1 bias=1 layout=" + layout;
    const bool a_turned = layout[0] == 't', b_turned = layout[1] == 't';
    const Op op = MustParse(text + " lda=72 ldb=80");
    const auto tensors = Catalog().Find("gemm")->Tensors(op);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    EXPECT_EQ((*tensors)[0].elements, 2 * (a_turned ? 64 : 16) * 72) << layout;
    EXPECT_EQ((*tensors)[1].elements, 2 * (b_turned ? 32 : 64) * 80) << layout;
    EXPECT_EQ(WorkOf(op.text).bytes_read, WorkOf(text).bytes_read);
    EXPECT_EQ(WorkOf(text).bytes_read, 2 * (2 * (16 * 64 + 32 * 64 + 16 * 32) + 32));
  }
}

TEST(OpTest, ChainsMayHoldBlanksWithinParentheses) {
  const Op op = MustParse("elementwise chain=gelu(mul(a, b)) n=10 dtype=fp32");
  EXPECT_EQ(op.text, "elementwise n=10 dtype=fp32 chain=gelu(mul(a,b))");
  EXPECT_EQ(op.names.at("chain"), 2);
  EXPECT_EQ(op.names.at("chain_inputs"), 2);
  EXPECT_EQ(op.names.at("chain_fp32_ops"), 8);
  EXPECT_EQ(op.names.at("chain_sfu_ops"), 1);
  EXPECT_EQ(op.lists.at("chain"), (std::vector<int64_t>{100, 101, 3, 17}));
}

TEST(OpTest, RefusesWithReasonAndAdvice) {
  const struct {
    std::string text;
    const char* reason;
    const char* expected;
  } cases[] = {
      {"gem m=1 n=1 k=1 dtype=bf16", "UNKNOWN_OP", "did you mean gemm?"},
      {"", "UNKNOWN_OP", "known: contiguous, cross_entropy, dequantize, elementwise"},
      {"gemm m=1 n=1 dtype=bf16", "MISSING_DIM", "needs k="},
      {"gemm m=1 n=1 k=1", "MISSING_ATTRIBUTE", "needs dtype="},
      {"gemm m=1 n=1 k=1 dtype=bf17", "BAD_VALUE", "did you mean bf16?"},
      {"gemm m=1 n=1 k=1 dtype=int32", "BAD_VALUE", "fp32, fp16, bf16"},
      {"gemm m=1 n=1 k=1 dtype=int8", "CONSTRAINT", "8-bit operands need an out"},
      {"gemm m=1 n=1 k=1 dtype=int8 out=fp32 layout=nn", "CONSTRAINT", "8-bit operands need layout=nt"},
      {"gemm m=4 n=4 k=8 dtype=bf16 lda=8", "CONSTRAINT", "lda is longer than a row of a"},
      {"gemm m=4 n=4 k=8 dtype=bf16 layout=nn ldb=3", "CONSTRAINT", "ldb is longer than a row of b"},
      {"gemm m=1 n=1 k=1 dtype=bf16 out=int8 beta=1", "CONSTRAINT", "beta is not for results of 8 bits"},
      {"gemm m=1 n=1 k=1 dtype=bf16 scale=row", "CONSTRAINT", "scale is for 8-bit operands"},
      {"gemm m=1 n=1 k=1 dtype=bf16 laoyut=nt", "UNKNOWN_ATTRIBUTE", "did you mean layout?"},
      {"gemm m=1 n=1 k=1 dtype=bf16 m=1", "DUPLICATE", "m is given twice"},
      {"gemm m=1 n=1 k=1 dtype=bf16 bias=2", "BAD_VALUE", "not within [0, 1]"},
      {"gemm m=0 n=1 k=1 dtype=bf16", "BAD_VALUE", "m is 0"},
      {"gemm m=-1 n=1 k=1 dtype=bf16", "BAD_VALUE", "plain decimal"},
      {"gemm m=4k n=1 k=1 dtype=bf16", "BAD_VALUE", "plain decimal"},
      {"gemm m=+4 n=1 k=1 dtype=bf16", "BAD_VALUE", "plain decimal"},
      {"gemm m=04 n=1 k=1 dtype=bf16", "BAD_VALUE", "plain decimal"},
      {"gemm m=0x4 n=1 k=1 dtype=bf16", "BAD_VALUE", "plain decimal"},
      {"gemm m=99999999999999999999 n=1 k=1 dtype=bf16", "BAD_VALUE", "not within"},
      {"gemm m=1099511627777 n=1 k=1 dtype=bf16", "BAD_VALUE", "not within [1, 1099511627776]"},
      {"gemm m n=1 k=1 dtype=bf16", "BAD_VALUE", "not of the form"},
      {"gemm m= n=1 k=1 dtype=bf16", "BAD_VALUE", "plain decimal"},
      {"gemm m=1\tn=1", "BAD_VALUE", "printable"},
      {"gemm m=1 n=1 k=1 dtype=bf16 act=r\xc3\xa9lu", "BAD_VALUE", "printable"},
      {"gemm " + std::string(5000, 'x'), "BAD_VALUE", "longer than 4096"},
      {"elementwise n=4 dtype=fp32 chain=adds(a,b)", "BAD_VALUE", "did you mean add?"},
      {"gemm m=1099511627776 n=1099511627776 k=1 dtype=bf16", "BAD_VALUE", "tensor d: is larger than 2^62 bytes"},
  };
  for (const auto& c : cases) {
    const auto op = Catalog().Parse(c.text);
    ASSERT_FALSE(op.ok()) << c.text;
    EXPECT_EQ(op.status().code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_EQ(ErrorReason(op.status()), c.reason) << c.text << ": " << op.status();
    EXPECT_NE(std::string(op.status().message()).find(c.expected), std::string::npos) << c.text << ": " << op.status();
  }
}

// Whatever text comes in, parsing ends with a value or an error, and an accepted text is its own canonical form.
TEST(OpTest, MutatedTextsNeverBreakTheParser) {
  std::mt19937 random(1);
  const std::string letters = "gemsoftaxrndk=0123456789 (),-_bf";
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    const auto schemas = Catalog().schemas();
    std::string text = schemas[random() % schemas.size()]->proto().example();
    for (unsigned edits = random() % 3 + 1; edits > 0; --edits) {
      const size_t at = random() % text.size();
      const char letter = letters[random() % letters.size()];
      const unsigned kind = random() % 3;
      if (kind == 0) text[at] = letter;
      if (kind == 1) text.insert(at, 1, letter);
      if (kind == 2) text.erase(at, 1);
    }
    const auto op = Catalog().Parse(text);
    if (!op.ok()) {
      EXPECT_EQ(op.status().code(), absl::StatusCode::kInvalidArgument) << text;
      continue;
    }
    ++accepted;
    const auto again = Catalog().Parse(op->text);
    ASSERT_TRUE(again.ok()) << text << " -> " << op->text;
    EXPECT_EQ(again->text, op->text);
    EXPECT_TRUE(Catalog().Find(op->kind)->ComputeWork(*op).ok()) << text;
  }
  EXPECT_GT(accepted, 100);
}

TEST(OpTest, GemmTensorsFollowLayoutAndFlags) {
  const auto dims = [](const std::string& text) {
    const Op op = MustParse(text);
    std::map<std::string, std::string> all;
    const auto tensors = Catalog().Find("gemm")->Tensors(op);
    for (const OpTensorInstance& t : *tensors) {
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

TEST(OpTest, OptionalTensorsAndScalars) {
  const OpSchema* rms = Catalog().Find("rmsnorm");
  EXPECT_EQ(rms->Tensors(MustParse("rmsnorm rows=2 cols=3 dtype=fp16"))->size(), 3u);
  EXPECT_EQ(rms->Tensors(MustParse("rmsnorm rows=2 cols=3 dtype=fp16 residual=1"))->size(), 5u);
  const OpSchema* gemm = Catalog().Find("gemm");
  EXPECT_EQ(gemm->Scalars(MustParse("gemm m=1 n=1 k=1 dtype=fp16")).size(), 1u);
  EXPECT_EQ(gemm->Scalars(MustParse("gemm m=1 n=1 k=1 dtype=fp16 beta=1")).size(), 2u);
  const auto tensors =
      Catalog().Find("elementwise")->Tensors(MustParse("elementwise n=4 dtype=fp32 chain=log(fma(a,b,c))"));
  ASSERT_EQ(tensors->size(), 4u);
  EXPECT_EQ((*tensors)[2].spec.name(), "c");
  EXPECT_EQ((*tensors)[3].spec.name(), "y");
  // log needs positive inputs.
  EXPECT_EQ((*tensors)[0].fill_mean, 4);
}

// Loops of the definition with every operation counted.
struct Counter {
  int64_t fma = 0, fp32 = 0, sfu = 0, read = 0, written = 0;
};

TEST(OpTest, GemmWorkEqualsCountedLoops) {
  for (int batch = 1; batch <= 2; ++batch) {
    Counter c;
    const int m = 3, n = 5, k = 7;
    for (int b = 0; b < batch; ++b) {
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          for (int l = 0; l < k; ++l) c.fma += 1;
          c.fp32 += 2;  // beta · c added
          c.fp32 += 1;  // bias
          c.fp32 += 1;  // relu
          c.read += 2;
          c.written += 2;
        }
        for (int l = 0; l < k; ++l) c.read += 2;
      }
      for (int j = 0; j < n; ++j) {
        for (int l = 0; l < k; ++l) c.read += 2;
      }
    }
    for (int j = 0; j < n; ++j) c.read += 2;
    const Work work = WorkOf("gemm m=3 n=5 k=7 dtype=fp16 beta=1 bias=1 act=relu batch=" + std::to_string(batch));
    EXPECT_EQ(OpsOn(work, "tensor"), 2 * c.fma);
    EXPECT_EQ(OpsOn(work, "fp32"), c.fp32);
    EXPECT_EQ(work.bytes_read, c.read);
    EXPECT_EQ(work.bytes_written, c.written);
    EXPECT_EQ(work.footprint_bytes, c.read + c.written);
  }
  const Work fp32 = WorkOf("gemm m=3 n=5 k=7 dtype=fp32");
  EXPECT_EQ(OpsOn(fp32, "tensor"), 0);
  EXPECT_EQ(OpsOn(fp32, "fp32"), 2 * 3 * 5 * 7);
  const Work gelu = WorkOf("gemm m=3 n=5 k=7 dtype=bf16 act=gelu");
  EXPECT_EQ(OpsOn(gelu, "sfu"), 15);
  EXPECT_EQ(OpsOn(gelu, "fp32"), 7 * 15);
}

TEST(OpTest, LossRotationAndReductionWorkEqualsCountedLoops) {
  Counter loss, turn;
  for (int r = 0; r < 3; ++r) {
    for (int j = 0; j < 5; ++j) {
      if (j > 0) loss.fp32 += 2;  // maximum, sum
      loss.fp32 += 2 + 1;         // exponent, scaling of the gradient
      loss.sfu += 1;
      loss.read += 2;
      loss.written += 2;
    }
    loss.fp32 += 3 + 1;  // loss, target of the gradient
    loss.sfu += 1;       // logarithm
    loss.read += 4;
    loss.written += 4;
  }
  const Work cross_entropy = WorkOf("cross_entropy rows=3 vocab=5 dtype=bf16 grad=1");
  EXPECT_EQ(OpsOn(cross_entropy, "fp32"), loss.fp32);
  EXPECT_EQ(OpsOn(cross_entropy, "sfu"), loss.sfu);
  EXPECT_EQ(cross_entropy.bytes_read, loss.read);
  EXPECT_EQ(cross_entropy.bytes_written, loss.written);
  EXPECT_EQ(WorkOf("cross_entropy rows=3 vocab=5 dtype=bf16").bytes_written, 3 * 4);

  for (int t = 0; t < 2; ++t) {
    for (int pair = 0; pair < (4 + 1) * 3; ++pair) {
      turn.fp32 += 2 * (1 + 2);  // a product and a fused multiply-add for each of the two
      turn.read += 4;
      turn.written += 4;
    }
    turn.read += 3 * 2 * 4;  // cosines and sines
  }
  const Work rope = WorkOf("rope tokens=2 heads_q=4 heads_kv=1 head_dim=6 dtype=bf16");
  EXPECT_EQ(OpsOn(rope, "fp32"), turn.fp32);
  EXPECT_EQ(rope.bytes_read, turn.read);
  EXPECT_EQ(rope.bytes_written, turn.written);

  EXPECT_EQ(OpsOn(WorkOf("reduce rows=3 cols=5 dtype=fp16"), "fp32"), 3 * 4);
  EXPECT_EQ(OpsOn(WorkOf("reduce rows=3 cols=5 dtype=fp16 axis=col kind=mean"), "fp32"), 5 * 3);
  EXPECT_EQ(OpsOn(WorkOf("reduce rows=3 cols=5 dtype=fp16 axis=full kind=var"), "fp32"), 4 * 15);
  EXPECT_EQ(WorkOf("reduce rows=3 cols=5 dtype=fp16 axis=col kind=var").bytes_written, 2 * 5 * 4);
  const Work permute = WorkOf("permute d0=3 d1=5 dtype=fp16 perm=10");
  EXPECT_EQ(permute.bytes_read, 30);
  EXPECT_EQ(permute.bytes_written, 30);
  EXPECT_TRUE(permute.pipe_ops.empty());
}

TEST(OpTest, ChainInputsMayLackAxesAndHaveTheirOwnType) {
  const Op op = MustParse("elementwise n=6 d1=5 d2=4 dtype=bf16 chain=add(mul(a,b:2:fp32),c:02) out=fp32");
  const auto tensors = Catalog().Find("elementwise")->Tensors(op);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 4u);
  EXPECT_EQ(tensors->at(0).bytes, 240);
  EXPECT_EQ(tensors->at(1).bytes, 16);  // 4 of fp32
  EXPECT_EQ(tensors->at(1).spec.dim(0).value(), 1);
  EXPECT_EQ(tensors->at(1).spec.dim(2).value(), 4);
  EXPECT_EQ(tensors->at(2).bytes, 48);   // 6·4 of bf16
  EXPECT_EQ(tensors->at(3).bytes, 480);  // 120 of fp32
  const Work work = WorkOf(op.text);
  EXPECT_EQ(work.bytes_read, 240 + 16 + 48);
  EXPECT_EQ(work.bytes_written, 480);
}

TEST(OpTest, ChainsInPlaceHaveOneTensorLess) {
  const Op op = MustParse("elementwise n=8 dtype=fp16 chain=add(a,sqrt(b)) inplace=1");
  const auto tensors = Catalog().Find("elementwise")->Tensors(op);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ(tensors->at(0).spec.name(), "io");
  EXPECT_EQ(tensors->at(0).spec.role(), v1::TensorSpec::INOUT);
  EXPECT_EQ(tensors->at(0).fill_mean, tensors->at(1).fill_mean);
  EXPECT_EQ(tensors->at(1).spec.name(), "b");
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

TEST(OpTest, ViewsReadWhatTheyReach) {
  // Every second column of 4 rows of 10: the last element reached is 3·10 + 8.
  const Op op = MustParse("contiguous d0=4 d1=5 dtype=bf16 s0=10 s1=2");
  const auto tensors = Catalog().Find("contiguous")->Tensors(op);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->at(0).elements, 39);
  EXPECT_EQ(WorkOf(op.text).bytes_read, 40);
  EXPECT_EQ(WorkOf(op.text).bytes_written, 40);
  // A row repeated, and windows that overlap.
  EXPECT_EQ(WorkOf("contiguous d0=8 d1=5 dtype=fp32 s1=1").bytes_read, 20);
  EXPECT_EQ(WorkOf("contiguous d0=8 d1=5 dtype=fp32 s0=1 s1=1").bytes_read, 48);
  for (const char* text : {"contiguous d0=4 d1=5 dtype=bf16 s0=10 s1=-2", "contiguous d0=4 dtype=bf16 s0=1 s1=3"}) {
    EXPECT_FALSE(Catalog().Parse(text).ok()) << text;
  }
}

TEST(OpTest, PermutationsMustBePermutations) {
  const OpSchema* permute = Catalog().Find("permute");
  const auto extents = [&](const std::string& text) {
    std::vector<int64_t> dims;
    const auto tensors = permute->Tensors(MustParse(text));
    for (const auto& dim : tensors->at(1).spec.dim()) dims.push_back(dim.value());
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

TEST(OpTest, IndexTensorsHaveARange) {
  const auto tensors = Catalog().Find("cross_entropy")->Tensors(MustParse("cross_entropy rows=3 vocab=5 dtype=bf16"));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->at(0).fill_range, 0);
  EXPECT_EQ(tensors->at(1).spec.dtype(), v1::INT32);
  EXPECT_EQ(tensors->at(1).fill_range, 5);
  manifest::v1::Op proto = Catalog().Find("cross_entropy")->proto();
  proto.mutable_tensor(0)->set_fill_range("vocab");
  const auto floats = OpSchema::Create(proto, "test");
  EXPECT_EQ(ErrorReason(floats.status()), "BAD_VALUE") << "only int32 tensors are indices";
}

TEST(OpTest, DistinctIndicesNeedRoom) {
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

TEST(OpTest, RowWorkEqualsCountedLoops) {
  Counter s, r;
  const int rows = 3, cols = 5;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) {
      if (j > 0) s.fp32 += 2;  // maximum, sum
      s.fp32 += 2;             // exponent
      s.sfu += 1;
      s.fp32 += 1;  // scaling
      s.read += 2;
      s.written += 2;
      r.fp32 += 1;              // residual
      r.fp32 += j > 0 ? 2 : 1;  // squares
      r.fp32 += 2;              // rsqrt, weight
      r.read += 4 + 4;
      r.written += 4 + 4;
    }
    r.fp32 += 2;  // mean and eps
    r.sfu += 1;
  }
  r.read += cols * 4;
  const Work softmax = WorkOf("softmax rows=3 cols=5 dtype=bf16");
  EXPECT_EQ(OpsOn(softmax, "fp32"), s.fp32);
  EXPECT_EQ(OpsOn(softmax, "sfu"), s.sfu);
  EXPECT_EQ(softmax.bytes_read, s.read);
  EXPECT_EQ(softmax.bytes_written, s.written);
  const Work rms = WorkOf("rmsnorm rows=3 cols=5 dtype=fp32 residual=1");
  EXPECT_EQ(OpsOn(rms, "fp32"), r.fp32);
  EXPECT_EQ(OpsOn(rms, "sfu"), r.sfu);
  EXPECT_EQ(rms.bytes_read, r.read);
  EXPECT_EQ(rms.bytes_written, r.written);
  const Work chain = WorkOf("elementwise n=7 dtype=bf16 chain=silu(fma(a,b,a))");
  EXPECT_EQ(OpsOn(chain, "fp32"), 7 * (2 + 4));
  EXPECT_EQ(OpsOn(chain, "sfu"), 7);
  EXPECT_EQ(chain.bytes_read, 2 * 7 * 2);
  EXPECT_EQ(chain.bytes_written, 7 * 2);
}

TEST(OpTest, SoftmaxVariantsCountWhatIsAttendedTo) {
  for (int bits = 0; bits < 16; ++bits) {
    const bool log = (bits & 1) != 0, causal = (bits & 2) != 0, scaled = (bits & 4) != 0, mask = (bits & 8) != 0;
    const std::string text = std::string("softmax rows=3 cols=5 dtype=bf16") + (log ? " log=1" : "") +
                             (causal ? " causal=1" : "") + (scaled ? " scaled=1" : "") + (mask ? " mask=1" : "");
    SCOPED_TRACE(text);
    EXPECT_EQ(MustParse(text).text, text);
    Counter s;
    for (int i = 0; i < 3; ++i) {
      const int attended = causal ? i + 1 + 5 - 3 : 5;
      for (int j = 0; j < attended; ++j) {
        if (mask) s.fp32 += scaled ? 2 : 1;  // t
        if (j > 0) s.fp32 += 2;              // maximum, sum
        s.fp32 += 2;                         // exponent
        s.sfu += 1;
        s.fp32 += log && scaled && !mask ? 2 : 1;  // result
        s.read += mask ? 4 : 2;
      }
      if (log) {
        s.fp32 += 2;  // maximum + ln 2 · log2(sum)
        s.sfu += 1;
      }
      s.written += 5 * 2;
    }
    const Work work = WorkOf(text);
    EXPECT_EQ(OpsOn(work, "fp32"), s.fp32);
    EXPECT_EQ(OpsOn(work, "sfu"), s.sfu);
    EXPECT_EQ(work.bytes_read, s.read);
    EXPECT_EQ(work.bytes_written, s.written);
  }
  EXPECT_EQ(ErrorReason(Catalog().Parse("softmax rows=6 cols=5 dtype=bf16 causal=1").status()), "CONSTRAINT");
  EXPECT_EQ(Catalog().Find("softmax")->Scalars(MustParse("softmax rows=2 cols=3 dtype=fp16")).size(), 0u);
  EXPECT_EQ(Catalog().Find("softmax")->Scalars(MustParse("softmax rows=2 cols=3 dtype=fp16 scaled=1")).size(), 1u);
}

TEST(OpTest, LayernormAndGluWorkEqualsCountedLoops) {
  Counter l, g;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 5; ++j) {
      l.fp32 += 1;              // residual
      l.fp32 += j > 0 ? 1 : 0;  // sum
      l.fp32 += 1;              // difference
      l.fp32 += j > 0 ? 2 : 1;  // squares
      l.fp32 += 2 + 1 + 1;      // rsqrt, weight; bias; relu
      l.read += 2 + 2;
      l.written += 2 + 2;
      g.fp32 += 4 + 1;
      g.sfu += 1;
      g.read += 4 + 4;
      g.written += 4;
    }
    l.fp32 += 1 + 2;  // mean; variance and eps
    l.sfu += 1;
  }
  l.read += 2 * 5 * 2;
  const Work norm = WorkOf("layernorm rows=3 cols=5 dtype=fp16 residual=1 bias=1 act=relu");
  EXPECT_EQ(OpsOn(norm, "fp32"), l.fp32);
  EXPECT_EQ(OpsOn(norm, "sfu"), l.sfu);
  EXPECT_EQ(norm.bytes_read, l.read);
  EXPECT_EQ(norm.bytes_written, l.written);
  EXPECT_EQ(OpsOn(WorkOf("layernorm rows=3 cols=5 dtype=fp16"), "fp32"), l.fp32 - 3 * 15);
  for (const std::string kind : {"layernorm", "rmsnorm"}) {
    const Work plain = WorkOf(kind + " rows=3 cols=5 dtype=fp16");
    const std::map<std::string, std::pair<int, int>> acts = {{"relu", {1, 0}}, {"gelu", {7, 1}}, {"silu", {4, 1}}};
    for (const auto& [act, ops] : acts) {
      const Work activated = WorkOf(kind + " rows=3 cols=5 dtype=fp16 act=" + act);
      EXPECT_EQ(OpsOn(activated, "fp32"), OpsOn(plain, "fp32") + ops.first * 15) << kind << act;
      EXPECT_EQ(OpsOn(activated, "sfu"), OpsOn(plain, "sfu") + ops.second * 15) << kind << act;
      const Work both = WorkOf(kind + " rows=3 cols=5 dtype=fp16 act=" + act + " pre=" + act);
      EXPECT_EQ(OpsOn(both, "fp32"), OpsOn(plain, "fp32") + 2 * ops.first * 15) << kind << act;
      EXPECT_EQ(OpsOn(both, "sfu"), OpsOn(plain, "sfu") + 2 * ops.second * 15) << kind << act;
    }
  }
  for (const std::string packed : {"", " packed=0"}) {
    const Work glu = WorkOf("glu rows=3 cols=5 dtype=fp32" + packed);
    EXPECT_EQ(OpsOn(glu, "fp32"), g.fp32);
    EXPECT_EQ(OpsOn(glu, "sfu"), g.sfu);
    EXPECT_EQ(glu.bytes_read, g.read);
    EXPECT_EQ(glu.bytes_written, g.written);
  }
  EXPECT_EQ(OpsOn(WorkOf("glu rows=3 cols=5 dtype=fp32 act=gelu"), "fp32"), g.fp32 + 3 * 15);
}

TEST(OpTest, QuantisedNormsWriteEightBitsAndScales) {
  for (const std::string kind : {"rmsnorm", "layernorm"}) {
    const Work plain = WorkOf(kind + " rows=3 cols=5 dtype=bf16");
    for (const std::string quant : {"fp8_e4m3", "int8"}) {
      const Op op = MustParse(kind + " rows=3 cols=5 dtype=bf16 quant=" + quant);
      EXPECT_EQ(op.text, kind + " rows=3 cols=5 dtype=bf16 quant=" + quant);
      const auto tensors = Catalog().Find(kind)->Tensors(op);
      ASSERT_TRUE(tensors.ok()) << tensors.status();
      EXPECT_EQ((*tensors)[2].spec.dtype(), quant == "int8" ? v1::INT8 : v1::FP8_E4M3);
      EXPECT_EQ(tensors->back().spec.name(), "scale");
      EXPECT_EQ(tensors->back().spec.dtype(), v1::FP32);
      EXPECT_EQ(tensors->back().elements, 3);
      const Work work = WorkOf(op.text);
      // Maximum cols - 1, the scale, products.
      EXPECT_EQ(OpsOn(work, "fp32"), OpsOn(plain, "fp32") + 3 * (4 + 1 + 5));
      EXPECT_EQ(work.bytes_read, plain.bytes_read);
      EXPECT_EQ(work.bytes_written, 3 * 5 + 3 * 4);
    }
  }
}

// What is counted one by one for a tensor of 130 × 256, with a scale for each `rows` × `cols` of them.
Counter CountQuantisation(int rows, int cols, bool given) {
  Counter c;
  for (int r = 0; r < 130; r += rows) {
    for (int j = 0; j < 256; j += cols) {
      for (int i = 0; i < std::min(rows, 130 - r) * std::min(cols, 256 - j); ++i) {
        if (!given && i > 0) c.fp32 += 1;  // maximum
        c.fp32 += 1;                       // product with the inverse
        c.read += 2;
        c.written += 1;
      }
      if (!given) c.fp32 += 2;  // floor, scale
      (given ? c.read : c.written) += 4;
    }
  }
  return c;
}

TEST(OpTest, QuantisationWorkEqualsCountedLoops) {
  struct Case {
    const char* granularity;
    int rows, cols;
  };
  for (const Case& one : {Case{"tensor", 130, 256},
                          {"token", 1, 256},
                          {"block128", 128, 128},
                          {"group32", 1, 32},
                          {"group64", 1, 64},
                          {"group128", 1, 128}}) {
    SCOPED_TRACE(one.granularity);
    const bool given = one.rows == 130;
    const Counter c = CountQuantisation(one.rows, one.cols, given);
    const std::string text = std::string(" rows=130 cols=256 dtype=bf16 qtype=int8 granularity=") + one.granularity;
    const Work work = WorkOf("quantize" + text);
    EXPECT_EQ(OpsOn(work, "fp32"), c.fp32);
    EXPECT_EQ(work.bytes_read, c.read);
    EXPECT_EQ(work.bytes_written, c.written);
    const Work back = WorkOf("dequantize" + text);
    EXPECT_EQ(OpsOn(back, "fp32"), 130 * 256);
    EXPECT_EQ(back.bytes_written, 2 * 130 * 256);
    // Scales are read either way.
    EXPECT_EQ(back.bytes_read, 130 * 256 + (given ? 4 : c.written - 130 * 256));
  }
  // Rows of scales are padded to 16 bytes, int4 is half a byte.
  EXPECT_EQ(
      WorkOf("quantize rows=130 cols=256 dtype=bf16 qtype=int4 granularity=group64 scale_layout=col").bytes_written,
      130 * 256 / 2 + 4 * 132 * 4);
}

TEST(OpTest, QuantisationsParseAndRefuse) {
  EXPECT_EQ(MustParse("quantize qtype=int8 cols=64 rows=3 granularity=token dtype=bf16 scale_layout=row").text,
            "quantize rows=3 cols=64 dtype=bf16 qtype=int8");
  for (const char* text :
       {"quantize rows=3 cols=65 dtype=bf16 qtype=int8 granularity=group32",
        "quantize rows=3 cols=65 dtype=bf16 qtype=int4", "quantize rows=3 cols=64 dtype=bf16 qtype=bf16",
        "quantize rows=3 cols=64 dtype=bf16 qtype=int8 scale_layout=col",
        "quantize rows=3 cols=64 dtype=bf16 qtype=int8 granularity=tensor scale_pow2=1",
        "dequantize rows=3 cols=65 dtype=bf16 qtype=int8 granularity=group32",
        "rope tokens=3 heads_q=2 heads_kv=1 head_dim=8 dtype=bf16 blocks=2",
        "rope tokens=33 heads_q=2 heads_kv=1 head_dim=8 dtype=bf16 kv_cache=1 blocks=2"}) {
    EXPECT_FALSE(Catalog().Parse(text).ok()) << text;
  }
}

TEST(OpTest, QuantisedTensorsAndTheirFills) {
  const auto tensors = Catalog()
                           .Find("quantize")
                           ->Tensors(MustParse("quantize rows=3 cols=64 dtype=bf16 qtype=fp8_e4m3 granularity=tensor"));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ((*tensors)[1].spec.name(), "scale");
  EXPECT_DOUBLE_EQ((*tensors)[1].fill_mean, 2.5 / 448);
  EXPECT_DOUBLE_EQ((*tensors)[1].fill_stddev, 0.05 / 448);
  const auto packed =
      Catalog()
          .Find("quantize")
          ->Tensors(MustParse("quantize rows=3 cols=64 dtype=bf16 qtype=int4 granularity=group32 scale_layout=col"));
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ((*packed)[1].elements, 3 * 64);
  EXPECT_EQ((*packed)[1].bytes, 3 * 32);
  EXPECT_EQ((*packed)[2].spec.dim(0).value(), 2);
  EXPECT_EQ((*packed)[2].spec.dim(1).value(), 4);
}

TEST(OpTest, QuantisedGluWritesEightBitsAndScales) {
  const Work plain = WorkOf("glu rows=3 cols=5 dtype=bf16");
  for (const std::string quant : {"fp8_e4m3", "int8"}) {
    const Work work = WorkOf("glu rows=3 cols=5 dtype=bf16 quant=" + quant);
    // Maximum cols - 1, the scale, products.
    EXPECT_EQ(OpsOn(work, "fp32"), OpsOn(plain, "fp32") + 3 * (4 + 1 + 5));
    EXPECT_EQ(work.bytes_read, plain.bytes_read);
    EXPECT_EQ(work.bytes_written, 3 * 5 + 3 * 4);
  }
}

TEST(OpTest, RopeCountsWhatItWritesOfTheCache) {
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
  const auto tensors = Catalog().Find("rope")->Tensors(MustParse(shape + " blocks=100 kv_cache=1"));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const auto slots =
      std::find_if(tensors->begin(), tensors->end(), [](const auto& t) { return t.spec.name() == "slots"; });
  ASSERT_NE(slots, tensors->end());
  EXPECT_EQ(slots->spec.dtype(), v1::INT64);
  EXPECT_EQ(slots->fill_range, 1600);
  EXPECT_TRUE(slots->fill_distinct);
  EXPECT_EQ(slots->fill_skip, 64);
}

TEST(OpTest, LargeWorkDoesNotWrap) {
  // 2 · 2^20 · 2^21 · 2^22 = 2^64.
  const Work work = WorkOf("gemm m=1048576 n=2097152 k=4194304 dtype=bf16");
  EXPECT_EQ(OpsOn(work, "tensor"), Int128{1} << 64);
  EXPECT_EQ(work.ToProto().pipe_ops(0).ops(), "18446744073709551616");
  EXPECT_EQ(work.ToProto().bytes_written(), "4398046511104");
}

TEST(OpTest, ProtoHoldsEveryPipe) {
  const v1::Work proto = WorkOf("gemm m=2 n=2 k=2 dtype=bf16 act=silu").ToProto();
  ASSERT_EQ(proto.pipe_ops_size(), 3);
  EXPECT_EQ(proto.pipe_ops(0).dtype(), v1::BF16);
  EXPECT_EQ(proto.pipe_ops(2).pipe(), "sfu");
}

absl::Status CreateStatus(const std::string& text) {
  manifest::v1::Op proto;
  const absl::Status parsed = ParseTextProto(text, "op.txtpb", &proto);
  return parsed.ok() ? OpSchema::Create(proto, "here").status() : parsed;
}

constexpr char kScale[] =
    R"(kind: "scale" dim { name: "n" } tensor { name: "x" role: "input" dtype: "FP32" dim: "n" }
       tensor { name: "y" role: "output" dtype: "FP32" dim: "n" } )";

TEST(OpTest, SchemasAreCheckedWhenTheyAreMade) {
  EXPECT_TRUE(CreateStatus(kScale).ok()) << CreateStatus(kScale);
  const struct {
    std::string more;
    const char* expected;
  } cases[] = {
      {"let { name: 'twice' expr: '2 * nn' }", "let twice: unknown name nn; did you mean n?"},
      {"let { name: 'a1' expr: 'b1' } let { name: 'b1' expr: 'n' }", "unknown name b1"},
      {"let { name: 'n' expr: '2' }", "the name is taken"},
      {"constraint { name: 'even' expr: 'n %% 2 == 0' }", "constraint even"},
      {"work { fp32_ops: 'm' }", "work.fp32_ops: unknown name m"},
      {"work { tensor_ops: 'n' }", "go together"},
      {"tensor { name: 'z' role: 'result' dtype: 'FP32' dim: 'n' }", "role must be"},
      {"tensor { name: 'x' role: 'input' dtype: 'FP32' dim: 'n' }", "the name is taken"},
      {"tensor { name: 'z' role: 'input' dtype: 'FP32' dim: 'n' chain_inputs: true }", "needs a CHAIN"},
      {"attribute { name: 'p' type: SYMBOL }", "has no symbols"},
      {"attribute { name: 'p' type: INT min: 0 max: 3 default_value: '7' }", "default"},
      {"attribute { name: 'p' }", "has no type"},
      {"dim { name: 'q' min: 4 max: 2 }", "not a range"},
      {"example: 'scale n=0'", "example"},
      {"accumulation_length: ')'", "accumulation_length"},
  };
  for (const auto& c : cases) {
    const absl::Status status = CreateStatus(kScale + c.more);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.more;
    EXPECT_NE(std::string(status.message()).find(c.expected), std::string::npos) << c.more << ": " << status;
  }
  EXPECT_NE(std::string(CreateStatus("kind: 'x'\ndim { nam: 'n' }").message()).find("op.txtpb:2:"), std::string::npos);
}

TEST(OpTest, DeclaredKindsAreParsedWithTheirConstraints) {
  manifest::v1::Op proto;
  ASSERT_TRUE(
      ParseTextProto(std::string(kScale) +
                         "constraint { name: 'even' expr: 'n % 2 == 0' } work { fp32_ops: 'n' bytes_read: '8 * n' }",
                     "op.txtpb", &proto)
          .ok());
  auto schema = OpSchema::Create(proto, "folder");
  ASSERT_TRUE(schema.ok());
  EXPECT_EQ(ErrorReason((*schema)->Parse("scale n=3").status()), "CONSTRAINT");
  const auto op = (*schema)->Parse("scale n=4");
  ASSERT_TRUE(op.ok());
  EXPECT_EQ((*schema)->ComputeWork(*op)->bytes_read, 32);
  EXPECT_EQ(*(*schema)->AccumulationLength(*op), 1);
  auto catalog = OpCatalog::Builtin();
  ASSERT_TRUE(catalog->Add(*std::move(schema)).ok());
  EXPECT_TRUE(catalog->Parse("scale n=2").ok());
  EXPECT_EQ(catalog->Add(*OpSchema::Create(proto, "other")).code(), absl::StatusCode::kAlreadyExists);
}

TEST(SuggestTest, NearestWord) {
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("ab", "ba"), 1);
  EXPECT_EQ(Nearest("sofmax", {"gemm", "softmax"}), "softmax");
  EXPECT_EQ(Nearest("zzz", {"gemm", "softmax"}), "");
}

TEST(DTypeTest, NamesAndBytes) {
  for (const v1::DType dtype :
       {v1::FP32, v1::FP16, v1::BF16, v1::FP64, v1::FP8_E4M3, v1::FP8_E5M2, v1::INT8, v1::INT32, v1::INT4, v1::INT64}) {
    EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
    EXPECT_GT(DTypeBytes(dtype), 0);
  }
  EXPECT_EQ(DTypeName(v1::BF16), "bf16");
  EXPECT_EQ(ParseDType("BF16"), v1::DTYPE_UNSPECIFIED);
  EXPECT_EQ(ParseDType(""), v1::DTYPE_UNSPECIFIED);
  EXPECT_EQ(DTypeBytes(v1::DTYPE_UNSPECIFIED), 0);
  EXPECT_EQ(DTypeBits(v1::INT4), 4);
  EXPECT_EQ(DTypeBytes(v1::INT4), 1);
  EXPECT_EQ(DTypeBits(v1::INT64), 64);
}

}  // namespace
}  // namespace rooftune

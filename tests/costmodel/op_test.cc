#include "costmodel/op.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/suggest.h"
#include "costmodel/text_proto.h"
#include "tests/costmodel/builtins.h"

namespace rooftune {
namespace {

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

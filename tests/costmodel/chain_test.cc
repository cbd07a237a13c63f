#include "costmodel/chain.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "rooftune/v1/types.pb.h"

namespace rooftune {
namespace {

TEST(ChainTest, ParsesToPostfixWithCountsAndCanonicalText) {
  const auto chain = ParseChain(" relu( add(a, fma(a,b,c)) )");
  ASSERT_TRUE(chain.ok()) << chain.status();
  EXPECT_EQ(chain->text, "relu(add(a,fma(a,b,c)))");
  EXPECT_EQ(chain->program, (std::vector<int64_t>{100, 100, 101, 102, 30, 1, 12}));
  EXPECT_EQ(chain->inputs, 3);
  EXPECT_EQ(chain->fp32_ops, 4);
  EXPECT_EQ(chain->sfu_ops, 0);
}

TEST(ChainTest, ASingleInputIsACopy) {
  const auto chain = ParseChain("a");
  ASSERT_TRUE(chain.ok());
  EXPECT_EQ(chain->program, (std::vector<int64_t>{100}));
  EXPECT_EQ(chain->fp32_ops, 0);
}

TEST(ChainTest, RefusesWhatIsNotAChainAndSaysWhere) {
  const struct {
    const char* text;
    const char* expected;
  } cases[] = {
      {"", "column 1: expected an operation"},
      {"ad(a,b)", "did you mean add?"},
      {"add(a)", "add takes 2 operands"},
      {"add(a,b,c)", "expected )"},
      {"add(b,a)", "input b is used before a"},
      {"add(a,c)", "input c is used before b"},
      {"relu(a", "expected )"},
      {"relu(a))", "column 8: unexpected text"},
      {"relu a", "expected ("},
      {"add(a,i)", "inputs are a to h"},
      {"a;b", "unexpected text"},
      {"1", "column 1"},
      {"add(a,b:)", "digits 0 to 3, or scalar"},
      {"add(a,b:4)", "axes are digits 0 to 3"},
      {"add(a,b:10)", "ascending order"},
      {"add(a,b:00)", "ascending order"},
      {"add(a,b:int8)", "fp32, fp16, bf16"},
      {"add(a,b:fp32:1)", "expected )"},
      {"add(a,b:1:fp32:1)", "expected )"},
      {"add(a,a:1)", "where it is used first"},
      {"where(a,b)", "where takes 3 operands"},
  };
  for (const auto& c : cases) {
    const auto chain = ParseChain(c.text);
    ASSERT_FALSE(chain.ok()) << c.text;
    EXPECT_EQ(ErrorReason(chain.status()), "BAD_VALUE");
    EXPECT_NE(std::string(chain.status().message()).find(c.expected), std::string::npos)
        << c.text << ": " << chain.status();
  }
}

TEST(ChainTest, InputsSayTheirAxesAndTypes) {
  const auto chain = ParseChain("fma(a:fp32, b:02:bf16, add(c:scalar, add(d:0123, b)))");
  ASSERT_TRUE(chain.ok()) << chain.status();
  EXPECT_EQ(chain->text, "fma(a:fp32,b:02:bf16,add(c:scalar,add(d,b)))");
  EXPECT_EQ(chain->axes, (std::vector<int64_t>{15, 5, 0, 15}));
  EXPECT_EQ(chain->dtypes, (std::vector<int64_t>{v1::FP32, v1::BF16, 0, 0}));
  EXPECT_EQ(ParseChain(chain->text)->text, chain->text);
}

TEST(ChainTest, ComparisonsSelect) {
  const auto at = [](const char* text, double a, double b, double c) {
    const double inputs[kChainMaxInputs] = {a, b, c};
    return EvalChain(ParseChain(text)->program, inputs);
  };
  EXPECT_EQ(at("where(gt(a,b),a,c)", 2, 1, 7).value, 2);
  EXPECT_EQ(at("where(gt(a,b),a,c)", 1, 1, 7).value, 7);
  EXPECT_EQ(at("ge(a,b)", 1, 1, 0).value, 1);
  EXPECT_EQ(at("eq(a,b)", NAN, NAN, 0).value, 0);
  EXPECT_EQ(at("clamp(a,b,c)", 5, -1, 2).value, 2);
  EXPECT_EQ(at("clamp(a,b,c)", -5, -1, 2).value, -1);
  // Inputs are compared exactly; of results that are equal but for rounding either answer is right.
  EXPECT_EQ(at("gt(a,b)", 1, 1, 0).magnitude, 0);
  EXPECT_EQ(at("gt(mul(a,b),c)", 3, 2, 6).magnitude, kChainUndecided);
  EXPECT_EQ(at("gt(mul(a,b),c)", 3, 2, 6.1).magnitude, 0);
  EXPECT_EQ(at("where(gt(a,b),a,c)", 2, 1, 7).magnitude, 2);
}

TEST(ChainTest, DepthAndLengthAreLimited) {
  std::string deep = "a";
  for (int i = 0; i < kChainMaxOps; ++i) deep = "neg(" + deep + ")";
  EXPECT_TRUE(ParseChain(deep).ok());
  EXPECT_FALSE(ParseChain("neg(" + deep + ")").ok());
  EXPECT_FALSE(ParseChain(std::string(100000, '(')).ok());
  std::string hostile;
  for (int i = 0; i < 900; ++i) hostile += "neg(";
  EXPECT_FALSE(ParseChain(hostile).ok());
}

double Eval(const char* text, std::vector<double> inputs) {
  inputs.resize(kChainMaxInputs);
  return EvalChain(ParseChain(text)->program, inputs.data()).value;
}

TEST(ChainTest, EvaluatesEveryOperation) {
  EXPECT_DOUBLE_EQ(Eval("add(a,b)", {1, 2}), 3);
  EXPECT_DOUBLE_EQ(Eval("sub(a,b)", {1, 2}), -1);
  EXPECT_DOUBLE_EQ(Eval("mul(a,b)", {3, 2}), 6);
  EXPECT_DOUBLE_EQ(Eval("div(a,b)", {3, 2}), 1.5);
  EXPECT_DOUBLE_EQ(Eval("max(a,b)", {3, 2}), 3);
  EXPECT_DOUBLE_EQ(Eval("min(a,b)", {3, 2}), 2);
  EXPECT_DOUBLE_EQ(Eval("neg(a)", {3}), -3);
  EXPECT_DOUBLE_EQ(Eval("abs(a)", {-3}), 3);
  EXPECT_DOUBLE_EQ(Eval("relu(a)", {-3}), 0);
  EXPECT_DOUBLE_EQ(Eval("exp(a)", {1}), std::exp(1.0));
  EXPECT_DOUBLE_EQ(Eval("tanh(a)", {0.5}), std::tanh(0.5));
  EXPECT_DOUBLE_EQ(Eval("sigmoid(a)", {0}), 0.5);
  EXPECT_DOUBLE_EQ(Eval("silu(a)", {2}), 2 / (1 + std::exp(-2.0)));
  EXPECT_NEAR(Eval("gelu(a)", {1}), 0.841192, 1e-6);
  EXPECT_DOUBLE_EQ(Eval("sqrt(a)", {9}), 3);
  EXPECT_DOUBLE_EQ(Eval("rsqrt(a)", {4}), 0.5);
  EXPECT_DOUBLE_EQ(Eval("square(a)", {-3}), 9);
  EXPECT_DOUBLE_EQ(Eval("log(a)", {2}), std::log(2.0));
  EXPECT_DOUBLE_EQ(Eval("fma(a,b,c)", {2, 3, 4}), 10);
  EXPECT_DOUBLE_EQ(Eval("sub(exp(a),mul(a,b))", {0, 5}), 1);
}

TEST(ChainTest, MagnitudeGrowsWithCancelledTerms) {
  const double inputs[kChainMaxInputs] = {1000, 999};
  const ChainValue v = EvalChain(ParseChain("sub(a,b)")->program, inputs);
  EXPECT_DOUBLE_EQ(v.value, 1);
  EXPECT_DOUBLE_EQ(v.magnitude, 1999);
}

// Magnitude · ε must cover what an ε-sized relative error of every input does to the result.
TEST(ChainTest, MagnitudeCoversPerturbedInputs) {
  const char* chains[] = {"exp(mul(a,b))",          "gelu(add(a,b))",   "silu(sub(a,b))", "tanh(mul(a,b))",
                          "sigmoid(sub(a,b))",      "rsqrt(square(a))", "log(square(a))", "div(a,b)",
                          "sqrt(square(sub(a,b)))", "fma(a,b,neg(a))"};
  const double epsilon = 1e-7;
  for (const char* text : chains) {
    const std::vector<int64_t> program = ParseChain(text)->program;
    for (double a : {-2.5, -0.3, 0.7, 3.0}) {
      for (double b : {-1.7, 0.2, 2.0}) {
        const double exact[kChainMaxInputs] = {a, b};
        const ChainValue v = EvalChain(program, exact);
        for (double da : {-epsilon, epsilon}) {
          const double moved[kChainMaxInputs] = {a * (1 + da), b * (1 - da)};
          EXPECT_LE(std::fabs(EvalChain(program, moved).value - v.value), 1.001 * epsilon * v.magnitude + 1e-15)
              << text << " at " << a << ", " << b;
        }
      }
    }
  }
}

TEST(ChainTest, MalformedProgramsGiveNan) {
  const double inputs[kChainMaxInputs] = {};
  EXPECT_TRUE(std::isnan(EvalChain({}, inputs).value));
  EXPECT_TRUE(std::isnan(EvalChain({1}, inputs).value));
  EXPECT_TRUE(std::isnan(EvalChain({100, 100}, inputs).value));
  EXPECT_TRUE(std::isnan(EvalChain({100, 99}, inputs).value));
  EXPECT_TRUE(std::isnan(EvalChain({108}, inputs).value));
  EXPECT_TRUE(std::isnan(EvalChain(std::vector<int64_t>(1000, 100), inputs).value));
}

}  // namespace
}  // namespace rooftune

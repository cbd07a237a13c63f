#include "expr/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/int128.h"
#include "expr/inline.h"

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();

const Names& TestNames() {
  static const auto& names =
      *new Names{{"a", 7}, {"b", -3}, {"c", 0}, {"block_m", 128}, {"big", kMax64}, {"small", kMin64}, {"_x1", 2}};
  return names;
}

// The value as text, or the error's reason; by every way of evaluating, which must agree.
std::string Value(const std::string& text) {
  const auto expression = Expression::Parse(text);
  if (!expression.ok()) return std::string(expression.status().message());
  const auto value = expression->Eval(TestNames());
  std::vector<std::string> slots;
  std::vector<int64_t> values;
  for (const auto& [name, v] : TestNames()) {
    slots.push_back(name);
    values.push_back(v);
  }
  const auto bound = BoundExpression::Bind(*expression, slots);
  EXPECT_TRUE(bound.ok()) << bound.status();
  int64_t result = 0;
  EXPECT_EQ(bound->Eval(values.data(), &result), value.ok()) << text;
  if (!value.ok()) {
    EXPECT_EQ(value.status().code(), absl::StatusCode::kOutOfRange) << text;
    return ErrorReason(value.status());
  }
  EXPECT_EQ(result, *value) << text;
  const auto wide = expression->Eval128(TestNames());
  EXPECT_TRUE(wide.ok() && *wide == *value) << text;
  return absl::StrCat(*value);
}

struct Case {
  const char* text;
  const char* value;
};

TEST(ExpressionTest, Values) {
  const Case cases[] = {
      {"42", "42"},
      {"0x1F", "31"},
      {"1_000_000", "1000000"},
      {"0xFF_ff", "65535"},
      {"00", "0"},
      {"True + True", "2"},
      {"False", "0"},
      {" ( a ) ", "7"},
      {"a\n+\tb", "4"},
      {"_x1*3", "6"},
      // Precedence.
      {"1 + 2 * 3", "7"},
      {"-2 ** 2", "-4"},
      {"2 ** -c", "1"},
      {"2 ** 3 ** 2", "512"},
      {"(2 ** 3) ** 2", "64"},
      {"not a == b", "1"},
      {"- - - a", "-7"},
      {"+-+a", "-7"},
      {"not not not 0", "1"},
      {"8 - 3 - 2", "3"},
      {"100 // 7 // 2", "7"},
      {"2 * 7 % 4", "2"},
      {"1 or 0 and 0", "1"},
      {"not 1 or 1", "1"},
      // Rounding towards minus infinity.
      {"7 // -2", "-4"},
      {"-7 // 2", "-4"},
      {"-7 // -2", "3"},
      {"7 % -2", "-1"},
      {"-7 % 2", "1"},
      {"-7 % -2", "-1"},
      {"-7 // -1", "7"},
      {"7 % -1", "0"},
      {"ceildiv(7, 2)", "4"},
      {"ceildiv(-7, 2)", "-3"},
      {"ceildiv(8, 2)", "4"},
      {"ceildiv(7, -2)", "-3"},
      // Fractions are exact.
      {"1 / 3 * 3", "1"},
      {"7 / 2 + 1 / 2", "4"},
      {"7 / 2 // 1", "3"},
      {"(0 - 7 / 2) // 1", "-4"},
      {"7 / 2 % 1 * 2", "1"},
      {"1 / 3 + 1 / 6 == 1 / 2", "1"},
      {"1 / 3 < 0x3333 / 0x9998", "1"},
      {"3 * (1 / 3) == 1", "1"},
      {"(2 / 3) ** 2 * 9", "4"},
      {"min(1 / 2, 1 / 3) * 6", "2"},
      {"max(1 / 2, 1 / 3) * 6", "3"},
      {"abs(0 - 1 / 2) * 2", "1"},
      {"not 1 / 2", "0"},
      {"6 / -4 * 2", "-3"},
      {"a / 7", "1"},
      {"ceildiv(1 / 3, 1 / 2)", "1"},
      {"1 / 2 in (2 / 4, 5)", "1"},
      // Values of and/or are operands; what is not needed is not evaluated.
      {"0 or 5", "5"},
      {"3 or 1 // 0", "3"},
      {"3 and 5", "5"},
      {"0 and 1 // 0", "0"},
      {"c or b or a", "-3"},
      {"1 and 2 and 3", "3"},
      {"1 // c if c else 9", "9"},
      {"4 if a else 1 // 0", "4"},
      {"1 if 0 else 2 if 0 else 3", "3"},
      {"(1 if a else 2) + (3 if c else 4)", "5"},
      {"1 if (2 if 0 else 0) else 5", "5"},
      {"a if a > 8 else b if b > 0 else c", "0"},
      {"1 + 2 if c else 3 + 4", "7"},
      {"(0 or 2) if 1 and (0 or 3) else 4", "2"},
      // Chains.
      {"1 < 2 < 3", "1"},
      {"1 < 2 > 3", "0"},
      {"3 > 2 > 1 > 0", "1"},
      {"1 < 1 < 1 // 0", "0"},
      {"(1 < 2) < 2", "1"},
      {"2 == 2 != 3", "1"},
      {"5 <= 5 >= 5", "1"},
      {"1 < 3 in (3, 4)", "1"},
      {"4 < 3 in (1 // 0, 4)", "0"},
      // Membership.
      {"a in (1, 7)", "1"},
      {"a in (1,)", "0"},
      {"a in (7)", "1"},
      {"a in ()", "0"},
      {"a not in (1, 2)", "1"},
      {"a not in (1, 7)", "0"},
      {"not a in (1, 7)", "0"},
      {"a in (c or 7, min(1, 2))", "1"},
      {"a in (1, 7) and 1", "1"},
      // Functions.
      {"min(3, 1, 2)", "1"},
      {"max(3, 9, 2, 8)", "9"},
      {"min(a, b,)", "-3"},
      {"log2(1)", "0"},
      {"log2(4095)", "11"},
      {"log2(4096)", "12"},
      {"log2(big)", "62"},
      {"pow2ceil(1)", "1"},
      {"pow2ceil(129)", "256"},
      {"pow2ceil(128)", "128"},
      {"abs(b)", "3"},
      {"max(1, 2) * min(3, 4)", "6"},
      // The edges of 64 bits, and 128 on the way there.
      {"big", "9223372036854775807"},
      {"small", "-9223372036854775808"},
      {"-2**63", "-9223372036854775808"},
      {"big * 4 // 4", "9223372036854775807"},
      {"2 ** 100 // 2 ** 90", "1024"},
      {"small // -1 - 1", "9223372036854775807"},
      {"abs(small) // 2", "4611686018427387904"},
      {"small % -1", "0"},
      {"-small - 1", "9223372036854775807"},
      {"(-1) ** big", "-1"},
      {"0 ** 0", "1"},
      {"pow2ceil(big) // 2", "4611686018427387904"},
      {"1 ** 0x7fff_ffff_ffff", "1"},
      // (2^125 − 1)/(2^126 − 3) against its neighbour: cross products need 251 bits.
      {"(2**125 - 1) / (2**126 - 3) < (2**125 - 2) / (2**126 - 5)", "1"},
      {"(2**125 - 1) / (2**126 - 3) == (2**125 - 1) / (2**126 - 3)", "1"},
  };
  for (const Case& c : cases) EXPECT_EQ(Value(c.text), c.value) << c.text;
}

TEST(ExpressionTest, ValuesThatDoNotExist) {
  const Case cases[] = {
      {"1 // c", "DIVISION_BY_ZERO"},
      {"1 % c", "DIVISION_BY_ZERO"},
      {"1 / c", "DIVISION_BY_ZERO"},
      {"ceildiv(1, 0)", "DIVISION_BY_ZERO"},
      {"1 in (1, 1 // 0)", "DIVISION_BY_ZERO"},
      {"1 / 2", "NOT_AN_INTEGER"},
      {"2 ** -1", "NOT_AN_INTEGER"},
      {"4 ** (1 / 2)", "NOT_AN_INTEGER"},
      {"log2(1 / 2)", "NOT_AN_INTEGER"},
      {"log2(0)", "NOT_POSITIVE"},
      {"pow2ceil(b)", "NOT_POSITIVE"},
      {"big + 1", "OVERFLOW"},
      {"small - 1", "OVERFLOW"},
      {"big * 2", "OVERFLOW"},
      {"abs(small)", "OVERFLOW"},
      {"-small", "OVERFLOW"},
      {"2 ** 63", "OVERFLOW"},
      {"2 ** 127", "OVERFLOW"},
      {"2 ** 64 * 2 ** 64", "OVERFLOW"},
      {"2 ** big", "OVERFLOW"},
      {"pow2ceil(2 ** 126 + 1)", "OVERFLOW"},
      {"pow2ceil(big)", "OVERFLOW"},
      {"1 / (2 ** 126) / 4", "OVERFLOW"},
      {"small // -1", "OVERFLOW"},
  };
  for (const Case& c : cases) EXPECT_EQ(Value(c.text), c.value) << c.text;
}

TEST(ExpressionTest, ErrorsOfEvaluationSayWhere) {
  const auto expression = Expression::Parse("a + 1 // (c * 2)");
  ASSERT_TRUE(expression.ok()) << expression.status();
  EXPECT_EQ(expression->Eval(TestNames()).status().message(), "a + 1 // (c * 2): column 7: division by zero");
}

TEST(ExpressionTest, SyntaxErrorsSayWhereAndWhat) {
  const Case cases[] = {
      {"", "column 1: empty expression"},
      {"  ", "column 3: empty expression"},
      {"1 +", "column 4: expected a value, found the end"},
      {"1 2", "column 3: expected an operator or the end, found '2'"},
      {"(1", "column 3: expected ')', found the end"},
      {"1)", "column 2: expected an operator or the end, found ')'"},
      {"a && b", "column 3: expected an operator or the end, found '&'; write 'and'"},
      {"a || b", "column 3: expected an operator or the end, found '|'; write 'or'"},
      {"!a", "column 1: expected a value, found '!'; write 'not'"},
      {"a = 1", "column 3: expected an operator or the end, found '='; write '=='"},
      {"1.5", "column 2: expected an operator or the end, found '.'; numbers are integers, write a fraction as '1/2'"},
      {"a if b", "column 7: expected 'else', found the end"},
      {"a not b", "column 7: expected 'in' after 'not', found 'b'"},
      {"a in 3", "column 6: expected '(', found '3'"},
      {"a in (1 2)", "column 9: expected ')', found '2'"},
      {"a in (1) < 2", "column 10: expected an operator or the end, found '<'"},
      {"1 + not 2", "column 5: expected a value, found 'not'"},
      {"lambda", "column 1: expected a value, found 'lambda'"},
      {"sqrt(4)", "column 1: unknown function 'sqrt'; there are min, max, ceildiv, abs, log2 and pow2ceil"},
      {"min", "column 1: 'min' is a function: expected '(' after it"},
      {"min(1)", "column 1: min() takes 2 or more arguments, found 1"},
      {"min()", "column 1: min() takes 2 or more arguments, found 0"},
      {"abs(1, 2)", "column 1: abs() takes 1 argument, found 2"},
      {"2 * ceildiv(1, 2, 3)", "column 5: ceildiv() takes 2 arguments, found 3"},
      {"012", "column 1: '012' is not an integer: leading zeros"},
      {"1__0", "column 1: '1__0' is not an integer"},
      {"1_", "column 1: '1_' is not an integer"},
      {"0x", "column 1: '0x' is not an integer"},
      {"12ab", "column 1: '12ab' is not an integer"},
      {"9223372036854775808", "column 1: the number does not fit 64 bits"},
      {"a;b", "column 2: expected an operator or the end, found ';'"},
      {"\xc3\xa9", "column 1: expected a value, found 'byte 195'"},
      {"a[0]", "column 2: expected an operator or the end, found '['"},
  };
  for (const Case& c : cases) EXPECT_EQ(Value(c.text), c.value) << c.text;
  const auto nul = Expression::Parse(absl::string_view("1\0", 2));
  EXPECT_EQ(nul.status().message(), "column 2: expected an operator or the end, found 'byte 0'");
}

std::string Repeat(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

TEST(ExpressionTest, Limits) {
  EXPECT_EQ(Value(Repeat("(", 64) + "a" + Repeat(")", 64)), "7");
  EXPECT_EQ(Value(Repeat("(", 65) + "a" + Repeat(")", 65)), "column 65: more than 64 levels of nesting");
  EXPECT_THAT(Value(Repeat("(", 4000)), HasSubstr("levels of nesting"));
  EXPECT_THAT(Value(Repeat("abs(", 65) + "a" + Repeat(")", 65)), HasSubstr("levels of nesting"));
  EXPECT_THAT(Value(Repeat("1**", 1000) + "1"), HasSubstr("levels of nesting"));
  EXPECT_THAT(Value(Repeat("1 in (", 65) + "1" + Repeat(")", 65)), HasSubstr("levels of nesting"));
  // Long runs are not nesting.
  EXPECT_EQ(Value(Repeat("-", 4000) + "a"), "7");
  EXPECT_EQ(Value(Repeat("not ", 1001) + "a"), "0");
  EXPECT_EQ(Value("0" + Repeat("+1", 2000)), "2000");
  EXPECT_EQ(Value("1" + Repeat("<2", 2000)), "0");
  EXPECT_EQ(Value(Repeat("0 or ", 800) + "5"), "5");
  EXPECT_EQ(Value(Repeat("1 if 0 else ", 300) + "9"), "9");
  EXPECT_EQ(Value("min(" + Repeat("a,", 2000) + "b)"), "-3");
  EXPECT_EQ(Value(Repeat(" ", 4095) + "a"), "7");
  EXPECT_EQ(Value(Repeat(" ", 4096) + "a"), "column 4097: longer than 4096 characters");
  // The deepest stack that nesting allows.
  const std::string pending = "1 < 1 + 1 * 1 ** min(1, 1 in (";
  std::string deep;
  for (int i = 0; i < 21; ++i) deep += pending;
  EXPECT_EQ(Value(deep + "1" + Repeat("))", 21)), "1");
}

TEST(ExpressionTest, NamesAreSortedAndChecked) {
  const auto expression = Expression::Parse("z + a * z - min(m, 1) if q else _");
  ASSERT_TRUE(expression.ok()) << expression.status();
  EXPECT_THAT(expression->names(), ElementsAre("_", "a", "m", "q", "z"));
  const auto missing = expression->Eval({{"z", 1}, {"a", 2}, {"m", 3}, {"_", 0}});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorMetadata(missing.status())["name"], "q");
  const auto unbound = BoundExpression::Bind(*expression, {"z", "a", "q", "_"});
  EXPECT_EQ(unbound.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorMetadata(unbound.status())["name"], "m");
}

TEST(ExpressionTest, Eval128KeepsCountsThatOverflow64Bits) {
  const auto expression = Expression::Parse("2 * m * n * k");
  ASSERT_TRUE(expression.ok());
  const Names names = {{"m", int64_t{1} << 30}, {"n", int64_t{1} << 30}, {"k", int64_t{1} << 30}};
  const auto value = expression->Eval128(names);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(Int128ToString(*value), "2475880078570760549798248448");  // 2^91
  EXPECT_EQ(ErrorReason(expression->Eval(names).status()), "OVERFLOW");
}

TEST(BoundExpressionTest, KnowsItsLastSlot) {
  const auto bind = [](const char* text) { return *BoundExpression::Bind(*Expression::Parse(text), {"p", "q", "r"}); };
  EXPECT_EQ(bind("1 + 2").max_slot(), -1);
  EXPECT_EQ(bind("p * 2").max_slot(), 0);
  EXPECT_EQ(bind("r + p").max_slot(), 2);
  const int64_t values[] = {5, 6, 7};
  int64_t result = 0;
  EXPECT_TRUE(bind("r * 10 + p").Eval(values, &result));
  EXPECT_EQ(result, 75);
}

TEST(InlineNamesTest, ReplacesWholeNamesOnly) {
  const std::map<std::string, std::string> definitions = {
      {"t", "a + b"}, {"x1F", "bad"}, {"one", "1"}, {"min", "bad"}, {"n", "m"}};
  EXPECT_EQ(InlineNames("t * t_ + at", definitions), "(a + b) * t_ + at");
  EXPECT_EQ(InlineNames("0x1F-one/n", definitions), "0x1F-1/m");
  EXPECT_EQ(InlineNames(" t ", definitions), "a + b");
  EXPECT_EQ(InlineNames("", definitions), "");
}

}  // namespace
}  // namespace rooftune

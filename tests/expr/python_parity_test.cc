// Random expressions mean what they mean in Python.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "expr/expression.h"

namespace rooftune {
namespace {

using Line = std::pair<std::string, std::string>;

std::vector<Line> PythonValues(int seed, int count) {
  const std::string command = absl::StrCat("python3 -W ignore '", std::getenv("ROOFTUNE_SOURCE_DIR"),
                                           "/tests/expr/random_expressions.py' ", seed, " ", count);
  std::vector<Line> lines;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return lines;
  std::string all;
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) all.append(buffer, got);
  if (pclose(pipe) != 0) return lines;
  for (const absl::string_view line : absl::StrSplit(all, '\n', absl::SkipEmpty())) {
    lines.push_back(absl::StrSplit(line, absl::MaxSplits('\t', 1)));
  }
  return lines;
}

std::string Value(const std::string& text) {
  const auto expression = Expression::Parse(text);
  if (!expression.ok()) return "SYNTAX";
  const auto value = expression->Eval({{"a", 7}, {"b", -3}, {"c", 0}, {"block_m", 128}});
  return value.ok() ? absl::StrCat(*value) : "ERROR";
}

std::vector<std::string> Differences(const std::vector<Line>& lines) {
  std::vector<std::string> differences;
  for (const auto& [text, expected] : lines) {
    const std::string value = Value(text);
    if (value != expected) differences.push_back(absl::StrCat(text, " is ", value, ", in Python ", expected));
  }
  return differences;
}

TEST(PythonParityTest, RandomExpressions) {
  std::vector<Line> lines = PythonValues(/*seed=*/20261, /*count=*/6000);
  ASSERT_EQ(lines.size(), 6000u) << "python3 failed";
  const auto differences = Differences(lines);
  EXPECT_TRUE(differences.empty()) << differences.size() << " differences, the first: " << differences[0];

  // The comparison itself is able to fail.
  size_t changed = 0;
  for (auto& [text, expected] : lines) {
    if (expected == "0") expected = "1", ++changed;
  }
  EXPECT_GT(changed, 100u);
  EXPECT_EQ(Differences(lines).size(), changed);
}

}  // namespace
}  // namespace rooftune

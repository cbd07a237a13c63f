#include "tuner/compile/log_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What a proto string accepts.
bool IsProtoText(const std::string& text) {
  worker::v1::CompileResult result, back;
  result.set_log(text);
  return back.ParseFromString(result.SerializeAsString());
}

TEST(CleanLogTest, DropsTheTrailingNulAndKeepsText) {
  EXPECT_EQ(CleanLog(absl::string_view("error: \xc3\xa9\n\ttab\n\0", 16)), "error: \xc3\xa9\n\ttab");
  EXPECT_EQ(CleanLog(""), "");
}

TEST(CleanLogTest, MakesAnyBytesValidText) {
  EXPECT_EQ(CleanLog("a\xff\x80 b"), "a?? b");
  EXPECT_EQ(CleanLog("\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82"), "?? ??? ???? ??");
  EXPECT_EQ(CleanLog("esc\x1b[1m"), "esc?[1m");
  std::string bytes;
  for (int i = 0; i < 4096; ++i) bytes.push_back(static_cast<char>(i * 37 ^ i >> 3));
  EXPECT_TRUE(IsProtoText(CleanLog(bytes)));
}

TEST(CleanLogTest, LeavesTheMiddleOutOfALongLog) {
  const std::string log = "first error\n" + std::string(100'000, 'x') + "\nlast summary";
  const std::string clean = CleanLog(log);
  EXPECT_LE(clean.size(), kMaxLogBytes);
  EXPECT_THAT(clean, StartsWith("first error\n"));
  EXPECT_THAT(clean, EndsWith("\nlast summary"));
  EXPECT_THAT(clean, HasSubstr("bytes left out"));
}

TEST(CleanLogTest, NeverCutsACharacter) {
  std::string log;
  for (int i = 0; i < 9000; ++i) log += "\xe2\x82\xac";
  for (size_t limit : {5u, 100u, 1000u, 1001u, 1002u}) {
    const std::string clean = CleanLog(log, limit);
    EXPECT_LE(clean.size(), limit);
    EXPECT_TRUE(IsProtoText(clean)) << limit;
  }
}

}  // namespace
}  // namespace rooftune

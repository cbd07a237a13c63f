// What the commands print is made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "client/cli/cli.h"

namespace rooftune::cli {
namespace {

using ::testing::HasSubstr;

TEST(ExitCodeTest, Table) {
  const std::pair<absl::StatusCode, ExitCode> table[] = {
      {absl::StatusCode::kOk, kOk},
      {absl::StatusCode::kInvalidArgument, kUsage},
      {absl::StatusCode::kNotFound, kNotFound},
      {absl::StatusCode::kPermissionDenied, kDenied},
      {absl::StatusCode::kUnauthenticated, kDenied},
      {absl::StatusCode::kUnavailable, kUnavailable},
      {absl::StatusCode::kDeadlineExceeded, kUnavailable},
      {absl::StatusCode::kFailedPrecondition, kPrecondition},
      {absl::StatusCode::kCancelled, kPending},
      {absl::StatusCode::kInternal, kError},
      {absl::StatusCode::kResourceExhausted, kError},
      {absl::StatusCode::kDataLoss, kError},
      {absl::StatusCode::kAlreadyExists, kError},
      {absl::StatusCode::kAborted, kError},
  };
  for (const auto& [code, exit] : table) EXPECT_EQ(ExitCodeOf(absl::Status(code, "x")), exit) << code;
}

TEST(TimeTextTest, ChoosesTheUnit) {
  EXPECT_EQ(TimeText(0), "-");
  EXPECT_EQ(TimeText(168.4), "168.40 µs");
  EXPECT_EQ(TimeText(1684), "1.684 ms");
  EXPECT_EQ(TimeText(2.5e6), "2.500 s");
  v1::Measurement measurement;
  EXPECT_EQ(MeasurementText(measurement), "-");
  measurement.set_median_us(200);
  measurement.set_ci_low_us(199);
  measurement.set_ci_high_us(201);
  EXPECT_EQ(MeasurementText(measurement), "200.00 µs ±0.5 %");
}

TEST(ClipTest, CutsBetweenCharactersNotBytes) {
  EXPECT_EQ(Clip("short", 10), "short");
  EXPECT_EQ(Clip("first\nsecond", 10), "first");
  EXPECT_EQ(Clip("0123456789", 10), "0123456789");
  EXPECT_EQ(Clip("0123456789a", 10), "012345678…");
  EXPECT_EQ(Clip("µµµµµ", 4), "µµµ…");
}

TEST(EnumValueTest, AnyCaseAndAnAnswerForMisspellings) {
  EXPECT_EQ(*EnumValue(v1::EvidenceLevel_descriptor(), "Verified", "--min-evidence"), v1::VERIFIED);
  EXPECT_EQ(*EnumValue(v1::EvidenceLevel_descriptor(), "", "--min-evidence"), 0);
  const auto wrong = EnumValue(v1::EvidenceLevel_descriptor(), "verifed", "--min-evidence");
  EXPECT_EQ(ErrorReason(wrong.status()), "BAD_VALUE");
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("--min-evidence verifed: use one of estimated, compiled"));
  EXPECT_THAT(std::string(wrong.status().message()), Not(HasSubstr("unspecified")));
  // The zero value is no choice.
  EXPECT_FALSE(EnumValue(v1::L2State_descriptor(), "l2_state_unspecified", "--l2").ok());
}

TEST(OpTextTest, JoinsWordsOrAsks) {
  EXPECT_EQ(*OpText({"gemm", "m=1"}), "gemm m=1");
  EXPECT_EQ(ErrorReason(OpText({}).status()), "NO_OPERATOR");
}

TEST(ResourceNameTest, AddsThePrefixOnce) {
  EXPECT_EQ(ResourceName("sweeps/", "7f"), "sweeps/7f");
  EXPECT_EQ(ResourceName("sweeps/", "sweeps/7f"), "sweeps/7f");
}

TEST(ConfigTextTest, Sorted) {
  google::protobuf::Map<std::string, int64_t> config;
  config["stages"] = 3;
  config["block_m"] = 128;
  EXPECT_EQ(ConfigText(config), "block_m=128,stages=3");
}

}  // namespace
}  // namespace rooftune::cli

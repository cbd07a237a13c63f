#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/int128.h"
#include "base/sha256.h"
#include "tests/support/temp_dir.h"

namespace rooftune {
namespace {

TEST(Sha256Test, MatchesPublishedVector) {
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(FingerprintTest, PartsDoNotRunTogether) {
  EXPECT_NE(Fingerprint().Add("ab").Add("c").Key(), Fingerprint().Add("a").Add("bc").Key());
  EXPECT_EQ(Fingerprint().Add("x").Key().size(), 32u);
}

TEST(ErrorTest, KeepsReasonAndFactsThroughAnnotation) {
  const absl::Status status =
      Annotate(Error(absl::StatusCode::kNotFound, "NOT_TUNED", "no record", {{"key", "k=v"}, {"other", ""}}), "lookup");
  EXPECT_EQ(status.message(), "lookup: no record");
  EXPECT_EQ(ErrorReason(status), "NOT_TUNED");
  EXPECT_EQ(ErrorMetadata(status), (std::map<std::string, std::string>{{"key", "k=v"}, {"other", ""}}));
  EXPECT_EQ(ErrorReason(absl::NotFoundError("x")), "NOT_FOUND");
}

TEST(Int128Test, RoundTripsExtremes) {
  const Int128 max = static_cast<Int128>(~static_cast<unsigned __int128>(0) >> 1);
  for (const Int128 value : {Int128{0}, Int128{-1}, max, -max - 1}) {
    EXPECT_EQ(ParseInt128(Int128ToString(value)), value) << Int128ToString(value);
  }
  EXPECT_FALSE(ParseInt128("170141183460469231731687303715884105728").has_value());
  for (const char* bad : {"", "-", "1x", " 1", "+1"}) EXPECT_FALSE(ParseInt128(bad).has_value()) << bad;
}

TEST(FileUtilTest, AtomicWriteReplacesWhole) {
  const TempDir dir;
  const std::string path = dir / "f";
  ASSERT_TRUE(WriteFileAtomic(path, "old").ok());
  ASSERT_TRUE(WriteFileAtomic(path, "new").ok());
  EXPECT_EQ(*ReadFile(path), "new");
  EXPECT_EQ(ReadFile(path, 2).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(WriteFileAtomic(dir / "none/f", "x").code(), absl::StatusCode::kNotFound);
}

TEST(FileUtilTest, FullDiskIsResourceExhausted) {
  // /dev/full fails every write with ENOSPC.
  EXPECT_EQ(ErrorReason(ErrnoStatus(ENOSPC, "write")), "DISK_FULL");
}

TEST(FakeClockTest, SleepMovesIt) {
  FakeClock clock;
  const absl::Time start = clock.Now();
  clock.Sleep(absl::Seconds(3));
  EXPECT_EQ(clock.Now() - start, absl::Seconds(3));
}

TEST(SkippingClockTest, SleepCostsNothingAndTimeGoesOn) {
  SkippingClock clock;
  const absl::Time real = absl::Now();
  const absl::Time start = clock.Now();
  clock.Sleep(absl::Hours(5));
  clock.Sleep(-absl::Hours(5));
  EXPECT_GE(clock.Now() - start, absl::Hours(5));
  EXPECT_LT(clock.Now() - start, absl::Hours(5) + absl::Minutes(1));
  EXPECT_LT(absl::Now() - real, absl::Minutes(1));
}

}  // namespace
}  // namespace rooftune

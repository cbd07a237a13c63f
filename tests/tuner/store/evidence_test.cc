#include "tuner/store/evidence.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/file_util.h"
#include "tests/tuner/store/store_test_util.h"
#include "tuner/store/memory_store.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;

bool Same(const google::protobuf::Message& a, const google::protobuf::Message& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

std::vector<v1::ExportLine> SomeLines() {
  v1::TuningRecord record = MakeRecord("r", "k");
  // What text formats lose first.
  record.mutable_measurement()->set_median_us(0.1 + 0.2);
  record.mutable_measurement()->add_sample_us(5e-324);
  record.set_artifact_bytes(std::numeric_limits<int64_t>::max());
  (*record.mutable_config())["deep"] = std::numeric_limits<int64_t>::min();
  v1::Trial trial = MakeTrial("a", 0, v1::COMPILE_FAILED);
  trial.set_message("line 1\nline 2 \"quoted\" é </script>");
  return {RunLine(), Line(MakeSweep("a")), Line(trial), Line(record)};
}

TEST(EvidenceTest, RoundTripsPlainAndCompressed) {
  TempDir dir;
  for (const char* name : {"e.jsonl", "e.jsonl.gz"}) {
    ASSERT_TRUE(WriteEvidence(SomeLines(), dir / name).ok());
    const auto lines = ReadEvidence(dir / name);
    ASSERT_TRUE(lines.ok()) << lines.status();
    ASSERT_EQ(lines->size(), SomeLines().size());
    for (size_t i = 0; i < lines->size(); ++i) EXPECT_TRUE(Same((*lines)[i], SomeLines()[i])) << i;
  }
  EXPECT_LT(ReadFile(dir / "e.jsonl.gz")->size(), ReadFile(dir / "e.jsonl")->size());
}

TEST(EvidenceTest, EqualLinesGiveEqualBytes) {
  TempDir dir;
  v1::ExportLine forwards, backwards;
  for (int i = 0; i < 50; ++i) {
    (*forwards.mutable_trial()->mutable_config())[absl::StrCat("p", i)] = i;
    (*backwards.mutable_trial()->mutable_config())[absl::StrCat("p", 49 - i)] = 49 - i;
  }
  ASSERT_TRUE(WriteEvidence({forwards}, dir / "a.gz").ok());
  ASSERT_TRUE(WriteEvidence({backwards}, dir / "b.gz").ok());
  EXPECT_EQ(*ReadFile(dir / "a.gz"), *ReadFile(dir / "b.gz"));
}

TEST(EvidenceTest, UsesTheNamesOfTheProto) {
  const auto json = EvidenceToJson(Line(MakeTrial("a", 0)));
  ASSERT_TRUE(json.ok());
  EXPECT_THAT(*json, HasSubstr("\"device_key\":\"nvidia-h200/132sm/141gb/700w\""));
  EXPECT_THAT(*json, HasSubstr("\"outcome\":\"OK\""));
  EXPECT_THAT(*json, ::testing::Not(HasSubstr("\n")));
}

TEST(EvidenceTest, LastNewlineMayBeMissing) {
  TempDir dir;
  const std::string line = *EvidenceToJson(RunLine());
  ASSERT_TRUE(WriteFileAtomic(dir / "e.jsonl", line + "\n" + line).ok());
  EXPECT_EQ(ReadEvidence(dir / "e.jsonl")->size(), 2u);
}

TEST(EvidenceTest, LinesLongerThanABufferAreRead) {
  TempDir dir;
  v1::ExportLine line = Line(MakeTrial("a", 0));
  line.mutable_trial()->set_message(std::string(1 << 20, 'x'));
  ASSERT_TRUE(WriteEvidence({RunLine(), line, RunLine()}, dir / "e.jsonl.gz").ok());
  EXPECT_TRUE(Same(ReadEvidence(dir / "e.jsonl.gz")->at(1), line));
  line.mutable_trial()->set_message(std::string(5 << 20, 'x'));
  EXPECT_EQ(WriteEvidence({line}, dir / "e.jsonl").code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(WriteFileAtomic(dir / "long.jsonl", std::string(5 << 20, ' ')).ok());
  EXPECT_EQ(ReadEvidence(dir / "long.jsonl").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(EvidenceTest, BadLinesAreRefusedWithTheirNumber) {
  TempDir dir;
  const std::string run = *EvidenceToJson(RunLine()) + "\n";
  for (const char* bad : {"", "{}", "{", "null", "[]", "{\"run\":{\"schema\":1}} x", "{\"run\":{\"unknown\":1}}",
                          "{\"trial\":{\"outcome\":\"NO_SUCH\"}}", "{\"trial\":{\"index\":\"x\"}}", "\xff\xfe",
                          "{\"trial\":{\"index\":99999999999}}"}) {
    ASSERT_TRUE(WriteFileAtomic(dir / "e.jsonl", run + bad + "\n" + run).ok());
    const absl::Status status = ReadEvidence(dir / "e.jsonl").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << "'" << bad << "' " << status;
    EXPECT_THAT(status.message(), HasSubstr("e.jsonl:2")) << bad;
  }
}

TEST(EvidenceTest, ForeignCutAndDamagedFiles) {
  TempDir dir;
  EXPECT_EQ(ReadEvidence(dir / "none").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomic(dir / "empty.jsonl", "").ok());
  EXPECT_EQ(ReadEvidence(dir / "empty.jsonl").status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(WriteFileAtomic(dir / "plain.gz", "{}\n").ok());
  EXPECT_EQ(ReadEvidence(dir / "plain.gz").status().code(), absl::StatusCode::kInvalidArgument);

  std::vector<v1::ExportLine> lines = SomeLines();
  for (int i = 0; i < 300; ++i) lines.push_back(Line(MakeTrial("a", i, v1::OK, i * 1.7)));
  ASSERT_TRUE(WriteEvidence(lines, dir / "whole.gz").ok());
  const std::string whole = *ReadFile(dir / "whole.gz");
  for (const size_t bytes : {whole.size() - 1, whole.size() - 9, whole.size() / 2, size_t{20}}) {
    ASSERT_TRUE(WriteFileAtomic(dir / "cut.gz", whole.substr(0, bytes)).ok());
    EXPECT_FALSE(ReadEvidence(dir / "cut.gz").ok()) << "cut to " << bytes << " of " << whole.size();
  }
  for (size_t at = 12; at < whole.size(); at += whole.size() / 40) {
    std::string flipped = whole;
    flipped[at] ^= 0x10;
    ASSERT_TRUE(WriteFileAtomic(dir / "flipped.gz", flipped).ok());
    EXPECT_FALSE(ReadEvidence(dir / "flipped.gz").ok()) << "bit flipped at " << at;
  }
}

TEST(EvidenceTest, NewerSchemaIsRefusedEvenWithFieldsUnknownHere) {
  const absl::Status status = EvidenceFromJson("{\"run\":{\"schema\":2,\"invented\":{}}}").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(status), "EVIDENCE_NEWER");
  EXPECT_EQ(ErrorReason(EvidenceFromJson("{\"run\":{\"schema\":2}}").status()), "EVIDENCE_NEWER");
}

TEST(EvidenceTest, SizeIsBounded) {
  TempDir dir;
  ASSERT_TRUE(WriteEvidence(SomeLines(), dir / "e.jsonl").ok());
  EXPECT_EQ(ReadEvidence(dir / "e.jsonl", 100).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(CollectEvidenceTest, UnknownSweepAndStoppedTaker) {
  MemoryStore store;
  ASSERT_TRUE(store.PutSweep(MakeSweep("a")).ok());
  int taken = 0;
  const auto count = [&](v1::ExportLine) {
    ++taken;
    return absl::OkStatus();
  };
  EXPECT_EQ(CollectEvidence(store, {"sweeps/a", "sweeps/b"}, {}, count).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(taken, 0);
  const auto refuse = [&](v1::ExportLine) { return absl::CancelledError("enough"); };
  EXPECT_EQ(CollectEvidence(store, {}, {}, refuse).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace rooftune

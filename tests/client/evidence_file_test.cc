#include "client/evidence_file.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/file_util.h"
#include "tests/client/fake_daemon.h"
#include "tests/support/temp_dir.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;

class EvidenceFileTest : public ::testing::Test {
 protected:
  EvidenceFileTest() {
    Canned canned;
    FillCanned(canned);
    lines_ = canned.lines;
  }

  std::string Path(const std::string& name) const { return dir_ / name; }
  absl::Status WriteAll(const std::string& path) const {
    auto writer = EvidenceWriter::Create(path);
    if (!writer.ok()) return writer.status();
    for (const auto& line : lines_) {
      const absl::Status status = (*writer)->Write(line);
      if (!status.ok()) return status;
    }
    return (*writer)->Finish();
  }
  std::string Put(const std::string& name, const std::string& text) const { return dir_.Write(name, text); }
  // The text of the error that reading `text` gives, without the path.
  std::string Refusal(const std::string& text) const {
    const auto lines = ReadEvidence(Put("refused", text));
    if (lines.ok()) return "accepted";
    EXPECT_EQ(lines.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ErrorReason(lines.status()), "BAD_EVIDENCE");
    return std::string(lines.status().message()).substr(Path("refused").size());
  }
  int FilesInDir() const {
    return static_cast<int>(
        std::distance(std::filesystem::directory_iterator(dir_.path()), std::filesystem::directory_iterator()));
  }

  const TempDir dir_;
  std::vector<v1::ExportLine> lines_;
};

TEST_F(EvidenceFileTest, RoundTripPlainAndCompressed) {
  for (const char* name : {"a.jsonl", "a.jsonl.gz"}) {
    ASSERT_TRUE(WriteAll(Path(name)).ok());
    const auto read = ReadEvidence(Path(name));
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->size(), lines_.size());
    for (size_t i = 0; i < lines_.size(); ++i) EXPECT_EQ((*read)[i].ShortDebugString(), lines_[i].ShortDebugString());
  }
  const auto plain = ReadFile(Path("a.jsonl")), packed = ReadFile(Path("a.jsonl.gz"));
  EXPECT_EQ(plain->substr(0, 7), "{\"run\":");
  EXPECT_EQ(packed->substr(0, 2), "\x1f\x8b");
  EXPECT_LT(packed->size(), plain->size());
  EXPECT_EQ(FilesInDir(), 2) << "a temporary file is left";
}

TEST_F(EvidenceFileTest, NothingAppearsUnlessFinished) {
  const std::string path = Put("old.jsonl", "old");
  {
    auto writer = EvidenceWriter::Create(path);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Write(lines_[0]).ok());
  }
  EXPECT_EQ(*ReadFile(path), "old");
  EXPECT_EQ(FilesInDir(), 1);
}

TEST_F(EvidenceFileTest, FullDiskIsReported) {
  const absl::Status status = WriteAll("/dev/full");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(ErrorReason(status), "DISK_FULL");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full")) << "the device was replaced by a file";
  EXPECT_EQ(WriteAll(Path("no/such/folder.jsonl")).code(), absl::StatusCode::kNotFound);
}

TEST_F(EvidenceFileTest, RefusesWithTheLineNumber) {
  const std::string good = R"({"run": {"schema": 1}})";
  EXPECT_THAT(Refusal(good + "\nnot json\n"), HasSubstr(":2: no evidence line"));
  // Empty lines count.
  EXPECT_THAT(Refusal("\n\n" + good + "\n\n{\"run\": {\"no_such_field\": 1}}\n"), HasSubstr(":5: no evidence line"));
  EXPECT_THAT(Refusal(good + "\n{}\n"), HasSubstr(":2: no evidence line: nothing in it"));
  EXPECT_THAT(Refusal(good + "\n" + R"({"trial": {"outcome": "NO_SUCH_OUTCOME"}})"), HasSubstr(":2:"));
  // Cut off in the middle of a line.
  EXPECT_THAT(Refusal(good + "\n" + good.substr(0, 12)), HasSubstr(":2:"));
  EXPECT_THAT(Refusal(""), HasSubstr("holds no evidence"));
  EXPECT_THAT(Refusal(std::string("\0\0\0", 3)), HasSubstr(":1:"));
}

TEST_F(EvidenceFileTest, LastNewlineMayBeMissing) { EXPECT_EQ(Refusal(R"({"run": {"schema": 1}})"), "accepted"); }

TEST_F(EvidenceFileTest, LongLinesAreRefusedNotSwallowed) {
  const auto line = [](size_t bytes) {
    const std::string head = R"({"run": {"suite": ")", tail = R"("}})";
    return head + std::string(bytes - head.size() - tail.size(), 'x') + tail;
  };
  EXPECT_EQ(Refusal(line(4 << 20) + "\n"), "accepted");
  EXPECT_THAT(Refusal("{\"run\": {}}\n" + line((4 << 20) + 1) + "\n"), HasSubstr(":2: the line is longer than 4 MiB"));
  EXPECT_THAT(Refusal(line((4 << 20) + 1)), HasSubstr(":1: the line is longer"));
}

TEST_F(EvidenceFileTest, DamagedArchivesAreRefused) {
  ASSERT_TRUE(WriteAll(Path("a.gz")).ok());
  const std::string whole = *ReadFile(Path("a.gz"));
  EXPECT_EQ(Refusal(whole), "accepted");
  EXPECT_THAT(Refusal(whole.substr(0, whole.size() / 2)), HasSubstr("cut off or damaged"));
  EXPECT_THAT(Refusal(whole.substr(0, whole.size() - 4)), HasSubstr("cut off or damaged"));
  std::string flipped = whole;
  flipped[flipped.size() - 6] ^= 0x10;  // its checksum
  EXPECT_THAT(Refusal(flipped), HasSubstr("cut off or damaged"));
}

TEST_F(EvidenceFileTest, MissingFilesAndFolders) {
  EXPECT_EQ(ReadEvidence(Path("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ReadEvidence(dir_.path()).status().ToString(), HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace rooftune

#include "tuner/store/artifact_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/file_util.h"
#include "base/sha256.h"
#include "tests/tuner/store/store_test_util.h"
#include "tuner/store/faulty_store.h"
#include "tuner/store/memory_store.h"

namespace rooftune {
namespace {

using Make = std::unique_ptr<ArtifactStore> (*)(const TempDir&);

class ArtifactStoreTest : public ::testing::TestWithParam<Make> {};

TEST_P(ArtifactStoreTest, KeepsBytesByTheirDigest) {
  TempDir dir;
  const auto store = GetParam()(dir);
  const std::string data(
      "\0\x7f"
      "ELF\n\0",
      7);
  for (const std::string& bytes : {data, std::string(), std::string(1 << 20, 'x')}) {
    const auto digest = store->Put(bytes);
    ASSERT_TRUE(digest.ok()) << digest.status();
    EXPECT_EQ(*digest, Sha256Hex(bytes));
    EXPECT_EQ(*store->Put(bytes), *digest);
    EXPECT_EQ(*store->Get(*digest), bytes);
  }
}

TEST_P(ArtifactStoreTest, BadAndUnknownDigests) {
  TempDir dir;
  const auto store = GetParam()(dir);
  EXPECT_EQ(store->Get(std::string(64, 'a')).status().code(), absl::StatusCode::kNotFound);
  for (const std::string& bad : {std::string(), std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'A'),
                                 std::string(64, 'g'), "../../" + std::string(58, 'a')}) {
    EXPECT_EQ(store->Get(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST_P(ArtifactStoreTest, F1_SameBytesFromManyThreads) {
  TempDir dir;
  const auto store = GetParam()(dir);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        const auto digest = store->Put(std::string(1000, static_cast<char>('a' + i)));
        ASSERT_TRUE(digest.ok()) << digest.status();
        EXPECT_TRUE(store->Get(*digest).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Both, ArtifactStoreTest,
                         ::testing::Values(
                             +[](const TempDir& dir) { return *ArtifactStore::OpenDirectory(dir / "cas"); },
                             +[](const TempDir&) { return ArtifactStore::InMemory(); }));

TEST(DirectoryArtifactStoreTest, DamagedFileIsMovedAsideAndCanBeWrittenAgain) {
  TempDir dir;
  const auto store = *ArtifactStore::OpenDirectory(dir / "cas");
  const std::string digest = *store->Put("good");
  const std::string path = dir / ("cas/" + digest.substr(0, 2) + "/" + digest);
  ASSERT_TRUE(WriteFileAtomic(path, "evil").ok());
  const absl::Status status = store->Get(digest).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ErrorReason(status), "CORRUPT_ARTIFACT");
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_FALSE(std::filesystem::is_empty(dir / "cas/corrupt"));
  EXPECT_EQ(*ReadFile(std::filesystem::directory_iterator(dir / "cas/corrupt")->path().string()), "evil");
  EXPECT_EQ(store->Get(digest).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(*store->Put("good"), digest);
  EXPECT_EQ(*store->Get(digest), "good");
}

TEST(DirectoryArtifactStoreTest, PutRepairsADamagedFile) {
  TempDir dir;
  const auto store = *ArtifactStore::OpenDirectory(dir / "cas");
  const std::string digest = *store->Put("good");
  ASSERT_TRUE(WriteFileAtomic(dir / ("cas/" + digest.substr(0, 2) + "/" + digest), "").ok());
  EXPECT_EQ(*store->Put("good"), digest);
  EXPECT_EQ(*store->Get(digest), "good");
}

TEST(DirectoryArtifactStoreTest, UnsafeFolderIsRefused) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "open").ok());
  ASSERT_EQ(chmod((dir / "open").c_str(), 0777), 0);
  EXPECT_EQ(ErrorReason(ArtifactStore::OpenDirectory(dir / "open").status()), "DATA_DIR_UNSAFE");
}

// Sizes of the files of a folder of binaries together.
int64_t BytesIn(const std::string& dir) {
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir)) {
    if (file.is_regular_file()) bytes += static_cast<int64_t>(file.file_size());
  }
  return bytes;
}

TEST(ArtifactLimitTest, G7_TheLeastRecentlyUsedGoAndWhatIsServedStays) {
  TempDir dir;
  std::set<std::string> served;
  ArtifactStore::Options options;
  options.max_bytes = 10'000;
  options.in_use = [&] { return absl::StatusOr<std::set<std::string>>(served); };
  auto store = *ArtifactStore::OpenDirectory(dir / "a", options);
  const auto binary = [](char c) { return std::string(1000, c); };
  const std::string best = *store->Put(binary('a'));
  served.insert(best);
  const std::string second = *store->Put(binary('b'));
  const std::string third = *store->Put(binary('c'));
  for (char c = 'd'; c <= 'j'; ++c) ASSERT_TRUE(store->Put(binary(c)).ok());
  EXPECT_EQ(store->Counters().at("artifact_evictions"), 0) << "ten just fit";
  EXPECT_TRUE(store->Get(second).ok());  // used again: no longer the oldest
  ASSERT_TRUE(store->Put(binary('k')).ok());
  EXPECT_LE(BytesIn(dir / "a"), 10'000);
  EXPECT_TRUE(store->Get(best).ok());
  EXPECT_TRUE(store->Get(second).ok());
  EXPECT_EQ(store->Get(third).status().code(), absl::StatusCode::kNotFound);
  // What was evicted can come back, and uses are known after a restart.
  EXPECT_EQ(*store->Put(binary('c')), third);
  store.reset();
  store = *ArtifactStore::OpenDirectory(dir / "a", options);
  for (char c = 'l'; c <= 'z'; ++c) {
    ASSERT_TRUE(store->Put(binary(c)).ok());
    EXPECT_TRUE(store->Get(third).ok()) << "used all the time";
  }
  EXPECT_LE(BytesIn(dir / "a"), 10'000);
  EXPECT_TRUE(store->Get(best).ok());
}

TEST(ArtifactLimitTest, G7_NothingGoesIfItIsNotKnownWhatIsServed) {
  TempDir dir;
  ArtifactStore::Options options;
  options.max_bytes = 2000;
  options.in_use = [] { return absl::StatusOr<std::set<std::string>>(absl::UnavailableError("busy")); };
  auto store = *ArtifactStore::OpenDirectory(dir / "a", options);
  for (char c = 'a'; c <= 'e'; ++c) ASSERT_TRUE(store->Put(std::string(1000, c)).ok());
  EXPECT_EQ(BytesIn(dir / "a"), 5000);
  EXPECT_EQ(store->Counters().at("artifact_evictions"), 0);
}

TEST(ArtifactLimitTest, G7_AllServedIsMoreThanTheLimitAndStillServed) {
  TempDir dir;
  std::set<std::string> served;
  ArtifactStore::Options options;
  options.max_bytes = 2000;
  options.in_use = [&] { return absl::StatusOr<std::set<std::string>>(served); };
  auto store = *ArtifactStore::OpenDirectory(dir / "a", options);
  for (char c = 'a'; c <= 'e'; ++c) served.insert(*store->Put(std::string(1000, c)));
  for (const std::string& digest : served) EXPECT_TRUE(store->Get(digest).ok()) << digest << " is served and gone";
}

TEST(FaultyStoreTest, G7_FailsTheWritesItIsTold) {
  device::v1::StoreFault rows, binaries;
  rows.set_write(2);
  rows.set_count(2);
  binaries.set_write(1);
  binaries.set_artifacts(true);
  const auto store = MakeFaultyStore(std::make_unique<MemoryStore>(), {rows, binaries});
  EXPECT_TRUE(store->PutSweep(MakeSweep("a")).ok());
  EXPECT_EQ(ErrorReason(store->PutTrial(MakeTrial("a", 0))), "DISK_FULL");
  EXPECT_EQ(store->PublishRecords({MakeRecord("r", "k")}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store->ListTrials({}, 10, "")->items.empty());
  EXPECT_TRUE(store->PutTrial(MakeTrial("a", 0)).ok());
  EXPECT_EQ(store->Counters().at("store_writes"), 4);
  EXPECT_EQ(store->Counters().at("store_faults"), 2);
  const auto artifacts = MakeFaultyArtifacts(ArtifactStore::InMemory(), {rows, binaries});
  EXPECT_EQ(ErrorReason(artifacts->Put("x").status()), "DISK_FULL");
  EXPECT_TRUE(artifacts->Put("x").ok());
}

}  // namespace
}  // namespace rooftune

#include "tuner/store/artifact_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/file_util.h"
#include "base/sha256.h"
#include "tests/tuner/store/store_test_util.h"

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

}  // namespace
}  // namespace rooftune

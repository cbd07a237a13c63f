#include "tuner/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "absl/time/clock.h"
#include "base/error.h"
#include "base/file_util.h"
#include "tests/tuner/store/store_conformance.h"
#include "tuner/store/sqlite_schema.h"

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<SqliteStore> OpenOrDie(const std::string& path, const SqliteStore::Options& options = {}) {
  auto store = SqliteStore::Open(path, options);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

// What the file's owner could do with any other program.
void Sql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(db);
}

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreConformanceTest,
                         ::testing::Values(StoreFactory{
                             "sqlite", [](const TempDir& dir) { return OpenOrDie(dir / "store.db"); }}));

TEST(SqliteStoreTest, EverythingIsThereAfterReopening) {
  TempDir dir;
  device::v1::Calibration calibration;
  calibration.set_device_key(kDevice);
  {
    auto store = OpenOrDie(dir / "a/b/store.db");
    ASSERT_TRUE(store->PutSweep(MakeSweep("a")).ok());
    ASSERT_TRUE(store->PutTrial(MakeTrial("a", 0)).ok());
    ASSERT_TRUE(store->PublishRecords({MakeRecord("r", "k")}).ok());
    ASSERT_TRUE(store->PublishRecords({MakeRecord("r2", "k")}).ok());
    ASSERT_TRUE(store->PutCalibration(calibration).ok());
  }
  auto store = OpenOrDie(dir / "a/b/store.db");
  EXPECT_TRUE(store->GetSweep("sweeps/a").ok());
  EXPECT_EQ(store->ListTrials({}, 10, "")->items.size(), 1u);
  EXPECT_EQ(store->GetRecord("records/r")->to_generation(), 1);
  EXPECT_EQ(*store->CurrentGeneration(), 2);
  EXPECT_TRUE(store->GetCalibration(kDevice).ok());
}

TEST(SqliteStoreTest, FolderAndFilesAreForTheOwnerOnly) {
  TempDir dir;
  auto store = OpenOrDie(dir / "data/store.db");
  ASSERT_TRUE(store->PutSweep(MakeSweep("a")).ok());
  struct stat info;
  ASSERT_EQ(stat((dir / "data").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  for (const auto& entry : std::filesystem::directory_iterator(dir / "data")) {
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << entry.path();
  }
}

TEST(SqliteStoreTest, UnsafeFoldersAreRefused) {
  TempDir dir;
  ASSERT_TRUE(MakeDirs(dir / "real").ok());
  std::filesystem::create_directory_symlink(dir / "real", dir / "link");
  EXPECT_EQ(ErrorReason(SqliteStore::Open(dir / "link/store.db").status()), "DATA_DIR_UNSAFE");
  ASSERT_EQ(chmod((dir / "real").c_str(), 0777), 0);
  EXPECT_EQ(ErrorReason(SqliteStore::Open(dir / "real/store.db").status()), "DATA_DIR_UNSAFE");
  EXPECT_TRUE(std::filesystem::is_empty(dir / "real")) << "nothing was planted by us either";
  ASSERT_EQ(chmod((dir / "real").c_str(), 0700), 0);
  std::filesystem::create_symlink("/dev/null", dir / "real/store.db");
  EXPECT_EQ(ErrorReason(SqliteStore::Open(dir / "real/store.db").status()), "DATA_DIR_UNSAFE");
  if (geteuid() == 0) {
    ASSERT_TRUE(MakeDirs(dir / "foreign").ok());
    ASSERT_EQ(chown((dir / "foreign").c_str(), 12345, 12345), 0);
    EXPECT_THAT(SqliteStore::Open(dir / "foreign/store.db").status().message(), HasSubstr("12345"));
  }
}

TEST(SqliteStoreTest, F2_FileSystemWithoutSharedMemoryIsRefused) {
  TempDir dir;
  // SQLite itself stays in rollback mode there and says nothing.
  const absl::Status status = SqliteStore::Open(dir / "store.db", {.vfs = "unix-none"}).status();
  EXPECT_EQ(ErrorReason(status), "WAL_UNAVAILABLE") << status;
}

TEST(SqliteStoreTest, F2_SecondOpenerFailsAtOnceNamingTheHolder) {
  TempDir dir;
  auto store = OpenOrDie(dir / "store.db");
  const absl::Status status = SqliteStore::Open(dir / "store.db").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(status), "DATABASE_IN_USE");
  EXPECT_EQ(ErrorMetadata(status)["pid"], absl::StrCat(getpid()));
  store.reset();
  EXPECT_TRUE(SqliteStore::Open(dir / "store.db").ok());
}

// Opens, expects the reason, and expects the bytes of the file to be what they were.
void ExpectRefusedUnchanged(const std::string& path, absl::StatusCode code, const std::string& reason) {
  const std::string before = *ReadFile(path);
  const absl::Status status = SqliteStore::Open(path).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_EQ(ErrorReason(status), reason) << status;
  EXPECT_TRUE(*ReadFile(path) == before) << "the file was modified";
}

TEST(SqliteStoreTest, NewerDatabaseIsRefusedNamingBothVersions) {
  TempDir dir;
  OpenOrDie(dir / "store.db").reset();
  Sql(dir / "store.db", "PRAGMA user_version=77");
  ExpectRefusedUnchanged(dir / "store.db", absl::StatusCode::kFailedPrecondition, "DATABASE_NEWER");
  const auto status = SqliteStore::Open(dir / "store.db").status();
  EXPECT_EQ(ErrorMetadata(status)["database_version"], "77");
  EXPECT_EQ(ErrorMetadata(status)["supported_version"], absl::StrCat(SchemaSteps().size()));
}

TEST(SqliteStoreTest, AVersion1DatabaseIsBroughtUpWithAllItHolds) {
  TempDir dir;
  const char* source = std::getenv("ROOFTUNE_SOURCE_DIR");
  const auto fixture = ReadFile(absl::StrCat(source == nullptr ? "." : source, "/tests/data/schema/version1.sql"));
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  Sql(dir / "store.db", *fixture);
  auto store = OpenOrDie(dir / "store.db");
  ASSERT_NE(store, nullptr);
  const auto sweeps = store->ListSweeps(std::nullopt, 10, "");
  ASSERT_EQ(sweeps->items.size(), 1u);
  EXPECT_EQ(sweeps->items[0].spec().op(), "reduce rows=64 cols=64 dtype=fp32");
  EXPECT_EQ(store->ListTrials({sweeps->items[0].name(), v1::OK}, 10, "")->items.size(), 1u);
  EXPECT_EQ(store->ListRecords({}, 10, "")->items.size(), 1u);
  EXPECT_EQ(store->corrupt_rows(), 0);
  worker::v1::CompileResult failed;
  failed.set_outcome(v1::COMPILE_FAILED);
  EXPECT_TRUE(store->PutCompileFailure("k", failed).ok());
  store.reset();
  EXPECT_TRUE(OpenOrDie(dir / "store.db")->GetCompileFailure("k").ok());
}

TEST(SqliteStoreTest, G3_OnlyTheNewestFailedCompilesAreKept) {
  TempDir dir;
  OpenOrDie(dir / "store.db").reset();
  // A full table, without writing it row by row.
  Sql(dir / "store.db",
      absl::StrCat("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ", kMaxCompileFailures,
                   ") INSERT INTO compile_failures(key, nvrtc, message, digest, payload) "
                   "SELECT 'k' || i, '', '', '', x'' FROM n"));
  auto store = OpenOrDie(dir / "store.db");
  worker::v1::CompileResult failed;
  failed.set_outcome(v1::COMPILE_FAILED);
  ASSERT_TRUE(store->PutCompileFailure("new", failed).ok());
  EXPECT_TRUE(store->GetCompileFailure("new").ok());
  EXPECT_EQ(store->GetCompileFailure("k1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store->GetCompileFailure("k2").status().code(), absl::StatusCode::kDataLoss)
      << "still there, such as it is";
}

TEST(SqliteStoreTest, F3_ALockFromOutsideIsWaitedForOnceAndThenSaid) {
  TempDir dir;
  SqliteStore::Options options;
  options.busy_timeout_ms = 200;
  auto store = OpenOrDie(dir / "store.db", options);
  ASSERT_TRUE(store->PutSweep(MakeSweep("a")).ok());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open((dir / "store.db").c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  const absl::Time begin = absl::Now();
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i) {
    writers.emplace_back([&, i] {
      const absl::Status status = store->PutTrial(MakeTrial("a", i));
      EXPECT_EQ(ErrorReason(status), "DATABASE_BUSY") << status;
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(status.message(), HasSubstr("another program holds a lock"));
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2)) << "eight waits would take their time one after the other";
  EXPECT_TRUE(store->GetSweep("sweeps/a").ok()) << "readers go on";
  ASSERT_EQ(sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_TRUE(store->PutTrial(MakeTrial("a", 1)).ok());
  // Somebody who only reads, in an open transaction, keeps nobody from writing.
  ASSERT_EQ(sqlite3_exec(other, "BEGIN; SELECT count(*) FROM v_trials", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_TRUE(store->PutTrial(MakeTrial("a", 2)).ok());
  sqlite3_close(other);
}

TEST(SqliteStoreTest, DatabaseOfAnotherProgramIsRefused) {
  TempDir dir;
  Sql(dir / "store.db", "CREATE TABLE notes(text)");
  ExpectRefusedUnchanged(dir / "store.db", absl::StatusCode::kFailedPrecondition, "DATABASE_FOREIGN");
}

TEST(SqliteStoreTest, DamagedFilesAreRefused) {
  TempDir dir;
  for (const std::string& text : {std::string("short"), std::string(8192, 'x')}) {
    ASSERT_TRUE(WriteFileAtomic(dir / "text.db", text).ok());
    ExpectRefusedUnchanged(dir / "text.db", absl::StatusCode::kDataLoss, "DATABASE_CORRUPT");
  }
  {
    auto store = OpenOrDie(dir / "store.db");
    ASSERT_TRUE(store->PutSweep(MakeSweep("a")).ok());
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(store->PutTrial(MakeTrial("a", i)).ok());
  }
  const std::string whole = *ReadFile(dir / "store.db");
  ASSERT_TRUE(WriteFileAtomic(dir / "cut.db", whole.substr(0, whole.size() / 2 / 4096 * 4096)).ok());
  ExpectRefusedUnchanged(dir / "cut.db", absl::StatusCode::kDataLoss, "DATABASE_CORRUPT");
  std::string scribbled = whole;
  scribbled.replace(4096, 4096 * 4, std::string(4096 * 4, '\xa5'));
  ASSERT_TRUE(WriteFileAtomic(dir / "scribbled.db", scribbled).ok());
  ExpectRefusedUnchanged(dir / "scribbled.db", absl::StatusCode::kDataLoss, "DATABASE_CORRUPT");
}

TEST(SqliteStoreTest, C6_DamagedRowsAreLeftOutAndCounted) {
  TempDir dir;
  {
    auto store = OpenOrDie(dir / "store.db");
    ASSERT_TRUE(store->PutSweep(MakeSweep("a")).ok());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->PutTrial(MakeTrial("a", i)).ok());
    ASSERT_TRUE(store->PublishRecords({MakeRecord("r", "k")}).ok());
  }
  Sql(dir / "store.db",
      "UPDATE trials SET payload=CAST(payload||x'00' AS BLOB) WHERE idx=1; UPDATE records SET payload=x''");
  auto store = OpenOrDie(dir / "store.db");
  EXPECT_THAT(NamesOf(store->ListTrials({}, 10, "")->items), ElementsAre("sweeps/a/trials/0", "sweeps/a/trials/2"));
  EXPECT_EQ(store->corrupt_rows(), 1);
  EXPECT_EQ(store->GetRecord("records/r").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store->corrupt_rows(), 2);
  // A page that is all damage must not end the listing.
  const auto page = store->ListTrials({}, 1, store->ListTrials({}, 1, "")->next_token);
  EXPECT_TRUE(page->items.empty());
  EXPECT_THAT(NamesOf(store->ListTrials({}, 1, page->next_token)->items), ElementsAre("sweeps/a/trials/2"));
}

TEST(SqliteStoreTest, G7_FullFileFailsTheCallAloneAndWholly) {
  TempDir dir;
  auto store = OpenOrDie(dir / "store.db", {.max_pages = 64});
  ASSERT_TRUE(store->PutSweep(MakeSweep("a")).ok());
  v1::Trial big = MakeTrial("a", 0);
  big.set_message(std::string(1 << 20, 'x'));
  const absl::Status status = store->PutTrial(big);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(status), "DISK_FULL");
  EXPECT_THAT(status.message(), HasSubstr(dir / "store.db")) << "where to free some space";
  std::vector<v1::ExportLine> lines = {RunLine(), Line(MakeSweep("b")), Line(MakeTrial("b", 0))};
  lines[2].mutable_trial()->set_message(std::string(1 << 20, 'x'));
  int n = 0;
  EXPECT_EQ(ErrorReason(store->Import(lines, &n, &n, &n, &n)), "DISK_FULL");
  EXPECT_THAT(NamesOf(store->ListSweeps(std::nullopt, 10, "")->items), ElementsAre("sweeps/a"));
  EXPECT_TRUE(store->PutTrial(MakeTrial("a", 1)).ok()) << "what fits still gets in";
  EXPECT_THAT(NamesOf(store->ListTrials({}, 10, "")->items), ElementsAre("sweeps/a/trials/1"));
}

// Files of this process may not grow beyond `bytes` while this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &saved_);
    const rlimit limit = {bytes, saved_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &saved_); }

 private:
  rlimit saved_;
};

TEST(SqliteStoreTest, G7_FailingWritesRecoverWhenSpaceReturns) {
  TempDir dir;
  auto store = OpenOrDie(dir / "store.db");
  ASSERT_TRUE(store->PutSweep(MakeSweep("a")).ok());
  int written = 0;
  absl::Status status;
  {
    const FileSizeLimit limit(512 << 10);
    for (; written < 2000 && status.ok(); ++written) {
      v1::Trial trial = MakeTrial("a", written);
      trial.set_message(std::string(20'000, 'x'));
      status = store->PutTrial(trial);
    }
    EXPECT_EQ(ErrorReason(status), "DISK_FULL") << status;
    EXPECT_EQ(store->ListTrials({}, 1000, "")->items.size(), static_cast<size_t>(written - 1));
    // As large as the trial that did not fit: a small record might.
    v1::TuningRecord record = MakeRecord("r", "k");
    record.set_sweep(std::string(20'000, 'x'));
    EXPECT_EQ(ErrorReason(store->PublishRecords({record}).status()), "DISK_FULL");
  }
  EXPECT_TRUE(store->PutTrial(MakeTrial("a", written)).ok());
  EXPECT_EQ(*store->PublishRecords({MakeRecord("r", "k")}), 1);
  store.reset();
  store = OpenOrDie(dir / "store.db");
  EXPECT_EQ(store->ListTrials({}, 1000, "")->items.size(), static_cast<size_t>(written));
}

TEST(SqliteStoreTest, WritersOfTheSameMomentShareACommit) {
  TempDir dir;
  auto store = OpenOrDie(dir / "store.db");
  ASSERT_TRUE(store->PutSweep(MakeSweep("a")).ok());
  const int64_t before = store->commits();
  // A write held up by another program's lock lets the others queue behind it.
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open((dir / "store.db").c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  std::vector<std::thread> threads;
  std::atomic<int> started{0};
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      ++started;
      EXPECT_TRUE(store->PutTrial(MakeTrial("a", i)).ok());
    });
  }
  while (started < 16) std::this_thread::yield();
  ASSERT_EQ(sqlite3_exec(other, "COMMIT", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(other);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(store->commits() - before, 16);
  EXPECT_EQ(store->ListTrials({}, 100, "")->items.size(), 16u);
}

TEST(SqliteStoreTest, ViewsAreForPeople) {
  TempDir dir;
  {
    auto store = OpenOrDie(dir / "store.db");
    ASSERT_TRUE(store->PutSweep(MakeSweep("a")).ok());
    ASSERT_TRUE(store->PutTrial(MakeTrial("a", 3)).ok());
    ASSERT_TRUE(store->PublishRecords({MakeRecord("r", "k")}).ok());
  }
  auto db = SqliteDb::Open(dir / "store.db", /*read_only=*/true);
  ASSERT_TRUE(db.ok()) << db.status();
  EXPECT_EQ(*(*db)->QueryText("SELECT state||' '||op||' '||create_time FROM v_sweeps"),
            "DONE softmax rows=8 cols=64 dtype=fp32 1970-01-01T00:00:01Z");
  EXPECT_EQ(
      *(*db)->QueryText("SELECT template||' '||config||' '||outcome||' '||evidence||' '||median_us FROM v_trials"),
      "softmax block=131,vec=4 OK MEASURED 10.0");
  EXPECT_EQ(*(*db)->QueryText("SELECT name||' '||current||' '||provider||' '||evidence FROM v_records"),
            "records/r 1 TEMPLATE MEASURED");
}

TEST(MigrateTest, StepsApplyOnceAndAFailingOneLeavesNothing) {
  TempDir dir;
  ASSERT_TRUE(PrepareDataFile(dir / "m.db").ok());
  auto db = *SqliteDb::Open(dir / "m.db", /*read_only=*/false);
  std::vector<std::string> steps = {"CREATE TABLE one(x INTEGER) STRICT;",
                                    "CREATE TABLE two(x INTEGER) STRICT; NONSENSE;"};
  EXPECT_FALSE(Migrate(*db, steps).ok());
  EXPECT_EQ(*db->QueryInt("PRAGMA user_version"), 1) << "the good step stays";
  EXPECT_EQ(*db->QueryInt("SELECT count(*) FROM sqlite_schema WHERE name='two'"), 0);
  steps[1] = "ALTER TABLE one ADD COLUMN y INTEGER;";
  EXPECT_TRUE(Migrate(*db, steps).ok());
  EXPECT_TRUE(Migrate(*db, steps).ok()) << "nothing left to do";
  EXPECT_EQ(*db->QueryInt("PRAGMA user_version"), 2);
  EXPECT_TRUE(CheckSchema(*db, steps).ok());
  steps.pop_back();
  EXPECT_EQ(ErrorReason(CheckSchema(*db, steps)), "DATABASE_NEWER");
}

}  // namespace
}  // namespace rooftune

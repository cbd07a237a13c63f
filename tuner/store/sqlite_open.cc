// Opening a database: nothing of an existing file changes until it is known to be ours, whole and not newer.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "tuner/store/sqlite_schema.h"
#include "tuner/store/sqlite_store.h"

namespace rooftune {
namespace {

// Kept of the log after a checkpoint.
constexpr int kJournalSizeLimit = 64 << 20;

// SQLite takes a file shorter than its header for an empty database and would write over it.
absl::Status CheckMagic(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error || size == 0) return absl::OkStatus();
  char magic[16] = {};
  std::ifstream file(path, std::ios::binary);
  file.read(magic, sizeof(magic));
  if (!file.eof() && !file.good()) {
    return Error(absl::StatusCode::kPermissionDenied, "DATABASE_NOT_WRITABLE", absl::StrCat("cannot read ", path));
  }
  if (std::string(magic, sizeof(magic)) == std::string("SQLite format 3\0", 16)) return absl::OkStatus();
  return Error(absl::StatusCode::kDataLoss, "DATABASE_CORRUPT",
               absl::StrCat("it does not start as a SQLite database does; move it away"));
}

absl::Status SetUpWriter(SqliteDb& db, const SqliteStore::Options& options) {
  RT_RETURN_IF_ERROR(CheckSchema(db, SchemaSteps()));
  sqlite3_busy_timeout(db.handle(), options.busy_timeout_ms);
  if (options.max_pages > 0) {
    RT_RETURN_IF_ERROR(db.QueryText(absl::StrCat("PRAGMA max_page_count=", options.max_pages)).status());
  }
  // Where the file system has no shared memory or locks, SQLite stays in another mode without an error.
  RT_ASSIGN_OR_RETURN(const std::string mode, db.QueryText("PRAGMA journal_mode=WAL"));
  if (mode != "wal") {
    return Error(absl::StatusCode::kFailedPrecondition, "WAL_UNAVAILABLE",
                 absl::StrCat("the file system does not support SQLite's write-ahead log (mode is '", mode,
                              "'): choose a data directory on a local disk"));
  }
  RT_RETURN_IF_ERROR(db.Execute("PRAGMA synchronous=FULL"));
  RT_RETURN_IF_ERROR(db.QueryText(absl::StrCat("PRAGMA journal_size_limit=", kJournalSizeLimit)).status());
  return Migrate(db, SchemaSteps());
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& path, const Options& options) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  RT_RETURN_IF_ERROR(PrepareDataDir(parent.empty() ? "." : parent));
  RT_ASSIGN_OR_RETURN(std::unique_ptr<LockFile> lock, LockFile::Acquire(path + ".lock"));
  RT_RETURN_IF_ERROR(Annotate(CheckMagic(path), path));
  RT_RETURN_IF_ERROR(PrepareDataFile(path));
  RT_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDb> db, SqliteDb::Open(path, /*read_only=*/false, options.vfs));
  RT_RETURN_IF_ERROR(Annotate(SetUpWriter(*db, options), path));
  RT_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDb> reader, SqliteDb::Open(path, /*read_only=*/true, options.vfs));
  RT_RETURN_IF_ERROR(reader->QueryText("PRAGMA wal_autocheckpoint=0").status());
  RT_ASSIGN_OR_RETURN(std::unique_ptr<SqliteWriter> writer, SqliteWriter::Start(std::move(db), options.max_queued));
  return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(lock), std::move(writer), std::move(reader)));
}

}  // namespace rooftune

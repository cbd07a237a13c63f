// The little of SQLite's C API that the store needs, with owners instead of handles and Status instead of codes.
#ifndef ROOFTUNE_TUNER_STORE_SQLITE_DB_H_
#define ROOFTUNE_TUNER_STORE_SQLITE_DB_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rooftune {

// Status of a failed call: DISK_FULL, DATABASE_CORRUPT, DATABASE_BUSY, DATABASE_NOT_WRITABLE, STORE_IO, …
absl::Status SqliteStatus(sqlite3* db, int code, absl::string_view what);

class SqliteStatement;

// One connection. Not thread-safe.
class SqliteDb {
 public:
  // Opens, sets what every connection must have (no trust in the schema, checks of cell sizes, foreign keys, no
  // memory map) and never checkpoints on close unless told. `vfs` names SQLite's layer to the system; empty = its
  // default.
  static absl::StatusOr<std::unique_ptr<SqliteDb>> Open(const std::string& path, bool read_only,
                                                        const std::string& vfs = "");
  ~SqliteDb();
  SqliteDb(const SqliteDb&) = delete;
  SqliteDb& operator=(const SqliteDb&) = delete;

  // One or more statements without parameters or results of interest.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<SqliteStatement> Prepare(const std::string& sql);
  // First column of the first row; NOT_FOUND if there is none.
  absl::StatusOr<std::string> QueryText(const std::string& sql);
  absl::StatusOr<int64_t> QueryInt(const std::string& sql);

  // False after SQLite itself rolled the transaction back.
  bool InTransaction() const;
  void SetCheckpointOnClose(bool on);
  sqlite3* handle() const { return db_; }

 private:
  explicit SqliteDb(sqlite3* db) : db_(db) {}
  sqlite3* const db_;
};

// A prepared statement: bind by position from 1, Step() until false, Reset() to use it again. Must not outlive
// its connection.
class SqliteStatement {
 public:
  SqliteStatement(SqliteDb* db, sqlite3_stmt* statement) : db_(db), statement_(statement) {}
  SqliteStatement(SqliteStatement&& other) noexcept : db_(other.db_), statement_(other.statement_) {
    other.statement_ = nullptr;
  }
  SqliteStatement& operator=(SqliteStatement&&) = delete;
  ~SqliteStatement() { sqlite3_finalize(statement_); }

  // Binding fails only for a wrong position or without memory; the next Step() reports it.
  SqliteStatement& Bind(int position, int64_t value);
  SqliteStatement& Bind(int position, double value);
  SqliteStatement& Bind(int position, const std::string& value);
  SqliteStatement& BindBlob(int position, const std::string& value);
  SqliteStatement& BindNull(int position);

  // True if there is a row.
  absl::StatusOr<bool> Step();
  // Runs to the end and resets.
  absl::Status Run();
  void Reset();

  int64_t Int(int column) const { return sqlite3_column_int64(statement_, column); }
  double Double(int column) const { return sqlite3_column_double(statement_, column); }
  // Text or blob.
  std::string Text(int column) const;

 private:
  SqliteDb* const db_;
  sqlite3_stmt* statement_;
  int bind_error_ = SQLITE_OK;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_SQLITE_DB_H_

#include "tuner/store/sqlite_db.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// People may look into the database with other tools; a write waits this long for one that holds a lock.
constexpr int kBusyTimeoutMs = 5000;
// Longest value: a row of kMaxRowBytes with room to spare.
constexpr int kMaxValueBytes = 64 << 20;

// " of FILE", for whoever has to free some space; "" if there is no file.
std::string OfFile(sqlite3* db) {
  const char* const file = db == nullptr ? nullptr : sqlite3_db_filename(db, "main");
  return file == nullptr || *file == '\0' ? "" : absl::StrCat(" of ", file);
}

}  // namespace

absl::Status SqliteStatus(sqlite3* db, int code, absl::string_view what) {
  const int extended = db == nullptr ? code : sqlite3_extended_errcode(db);
  const std::string message = absl::StrCat(what, ": ", db == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db),
                                           " (SQLite code ", extended, ")");
  switch (code & 0xff) {
    case SQLITE_FULL:
      return Error(absl::StatusCode::kResourceExhausted, "DISK_FULL",
                   absl::StrCat(message, "; free some space on the disk", OfFile(db)));
    case SQLITE_IOERR:
      if (extended == SQLITE_IOERR_READ || extended == SQLITE_IOERR_SHORT_READ) {
        return Error(absl::StatusCode::kUnavailable, "STORE_IO", message);
      }
      return Error(absl::StatusCode::kResourceExhausted, "DISK_FULL",
                   absl::StrCat(message, "; the disk", OfFile(db), " is full or failing"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Error(absl::StatusCode::kDataLoss, "DATABASE_CORRUPT",
                   absl::StrCat(message, "; move the file away and import an evidence file, or restore a backup"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return Error(absl::StatusCode::kUnavailable, "DATABASE_BUSY",
                   absl::StrCat(message, "; another program holds a lock on the database"));
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return Error(absl::StatusCode::kPermissionDenied, "DATABASE_NOT_WRITABLE", message);
    case SQLITE_NOMEM:
      return Error(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY", message);
    case SQLITE_TOOBIG:
      return Error(absl::StatusCode::kInvalidArgument, "ROW_TOO_LARGE", message);
    default:
      return Error(absl::StatusCode::kInternal, "STORE_ERROR", message);
  }
}

absl::StatusOr<std::unique_ptr<SqliteDb>> SqliteDb::Open(const std::string& path, bool read_only,
                                                         const std::string& vfs) {
  sqlite3* handle = nullptr;
  const int flags =
      (read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE) | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags, vfs.empty() ? nullptr : vfs.c_str());
  std::unique_ptr<SqliteDb> db(new SqliteDb(handle));
  if (code != SQLITE_OK) return SqliteStatus(handle, code, absl::StrCat("open ", path));
  sqlite3_busy_timeout(handle, kBusyTimeoutMs);
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
  sqlite3_limit(handle, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  db->SetCheckpointOnClose(false);
  RT_RETURN_IF_ERROR(db->Execute("PRAGMA foreign_keys=ON; PRAGMA cell_size_check=ON; PRAGMA mmap_size=0;"));
  return db;
}

SqliteDb::~SqliteDb() { sqlite3_close_v2(db_); }

absl::Status SqliteDb::Execute(const std::string& sql) {
  const int code = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : SqliteStatus(db_, code, sql.substr(0, sql.find('\n')));
}

absl::StatusOr<SqliteStatement> SqliteDb::Prepare(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(db_, sql.c_str(), static_cast<int>(sql.size()), 0, &statement, nullptr);
  if (code != SQLITE_OK) return SqliteStatus(db_, code, sql);
  return SqliteStatement(this, statement);
}

absl::StatusOr<std::string> SqliteDb::QueryText(const std::string& sql) {
  RT_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  RT_ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return absl::NotFoundError(absl::StrCat("no row: ", sql));
  return statement.Text(0);
}

absl::StatusOr<int64_t> SqliteDb::QueryInt(const std::string& sql) {
  RT_ASSIGN_OR_RETURN(const std::string text, QueryText(sql));
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return absl::InternalError(absl::StrCat("not a number: ", sql));
  return value;
}

bool SqliteDb::InTransaction() const { return sqlite3_get_autocommit(db_) == 0; }

void SqliteDb::SetCheckpointOnClose(bool on) {
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on ? 0 : 1, nullptr);
}

SqliteStatement& SqliteStatement::Bind(int position, int64_t value) {
  bind_error_ |= sqlite3_bind_int64(statement_, position, value);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int position, double value) {
  bind_error_ |= sqlite3_bind_double(statement_, position, value);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int position, const std::string& value) {
  bind_error_ |= sqlite3_bind_text64(statement_, position, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}

SqliteStatement& SqliteStatement::BindBlob(int position, const std::string& value) {
  bind_error_ |= sqlite3_bind_blob64(statement_, position, value.data(), value.size(), SQLITE_TRANSIENT);
  return *this;
}

SqliteStatement& SqliteStatement::BindNull(int position) {
  bind_error_ |= sqlite3_bind_null(statement_, position);
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  if (bind_error_ != SQLITE_OK) return absl::InternalError("cannot bind a parameter");
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return SqliteStatus(db_->handle(), code, sqlite3_sql(statement_));
}

absl::Status SqliteStatement::Run() {
  absl::StatusOr<bool> row = Step();
  while (row.ok() && *row) row = Step();
  Reset();
  return row.status();
}

void SqliteStatement::Reset() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
  bind_error_ = SQLITE_OK;
}

std::string SqliteStatement::Text(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int bytes = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

}  // namespace rooftune

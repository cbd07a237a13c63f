// The store of a daemon: one SQLite file, its schema in tuner/store/sqlite_schema.cc, described in docs/storage.md.
#ifndef ROOFTUNE_TUNER_STORE_SQLITE_STORE_H_
#define ROOFTUNE_TUNER_STORE_SQLITE_STORE_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tuner/store/data_dir.h"
#include "tuner/store/sqlite_db.h"
#include "tuner/store/sqlite_writer.h"
#include "tuner/store/store.h"

namespace rooftune {

// One thread writes and checkpoints, with writers of the same moment sharing one sync; reads go over a second,
// read-only connection. Pages hold at most 10,000 items and about 64 MiB, whatever the limit asked for (≤ 0 = 50).
// Rows whose bytes have changed are left out of listings, logged once and counted.
class SqliteStore : public Store {
 public:
  struct Options {
    // Writes waiting at most; more block their callers.
    int max_queued = 1024;
    // How long a write waits for a lock that another program holds.
    int busy_timeout_ms = 5000;
    // Test seam: pages the file may have; 0 = no limit. A full file behaves as a full disk.
    int max_pages = 0;
    // Test seam: SQLite's layer to the system, e.g. "unix-none", which has no shared memory; empty = the default.
    std::string vfs = "";
  };

  // Creates the folder (0700) and the file (0600) when missing. Fails without touching an existing file:
  // FAILED_PRECONDITION (DATABASE_IN_USE with the holder's pid, DATABASE_NEWER, DATABASE_FOREIGN, DATA_DIR_UNSAFE,
  // DATA_DIR_REMOTE, WAL_UNAVAILABLE), DATA_LOSS (DATABASE_CORRUPT), PERMISSION_DENIED, RESOURCE_EXHAUSTED
  // (DISK_FULL).
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& path, const Options& options);
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& path) { return Open(path, Options()); }
  ~SqliteStore() override;

  absl::Status PutSweep(const v1::Sweep& sweep) override;
  absl::StatusOr<v1::Sweep> GetSweep(const std::string& name) override;
  absl::StatusOr<Page<v1::Sweep>> ListSweeps(std::optional<v1::SweepState> state, int limit,
                                             const std::string& token) override;
  absl::StatusOr<v1::Sweep> FindSweepByRequestId(const std::string& request_id) override;
  absl::Status PutTrial(const v1::Trial& trial) override;
  absl::StatusOr<Page<v1::Trial>> ListTrials(const TrialFilter& filter, int limit, const std::string& token) override;
  absl::StatusOr<int64_t> PublishRecords(const std::vector<v1::TuningRecord>& records) override;
  absl::StatusOr<v1::TuningRecord> GetRecord(const std::string& name) override;
  absl::StatusOr<Page<v1::TuningRecord>> ListRecords(const RecordFilter& filter, int limit,
                                                     const std::string& token) override;
  absl::StatusOr<int64_t> CurrentGeneration() override;
  absl::StatusOr<std::set<std::string>> ServedArtifacts(int64_t generations_back) override;
  absl::Status PutCalibration(const device::v1::Calibration& calibration) override;
  absl::StatusOr<device::v1::Calibration> GetCalibration(const std::string& device_key) override;
  absl::Status PutCompileFailure(const std::string& key, const worker::v1::CompileResult& result) override;
  absl::StatusOr<worker::v1::CompileResult> GetCompileFailure(const std::string& key) override;
  absl::Status Import(const std::vector<v1::ExportLine>& lines, int* sweeps, int* trials, int* records,
                      int* duplicates) override;

  // "store_commits", "store_corrupt_rows".
  std::map<std::string, int64_t> Counters() const override;

  // Damaged rows met while reading.
  int64_t corrupt_rows() const { return corrupt_rows_; }
  // Transactions committed.
  int64_t commits() const { return writer_->commits(); }

 private:
  SqliteStore(std::unique_ptr<LockFile> lock, std::unique_ptr<SqliteWriter> writer, std::unique_ptr<SqliteDb> reader);
  // The row's message from two columns; counts and logs a damaged one.
  absl::Status ReadPayload(const SqliteStatement& row, int digest_column, absl::string_view what,
                           google::protobuf::Message* message);
  template <typename T>
  absl::StatusOr<T> ReadOne(const std::string& sql, const std::string& key, const absl::Status& missing);

  // Released in reverse: reader, writer (the last connection), lock.
  const std::unique_ptr<LockFile> lock_;
  const std::unique_ptr<SqliteWriter> writer_;
  absl::Mutex read_mutex_;
  const std::unique_ptr<SqliteDb> reader_ ABSL_PT_GUARDED_BY(read_mutex_);
  std::atomic<int64_t> corrupt_rows_{0};
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_SQLITE_STORE_H_

// The one thread that writes: drains a bounded queue into one transaction, syncs once, then tells everybody.
#ifndef ROOFTUNE_TUNER_STORE_SQLITE_WRITER_H_
#define ROOFTUNE_TUNER_STORE_SQLITE_WRITER_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tuner/store/sqlite_db.h"
#include "tuner/store/sqlite_rows.h"

namespace rooftune {

// Owns the writing connection, whose commits also checkpoint (SQLite's default, every 1000 pages): no other
// connection may do either, since SQLite before 3.51.3 can lose a commit that races with a checkpoint.
// Thread-safe.
class SqliteWriter {
 public:
  using Apply = std::function<absl::Status(Tables&)>;

  static absl::StatusOr<std::unique_ptr<SqliteWriter>> Start(std::unique_ptr<SqliteDb> db, int max_queued);
  // Finishes what is queued.
  ~SqliteWriter();

  // Runs `apply` in a transaction and returns when it is durable, or when nothing of it is there. `apply` may run
  // more than once; what it leaves behind from its last run counts. Waits while the queue is full.
  absl::Status Write(Apply apply);

  // Transactions committed so far: less than the writes when writers are many.
  int64_t commits() const;

 private:
  struct Job {
    Apply apply;
    absl::Status result;
    bool done = false;
  };

  SqliteWriter(std::unique_ptr<SqliteDb> db, std::unique_ptr<SqliteTables> tables, int max_queued);
  void Loop();
  // One transaction for all; false if it was lost as a whole and each must be tried alone.
  bool CommitTogether(const std::vector<Job*>& jobs);
  absl::Status RunInSavepoint(const Apply& apply);

  const std::unique_ptr<SqliteDb> db_;
  const std::unique_ptr<SqliteTables> tables_;  // after db_: closed before it
  const size_t max_queued_;

  mutable absl::Mutex mutex_;
  std::deque<Job*> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t commits_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_SQLITE_WRITER_H_

#include "tuner/store/sqlite_writer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace rooftune {

absl::StatusOr<std::unique_ptr<SqliteWriter>> SqliteWriter::Start(std::unique_ptr<SqliteDb> db, int max_queued) {
  RT_ASSIGN_OR_RETURN(std::unique_ptr<SqliteTables> tables, SqliteTables::Create(db.get()));
  return std::unique_ptr<SqliteWriter>(new SqliteWriter(std::move(db), std::move(tables), max_queued));
}

SqliteWriter::SqliteWriter(std::unique_ptr<SqliteDb> db, std::unique_ptr<SqliteTables> tables, int max_queued)
    : db_(std::move(db)), tables_(std::move(tables)), max_queued_(static_cast<size_t>(std::max(1, max_queued))) {
  thread_ = std::thread([this] { Loop(); });
}

SqliteWriter::~SqliteWriter() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
  db_->SetCheckpointOnClose(true);
}

absl::Status SqliteWriter::Write(Apply apply) {
  Job job;
  job.apply = std::move(apply);
  absl::MutexLock lock(&mutex_);
  const auto has_room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return queue_.size() < max_queued_; };
  mutex_.Await(absl::Condition(&has_room));
  queue_.push_back(&job);
  mutex_.Await(absl::Condition(&job.done));
  return job.result;
}

int64_t SqliteWriter::commits() const {
  absl::MutexLock lock(&mutex_);
  return commits_;
}

void SqliteWriter::Loop() {
  while (true) {
    std::vector<Job*> jobs;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); };
      mutex_.Await(absl::Condition(&has_work));
      if (queue_.empty()) return;
      jobs.assign(queue_.begin(), queue_.end());
      queue_.clear();
    }
    if (!CommitTogether(jobs)) {
      // A full disk or the like took the whole transaction: what fits alone still gets in. A lock that another program
      // holds is waited for once, not once a job.
      const bool busy = ErrorReason(jobs[0]->result) == "DATABASE_BUSY";
      for (Job* job : jobs) {
        if (busy) break;
        if (!CommitTogether({job}) && job->result.ok()) job->result = absl::InternalError("transaction lost");
      }
    }
    absl::MutexLock lock(&mutex_);
    for (Job* job : jobs) job->done = true;
  }
}

bool SqliteWriter::CommitTogether(const std::vector<Job*>& jobs) {
  absl::Status status = db_->Execute("BEGIN IMMEDIATE");
  for (Job* job : jobs) {
    if (!status.ok()) break;
    job->result = RunInSavepoint(job->apply);
    // Some errors make SQLite roll everything back.
    if (!db_->InTransaction()) status = job->result;
  }
  if (status.ok()) status = db_->Execute("COMMIT");
  if (status.ok()) {
    absl::MutexLock lock(&mutex_);
    ++commits_;
    return true;
  }
  if (db_->InTransaction()) {
    const absl::Status rolled_back = db_->Execute("ROLLBACK");
    if (!rolled_back.ok()) LogError("store: ", rolled_back.message());
  }
  for (Job* job : jobs) job->result = status;
  return false;
}

absl::Status SqliteWriter::RunInSavepoint(const Apply& apply) {
  RT_RETURN_IF_ERROR(db_->Execute("SAVEPOINT job"));
  absl::Status status = apply(*tables_);
  if (!db_->InTransaction()) return status.ok() ? absl::InternalError("transaction lost") : status;
  if (!status.ok()) RT_RETURN_IF_ERROR(db_->Execute("ROLLBACK TO job"));
  const absl::Status released = db_->Execute("RELEASE job");
  return status.ok() ? released : status;
}

}  // namespace rooftune

#include "server/config_index.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/kernel_template.h"
#include "rooftune/v1/service.pb.h"

namespace rooftune {
namespace {

constexpr int kLoadPage = 1000;
constexpr absl::Duration kFlushInterval = absl::Seconds(1);

// Served records leave their samples out: they are half of a record and nobody picks a kernel by them.
// RecordService has them.
RecordPtr Slim(const v1::TuningRecord& record) {
  auto slim = std::make_shared<v1::TuningRecord>(record);
  if (slim->has_measurement()) slim->mutable_measurement()->clear_sample_us();
  for (v1::Baseline& baseline : *slim->mutable_baseline()) {
    if (baseline.has_measurement()) baseline.mutable_measurement()->clear_sample_us();
  }
  return slim;
}

std::shared_ptr<const std::string> Wire(const v1::TuningRecord& record) {
  v1::GetBestConfigResponse response;
  *response.mutable_record() = record;
  return std::make_shared<const std::string>(response.SerializeAsString());
}

IndexEntry::Version MakeVersion(RecordPtr record, std::string unusable) {
  auto wire = Wire(*record);
  return {std::move(record), std::move(wire), std::move(unusable)};
}

}  // namespace

ConfigIndex::ConfigIndex(const OpCatalog& ops, ConfigCheck check)
    : ops_(ops), check_(std::move(check)), snapshot_(std::make_shared<const IndexSnapshot>()) {}

IndexEntry::Version ConfigIndex::NewVersion(const v1::TuningRecord& record, const Op& op) const {
  const absl::Status met = CheckPreconditions(record.plan(), op);
  std::string unusable(met.message());
  if (unusable.empty() && check_ != nullptr) unusable = check_(record, op);
  if (!unusable.empty()) {
    LogWarning("record ", record.name(), " (", record.op(), ") is not served: ", unusable, "; tune it again");
  }
  return MakeVersion(Slim(record), std::move(unusable));
}

SnapshotPtr ConfigIndex::snapshot() const {
  // A lock of some nanoseconds; std::atomic<std::shared_ptr> of g++ 12 spins on one too, unseen by sanitizers.
  absl::ReaderMutexLock lock(&pointer_mutex_);
  return snapshot_;
}

absl::Status ConfigIndex::Load(Store& store) {
  absl::MutexLock lock(&write_mutex_);
  IndexSnapshot next;
  RT_ASSIGN_OR_RETURN(next.generation_, store.CurrentGeneration());
  RecordFilter filter;
  filter.include_superseded = true;
  std::vector<v1::TuningRecord> records;
  std::string token;
  do {
    RT_ASSIGN_OR_RETURN(Page<v1::TuningRecord> page, store.ListRecords(filter, kLoadPage, token));
    for (v1::TuningRecord& record : page.items) {
      if (record.to_generation() != 0 && record.to_generation() < next.oldest_generation()) continue;
      // Published between the two reads: its own Publish is still to come or was before this call.
      next.generation_ = std::max(next.generation_, record.from_generation());
      records.push_back(std::move(record));
    }
    token = page.next_token;
  } while (!token.empty());
  Apply(next, records);
  // Newer than what was read: keep, they merge again below.
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(),
                                [&](const Batch& batch) { return batch.generation <= next.generation_; }),
                 pending_.end());
  absl::MutexLock pointer_lock(&pointer_mutex_);
  snapshot_ = std::make_shared<const IndexSnapshot>(std::move(next));
  return absl::OkStatus();
}

void ConfigIndex::Publish(const std::vector<v1::TuningRecord>& records, int64_t generation) {
  absl::MutexLock lock(&write_mutex_);
  pending_.push_back({records, generation});
}

absl::Time ConfigIndex::FlushIfDue(absl::Time now) {
  {
    absl::MutexLock lock(&write_mutex_);
    if (pending_.empty()) return absl::InfiniteFuture();
    if (now < last_flush_ + kFlushInterval && now >= last_flush_) return last_flush_ + kFlushInterval;
  }
  Flush(now);
  return absl::InfiniteFuture();
}

void ConfigIndex::Flush(absl::Time now) {
  absl::MutexLock lock(&write_mutex_);
  if (pending_.empty()) return;
  std::sort(pending_.begin(), pending_.end(),
            [](const Batch& a, const Batch& b) { return a.generation < b.generation; });
  IndexSnapshot next = *snapshot();
  for (Batch& batch : pending_) {
    if (batch.generation <= next.generation_) continue;  // a Load was faster
    next.generation_ = batch.generation;
    for (v1::TuningRecord& record : batch.records) {
      record.set_from_generation(batch.generation);
      record.set_to_generation(0);
    }
    Apply(next, batch.records);
  }
  pending_.clear();
  last_flush_ = now;
  absl::MutexLock pointer_lock(&pointer_mutex_);
  snapshot_ = std::make_shared<const IndexSnapshot>(std::move(next));
}

// Puts the records into their shards and kinds; both are copied once, whatever the number of records.
void ConfigIndex::Apply(IndexSnapshot& next, const std::vector<v1::TuningRecord>& records) const {
  std::map<std::string, std::vector<const v1::TuningRecord*>> by_key;
  for (const v1::TuningRecord& record : records) by_key[record.target_key()].push_back(&record);
  std::map<size_t, IndexSnapshot::Shard> shards;
  std::map<std::string, std::pair<std::map<EntryPtr, EntryPtr>, std::vector<EntryPtr>>> changes;
  for (const auto& [key, group] : by_key) {
    const size_t number = IndexSnapshot::ShardOf(key);
    if (shards.count(number) == 0 && next.shards_[number] != nullptr) shards[number] = *next.shards_[number];
    EntryPtr& slot = shards[number][key];
    const EntryPtr old = slot;
    const EntryPtr merged = Merge(old, group, next.generation_);
    if (merged == nullptr) {
      if (old == nullptr) shards[number].erase(key);
      continue;
    }
    slot = merged;
    auto& [replaced, added] = changes[merged->facts.kind];
    if (old == nullptr)
      added.push_back(merged);
    else
      replaced[old] = merged;
  }
  for (auto& [number, shard] : shards) {
    next.shards_[number] = std::make_shared<const IndexSnapshot::Shard>(std::move(shard));
  }
  for (auto& [kind, change] : changes) {
    std::vector<EntryPtr> entries;
    if (next.kinds_[kind] != nullptr) entries = *next.kinds_[kind];
    for (EntryPtr& entry : entries) {
      const auto replacement = change.first.find(entry);
      if (replacement != change.first.end()) entry = replacement->second;
    }
    entries.insert(entries.end(), change.second.begin(), change.second.end());
    next.kinds_[kind] = std::make_shared<const std::vector<EntryPtr>>(std::move(entries));
  }
}

EntryPtr ConfigIndex::Merge(const EntryPtr& old, const std::vector<const v1::TuningRecord*>& records,
                            int64_t generation) const {
  const absl::StatusOr<Op> op = ops_.Parse(records.front()->op());
  if (!op.ok()) {
    // A template folder that declared the operator may be gone; its records stay in the store.
    LogWarning("record ", records.front()->name(), " is not served: ", op.status().message());
    return nullptr;
  }
  auto entry = std::make_shared<IndexEntry>();
  entry->facts = FactsOf(*op);
  entry->op = op->text;
  entry->device_key = records.front()->device_key();
  if (records.front()->objective() != v1::OBJECTIVE_UNSPECIFIED) entry->objective = records.front()->objective();
  for (const v1::TuningRecord* record : records) {
    entry->versions.push_back(NewVersion(*record, *op));
  }
  if (old != nullptr) {
    for (IndexEntry::Version version : old->versions) {
      if (version.record->to_generation() == 0) {
        auto superseded = std::make_shared<v1::TuningRecord>(*version.record);
        superseded->set_to_generation(generation - 1);
        version = MakeVersion(std::move(superseded), version.unusable);
      }
      if (version.record->to_generation() >= generation - kKeptGenerations) entry->versions.push_back(version);
    }
  }
  std::stable_sort(entry->versions.begin(), entry->versions.end(),
                   [](const auto& a, const auto& b) { return a.record->rank() < b.record->rank(); });
  return entry;
}

}  // namespace rooftune

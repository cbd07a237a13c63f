// The current and recent records in memory: what lookups are answered from, without SQL.
#ifndef ROOFTUNE_SERVER_CONFIG_INDEX_H_
#define ROOFTUNE_SERVER_CONFIG_INDEX_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "costmodel/op.h"
#include "rooftune/v1/records.pb.h"
#include "tuner/search/policies.h"
#include "tuner/store/store.h"

namespace rooftune {

// Dims and attributes as the shape distance compares them.
OpFacts FactsOf(const Op& op);

// What a caller accepts.
struct Acceptance {
  v1::EvidenceLevel min_evidence = v1::EVIDENCE_LEVEL_UNSPECIFIED;
  bool deterministic = false;
  // 0 = newest.
  int64_t generation = 0;
  // Of neighbours; a key has only records of one.
  v1::Objective objective = v1::TIME;
  // Providers that the caller can use, as bits 1 << Provider; 0 = any.
  uint32_t providers = 0;
  // Version of the caller's cuBLASLt, which alone takes a record of CUBLASLT of the same; 0 = not said.
  int64_t cublaslt_version = 0;

  // Whether the caller can use a record of this provider and plan.
  bool Takes(const v1::TuningRecord& record) const;
};

using RecordPtr = std::shared_ptr<const v1::TuningRecord>;

// All that is known of one (operator, device). Immutable.
struct IndexEntry {
  struct Version {
    RecordPtr record;
    // The record as field `record` of a GetBestConfigResponse on the wire, so that a lookup copies bytes, not messages.
    std::shared_ptr<const std::string> wire;
    // Why it is not served: a precondition of the plan that the record's own operator breaks, or a constraint of the
    // template as it is now. Empty = it is.
    std::string unusable;
  };
  OpFacts facts;
  std::string op;
  std::string device_key;
  v1::Objective objective = v1::TIME;
  // Current ones by rank, then superseded ones that are still kept.
  std::vector<Version> versions;
};
using EntryPtr = std::shared_ptr<const IndexEntry>;

struct Neighbour {
  RecordPtr record;
  EntryPtr entry;
  double distance = 0;
};

// One generation and the recent ones before it. Immutable, thread-safe.
class IndexSnapshot {
 public:
  // Newest generation, and the oldest that can still be asked for.
  int64_t generation() const { return generation_; }
  int64_t oldest_generation() const;
  // FAILED_PRECONDITION (GENERATION_GONE) for one that is no longer kept or that never was.
  absl::Status CheckGeneration(int64_t generation) const;

  // nullptr if nothing is known of the key.
  EntryPtr Find(const std::string& target_key) const;
  // The first acceptable version by rank, owned by the entry; nullptr if there is none. `strongest` (optional) gets
  // the best evidence among those of the generation that were not acceptable.
  static const IndexEntry::Version* Pick(const IndexEntry& entry, const Acceptance& acceptance,
                                         v1::EvidenceLevel* strongest = nullptr);
  // Why records of a lower rank than `rank` are not for this caller: "a faster record of CUBLASLT …"; empty if it is
  // not for their provider.
  static std::string PassedOver(const IndexEntry& entry, const Acceptance& acceptance, int rank);
  // Entries with an acceptable version and the same attributes, nearest shape first; on `device_key` only. Looks
  // at 50 000 entries of the kind at most.
  std::vector<Neighbour> Nearest(const OpFacts& facts, const std::string& device_key, const Acceptance& acceptance,
                                 size_t limit) const;
  // For messages: what comes nearest among all entries of the kind, whatever differs.
  std::vector<EntryPtr> Similar(const OpFacts& facts, const std::string& device_key, size_t limit) const;
  std::vector<std::string> DeviceKeys() const;
  size_t size() const;
  // The first current version by rank that is kept from being served; nullptr if there is none.
  static const IndexEntry::Version* NotServed(const IndexEntry& entry);
  // Current versions that are kept from being served, all keys together.
  int64_t not_served() const;

 private:
  friend class ConfigIndex;
  // Publishing copies only the shards that change.
  static constexpr size_t kShards = 256;
  using Shard = absl::flat_hash_map<std::string, EntryPtr>;
  using KindMap = std::map<std::string, std::shared_ptr<const std::vector<EntryPtr>>>;
  static size_t ShardOf(const std::string& target_key);

  int64_t generation_ = 0;
  std::array<std::shared_ptr<const Shard>, kShards> shards_;
  // Entries by operator kind.
  KindMap kinds_;
};
using SnapshotPtr = std::shared_ptr<const IndexSnapshot>;

// Thread-safe.
class ConfigIndex {
 public:
  // Generations before the newest that are answered from kept versions.
  static constexpr int64_t kKeptGenerations = 16;

  // Why a record's configuration breaks the templates as they are now; empty if it does not or that can't be told.
  using ConfigCheck = std::function<std::string(const v1::TuningRecord& record, const Op& op)>;

  explicit ConfigIndex(const OpCatalog& ops, ConfigCheck check = nullptr);

  // Takes everything current or recent of the store in, in place of what is there.
  absl::Status Load(Store& store);
  // Adds the records that became current with `generation`; visible after the next Flush. Never blocks on I/O.
  void Publish(const std::vector<v1::TuningRecord>& records, int64_t generation);
  // Makes what was published visible. FlushIfDue does so at most once a second.
  void Flush(absl::Time now);
  // Returns when to call again if something is still held back, else InfiniteFuture.
  absl::Time FlushIfDue(absl::Time now);

  SnapshotPtr snapshot() const;

 private:
  struct Batch {
    std::vector<v1::TuningRecord> records;
    int64_t generation = 0;
  };
  void Apply(IndexSnapshot& next, const std::vector<v1::TuningRecord>& records) const;
  EntryPtr Merge(const EntryPtr& old, const std::vector<const v1::TuningRecord*>& records, int64_t generation) const;

  IndexEntry::Version NewVersion(const v1::TuningRecord& record, const Op& op) const;

  const OpCatalog& ops_;
  const ConfigCheck check_;
  // Guards writers; readers only copy the pointer.
  absl::Mutex write_mutex_;
  std::vector<Batch> pending_ ABSL_GUARDED_BY(write_mutex_);
  absl::Time last_flush_ ABSL_GUARDED_BY(write_mutex_) = absl::InfinitePast();
  mutable absl::Mutex pointer_mutex_;
  SnapshotPtr snapshot_ ABSL_GUARDED_BY(pointer_mutex_);
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_CONFIG_INDEX_H_

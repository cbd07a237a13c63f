#include <algorithm>
#include <set>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/config_index.h"

namespace rooftune {
namespace {

// A linear scan of this many entries takes a few milliseconds.
constexpr size_t kMaxScan = 50'000;

// Rough unlikeness for messages: shape distance, plus more for what weighs more than a shape.
double Unlikeness(const OpFacts& a, const OpFacts& b, bool same_device) {
  double total = same_device ? 0 : 100;
  OpFacts same_attributes = b;
  for (size_t i = 0; i < a.attributes.size() && i < b.attributes.size(); ++i) {
    if (a.attributes[i] != b.attributes[i]) total += 10;
  }
  same_attributes.attributes = a.attributes;
  return total + ShapeDistance(a, same_attributes).value_or(1000);
}

bool InGeneration(const v1::TuningRecord& record, int64_t generation) {
  if (generation == 0) return record.to_generation() == 0;
  return record.from_generation() <= generation &&
         (record.to_generation() == 0 || record.to_generation() >= generation);
}

}  // namespace

OpFacts FactsOf(const Op& op) {
  OpFacts facts;
  facts.kind = op.kind;
  facts.dims = op.dims;
  facts.attributes.assign(op.attributes.begin(), op.attributes.end());
  return facts;
}

bool Acceptance::Takes(const v1::TuningRecord& record) const {
  if (providers != 0 && (providers >> record.provider() & 1) == 0) return false;
  return record.provider() != v1::CUBLASLT || cublaslt_version == 0 ||
         record.plan().cublaslt().library_version() == cublaslt_version;
}

int64_t IndexSnapshot::oldest_generation() const {
  return std::max<int64_t>(0, generation_ - ConfigIndex::kKeptGenerations);
}

absl::Status IndexSnapshot::CheckGeneration(int64_t generation) const {
  if (generation == 0) return absl::OkStatus();
  if (generation < 0) return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", "generation must not be negative");
  if (generation >= oldest_generation() && generation <= generation_) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, "GENERATION_GONE",
               absl::StrCat("generation ", generation, " is not kept: this daemon answers for ", oldest_generation(),
                            " to ", generation_, "; ask again without a generation"),
               {{"oldest_generation", absl::StrCat(oldest_generation())}, {"generation", absl::StrCat(generation_)}});
}

size_t IndexSnapshot::ShardOf(const std::string& target_key) { return absl::HashOf(target_key) % kShards; }

EntryPtr IndexSnapshot::Find(const std::string& target_key) const {
  const auto& shard = shards_[ShardOf(target_key)];
  if (shard == nullptr) return nullptr;
  const auto it = shard->find(target_key);
  return it == shard->end() ? nullptr : it->second;
}

std::string IndexSnapshot::PassedOver(const IndexEntry& entry, const Acceptance& acceptance, int rank) {
  for (const IndexEntry::Version& version : entry.versions) {
    const v1::TuningRecord& record = *version.record;
    if (record.rank() >= rank || !InGeneration(record, acceptance.generation) || acceptance.Takes(record)) continue;
    const std::string made_by =
        record.provider() == v1::CUBLASLT ? absl::StrCat(" ", record.plan().cublaslt().library_version()) : "";
    return absl::StrCat("a faster record of ", v1::Provider_Name(record.provider()), made_by,
                        " is there (", record.name(), "), which the caller can't use");
  }
  return "";
}

const IndexEntry::Version* IndexSnapshot::Pick(const IndexEntry& entry, const Acceptance& acceptance,
                                               v1::EvidenceLevel* strongest) {
  const IndexEntry::Version* best = nullptr;
  for (const IndexEntry::Version& version : entry.versions) {
    const v1::TuningRecord& record = *version.record;
    if (!version.unusable.empty() || !InGeneration(record, acceptance.generation) || !acceptance.Takes(record)) continue;
    // What the template claims, unless two launches showed otherwise.
    if (acceptance.deterministic && (!record.plan().deterministic() || record.verification().nondeterministic()))
      continue;
    if (record.evidence() < acceptance.min_evidence) {
      if (strongest != nullptr && record.evidence() > *strongest) *strongest = record.evidence();
      continue;
    }
    if (best == nullptr || record.rank() < best->record->rank()) best = &version;
  }
  return best;
}

std::vector<Neighbour> IndexSnapshot::Nearest(const OpFacts& facts, const std::string& device_key,
                                              const Acceptance& acceptance, size_t limit) const {
  std::vector<Neighbour> found;
  const auto kind = kinds_.find(facts.kind);
  if (kind == kinds_.end()) return found;
  const size_t scan = std::min(kind->second->size(), kMaxScan);
  for (size_t i = 0; i < scan; ++i) {
    const EntryPtr& entry = (*kind->second)[i];
    if (entry->device_key != device_key || entry->objective != acceptance.objective) continue;
    const std::optional<double> distance = ShapeDistance(facts, entry->facts);
    if (!distance.has_value()) continue;
    const IndexEntry::Version* version = Pick(*entry, acceptance);
    if (version != nullptr) found.push_back({version->record, entry, *distance});
  }
  // The text breaks ties, so that every caller gets the same.
  std::sort(found.begin(), found.end(), [](const Neighbour& a, const Neighbour& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.entry->op < b.entry->op;
  });
  if (found.size() > limit) found.resize(limit);
  return found;
}

std::vector<EntryPtr> IndexSnapshot::Similar(const OpFacts& facts, const std::string& device_key, size_t limit) const {
  std::vector<std::pair<double, EntryPtr>> found;
  const auto kind = kinds_.find(facts.kind);
  if (kind == kinds_.end()) return {};
  const size_t scan = std::min(kind->second->size(), kMaxScan);
  for (size_t i = 0; i < scan; ++i) {
    const EntryPtr& entry = (*kind->second)[i];
    found.emplace_back(Unlikeness(facts, entry->facts, entry->device_key == device_key), entry);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second->op < b.second->op;
  });
  std::vector<EntryPtr> entries;
  for (size_t i = 0; i < found.size() && i < limit; ++i) entries.push_back(found[i].second);
  return entries;
}

std::vector<std::string> IndexSnapshot::DeviceKeys() const {
  std::set<std::string> keys;
  for (const auto& [kind, entries] : kinds_) {
    for (const EntryPtr& entry : *entries) keys.insert(entry->device_key);
  }
  return {keys.begin(), keys.end()};
}

const IndexEntry::Version* IndexSnapshot::NotServed(const IndexEntry& entry) {
  for (const IndexEntry::Version& version : entry.versions) {
    if (!version.unusable.empty() && version.record->to_generation() == 0) return &version;
  }
  return nullptr;
}

int64_t IndexSnapshot::not_served() const {
  int64_t count = 0;
  for (const auto& [kind, entries] : kinds_) {
    for (const EntryPtr& entry : *entries) {
      for (const IndexEntry::Version& version : entry->versions) {
        count += !version.unusable.empty() && version.record->to_generation() == 0;
      }
    }
  }
  return count;
}

size_t IndexSnapshot::size() const {
  size_t total = 0;
  for (const auto& shard : shards_) total += shard == nullptr ? 0 : shard->size();
  return total;
}

}  // namespace rooftune

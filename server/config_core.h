// "Which kernel?": exact records, neighbours, the cost model's choice, or a sweep, as the caller asks.
#ifndef ROOFTUNE_SERVER_CONFIG_CORE_H_
#define ROOFTUNE_SERVER_CONFIG_CORE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/call.h"
#include "server/context.h"
#include "server/estimates.h"
#include "server/sweep_core.h"

namespace rooftune {

// A GetBestConfigRequest, understood.
struct ConfigQuery {
  std::shared_ptr<const Op> op;
  DevicePtr device;
  std::string target_key;
  Acceptance acceptance;
  v1::MissPolicy policy = v1::FAIL;
  bool allow_nearest = false;
  // The caller compiles what it gets (GetKernel): an estimate counts as COMPILED.
  bool will_compile = false;
};

// An answer whose record is shared with the index.
struct KnownConfig {
  // Everything but the record.
  v1::GetBestConfigResponse header;
  RecordPtr record;
  // See IndexEntry::Version; absent for estimates.
  std::shared_ptr<const std::string> wire;

  v1::GetBestConfigResponse Response() const;
  // The same, serialized.
  std::string Encode() const;
};

// Thread-safe.
class ConfigCore {
 public:
  ConfigCore(ServerContext& context, SweepCore& sweeps, EstimateTable& estimates)
      : context_(context), sweeps_(sweeps), estimates_(estimates) {}

  // An answer from memory in microseconds, or the request's error; nullopt if it takes more (a miss): then
  // GetBestConfig answers.
  std::optional<absl::StatusOr<KnownConfig>> TryGetBestConfig(const v1::GetBestConfigRequest& request);

  // Never blocks. `done` is called once, on an executor.
  void GetBestConfig(const v1::GetBestConfigRequest& request, bool will_compile, const CallPtr& call,
                     Done<v1::GetBestConfigResponse> done);
  void BatchGetBestConfigs(const v1::BatchGetBestConfigsRequest& request, const CallPtr& call,
                           Done<v1::BatchGetBestConfigsResponse> done);

 private:
  using Response = v1::GetBestConfigResponse;
  absl::StatusOr<ConfigQuery> Understand(const v1::GetBestConfigRequest& request);
  absl::StatusOr<std::shared_ptr<const Op>> ParseCached(const std::string& text);

  // The record of this very operator and device; nullopt if there is none.
  std::optional<KnownConfig> Hit(const ConfigQuery& query, const IndexSnapshot& index) const;
  // "records/…: why" of a record that is kept from being served, and the same put into an answer to its query.
  static std::string WithheldText(const IndexEntry::Version& version);
  static void LabelWithheld(const ConfigQuery& query, const IndexSnapshot& index, Response& response);
  // What is already known: a hit, or an estimate made before. nullopt for anything else.
  std::optional<KnownConfig> FromMemory(const ConfigQuery& query, const IndexSnapshot& index) const;
  // Everything but WAIT; blocks.
  absl::StatusOr<Response> Miss(const ConfigQuery& query, const IndexSnapshot& index);
  std::optional<Response> Nearest(const ConfigQuery& query, const IndexSnapshot& index);
  absl::StatusOr<Response> Estimate(const ConfigQuery& query, const IndexSnapshot& index);
  absl::Status NotTuned(const ConfigQuery& query, const IndexSnapshot& index);
  // After a sweep of the query ended.
  absl::StatusOr<Response> AfterSweep(const ConfigQuery& query, const std::string& sweep);
  bool NeedsSweep(const ConfigQuery& query, const IndexSnapshot& index) const;
  // StartOnce, unless no sweep could ever meet the query (EVIDENCE_TOO_WEAK) or the device is elsewhere.
  absl::StatusOr<v1::Sweep> StartSweep(const ConfigQuery& query);

  struct Batch;
  void FinishBatch(const std::shared_ptr<Batch>& batch);

  ServerContext& context_;
  SweepCore& sweeps_;
  EstimateTable& estimates_;
  absl::Mutex mutex_;
  // Parsed operators by text as received; emptied when full.
  absl::flat_hash_map<std::string, std::shared_ptr<const Op>> parsed_ ABSL_GUARDED_BY(mutex_);
  // Misses that were logged.
  absl::flat_hash_set<std::string> logged_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_CONFIG_CORE_H_

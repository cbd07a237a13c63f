#include "server/config_core.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "kernels/candidate.h"
#include "server/rpc_status.h"

namespace rooftune {
namespace {

constexpr size_t kMaxParsed = 8192;
constexpr int kMaxBatch = 1000;
// Below the 4 MiB that gRPC clients take by default, with room for the envelope.
constexpr size_t kMaxResponseBytes = 3'500'000;

// Seconds a copy may be kept: a measured record rarely changes, an estimate is waiting to be replaced.
int TtlSeconds(const v1::TuningRecord& record, v1::Match match) {
  if (match == v1::EXACT && record.evidence() >= v1::MEASURED) return 3600;
  return record.evidence() >= v1::COMPILED ? 600 : 60;
}

int64_t GenerationOf(const ConfigQuery& query, const IndexSnapshot& index) {
  return query.acceptance.generation != 0 ? query.acceptance.generation : index.generation();
}

}  // namespace

v1::GetBestConfigResponse KnownConfig::Response() const {
  v1::GetBestConfigResponse response = header;
  *response.mutable_record() = *record;
  return response;
}

std::string KnownConfig::Encode() const {
  if (wire == nullptr) return Response().SerializeAsString();
  // Serialized messages of one type concatenate to the message with the fields of both.
  std::string bytes = header.SerializeAsString();
  bytes.append(*wire);
  return bytes;
}

absl::StatusOr<std::shared_ptr<const Op>> ConfigCore::ParseCached(const std::string& text) {
  {
    absl::ReaderMutexLock lock(&mutex_);
    const auto it = parsed_.find(text);
    if (it != parsed_.end()) return it->second;
  }
  RT_ASSIGN_OR_RETURN(Op op, ParseOp(context_, text));
  auto shared = std::make_shared<const Op>(std::move(op));
  absl::MutexLock lock(&mutex_);
  if (parsed_.size() >= kMaxParsed) parsed_.clear();
  parsed_.emplace(text, shared);
  return shared;
}

absl::StatusOr<ConfigQuery> ConfigCore::Understand(const v1::GetBestConfigRequest& request) {
  ConfigQuery query;
  RT_ASSIGN_OR_RETURN(query.op, ParseCached(request.op()));
  RT_ASSIGN_OR_RETURN(query.device, context_.devices.Resolve(request.device()));
  if (!v1::EvidenceLevel_IsValid(request.min_evidence()) || !v1::MissPolicy_IsValid(request.miss_policy())) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", "min_evidence or miss_policy is not a known value",
                 {{"field", "min_evidence, miss_policy"}});
  }
  if (!v1::Objective_IsValid(request.objective())) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", "objective is not a known value",
                 {{"field", "objective"}});
  }
  const v1::Objective objective = request.objective() == v1::OBJECTIVE_UNSPECIFIED ? v1::TIME : request.objective();
  query.target_key = TargetKey(query.op->text, query.device->device.device_key(), objective);
  query.acceptance = {request.min_evidence(), request.deterministic(), request.generation(), objective};
  for (const int provider : request.provider()) {
    if (!v1::Provider_IsValid(provider) || provider == v1::PROVIDER_UNSPECIFIED) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", "provider is not a known value",
                   {{"field", "provider"}});
    }
    query.acceptance.providers |= uint32_t{1} << provider;
  }
  query.acceptance.cublaslt_version = request.cublaslt_version();
  query.policy = request.miss_policy() == v1::MISS_POLICY_UNSPECIFIED ? v1::FAIL : request.miss_policy();
  query.allow_nearest = request.allow_nearest();
  if (query.policy == v1::WAIT && request.generation() != 0) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE",
                 "WAIT makes a newer generation: it can't answer for an older one; leave generation out",
                 {{"field", "generation"}});
  }
  return query;
}

std::optional<KnownConfig> ConfigCore::Hit(const ConfigQuery& query, const IndexSnapshot& index) const {
  const EntryPtr entry = index.Find(query.target_key);
  if (entry == nullptr) return std::nullopt;
  const IndexEntry::Version* version = IndexSnapshot::Pick(*entry, query.acceptance);
  if (version == nullptr) return std::nullopt;
  const v1::TuningRecord& record = *version->record;
  KnownConfig known;
  known.record = version->record;
  known.wire = version->wire;
  v1::Match match = v1::ENVIRONMENT_DIFFERS;
  if (query.device->local) {
    bool newer_revision = false;
    if (record.provider() == v1::TEMPLATE) {
      const KernelTemplate* kernel = context_.deps.library.Find(record.template_id());
      newer_revision = kernel != nullptr && kernel->revision() != record.template_revision();
    }
    const v1::Environment& theirs = record.environment();
    const v1::Environment& ours = query.device->device.environment();
    if (!newer_revision && theirs.driver() == ours.driver() && theirs.nvrtc() == ours.nvrtc()) {
      // The usual case, without the comparison's texts: it is half of a lookup.
      match = v1::EXACT;
    } else {
      std::vector<std::pair<std::string, std::string>> difference;
      match = MatchEnvironment(theirs, ours, newer_revision, &difference);
      for (auto& [field, text] : difference) (*known.header.mutable_difference())[field] = std::move(text);
    }
  } else {
    // Whoever asks for a device of another machine knows its environment; this daemon does not.
    (*known.header.mutable_difference())["environment"] =
        "unknown: the device is not one of this daemon; compare record.environment";
  }
  if (record.rank() > 0) {
    // Why not the fastest one.
    const std::string passed_over = IndexSnapshot::PassedOver(*entry, query.acceptance, record.rank());
    if (!passed_over.empty()) (*known.header.mutable_difference())["provider"] = passed_over;
  }
  LabelWithheld(query, index, known.header);
  known.header.set_match(match);
  known.header.set_generation(GenerationOf(query, index));
  known.header.set_ttl_s(TtlSeconds(record, match));
  return known;
}

void ConfigCore::LabelWithheld(const ConfigQuery& query, const IndexSnapshot& index, Response& response) {
  const EntryPtr entry = index.Find(query.target_key);
  const IndexEntry::Version* withheld = entry == nullptr ? nullptr : IndexSnapshot::NotServed(*entry);
  if (withheld != nullptr) (*response.mutable_difference())["not_served"] = WithheldText(*withheld);
}

std::string ConfigCore::WithheldText(const IndexEntry::Version& version) {
  return absl::StrCat(version.record->name(), ": ", version.unusable);
}

std::optional<KnownConfig> ConfigCore::FromMemory(const ConfigQuery& query, const IndexSnapshot& index) const {
  if (std::optional<KnownConfig> hit = Hit(query, index)) return hit;
  if (query.policy != v1::ESTIMATE || query.allow_nearest || query.acceptance.min_evidence > v1::ESTIMATED) {
    return std::nullopt;
  }
  KnownConfig known;
  known.record = estimates_.Find(query.target_key, query.acceptance.deterministic);
  if (known.record == nullptr) return std::nullopt;
  LabelWithheld(query, index, known.header);
  known.header.set_match(v1::MODEL_CHOICE);
  known.header.set_generation(GenerationOf(query, index));
  known.header.set_ttl_s(TtlSeconds(*known.record, v1::MODEL_CHOICE));
  return known;
}

std::optional<absl::StatusOr<KnownConfig>> ConfigCore::TryGetBestConfig(const v1::GetBestConfigRequest& request) {
  const absl::StatusOr<ConfigQuery> query = Understand(request);
  if (!query.ok()) return query.status();
  const SnapshotPtr index = context_.index.snapshot();
  const absl::Status kept = index->CheckGeneration(request.generation());
  if (!kept.ok()) return kept;
  std::optional<KnownConfig> known = FromMemory(*query, *index);
  if (!known.has_value()) return std::nullopt;
  return *std::move(known);
}

bool ConfigCore::NeedsSweep(const ConfigQuery& query, const IndexSnapshot& index) const {
  return query.policy == v1::WAIT && !Hit(query, index).has_value();
}

void ConfigCore::GetBestConfig(const v1::GetBestConfigRequest& request, bool will_compile, const CallPtr& call,
                               Done<v1::GetBestConfigResponse> done) {
  absl::StatusOr<ConfigQuery> query = Understand(request);
  if (!query.ok()) return done(query.status());
  query->will_compile = will_compile;
  // A scan of the index is short; planning is not.
  Executor& executor = query->policy == v1::FAIL ? context_.reads : context_.work;
  const absl::Status posted = executor.Post([this, query = *query, call, done] {
    const SnapshotPtr index = context_.index.snapshot();
    const absl::Status kept = index->CheckGeneration(query.acceptance.generation);
    if (!kept.ok()) return done(kept);
    if (const auto known = FromMemory(query, *index)) return done(known->Response());
    if (!NeedsSweep(query, *index)) return done(Miss(query, *index));
    const absl::StatusOr<v1::Sweep> sweep = StartSweep(query);
    if (!sweep.ok()) return done(sweep.status());
    sweeps_.WaitForAll({sweep->name()}, call, [this, query, done, name = sweep->name()](const absl::Status& status) {
      if (!status.ok())
        done(status);
      else
        done(AfterSweep(query, name));
    });
  });
  if (!posted.ok()) done(posted);
}

absl::StatusOr<v1::GetBestConfigResponse> ConfigCore::AfterSweep(const ConfigQuery& query, const std::string& sweep) {
  // Whoever waited sees the result at once, not with the next publication.
  context_.index.Flush(context_.deps.clock.Now());
  const SnapshotPtr index = context_.index.snapshot();
  if (std::optional<KnownConfig> hit = Hit(query, *index)) {
    hit->header.set_sweep(sweep);
    return hit->Response();
  }
  RT_ASSIGN_OR_RETURN(const v1::Sweep ended, context_.sweeps->Get(sweep));
  if (ended.state() == v1::CANCELLED) {
    return Error(absl::StatusCode::kAborted, "SWEEP_CANCELLED", absl::StrCat(sweep, " was cancelled"),
                 {{"sweep", sweep}});
  }
  if (ended.state() == v1::FAILED) {
    return Error(absl::StatusCode::kFailedPrecondition, "SWEEP_FAILED",
                 absl::StrCat(sweep, " failed: ", ended.message()), {{"sweep", sweep}});
  }
  return NotTuned(query, *index);
}

struct ConfigCore::Batch {
  std::vector<absl::StatusOr<ConfigQuery>> queries;
  // Sweeps that items wait for, by position.
  std::map<size_t, absl::StatusOr<v1::Sweep>> sweeps;
  SnapshotPtr index;
  CallPtr call;
  Done<v1::BatchGetBestConfigsResponse> done;
};

void ConfigCore::BatchGetBestConfigs(const v1::BatchGetBestConfigsRequest& request, const CallPtr& call,
                                     Done<v1::BatchGetBestConfigsResponse> done) {
  if (request.op_size() > kMaxBatch) {
    return done(Error(absl::StatusCode::kInvalidArgument, "BATCH_TOO_LARGE",
                      absl::StrCat(request.op_size(), " operators; at most ", kMaxBatch, " in one call"),
                      {{"field", "op"}}));
  }
  auto batch = std::make_shared<Batch>();
  batch->call = call;
  batch->done = std::move(done);
  const absl::Status posted = context_.work.Post([this, request, batch] {
    batch->index = context_.index.snapshot();
    const absl::Status kept = batch->index->CheckGeneration(request.generation());
    if (!kept.ok()) return batch->done(kept);
    v1::GetBestConfigRequest single;
    single.set_device(request.device());
    single.set_min_evidence(request.min_evidence());
    single.set_miss_policy(request.miss_policy());
    single.set_allow_nearest(request.allow_nearest());
    single.set_generation(request.generation());
    single.set_deterministic(request.deterministic());
    *single.mutable_provider() = request.provider();
    single.set_cublaslt_version(request.cublaslt_version());
    single.set_objective(request.objective());
    std::vector<std::string> waiting;
    for (int i = 0; i < request.op_size() && !batch->call->cancelled(); ++i) {
      single.set_op(request.op(i));
      batch->queries.push_back(Understand(single));
      const absl::StatusOr<ConfigQuery>& query = batch->queries.back();
      if (!query.ok() || !NeedsSweep(*query, *batch->index)) continue;
      const absl::StatusOr<v1::Sweep> sweep = StartSweep(*query);
      if (sweep.ok()) waiting.push_back(sweep->name());
      batch->sweeps.emplace(static_cast<size_t>(i), sweep);
    }
    if (waiting.empty()) return FinishBatch(batch);
    sweeps_.WaitForAll(waiting, batch->call, [this, batch](const absl::Status& status) {
      if (!status.ok()) return batch->done(status);
      context_.index.Flush(context_.deps.clock.Now());
      batch->index = context_.index.snapshot();
      FinishBatch(batch);
    });
  });
  if (!posted.ok()) batch->done(posted);
}

void ConfigCore::FinishBatch(const std::shared_ptr<Batch>& batch) {
  v1::BatchGetBestConfigsResponse response;
  response.set_generation(batch->index->generation());
  size_t bytes = 0;
  for (size_t i = 0; i < batch->queries.size(); ++i) {
    if (batch->call->cancelled()) return batch->done(absl::CancelledError("the client went away"));
    const absl::StatusOr<ConfigQuery>& query = batch->queries[i];
    absl::StatusOr<Response> item;
    const auto sweep = batch->sweeps.find(i);
    if (!query.ok()) {
      item = query.status();
    } else if (bytes >= kMaxResponseBytes) {
      item = Error(absl::StatusCode::kResourceExhausted, "RESPONSE_TOO_LARGE",
                   "the answers before this one fill a message; ask for the rest in another call");
    } else if (const auto known = FromMemory(*query, *batch->index)) {
      item = known->Response();
    } else if (sweep != batch->sweeps.end()) {
      if (sweep->second.ok())
        item = AfterSweep(*query, sweep->second->name());
      else
        item = sweep->second.status();
    } else {
      item = Miss(*query, *batch->index);
    }
    auto* added = response.add_item();
    if (item.ok()) {
      bytes += item->ByteSizeLong();
      if (query.ok() && query->acceptance.generation != 0) response.set_generation(query->acceptance.generation);
      *added->mutable_response() = *std::move(item);
    } else {
      const google::rpc::Status rpc = ToRpcStatus(item.status());
      added->mutable_error()->set_code(rpc.code());
      added->mutable_error()->set_reason(ErrorReason(item.status()));
      added->mutable_error()->set_message(rpc.message());
    }
    // Messages of errors count as well.
    if (!item.ok()) bytes += added->ByteSizeLong();
  }
  batch->done(std::move(response));
}

}  // namespace rooftune

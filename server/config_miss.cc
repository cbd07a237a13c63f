// What ConfigCore answers when there is no record.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "server/config_core.h"

namespace rooftune {
namespace {

constexpr size_t kMaxNeighbours = 8;
constexpr size_t kMaxSimilar = 3;
constexpr size_t kMaxLogged = 4096;

// "m=4096 (asked 1024), dtype=fp16 (asked bf16)", or empty if nothing differs.
std::string Differences(const OpFacts& asked, const OpFacts& other) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& theirs, const std::string& ours) {
    if (theirs != ours) absl::StrAppend(&text, text.empty() ? "" : ", ", name, "=", theirs, " (asked ", ours, ")");
  };
  for (size_t i = 0; i < std::min(asked.dims.size(), other.dims.size()); ++i) {
    add(asked.dims[i].first, absl::StrCat(other.dims[i].second), absl::StrCat(asked.dims[i].second));
  }
  for (size_t i = 0; i < std::min(asked.attributes.size(), other.attributes.size()); ++i) {
    add(asked.attributes[i].first, other.attributes[i].second, asked.attributes[i].second);
  }
  return text;
}

std::string TuneCommand(const ConfigQuery& query) {
  // The chain attribute has brackets, which shells read.
  const std::string op =
      query.op->text.find('(') == std::string::npos ? query.op->text : absl::StrCat("'", query.op->text, "'");
  return absl::StrCat("rooftune tune ", op, query.device->local ? " --device " : " --device cuda:0 # on ",
                      query.device->local ? query.device->device.id() : query.device->device.device_key(),
                      query.acceptance.objective == v1::ENERGY         ? " --objective energy"
                      : query.acceptance.objective == v1::ENERGY_DELAY ? " --objective energy_delay"
                                                                       : "");
}

}  // namespace

std::optional<v1::GetBestConfigResponse> ConfigCore::Nearest(const ConfigQuery& query, const IndexSnapshot& index) {
  const OpFacts facts = FactsOf(*query.op);
  const std::string& key = query.device->device.device_key();
  // The call of a library holds for its own shape only.
  constexpr uint32_t kMayFit = 1u << v1::TEMPLATE | 1u << v1::EXTERNAL;
  Acceptance acceptance = query.acceptance;
  acceptance.providers = acceptance.providers == 0 ? kMayFit : acceptance.providers & kMayFit;
  if (acceptance.providers == 0) return std::nullopt;
  const std::vector<Neighbour> neighbours = index.Nearest(facts, key, acceptance, kMaxNeighbours);
  if (neighbours.empty()) return std::nullopt;
  // Without a profile nothing can be predicted; the nearest shape whose recipe allows the operator is served as such.
  absl::StatusOr<Plan> plan = absl::FailedPreconditionError("no profile");
  if (query.device->has_profile) {
    plan = MakePlan(context_.deps.library, query.op->text, query.device->device.profile(), query.device->calibration());
  }
  for (const Neighbour& neighbour : neighbours) {
    const v1::TuningRecord& record = *neighbour.record;
    if (!CheckPreconditions(record.plan(), *query.op).ok()) continue;
    Response response;
    *response.mutable_record() = record;
    response.set_match(v1::NEAREST_SHAPE);
    response.set_generation(query.acceptance.generation != 0 ? query.acceptance.generation : index.generation());
    response.set_ttl_s(60);
    auto& difference = *response.mutable_difference();
    for (size_t i = 0; i < facts.dims.size() && i < neighbour.entry->facts.dims.size(); ++i) {
      const int64_t theirs = neighbour.entry->facts.dims[i].second;
      if (theirs != facts.dims[i].second) {
        difference[facts.dims[i].first] = absl::StrCat("asked ", facts.dims[i].second, ", record ", theirs);
      }
    }
    LabelWithheld(query, index, response);
    difference["distance"] = absl::StrFormat("%.3f", neighbour.distance);
    if (!plan.ok()) {
      difference["predicted_loss"] = "unknown";
      return response;
    }
    const auto kernel = std::find_if(plan->templates.begin(), plan->templates.end(),
                                     [&](const KernelTemplate* t) { return t->id() == record.template_id(); });
    if (kernel == plan->templates.end()) continue;
    const Config config(record.config().begin(), record.config().end());
    // A configuration that this shape's constraints forbid must not be run on it.
    if (plan->spaces[static_cast<size_t>(kernel - plan->templates.begin())].IndexOf(config) < 0) continue;
    const absl::StatusOr<PredictedConfig> predicted =
        Predict(*plan, **kernel, config, query.device->device.profile(), query.device->calibration());
    const std::vector<int64_t> best = BestPredicted(*plan, 1);
    if (!predicted.ok() || best.empty()) continue;
    const double best_us = plan->points[static_cast<size_t>(best[0])].predicted_us;
    difference["predicted_loss"] =
        absl::StrFormat("%.1f %%", 100 * std::max(0.0, predicted->prediction.time_us() / best_us - 1));
    return response;
  }
  return std::nullopt;
}

absl::Status ConfigCore::NotTuned(const ConfigQuery& query, const IndexSnapshot& index) {
  const std::string& device_key = query.device->device.device_key();
  std::map<std::string, std::string> facts = {{"op", query.op->text},
                                              {"device_key", device_key},
                                              {"target_key", query.target_key},
                                              {"command", TuneCommand(query)}};
  v1::EvidenceLevel strongest = v1::EVIDENCE_LEVEL_UNSPECIFIED;
  if (const EntryPtr entry = index.Find(query.target_key)) IndexSnapshot::Pick(*entry, query.acceptance, &strongest);
  if (strongest != v1::EVIDENCE_LEVEL_UNSPECIFIED) {
    facts["evidence"] = v1::EvidenceLevel_Name(strongest);
    const bool on_gpu = query.device->device.kind() != v1::Device::MODELLED;
    return Error(absl::StatusCode::kFailedPrecondition, "EVIDENCE_TOO_WEAK",
                 absl::StrCat("the best that is known of ", query.op->text, " on ", device_key, " is ",
                              facts["evidence"], ", but ", v1::EvidenceLevel_Name(query.acceptance.min_evidence),
                              " is asked for. Ask with min_evidence=", facts["evidence"], " to get it, or ",
                              on_gpu ? "tune it: " : "tune it on a GPU: ", facts["command"]),
                 facts);
  }
  const OpFacts asked = FactsOf(*query.op);
  std::string withheld;
  if (const EntryPtr entry = index.Find(query.target_key)) {
    if (const IndexEntry::Version* version = IndexSnapshot::NotServed(*entry)) {
      facts["not_served"] = WithheldText(*version);
      withheld = absl::StrCat(" Not served: ", facts["not_served"], ".");
    }
  }
  std::string nearest;
  int number = 0;
  for (const EntryPtr& entry : index.Similar(asked, device_key, kMaxSimilar)) {
    std::string text = absl::StrCat(entry->op, " on ", entry->device_key);
    const std::string differing = Differences(asked, entry->facts);
    if (!differing.empty()) absl::StrAppend(&text, ": ", differing);
    facts[absl::StrCat("nearest_", ++number)] = text;
    if (nearest.empty()) nearest = absl::StrCat(" Nearest: ", text, ".");
  }
  {
    absl::MutexLock lock(&mutex_);
    if (logged_.size() < kMaxLogged && logged_.insert(query.target_key).second) {
      LogInfo("not tuned: ", query.op->text, " on ", device_key, " (logged once)");
    }
  }
  return Error(absl::StatusCode::kNotFound, "NOT_TUNED",
               absl::StrCat("no record of ", query.op->text, " on ", device_key, " (key ", query.target_key, ").",
                            withheld, nearest, " To tune it: ", facts["command"]),
               facts);
}

absl::StatusOr<v1::GetBestConfigResponse> ConfigCore::Estimate(const ConfigQuery& query, const IndexSnapshot& index) {
  const v1::EvidenceLevel reachable = query.will_compile ? v1::COMPILED : v1::ESTIMATED;
  if (query.acceptance.min_evidence > reachable) {
    return Error(absl::StatusCode::kFailedPrecondition, "EVIDENCE_TOO_WEAK",
                 absl::StrCat("there is only the cost model's choice for ", query.op->text, ", but ",
                              v1::EvidenceLevel_Name(query.acceptance.min_evidence),
                              " is asked for. Ask with min_evidence=", v1::EvidenceLevel_Name(reachable),
                              " to get it, or tune it on a GPU: ", TuneCommand(query)),
                 {{"evidence", v1::EvidenceLevel_Name(reachable)}, {"command", TuneCommand(query)}});
  }
  RT_ASSIGN_OR_RETURN(const RecordPtr record,
                      estimates_.Make(*query.op, *query.device, query.target_key, query.acceptance.deterministic));
  Response response;
  *response.mutable_record() = *record;
  LabelWithheld(query, index, response);
  response.set_match(v1::MODEL_CHOICE);
  response.set_generation(query.acceptance.generation != 0 ? query.acceptance.generation : index.generation());
  response.set_ttl_s(60);
  return response;
}

absl::StatusOr<v1::Sweep> ConfigCore::StartSweep(const ConfigQuery& query) {
  const v1::Device& device = query.device->device;
  if (!query.device->local) {
    return Error(absl::StatusCode::kFailedPrecondition, "NO_DEVICE",
                 absl::StrCat(device.device_key(), " is not a device of this daemon, so it can't be tuned here"),
                 {{"device", device.id()}});
  }
  if (device.kind() == v1::Device::MODELLED && query.acceptance.min_evidence > v1::COMPILED) {
    return Error(absl::StatusCode::kFailedPrecondition, "EVIDENCE_TOO_WEAK",
                 absl::StrCat(v1::EvidenceLevel_Name(query.acceptance.min_evidence), " needs a GPU, and ", device.id(),
                              " is modelled: tuning there ends at COMPILED"),
                 {{"evidence", "COMPILED"}, {"device", device.id()}});
  }
  return sweeps_.StartOnce(query.op->text, *query.device, query.acceptance.objective);
}

absl::StatusOr<v1::GetBestConfigResponse> ConfigCore::Miss(const ConfigQuery& query, const IndexSnapshot& index) {
  std::string sweep;
  if (query.policy == v1::TUNE_ASYNC) {
    RT_ASSIGN_OR_RETURN(const v1::Sweep started, StartSweep(query));
    sweep = started.name();
  }
  absl::StatusOr<Response> response;
  std::optional<Response> nearest;
  if (query.allow_nearest) nearest = Nearest(query, index);
  if (nearest.has_value())
    response = *std::move(nearest);
  else if (query.policy == v1::ESTIMATE || query.policy == v1::TUNE_ASYNC)
    response = Estimate(query, index);
  else
    response = NotTuned(query, index);
  if (response.ok()) {
    response->set_sweep(sweep);
    return response;
  }
  if (sweep.empty()) return response;
  std::map<std::string, std::string> facts = ErrorMetadata(response.status());
  facts["sweep"] = sweep;
  return Error(response.status().code(), ErrorReason(response.status()),
               absl::StrCat(response.status().message(), " (", sweep, " is queued)"), facts);
}

}  // namespace rooftune

#include "server/estimates.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "costmodel/predictor.h"
#include "google/protobuf/util/time_util.h"
#include "server/rpc_status.h"

namespace rooftune {
namespace {

constexpr char kPrefix[] = "records/estimate-";
// Best predicted points looked at for one whose recipe exists and is acceptable.
constexpr int64_t kMaxTries = 64;
constexpr int kCompileTimeoutMs = 30'000;

std::string NameOf(const std::string& target_key, bool deterministic) {
  return absl::StrCat(kPrefix, target_key, deterministic ? "-deterministic" : "");
}

absl::Status CompileFailure(const v1::TuningRecord& record, const worker::v1::CompileResult& result) {
  return Error(
      absl::StatusCode::kFailedPrecondition, "COMPILE_FAILED",
      absl::StrCat(record.template_id(), " {", ConfigToString({record.config().begin(), record.config().end()}),
                   "} ended as ", v1::Outcome_Name(result.outcome()), ": ", CleanText(result.log(), 512)),
      {{"outcome", v1::Outcome_Name(result.outcome())}, {"template", record.template_id()}});
}

}  // namespace

absl::StatusOr<PredictedConfig> Predict(const Plan& plan, const KernelTemplate& kernel, const Config& config,
                                        const DeviceProfile& device, const Calibration* calibration) {
  PredictedConfig predicted;
  predicted.kernel = &kernel;
  predicted.config = config;
  RT_ASSIGN_OR_RETURN(const KernelTemplate::Analysis analysis, kernel.Analyse(plan.op, config, device));
  predicted.resources = analysis.resources;
  predicted.prediction = PredictTime(plan.work, analysis.mapped, analysis.resources, device, calibration);
  predicted.workspace_bytes = analysis.mapped.workspace_bytes;
  return predicted;
}

bool EstimateTable::IsEstimate(const std::string& record_name) { return record_name.rfind(kPrefix, 0) == 0; }

RecordPtr EstimateTable::Find(const std::string& target_key, bool deterministic) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto it = estimates_.find(NameOf(target_key, deterministic));
  return it == estimates_.end() ? nullptr : it->second;
}

RecordPtr EstimateTable::FindByName(const std::string& name) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto compiled = compiled_.find(name);
  if (compiled != compiled_.end()) return compiled->second;
  const auto it = estimates_.find(name);
  return it == estimates_.end() ? nullptr : it->second;
}

absl::StatusOr<RecordPtr> EstimateTable::Make(const Op& op, const KnownDevice& device, const std::string& target_key,
                                              bool deterministic) {
  if (RecordPtr known = Find(target_key, deterministic)) return known;
  RT_ASSIGN_OR_RETURN(RecordPtr made, Choose(op, device, target_key, deterministic));
  absl::MutexLock lock(&mutex_);
  const auto [it, inserted] = estimates_.try_emplace(made->name(), made);
  if (!inserted) return it->second;
  const RecordPtr result = it->second;
  order_.push_back(made->name());
  while (order_.size() > context_.limits.max_estimates) {
    estimates_.erase(order_.front());
    compiled_.erase(order_.front());
    order_.pop_front();
  }
  return result;
}

absl::StatusOr<RecordPtr> EstimateTable::Choose(const Op& op, const KnownDevice& device, const std::string& target_key,
                                                bool deterministic) const {
  if (!device.has_profile) {
    return Error(
        absl::StatusCode::kFailedPrecondition, "NO_PROFILE",
        absl::StrCat("nothing is known of ", device.device.device_key(),
                     " but its key, so the cost model can't choose; name a device of this daemon or model:<profile>"));
  }
  const DeviceProfile& profile = device.device.profile();
  RT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(context_.deps.library, op.text, profile, device.calibration()));
  absl::Status last =
      Error(absl::StatusCode::kFailedPrecondition, "EMPTY_SPACE",
            absl::StrCat("no configuration of any template fits ", op.text, " on ", device.device.id()));
  for (const int64_t position : BestPredicted(plan, kMaxTries)) {
    const SearchPoint& point = plan.points[static_cast<size_t>(position)];
    const KernelTemplate& kernel = *plan.templates[static_cast<size_t>(point.template_index)];
    const Config config = plan.ConfigOf(point);
    absl::StatusOr<v1::LaunchPlan> recipe = kernel.Plan(plan.op, config, profile);
    if (!recipe.ok()) {
      last = recipe.status();
      continue;
    }
    if (deterministic && !recipe->deterministic()) continue;
    RT_ASSIGN_OR_RETURN(const PredictedConfig predicted, Predict(plan, kernel, config, profile, device.calibration()));
    auto record = std::make_shared<v1::TuningRecord>();
    record->set_name(NameOf(target_key, deterministic));
    record->set_op(plan.op.text);
    record->set_device_key(device.device.device_key());
    record->set_target_key(target_key);
    *record->mutable_environment() = device.device.environment();
    record->set_provider(v1::TEMPLATE);
    record->set_template_id(kernel.id());
    record->set_template_revision(kernel.revision());
    record->mutable_config()->insert(config.begin(), config.end());
    *record->mutable_plan() = *std::move(recipe);
    record->set_evidence(v1::ESTIMATED);
    *record->mutable_resources() = predicted.resources;
    *record->mutable_bounds() = plan.bounds;
    *record->mutable_prediction() = predicted.prediction;
    *record->mutable_create_time() =
        google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(absl::ToUnixMicros(context_.deps.clock.Now()));
    return RecordPtr(std::move(record));
  }
  return last;
}

absl::StatusOr<RecordPtr> EstimateTable::Compile(const v1::TuningRecord& record) {
  if (RecordPtr known = FindByName(record.name()); known != nullptr && known->evidence() >= v1::COMPILED) {
    if (!absl::IsNotFound(context_.deps.artifacts.Get(known->artifact_digest()).status())) return known;
  }
  const KernelTemplate* kernel = context_.deps.library.Find(record.template_id());
  if (kernel == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "NO_TEMPLATE",
                 absl::StrCat("template ", record.template_id(), " is not loaded any more"));
  }
  RT_ASSIGN_OR_RETURN(const Op op, context_.deps.library.ops().Parse(record.op()));
  RT_ASSIGN_OR_RETURN(const DevicePtr device, context_.devices.Resolve(record.device_key()));
  const DeviceProfile& profile = device->device.profile();
  const Config config(record.config().begin(), record.config().end());
  RT_ASSIGN_OR_RETURN(worker::v1::CompileRequest request, kernel->CompileInput(op, config, profile));
  request.set_timeout_ms(kCompileTimeoutMs);
  RT_ASSIGN_OR_RETURN(const worker::v1::CompileResult result, context_.deps.compiler.Compile(request));
  if (result.outcome() != v1::OK) return CompileFailure(record, result);
  auto compiled = std::make_shared<v1::TuningRecord>(record);
  RT_RETURN_IF_ERROR(AttachArtifact(result, *compiled->mutable_plan()));
  RT_ASSIGN_OR_RETURN(const std::string digest, context_.deps.artifacts.Put(result.cubin()));
  compiled->set_artifact_digest(digest);
  compiled->set_artifact_bytes(static_cast<int64_t>(result.cubin().size()));
  compiled->set_evidence(v1::COMPILED);
  compiled->mutable_environment()->set_nvrtc(result.nvrtc_version());
  if (result.kernel_size() > 0) *compiled->mutable_resources() = result.kernel(0).resources();
  absl::MutexLock lock(&mutex_);
  return compiled_.try_emplace(record.name(), std::move(compiled)).first->second;
}

}  // namespace rooftune

#include "server/catalog_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "costmodel/roofline.h"
#include "server/rpc_status.h"

namespace rooftune {
namespace {

constexpr int kMaxTop = 100;
constexpr int kMaxArchs = 16;
constexpr int kCompileTimeoutMs = 30'000;
constexpr size_t kMaxLog = 4096;

v1::TemplateInfo InfoOf(const KernelTemplate& kernel, bool with_manifest) {
  v1::TemplateInfo info;
  info.set_id(kernel.id());
  info.set_op(kernel.op_kind());
  info.set_description(kernel.manifest().description());
  info.set_arch(kernel.manifest().arch());
  info.set_revision(kernel.revision());
  info.set_origin(kernel.files().origin);
  if (with_manifest) info.set_manifest(kernel.files().manifest);
  return info;
}

v1::TemplateInfo InfoOf(const BrokenTemplate& broken) {
  v1::TemplateInfo info;
  info.set_id(broken.id);
  info.set_origin(broken.origin);
  info.add_error(broken.error);
  return info;
}

// "sm_90" or "sm_90a" → 90; 0 if it is neither.
int ArchNumber(const std::string& arch) {
  absl::string_view digits = arch;
  int cc = 0;
  if (!absl::ConsumePrefix(&digits, "sm_")) return 0;
  absl::ConsumeSuffix(&digits, "a");
  return absl::SimpleAtoi(digits, &cc) && cc > 0 && cc < 1000 ? cc : 0;
}

int64_t Saturated(Int128 value) { return value > Int128{INT64_MAX} ? INT64_MAX : static_cast<int64_t>(value); }

}  // namespace

std::vector<v1::Device> CatalogCore::RefreshDevices() {
  std::vector<v1::Device> devices = context_.sweeps->Devices();
  const int64_t not_served = context_.index.snapshot()->not_served();
  for (v1::Device& device : devices) (*device.mutable_counter())["records_not_served"] = not_served;
  context_.devices.Update(devices);
  return devices;
}

absl::StatusOr<v1::ListDevicesResponse> CatalogCore::ListDevices(const v1::ListDevicesRequest& request) {
  RefreshDevices();
  v1::ListDevicesResponse response;
  for (v1::Device& device : context_.devices.List(request.include_profiles())) {
    *response.add_device() = std::move(device);
  }
  return response;
}

absl::StatusOr<v1::Device> CatalogCore::GetDevice(const v1::GetDeviceRequest& request) {
  RefreshDevices();
  RT_ASSIGN_OR_RETURN(const DevicePtr device, context_.devices.Resolve(request.name()));
  if (device->local || device->has_profile) return device->device;
  return Error(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
               absl::StrCat("no device of this daemon has the key ", request.name()), {{"device", request.name()}});
}

bool CatalogCore::AnyDeviceUsable() {
  const std::vector<v1::Device> devices = context_.sweeps->Devices();
  context_.devices.Update(devices);
  return std::any_of(devices.begin(), devices.end(), [](const v1::Device& device) {
    return device.tunable() && device.state() != v1::Device::UNAVAILABLE;
  });
}

absl::StatusOr<v1::ListTemplatesResponse> CatalogCore::ListTemplates(const v1::ListTemplatesRequest&) {
  v1::ListTemplatesResponse response;
  for (const KernelTemplate* kernel : context_.deps.library.templates()) {
    *response.add_template_() = InfoOf(*kernel, false);
  }
  for (const BrokenTemplate& broken : context_.deps.library.broken()) *response.add_template_() = InfoOf(broken);
  for (const OpSchema* schema : context_.deps.library.ops().schemas()) {
    v1::OpKind* kind = response.add_op();
    kind->set_kind(schema->kind());
    kind->set_description(schema->proto().description());
    kind->set_usage(schema->Usage());
    kind->set_example(schema->proto().example());
    kind->set_origin(schema->origin());
  }
  return response;
}

absl::StatusOr<v1::TemplateInfo> CatalogCore::GetTemplate(const v1::GetTemplateRequest& request) {
  for (const BrokenTemplate& broken : context_.deps.library.broken()) {
    if (broken.id == request.id()) return InfoOf(broken);
  }
  RT_ASSIGN_OR_RETURN(const KernelTemplate* kernel, FindTemplate(request.id()));
  return InfoOf(*kernel, true);
}

absl::StatusOr<const KernelTemplate*> CatalogCore::FindTemplate(const std::string& id) const {
  if (const KernelTemplate* kernel = context_.deps.library.Find(id)) return kernel;
  for (const BrokenTemplate& broken : context_.deps.library.broken()) {
    if (broken.id == id) {
      return Error(absl::StatusCode::kFailedPrecondition, "BROKEN_TEMPLATE", broken.error, {{"template", id}});
    }
  }
  std::vector<std::string> ids;
  for (const KernelTemplate* kernel : context_.deps.library.templates()) ids.push_back(kernel->id());
  return Error(absl::StatusCode::kNotFound, "UNKNOWN_TEMPLATE",
               absl::StrCat("no template \"", CleanText(id, 128), "\"; there are ", absl::StrJoin(ids, ", ")));
}

absl::StatusOr<v1::CheckTemplateResponse> CatalogCore::CheckTemplate(const v1::CheckTemplateRequest& request) {
  RT_ASSIGN_OR_RETURN(const KernelTemplate* kernel, FindTemplate(request.id()));
  const OpSchema* schema = context_.deps.library.ops().Find(kernel->op_kind());
  std::string text = request.op();
  if (text.empty() && schema != nullptr) text = schema->proto().example();
  RT_ASSIGN_OR_RETURN(const Op op, ParseOp(context_, text));
  if (op.kind != kernel->op_kind()) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE",
                 absl::StrCat(kernel->id(), " implements ", kernel->op_kind(), ", not ", op.kind), {{"field", "op"}});
  }
  if (request.arch_size() > kMaxArchs) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", absl::StrCat("at most ", kMaxArchs, " architectures"),
                 {{"field", "arch"}});
  }
  std::vector<std::string> archs(request.arch().begin(), request.arch().end());
  const bool asked = !archs.empty();
  if (!asked) archs = {"sm_80", "sm_89", "sm_90", "sm_100", "sm_120"};
  v1::CheckTemplateResponse response;
  for (const std::string& arch : archs) {
    v1::CheckTemplateResponse::Result result = CheckOn(*kernel, op, arch, response);
    // Without a list, only those that the template supports.
    if (asked || result.outcome() != v1::NOT_RUN) *response.add_result() = std::move(result);
  }
  return response;
}

v1::CheckTemplateResponse::Result CatalogCore::CheckOn(const KernelTemplate& kernel, const Op& op,
                                                       const std::string& arch, v1::CheckTemplateResponse& response) {
  v1::CheckTemplateResponse::Result result;
  result.set_arch(arch);
  const auto fail = [&](v1::Outcome outcome, const std::string& message) {
    result.set_outcome(outcome);
    result.set_message(CleanText(message, kMaxLog));
    return result;
  };
  const auto& profiles = context_.deps.catalog.all();
  const int cc = ArchNumber(arch);
  const auto profile =
      std::find_if(profiles.begin(), profiles.end(), [&](const auto& p) { return p.second.cc() == cc; });
  if (cc == 0 || profile == profiles.end())
    return fail(v1::NOT_RUN, absl::StrCat("no GPU profile has architecture ", CleanText(arch, 32)));
  const DeviceProfile& device = profile->second;
  if (!kernel.Supports(op, device)) {
    const std::string& when = kernel.manifest().when();
    return fail(v1::NOT_RUN, absl::StrCat("not supported: ", kernel.id(), " is for ",
                                          kernel.manifest().arch().empty() ? "any cc" : kernel.manifest().arch(),
                                          when.empty() ? "" : absl::StrCat(" and operators with ", when)));
  }
  const absl::StatusOr<SearchSpace> space = kernel.Space(op, device);
  if (!space.ok()) return fail(v1::CONSTRAINT, std::string(space.status().message()));
  if (response.space_points() == 0) {
    response.set_space_points(space->total_points());
    response.set_valid_points(space->size());
  }
  const absl::StatusOr<Config> config = kernel.DefaultConfig(op, device);
  if (!config.ok()) return fail(v1::CONSTRAINT, std::string(config.status().message()));
  absl::StatusOr<worker::v1::CompileRequest> compile = kernel.CompileInput(op, *config, device);
  if (!compile.ok()) return fail(v1::CONSTRAINT, std::string(compile.status().message()));
  compile->set_timeout_ms(kCompileTimeoutMs);
  const absl::StatusOr<worker::v1::CompileResult> compiled = context_.deps.compiler.Compile(*compile);
  if (!compiled.ok()) return fail(v1::NOT_RUN, std::string(compiled.status().message()));
  if (compiled->kernel_size() > 0) *result.mutable_resources() = compiled->kernel(0).resources();
  if (compiled->outcome() != v1::OK) return fail(compiled->outcome(), compiled->log());
  absl::StatusOr<v1::LaunchPlan> plan = kernel.Plan(op, *config, device);
  const absl::Status fits = plan.ok() ? AttachArtifact(*compiled, *plan) : plan.status();
  if (!fits.ok()) return fail(v1::COMPILE_FAILED, std::string(fits.message()));
  return fail(v1::OK, absl::StrCat("default {", ConfigToString(*config), "}"));
}

absl::StatusOr<v1::EstimateResponse> CatalogCore::Estimate(const v1::EstimateRequest& request) {
  if (request.top() < 0 || request.top() > kMaxTop) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", absl::StrCat("top must lie in 0…", kMaxTop),
                 {{"field", "top"}});
  }
  RT_ASSIGN_OR_RETURN(const Op op, ParseOp(context_, request.op()));
  RT_ASSIGN_OR_RETURN(const DevicePtr device, context_.devices.Resolve(request.device()));
  if (!device->has_profile) {
    return Error(absl::StatusCode::kFailedPrecondition, "NO_PROFILE",
                 absl::StrCat("nothing is known of ", device->device.device_key(),
                              " but its key; name a device of this daemon or model:<profile>"));
  }
  const DeviceProfile& profile = device->device.profile();
  const OpSchema* schema = context_.deps.library.ops().Find(op.kind);
  RT_ASSIGN_OR_RETURN(const Work work, schema->ComputeWork(op));
  v1::EstimateResponse response;
  response.set_op(op.text);
  response.set_device_key(device->device.device_key());
  *response.mutable_work() = work.ToProto();
  *response.mutable_bounds() = ComputeBounds(work, profile, device->calibration());
  response.set_arithmetic_intensity(ArithmeticIntensity(work));
  response.set_evidence(v1::ESTIMATED);
  response.set_memory_bytes(Saturated(work.footprint_bytes));
  const absl::Status added = AddCandidates(op, *device, std::max(1, request.top()), response);
  // Bounds need no template, so an operator that nothing implements has an answer too.
  if (!added.ok() && !absl::IsFailedPrecondition(added)) return added;
  if (response.candidate_size() > 0) {
    response.set_memory_bytes(Saturated(work.footprint_bytes + response.candidate(0).workspace_bytes()));
  }
  response.set_fits(response.memory_bytes() <= profile.memory_bytes());
  return response;
}

absl::Status CatalogCore::AddCandidates(const Op& op, const KnownDevice& device, int top,
                                        v1::EstimateResponse& response) {
  const DeviceProfile& profile = device.device.profile();
  RT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(context_.deps.library, op.text, profile, device.calibration()));
  for (const int64_t position : BestPredicted(plan, top)) {
    const SearchPoint& point = plan.points[static_cast<size_t>(position)];
    const KernelTemplate& kernel = *plan.templates[static_cast<size_t>(point.template_index)];
    RT_ASSIGN_OR_RETURN(const PredictedConfig predicted,
                        Predict(plan, kernel, plan.ConfigOf(point), profile, device.calibration()));
    auto* candidate = response.add_candidate();
    candidate->set_template_id(kernel.id());
    candidate->mutable_config()->insert(predicted.config.begin(), predicted.config.end());
    *candidate->mutable_prediction() = predicted.prediction;
    candidate->set_workspace_bytes(predicted.workspace_bytes);
  }
  return absl::OkStatus();
}

}  // namespace rooftune

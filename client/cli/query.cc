// estimate, best, fetch.
#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/status_macros.h"
#include "client/cli/cli.h"

namespace rooftune::cli {
namespace {

// 137438953472 → "137.4 G".
std::string Scaled(const std::string& decimal, const char* unit) {
  double value = 0;
  if (!absl::SimpleAtod(decimal, &value)) return decimal;
  const char* const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  int i = 0;
  while (value >= 1000 && i < 6) value /= 1000, ++i;
  return absl::StrFormat("%.4g %s%s", value, prefixes[i], unit);
}

std::string BoundsText(const v1::Bounds& bounds) {
  return absl::StrCat("floor ", TimeText(bounds.floor_us()), ", attainable ", TimeText(bounds.attainable_us()), " (",
                      bounds.attainable_source().empty() ? "profile" : bounds.attainable_source(), "), limited by ",
                      v1::Bound_Name(bounds.bound()));
}

void PrintCublasLt(const v1::LaunchPlan& plan) {
  const v1::CublasLtMatmul::Algorithm& algorithm = plan.cublaslt().algorithm();
  const auto name = [](const std::string& text, int number) { return text.empty() ? absl::StrCat("#", number) : text; };
  std::printf("algorithm   %d, tile %s, stages %s, cluster %s, split-K %d, reduction %d, swizzling %d, option %d\n",
              algorithm.id(), name(algorithm.tile(), algorithm.tile_id()).c_str(),
              name(algorithm.stages(), algorithm.stages_id()).c_str(),
              name(algorithm.cluster_shape(), algorithm.cluster_shape_id()).c_str(), algorithm.split_k(),
              algorithm.reduction_scheme(), algorithm.swizzling(), algorithm.custom_option());
  std::printf("library     cublasLt %lld, %lld bytes of workspace; no other version may be given this algorithm\n",
              static_cast<long long>(plan.cublaslt().library_version()),
              static_cast<long long>(plan.workspace_bytes().value()));
}

void PrintRecord(const v1::TuningRecord& record) {
  std::printf("operator    %s\n", record.op().c_str());
  std::printf("device      %s\n", record.device_key().c_str());
  std::printf("evidence    %s\n", v1::EvidenceLevel_Name(record.evidence()).c_str());
  std::printf("kernel      %s%s %s\n", record.provider() == v1::CUBLASLT ? "CUBLASLT, " : "", record.template_id().c_str(), ConfigText(record.config()).c_str());
  if (record.has_measurement()) {
    std::printf("time        %s (L2 %s, clock %s)\n", MeasurementText(record.measurement()).c_str(),
                v1::L2State_Name(record.measurement().l2()).c_str(),
                v1::ClockState_Name(record.measurement().clock()).c_str());
    if (record.measurement().energy_uj() > 0) {
      std::printf("energy      %s\n", EnergyText(record.measurement()).c_str());
    }
  } else if (record.prediction().time_us() > 0) {
    std::printf("predicted   %s (%s … %s), never ran\n", TimeText(record.prediction().time_us()).c_str(),
                TimeText(record.prediction().low_us()).c_str(), TimeText(record.prediction().high_us()).c_str());
  }
  std::printf("bounds      %s\n", BoundsText(record.bounds()).c_str());
  for (const auto& baseline : record.baseline()) {
    if (!(baseline.measurement().median_us() > 0 && record.measurement().median_us() > 0)) {
      std::printf("baseline    %s: %s\n", baseline.name().c_str(), baseline.message().c_str());
      continue;
    }
    std::printf("baseline    %s %s: %.2fx (same run, %s)\n", baseline.name().c_str(),
                MeasurementText(baseline.measurement()).c_str(),
                baseline.measurement().median_us() / record.measurement().median_us(), baseline.version().c_str());
  }
  if (record.verification().passed()) {
    std::printf("verified    %lld elements, worst error %.2g of its bound (%s)\n",
                static_cast<long long>(record.verification().elements()), record.verification().max_error_ratio(),
                record.verification().tolerance().c_str());
  }
  if (record.verification().nondeterministic()) {
    std::printf("bits        differ from launch to launch on equal inputs, within the bound\n");
  }
  if (record.plan().has_cublaslt()) PrintCublasLt(record.plan());
  if (!record.artifact_digest().empty()) {
    std::printf("binary      sha256 %s (%lld bytes), %d registers, %d bytes spilled\n",
                record.artifact_digest().c_str(), static_cast<long long>(record.artifact_bytes()),
                record.resources().registers_per_thread(), record.resources().spill_store_bytes());
  }
  std::printf("environment driver %s, nvrtc %s\n",
              record.environment().driver().empty() ? "none" : record.environment().driver().c_str(),
              record.environment().nvrtc().c_str());
}

absl::StatusOr<v1::GetBestConfigRequest> Query(const Context& context, const QueryOptions& options) {
  v1::GetBestConfigRequest request;
  RT_ASSIGN_OR_RETURN(const std::string op, OpText(options.words));
  request.set_op(op);
  request.set_device(context.device);
  RT_ASSIGN_OR_RETURN(const int evidence,
                      EnumValue(v1::EvidenceLevel_descriptor(), options.min_evidence, "--min-evidence"));
  request.set_min_evidence(static_cast<v1::EvidenceLevel>(evidence));
  RT_ASSIGN_OR_RETURN(const int miss, EnumValue(v1::MissPolicy_descriptor(), options.miss, "--miss"));
  request.set_miss_policy(static_cast<v1::MissPolicy>(miss));
  request.set_allow_nearest(options.allow_nearest);
  request.set_deterministic(options.deterministic);
  if (options.templates_only) request.add_provider(v1::TEMPLATE);
  request.set_cublaslt_version(options.cublaslt_version);
  RT_ASSIGN_OR_RETURN(const int objective, EnumValue(v1::Objective_descriptor(), options.objective, "--objective"));
  request.set_objective(static_cast<v1::Objective>(objective));
  return request;
}

// False too if the daemon can't say: then its own error is the clearer one.
bool IsModelled(Context& context) {
  const auto devices = context.client->ListDevices(false);
  if (!devices.ok()) return false;
  for (const auto& device : devices->device()) {
    const bool asked = context.device.empty() || device.id() == context.device || device.name() == context.device ||
                       device.device_key() == context.device;
    if (asked) return device.kind() == v1::Device::MODELLED;
  }
  return false;
}

}  // namespace

absl::Status Estimate(Context& context, const std::vector<std::string>& words, int top) {
  v1::EstimateRequest request;
  RT_ASSIGN_OR_RETURN(const std::string op, OpText(words));
  request.set_op(op);
  request.set_device(context.device);
  request.set_top(top);
  RT_ASSIGN_OR_RETURN(const auto response, context.client->Estimate(request));
  if (context.json) {
    PrintJson(response);
    return absl::OkStatus();
  }
  std::printf("operator    %s\n", response.op().c_str());
  std::printf("device      %s\n", response.device_key().c_str());
  for (const auto& pipe : response.work().pipe_ops()) {
    std::printf("work        %s on the %s pipe\n", Scaled(pipe.ops(), "FLOP").c_str(), pipe.pipe().c_str());
  }
  std::printf("traffic     %s read, %s written; %.4g operations a byte\n",
              Scaled(response.work().bytes_read(), "B").c_str(), Scaled(response.work().bytes_written(), "B").c_str(),
              response.arithmetic_intensity());
  std::printf("bounds      %s\n", BoundsText(response.bounds()).c_str());
  std::printf("memory      %s%s\n", Scaled(absl::StrCat(response.memory_bytes()), "B").c_str(),
              response.fits() ? "" : ": does NOT fit the device");
  std::printf("evidence    ESTIMATED: nothing was compiled or run\n");
  if (response.candidate_size() == 0) return absl::OkStatus();
  std::printf("\n");
  std::vector<std::vector<std::string>> rows = {{"PREDICTED", "80 % INTERVAL", "TEMPLATE", "CONFIGURATION"}};
  for (const auto& c : response.candidate()) {
    rows.push_back({TimeText(c.prediction().time_us()),
                    absl::StrCat(TimeText(c.prediction().low_us()), " … ", TimeText(c.prediction().high_us())),
                    c.template_id(), ConfigText(c.config())});
  }
  PrintTable(rows);
  return absl::OkStatus();
}

absl::Status Best(Context& context, const QueryOptions& options) {
  RT_ASSIGN_OR_RETURN(const auto request, Query(context, options));
  const bool waits = request.miss_policy() == v1::WAIT;
  const auto answer = context.client->GetBestConfig(request, waits ? absl::Seconds(options.wait_s) : absl::Seconds(30));
  if (waits && absl::IsDeadlineExceeded(answer.status())) {
    return Error(absl::StatusCode::kCancelled, "STILL_TUNING",
                 "not tuned yet, but the daemon goes on; ask again, or see `rooftune sweep list`");
  }
  RT_ASSIGN_OR_RETURN(const auto response, answer);
  if (context.json) {
    PrintJson(response);
    return absl::OkStatus();
  }
  PrintRecord(response.record());
  std::printf("match       %s (generation %lld)\n", v1::Match_Name(response.match()).c_str(),
              static_cast<long long>(response.generation()));
  for (const auto& [field, difference] : response.difference())
    std::printf("differs     %s: %s\n", field.c_str(), difference.c_str());
  if (!response.sweep().empty()) std::printf("tuning      %s\n", response.sweep().c_str());
  if (response.match() == v1::MODEL_CHOICE) {
    std::printf("\nNot tuned yet. To tune: rooftune tune %s\n", response.record().op().c_str());
  }
  return absl::OkStatus();
}

absl::Status Fetch(Context& context, const QueryOptions& options) {
  v1::GetKernelRequest request;
  bool never_ran = false;
  if (!options.record.empty()) {
    if (!options.words.empty()) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", "--record and an operator exclude each other");
    }
    request.set_record(ResourceName("records/", options.record));
  } else {
    RT_ASSIGN_OR_RETURN(*request.mutable_query(), Query(context, options));
    // Nothing can be verified there; insisting on it would only be a riddle.
    never_ran = options.min_evidence.empty() && IsModelled(context);
    if (never_ran) request.mutable_query()->set_min_evidence(v1::COMPILED);
  }
  RT_ASSIGN_OR_RETURN(const FetchedKernel kernel, context.client->GetKernel(request));
  if (never_ran) std::fprintf(stderr, "rooftune: modelled device: this binary was compiled, never run\n");
  RT_RETURN_IF_ERROR(MakeDirs(options.out, 0755));
  const std::string folder = absl::StrCat(absl::StripSuffix(options.out, "/"), "/");
  const std::string cubin = absl::StrCat(folder, kernel.record.artifact_digest(), ".cubin");
  const bool has_binary = !kernel.record.artifact_digest().empty();
  if (has_binary) RT_RETURN_IF_ERROR(WriteOutput(cubin, kernel.cubin));
  google::protobuf::util::JsonPrintOptions json;
  json.preserve_proto_field_names = true;
  json.add_whitespace = true;
  std::string recipe;
  const auto printed = google::protobuf::util::MessageToJsonString(kernel.record, &recipe, json);
  if (!printed.ok()) return absl::InternalError(std::string(printed.message()));
  RT_RETURN_IF_ERROR(WriteOutput(folder + "recipe.json", recipe));
  if (context.json) {
    PrintJson(kernel.record);
    return absl::OkStatus();
  }
  if (has_binary) {
    std::printf("%s\n", cubin.c_str());
  } else {
    std::fprintf(stderr, "rooftune: this is a call of cuBLASLt, so there is no binary: docs/api.md says how to make it; "
                         "--templates-only fetches the best kernel\n");
  }
  std::printf("%srecipe.json\n", folder.c_str());
  return absl::OkStatus();
}

}  // namespace rooftune::cli

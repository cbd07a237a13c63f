// What a template makes of one operator and configuration: compile input, plan, cost mapping, estimates.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/plan_builder.h"

namespace rooftune {
namespace {

int64_t DimOr(const Op& op, const std::string& name, int64_t fallback) {
  for (const auto& [dim, value] : op.dims) {
    if (dim == name) return value;
  }
  return fallback;
}

// Shape as the predictor wants it: m·n·k of a product, else rows × columns with the last dim as columns.
void SetShape(const Op& op, MappedConfig* mapped) {
  if (mapped->cost_class == manifest::v1::TILE_GEMM) {
    mapped->m = DimOr(op, "m", 1);
    mapped->n = DimOr(op, "n", 1);
    mapped->k = DimOr(op, "k", 1);
    mapped->batch = DimOr(op, "batch", 1);
    return;
  }
  if (op.dims.empty()) return;
  const bool row = mapped->cost_class == manifest::v1::ROW;
  if (row) mapped->k = op.dims.back().second;
  for (size_t i = 0; i + (row ? 1 : 0) < op.dims.size(); ++i) mapped->m *= op.dims[i].second;
}

int64_t Product(const v1::IntExpr& x, const v1::IntExpr& y, const v1::IntExpr& z) {
  return x.value() * y.value() * z.value();
}

absl::StatusOr<MappedConfig> MappingOf(const manifest::v1::CostMapping& cost, const Op& op, const PlanBuilder& builder,
                                       const v1::LaunchPlan& plan) {
  MappedConfig mapped;
  mapped.cost_class = cost.cost_class();
  mapped.pipe = cost.pipe().empty() ? "fp32" : cost.pipe();
  const auto input = std::find_if(plan.tensor().begin(), plan.tensor().end(),
                                  [](const auto& t) { return t.role() != v1::TensorSpec::OUTPUT; });
  const v1::TensorSpec& operand = input != plan.tensor().end() ? *input : plan.tensor(0);
  mapped.dtype = operand.dtype();
  mapped.element_bytes = DTypeBytes(operand.dtype());
  SetShape(op, &mapped);
  RT_ASSIGN_OR_RETURN(mapped.batch, builder.Cost("batch", mapped.batch));
  RT_ASSIGN_OR_RETURN(mapped.m, builder.Cost("m", mapped.m));
  RT_ASSIGN_OR_RETURN(mapped.tile_m, builder.Cost("tile_m", mapped.tile_m));
  RT_ASSIGN_OR_RETURN(mapped.tile_n, builder.Cost("tile_n", mapped.tile_n));
  RT_ASSIGN_OR_RETURN(mapped.tile_k, builder.Cost("tile_k", mapped.tile_k));
  RT_ASSIGN_OR_RETURN(mapped.stages, builder.Cost("stages", mapped.stages));
  RT_ASSIGN_OR_RETURN(mapped.split_k, builder.Cost("split_k", mapped.split_k));
  RT_ASSIGN_OR_RETURN(mapped.raster_group, builder.Cost("raster_group", mapped.raster_group));
  RT_ASSIGN_OR_RETURN(mapped.passes, builder.Cost("passes", mapped.passes));
  RT_ASSIGN_OR_RETURN(mapped.bytes_in_flight_per_thread,
                      builder.Cost("bytes_in_flight_per_thread", mapped.bytes_in_flight_per_thread));
  RT_ASSIGN_OR_RETURN(mapped.share_a, builder.Cost("share_a", mapped.share_a));
  RT_ASSIGN_OR_RETURN(mapped.share_b, builder.Cost("share_b", mapped.share_b));
  RT_ASSIGN_OR_RETURN(mapped.tiles_in_flight, builder.Cost("tiles_in_flight", mapped.tiles_in_flight));
  RT_ASSIGN_OR_RETURN(mapped.bits_b, builder.Cost("bits_b", 8 * mapped.element_bytes));
  const v1::Launch& main = MainLaunch(plan);
  mapped.grid_ctas = Product(main.grid_x(), main.grid_y(), main.grid_z());
  mapped.threads = Product(main.block_x(), main.block_y(), main.block_z());
  mapped.launches = plan.launch_size();
  mapped.workspace_bytes = plan.workspace_bytes().value();
  return mapped;
}

}  // namespace

absl::StatusOr<worker::v1::CompileRequest> KernelTemplate::CompileInput(const Op& op, const Config& config,
                                                                        const DeviceProfile& device) const {
  PlanBuilder builder(manifest_, *parsed_, *schema_, op, config, device);
  RT_RETURN_IF_ERROR(builder.CheckConfig());
  worker::v1::CompileRequest request;
  request.mutable_source()->set_name(absl::StrCat(id(), "/kernel.cuh"));
  request.mutable_source()->set_text(files_.kernel);
  for (const auto& header : files_.headers) *request.add_header() = header;
  RT_ASSIGN_OR_RETURN(const auto defines, builder.Defines());
  request.mutable_define()->Add(defines.begin(), defines.end());
  request.set_arch(ArchName(device.cc(), manifest_.arch_specific()));
  request.set_option_list_version(kOptionListVersion);
  RT_ASSIGN_OR_RETURN(const auto symbols, builder.Symbols());
  request.mutable_symbol()->Add(symbols.begin(), symbols.end());
  return request;
}

absl::StatusOr<v1::LaunchPlan> KernelTemplate::Plan(const Op& op, const Config& config,
                                                    const DeviceProfile& device) const {
  PlanBuilder builder(manifest_, *parsed_, *schema_, op, config, device);
  RT_RETURN_IF_ERROR(builder.CheckConfig());
  return builder.Plan();
}

absl::StatusOr<KernelTemplate::Analysis> KernelTemplate::Analyse(const Op& op, const Config& config,
                                                                 const DeviceProfile& device) const {
  PlanBuilder builder(manifest_, *parsed_, *schema_, op, config, device);
  RT_RETURN_IF_ERROR(builder.CheckConfig());
  RT_ASSIGN_OR_RETURN(const v1::LaunchPlan plan, builder.Plan());
  Analysis analysis;
  RT_ASSIGN_OR_RETURN(analysis.mapped, MappingOf(manifest_.cost(), op, builder, plan));
  const v1::Launch& main = MainLaunch(plan);
  const int64_t dynamic = main.dynamic_shared_bytes().value();
  RT_ASSIGN_OR_RETURN(const int64_t threads,
                      builder.Value(parsed_->threads, Product(main.block_x(), main.block_y(), main.block_z())));
  // The manifest's figure is of a block in all.
  RT_ASSIGN_OR_RETURN(const int64_t shared, builder.Value(parsed_->shared, dynamic));
  RT_ASSIGN_OR_RETURN(const int64_t registers, builder.Value(parsed_->registers, 0));
  v1::Resources& resources = analysis.resources;
  resources.set_threads_per_block(static_cast<int32_t>(threads));
  resources.set_dynamic_shared_bytes(static_cast<int32_t>(dynamic));
  resources.set_static_shared_bytes(static_cast<int32_t>(std::max<int64_t>(shared - dynamic, 0)));
  resources.set_registers_per_thread(static_cast<int32_t>(registers));
  return analysis;
}

}  // namespace rooftune

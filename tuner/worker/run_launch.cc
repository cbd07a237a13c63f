#include "tuner/worker/run_launch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "tuner/worker/run_tensor_map.h"

namespace rooftune {
namespace {

// The architecture's limit without CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
constexpr int64_t kSharedWithoutOptIn = 48 << 10;
// Clusters above this size need CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED.
constexpr int64_t kPortableCluster = 8;
constexpr int64_t kLargestCluster = 16;

absl::Status Invalid(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_PLAN", message);
}

int64_t AtLeastOne(const v1::IntExpr& quantity) { return quantity.value() == 0 ? 1 : quantity.value(); }

absl::Status AddInteger(int64_t value, int size, ArgumentPack& pack) {
  if (size == 8) {
    pack.AddInt64(value);
    return absl::OkStatus();
  }
  // Signed or unsigned, as the kernel likes: both views of the value must exist.
  if (size == 4 && value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<uint32_t>::max()) {
    pack.AddInt32(static_cast<int32_t>(static_cast<uint32_t>(value)));
    return absl::OkStatus();
  }
  return Invalid(absl::StrCat("integer argument ", value, " does not fit its ", size, " bytes"));
}

absl::Status AddTensor(const std::string& name, const Bindings& bindings, ArgumentPack& pack) {
  const auto tensor = bindings.tensor.find(name);
  if (tensor == bindings.tensor.end()) return Invalid(absl::StrCat("no tensor '", name, "'"));
  pack.AddPointer(tensor->second);
  return absl::OkStatus();
}

absl::Status AddScalar(const v1::Argument& argument, const Bindings& bindings, ArgumentPack& pack) {
  const auto scalar = bindings.scalar.find(argument.scalar());
  if (scalar == bindings.scalar.end()) return Invalid(absl::StrCat("no scalar '", argument.scalar(), "'"));
  if (argument.size() == 8) {
    pack.AddDouble(scalar->second);
  } else {
    pack.AddFloat(static_cast<float>(scalar->second));
  }
  return absl::OkStatus();
}

absl::Status AddWorkspace(int64_t offset, const Bindings& bindings, ArgumentPack& pack) {
  if (offset < 0 || offset > bindings.workspace_bytes) {
    return Invalid(absl::StrCat("workspace offset ", offset, " lies outside of ", bindings.workspace_bytes, " bytes"));
  }
  pack.AddPointer(bindings.workspace + static_cast<cuda::DevicePtr>(offset));
  return absl::OkStatus();
}

absl::Status AddTensorMap(const CudaDriver& driver, const v1::TensorMap& map, const Bindings& bindings,
                          ArgumentPack& pack) {
  const auto tensor = bindings.tensor.find(map.tensor());
  if (tensor == bindings.tensor.end()) return Invalid(absl::StrCat("no tensor '", map.tensor(), "'"));
  RT_ASSIGN_OR_RETURN(const cuda::TensorMap encoded, EncodeTensorMap(driver, map, tensor->second));
  pack.AddTensorMap(encoded);
  return absl::OkStatus();
}

absl::StatusOr<KernelLaunch> MakeLaunch(const GpuContext& context, const LoadedModule& module, const v1::Launch& launch,
                                        const Bindings& bindings) {
  RT_RETURN_IF_ERROR(CheckGeometry(launch, context.limits()));
  KernelLaunch made;
  made.symbol = launch.symbol();
  RT_ASSIGN_OR_RETURN(made.function, module.Function(launch.symbol()));
  RT_ASSIGN_OR_RETURN(made.arguments, BindArguments(context.driver(), launch, bindings));
  made.config.grid_x = static_cast<unsigned>(AtLeastOne(launch.grid_x()));
  made.config.grid_y = static_cast<unsigned>(AtLeastOne(launch.grid_y()));
  made.config.grid_z = static_cast<unsigned>(AtLeastOne(launch.grid_z()));
  made.config.block_x = static_cast<unsigned>(AtLeastOne(launch.block_x()));
  made.config.block_y = static_cast<unsigned>(AtLeastOne(launch.block_y()));
  made.config.block_z = static_cast<unsigned>(AtLeastOne(launch.block_z()));
  made.config.shared_bytes = static_cast<unsigned>(launch.dynamic_shared_bytes().value());
  made.cluster_x = static_cast<unsigned>(AtLeastOne(launch.cluster_x()));
  made.cooperative = launch.cooperative();
  const CudaDriver& driver = context.driver();
  if (launch.shared_opt_in()) {
    RT_RETURN_IF_ERROR(driver.Check(driver.FuncSetAttribute(made.function, cuda::kFunctionMaxDynamicShared,
                                                            static_cast<int>(launch.dynamic_shared_bytes().value())),
                                    absl::StrCat("raising shared memory of '", launch.symbol(), "' to ",
                                                 launch.dynamic_shared_bytes().value(), " bytes")));
  }
  if (made.cluster_x > kPortableCluster) {
    RT_RETURN_IF_ERROR(driver.Check(driver.FuncSetAttribute(made.function, cuda::kFunctionNonPortableCluster, 1),
                                    absl::StrCat("cluster of ", made.cluster_x)));
  }
  return made;
}

}  // namespace

void ArgumentPack::Add(const void* value, size_t size) {
  Slot slot;
  std::memcpy(slot.bytes.data(), value, std::min(size, slot.bytes.size()));
  values_.push_back(slot);
}

std::vector<void*> ArgumentPack::Pointers() {
  std::vector<void*> pointers;
  pointers.reserve(values_.size());
  for (Slot& value : values_) pointers.push_back(value.bytes.data());
  return pointers;
}

absl::Status KernelLaunch::Enqueue(const GpuContext& context) {
  std::array<cuda::LaunchAttribute, 2> attributes;
  cuda::LaunchConfig filled = config;
  filled.stream = context.stream();
  filled.attributes = attributes.data();
  if (cluster_x > 1) {
    cuda::LaunchAttribute& attribute = attributes[filled.attribute_count++];
    attribute.id = cuda::kAttributeClusterDimension;
    attribute.value.cluster = {cluster_x, 1, 1};
  }
  if (cooperative) {
    cuda::LaunchAttribute& attribute = attributes[filled.attribute_count++];
    attribute.id = cuda::kAttributeCooperative;
    attribute.value.cooperative = 1;
  }
  std::vector<void*> pointers = arguments.Pointers();
  return context.driver().Check(
      context.driver().LaunchKernelEx(&filled, function, pointers.empty() ? nullptr : pointers.data(), nullptr),
      absl::StrCat("launch of '", symbol, "'"));
}

absl::StatusOr<ArgumentPack> BindArguments(const CudaDriver& driver, const v1::Launch& launch,
                                           const Bindings& bindings) {
  ArgumentPack pack;
  for (const v1::Argument& argument : launch.argument()) {
    absl::Status status;
    switch (argument.kind_case()) {
      case v1::Argument::kTensor:
        status = AddTensor(argument.tensor(), bindings, pack);
        break;
      case v1::Argument::kScalar:
        status = AddScalar(argument, bindings, pack);
        break;
      case v1::Argument::kInteger:
        status = AddInteger(argument.integer().value(), argument.size() == 0 ? 8 : argument.size(), pack);
        break;
      case v1::Argument::kWorkspaceOffset:
        status = AddWorkspace(argument.workspace_offset().value(), bindings, pack);
        break;
      case v1::Argument::kTensorMap:
        status = AddTensorMap(driver, argument.tensor_map(), bindings, pack);
        break;
      case v1::Argument::KIND_NOT_SET:
        status = Invalid("an argument says nothing");
        break;
    }
    if (!status.ok()) return Annotate(status, absl::StrCat("kernel '", launch.symbol(), "'"));
  }
  return pack;
}

absl::Status CheckGeometry(const v1::Launch& launch, const DeviceLimits& limits) {
  const int64_t grid[3] = {AtLeastOne(launch.grid_x()), AtLeastOne(launch.grid_y()), AtLeastOne(launch.grid_z())};
  const int64_t block[3] = {AtLeastOne(launch.block_x()), AtLeastOne(launch.block_y()), AtLeastOne(launch.block_z())};
  const std::string kernel = absl::StrCat("kernel '", launch.symbol(), "': ");
  for (int i = 0; i < 3; ++i) {
    if (grid[i] < 1 || grid[i] > limits.grid[i]) {
      return Invalid(
          absl::StrCat(kernel, "grid ", grid[i], " in dimension ", i, "; the device allows ", limits.grid[i]));
    }
    if (block[i] < 1 || block[i] > limits.block[i]) {
      return Invalid(
          absl::StrCat(kernel, "block ", block[i], " in dimension ", i, "; the device allows ", limits.block[i]));
    }
  }
  if (block[0] * block[1] * block[2] > limits.threads_per_block) {
    return Invalid(absl::StrCat(kernel, block[0] * block[1] * block[2], " threads a block; the device allows ",
                                limits.threads_per_block));
  }
  const int64_t shared = launch.dynamic_shared_bytes().value();
  const int64_t most_shared = launch.shared_opt_in() ? limits.shared_optin_bytes : kSharedWithoutOptIn;
  if (shared < 0 || shared > most_shared) {
    return Invalid(absl::StrCat(kernel, shared, " bytes of dynamic shared memory; allowed are ", most_shared,
                                launch.shared_opt_in() ? "" : " without shared_opt_in"));
  }
  const int64_t cluster = AtLeastOne(launch.cluster_x());
  if (cluster == 1) return absl::OkStatus();
  if (!limits.clusters) return Invalid(absl::StrCat(kernel, "the device has no clusters"));
  if (cluster < 1 || cluster > kLargestCluster || grid[0] % cluster != 0) {
    return Invalid(absl::StrCat(kernel, "cluster of ", cluster, " for a grid of ", grid[0]));
  }
  return absl::OkStatus();
}

std::map<std::string, double> DefaultScalars(const google::protobuf::RepeatedPtrField<v1::ScalarSpec>& scalars) {
  std::map<std::string, double> values;
  for (const v1::ScalarSpec& scalar : scalars) values[scalar.name()] = scalar.default_value();
  return values;
}

absl::StatusOr<BoundPlan> BoundPlan::Create(const GpuContext& context, const LoadedModule& module,
                                            const v1::LaunchPlan& plan, const Bindings& bindings) {
  constexpr int kMaxLaunches = 32;
  if (plan.launch_size() < 1 || plan.launch_size() > kMaxLaunches) {
    return Invalid(absl::StrCat("a plan has 1 to ", kMaxLaunches, " launches, not ", plan.launch_size()));
  }
  BoundPlan bound;
  for (const v1::Launch& launch : plan.launch()) {
    RT_ASSIGN_OR_RETURN(KernelLaunch made, MakeLaunch(context, module, launch, bindings));
    bound.launches_.push_back(std::move(made));
  }
  bound.workspace_ = bindings.workspace;
  bound.workspace_bytes_ = plan.workspace_bytes().value();
  bound.zero_workspace_ = plan.workspace_init() == v1::LaunchPlan::ZERO && bound.workspace_bytes_ > 0;
  bound.zero_workspace_once_ = plan.workspace_init() == v1::LaunchPlan::ZERO_ONCE && bound.workspace_bytes_ > 0;
  return bound;
}

absl::Status BoundPlan::ZeroWorkspace(const GpuContext& context) const {
  return context.driver().Check(
      context.driver().MemsetD8Async(workspace_, 0, static_cast<size_t>(workspace_bytes_), context.stream()),
      "zeroing the workspace");
}

absl::Status BoundPlan::Prepare(const GpuContext& context) const {
  return zero_workspace_once_ ? ZeroWorkspace(context) : absl::OkStatus();
}

absl::Status BoundPlan::Enqueue(const GpuContext& context) {
  if (zero_workspace_) RT_RETURN_IF_ERROR(ZeroWorkspace(context));
  for (KernelLaunch& launch : launches_) RT_RETURN_IF_ERROR(launch.Enqueue(context));
  return absl::OkStatus();
}

}  // namespace rooftune

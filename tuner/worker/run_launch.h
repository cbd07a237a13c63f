// From a launch plan to launches: arguments bound to addresses, limits checked, kernels resolved.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_LAUNCH_H_
#define ROOFTUNE_TUNER_WORKER_RUN_LAUNCH_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/v1/launch_plan.pb.h"
#include "tuner/worker/run_device.h"

namespace rooftune {

// What the names in a plan stand for.
struct Bindings {
  std::map<std::string, cuda::DevicePtr> tensor;
  std::map<std::string, double> scalar;
  cuda::DevicePtr workspace = 0;
  int64_t workspace_bytes = 0;
};

// Bytes of kernel arguments, each at a 64-byte aligned place of its own: `kernelParams` points at them.
class ArgumentPack {
 public:
  void AddPointer(cuda::DevicePtr value) { Add(&value, sizeof(value)); }
  void AddInt64(int64_t value) { Add(&value, sizeof(value)); }
  void AddInt32(int32_t value) { Add(&value, sizeof(value)); }
  void AddFloat(float value) { Add(&value, sizeof(value)); }
  void AddDouble(double value) { Add(&value, sizeof(value)); }
  void AddTensorMap(const cuda::TensorMap& value) { Add(&value, sizeof(value)); }
  // At most 128 bytes.
  void Add(const void* value, size_t size);
  // Valid until the next Add.
  std::vector<void*> Pointers();

 private:
  struct alignas(64) Slot {
    std::array<unsigned char, 128> bytes = {};
  };

  std::vector<Slot> values_;
};

// One kernel launch, ready to be enqueued any number of times.
struct KernelLaunch {
  cuda::Function function = nullptr;
  cuda::LaunchConfig config;  // stream and attributes are filled in by Enqueue
  unsigned cluster_x = 1;
  bool cooperative = false;
  ArgumentPack arguments;
  std::string symbol;

  absl::Status Enqueue(const GpuContext& context);
};

// A block of arguments for a launch. INVALID_ARGUMENT naming what can't be bound: an unknown tensor or scalar, an
// integer that does not fit, an offset past the workspace; what the driver says of a tensor map.
absl::StatusOr<ArgumentPack> BindArguments(const CudaDriver& driver, const v1::Launch& launch,
                                           const Bindings& bindings);

// INVALID_ARGUMENT with the limit that the geometry exceeds.
absl::Status CheckGeometry(const v1::Launch& launch, const DeviceLimits& limits);

// Scalars by name: the defaults.
std::map<std::string, double> DefaultScalars(const google::protobuf::RepeatedPtrField<v1::ScalarSpec>& scalars);

// A plan bound to one set of buffers.
class BoundPlan {
 public:
  // Resolves kernels of `module`, raises the dynamic shared memory where the plan says so.
  static absl::StatusOr<BoundPlan> Create(const GpuContext& context, const LoadedModule& module,
                                          const v1::LaunchPlan& plan, const Bindings& bindings);
  // Zeroes a workspace that the plan wants zeroed once: before the first Enqueue, and after what was there is lost.
  absl::Status Prepare(const GpuContext& context) const;
  // Zeroes the workspace if the plan wants it each time, then launches in order. Nothing is waited for.
  absl::Status Enqueue(const GpuContext& context);
  // Graph nodes of one execution.
  int nodes() const { return static_cast<int>(launches_.size()) + (zero_workspace_ ? 1 : 0); }

 private:
  absl::Status ZeroWorkspace(const GpuContext& context) const;

  std::vector<KernelLaunch> launches_;
  bool zero_workspace_ = false;
  bool zero_workspace_once_ = false;
  cuda::DevicePtr workspace_ = 0;
  int64_t workspace_bytes_ = 0;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_LAUNCH_H_

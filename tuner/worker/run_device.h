// RAII over the driver: a device with its primary context and one stream, memory, modules, events and graphs.
// Everything here belongs to one thread.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_DEVICE_H_
#define ROOFTUNE_TUNER_WORKER_RUN_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tuner/worker/run_driver.h"

namespace rooftune {

// What launches have to respect.
struct DeviceLimits {
  int cc = 0;  // compute capability × 10
  int sm_count = 0;
  int64_t l2_bytes = 0;
  int threads_per_block = 0;
  int block[3] = {};
  int grid[3] = {};
  int shared_optin_bytes = 0;
  bool clusters = false;
  bool virtual_memory = false;
};

// A device of the driver without a context: what the lease needs.
struct DeviceId {
  int ordinal = 0;
  cuda::Device device = 0;
  std::string uuid;  // "GPU-…"
};
// UNAVAILABLE (NO_GPU) if there is no such device.
absl::StatusOr<DeviceId> FindDevice(const CudaDriver& driver, int ordinal);
int DeviceAttributeOr(const CudaDriver& driver, cuda::Device device, int attribute, int fallback);

// The primary context of a device, current on the calling thread, and a stream. Borrows the driver.
class GpuContext {
 public:
  static absl::StatusOr<std::unique_ptr<GpuContext>> Create(const CudaDriver& driver, const DeviceId& id);
  ~GpuContext();
  GpuContext(const GpuContext&) = delete;
  GpuContext& operator=(const GpuContext&) = delete;

  const CudaDriver& driver() const { return driver_; }
  cuda::Stream stream() const { return stream_; }
  cuda::Device device() const { return id_.device; }
  const DeviceLimits& limits() const { return limits_; }
  // Waits for the stream. Never returns while a kernel hangs: the parent's deadline ends the process then.
  absl::Status Synchronize(absl::string_view what) const;
  absl::StatusOr<int64_t> FreeBytes() const;

 private:
  GpuContext(const CudaDriver& driver, const DeviceId& id) : driver_(driver), id_(id) {}
  const CudaDriver& driver_;
  const DeviceId id_;
  DeviceLimits limits_;
  bool retained_ = false;
  cuda::Stream stream_ = nullptr;
};

// Plain device memory. Movable.
class DeviceBuffer {
 public:
  // RESOURCE_EXHAUSTED if it does not fit. At least 256 bytes are allocated.
  static absl::StatusOr<DeviceBuffer> Create(const GpuContext& context, int64_t bytes);
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  cuda::DevicePtr ptr() const { return ptr_; }
  int64_t size() const { return size_; }

 private:
  const GpuContext* context_ = nullptr;
  cuda::DevicePtr ptr_ = 0;
  int64_t size_ = 0;
};

// A loaded cubin.
class LoadedModule {
 public:
  // `what` names it in messages. FAILED_PRECONDITION for bytes that are no CUDA ELF file: the driver crashes on
  // some of those.
  static absl::StatusOr<std::unique_ptr<LoadedModule>> Load(const GpuContext& context, const std::string& cubin,
                                                            absl::string_view what);
  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;
  absl::StatusOr<cuda::Function> Function(const std::string& symbol) const;

 private:
  explicit LoadedModule(const GpuContext& context) : context_(context) {}
  const GpuContext& context_;
  cuda::Module module_ = nullptr;
};
// True if the bytes begin like a 64-bit ELF file for the CUDA machine and its section table lies inside.
bool LooksLikeCubin(absl::string_view bytes);

class GpuEvent {
 public:
  static absl::StatusOr<GpuEvent> Create(const GpuContext& context);
  GpuEvent(GpuEvent&& other) noexcept : context_(other.context_), event_(other.event_) { other.event_ = nullptr; }
  GpuEvent& operator=(GpuEvent&&) = delete;
  ~GpuEvent();
  absl::Status Record() const;
  // Microseconds from `start` to this; both must have completed.
  absl::StatusOr<double> SinceUs(const GpuEvent& start) const;

 private:
  explicit GpuEvent(const GpuContext& context) : context_(&context) {}
  const GpuContext* context_;
  cuda::Event event_ = nullptr;
};

// What `enqueue` puts on the context's stream, captured once and launched many times.
class GpuGraph {
 public:
  static absl::StatusOr<std::unique_ptr<GpuGraph>> Capture(const GpuContext& context,
                                                           const std::function<absl::Status()>& enqueue);
  ~GpuGraph();
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  absl::Status Launch() const;

 private:
  explicit GpuGraph(const GpuContext& context) : context_(context) {}
  const GpuContext& context_;
  cuda::Graph graph_ = nullptr;
  cuda::GraphExec exec_ = nullptr;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_DEVICE_H_

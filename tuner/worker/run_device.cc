#include "tuner/worker/run_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as the vendor's tools print it.
std::string UuidText(const cuda::Uuid& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    absl::StrAppendFormat(&text, "%02x", uuid.bytes[i]);
  }
  return text;
}

DeviceLimits ReadLimits(const CudaDriver& driver, cuda::Device device) {
  const auto get = [&](int attribute) { return DeviceAttributeOr(driver, device, attribute, 0); };
  DeviceLimits limits;
  limits.cc = get(cuda::kComputeCapabilityMajor) * 10 + get(cuda::kComputeCapabilityMinor);
  limits.sm_count = std::max(1, get(cuda::kMultiprocessorCount));
  limits.l2_bytes = get(cuda::kL2Bytes);
  limits.threads_per_block = get(cuda::kMaxThreadsPerBlock);
  for (int i = 0; i < 3; ++i) {
    limits.block[i] = get(cuda::kMaxBlockX + i);
    limits.grid[i] = get(cuda::kMaxGridX + i);
  }
  limits.shared_optin_bytes = get(cuda::kSharedPerBlockOptin);
  limits.clusters = get(cuda::kClusterLaunch) != 0;
  limits.virtual_memory = driver.has_virtual_memory() && get(cuda::kVirtualMemorySupported) != 0;
  return limits;
}

}  // namespace

int DeviceAttributeOr(const CudaDriver& driver, cuda::Device device, int attribute, int fallback) {
  int value = 0;
  return driver.DeviceGetAttribute(&value, attribute, device) == 0 ? value : fallback;
}

absl::StatusOr<DeviceId> FindDevice(const CudaDriver& driver, int ordinal) {
  int count = 0;
  RT_RETURN_IF_ERROR(driver.Check(driver.DeviceGetCount(&count), "cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= count) {
    return Error(absl::StatusCode::kUnavailable, "NO_GPU",
                 absl::StrCat("no CUDA device ", ordinal, ": the driver shows ", count));
  }
  DeviceId id;
  id.ordinal = ordinal;
  RT_RETURN_IF_ERROR(driver.Check(driver.DeviceGet(&id.device, ordinal), "cuDeviceGet"));
  cuda::Uuid uuid = {};
  RT_RETURN_IF_ERROR(driver.Check(driver.DeviceGetUuid(&uuid, id.device), "cuDeviceGetUuid"));
  id.uuid = UuidText(uuid);
  return id;
}

absl::StatusOr<std::unique_ptr<GpuContext>> GpuContext::Create(const CudaDriver& driver, const DeviceId& id) {
  std::unique_ptr<GpuContext> context(new GpuContext(driver, id));
  cuda::Context handle = nullptr;
  RT_RETURN_IF_ERROR(driver.Check(driver.PrimaryCtxRetain(&handle, id.device), "cuDevicePrimaryCtxRetain"));
  context->retained_ = true;
  RT_RETURN_IF_ERROR(driver.Check(driver.CtxSetCurrent(handle), "cuCtxSetCurrent"));
  RT_RETURN_IF_ERROR(driver.Check(driver.StreamCreate(&context->stream_, cuda::kStreamNonBlocking), "cuStreamCreate"));
  context->limits_ = ReadLimits(driver, id.device);
  return context;
}

GpuContext::~GpuContext() {
  if (stream_ != nullptr) driver_.StreamDestroy(stream_);
  if (retained_) driver_.PrimaryCtxRelease(id_.device);
}

absl::Status GpuContext::Synchronize(absl::string_view what) const {
  return driver_.Check(driver_.StreamSynchronize(stream_), what);
}

absl::StatusOr<int64_t> GpuContext::FreeBytes() const {
  size_t free = 0;
  size_t total = 0;
  RT_RETURN_IF_ERROR(driver_.Check(driver_.MemGetInfo(&free, &total), "cuMemGetInfo"));
  return static_cast<int64_t>(free);
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(const GpuContext& context, int64_t bytes) {
  DeviceBuffer buffer;
  const int64_t size = std::max<int64_t>(bytes, 256);
  RT_RETURN_IF_ERROR(context.driver().Check(context.driver().MemAlloc(&buffer.ptr_, static_cast<size_t>(size)),
                                            absl::StrCat("cuMemAlloc of ", size, " bytes")));
  buffer.context_ = &context;
  buffer.size_ = size;
  return buffer;
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(ptr_, other.ptr_);
  std::swap(size_, other.size_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (ptr_ != 0) context_->driver().MemFree(ptr_);
}

bool LooksLikeCubin(absl::string_view bytes) {
  // ELF64 header: e_machine at 18 (190 = EM_CUDA), e_shoff at 40, e_shentsize at 58, e_shnum at 60.
  constexpr size_t kHeader = 64;
  constexpr uint16_t kMachineCuda = 190;
  if (bytes.size() < kHeader || std::memcmp(bytes.data(),
                                            "\x7f"
                                            "ELF\x02\x01",
                                            6) != 0)
    return false;
  uint16_t machine = 0;
  uint64_t section_offset = 0;
  uint16_t section_size = 0;
  uint16_t section_count = 0;
  std::memcpy(&machine, bytes.data() + 18, sizeof(machine));
  std::memcpy(&section_offset, bytes.data() + 40, sizeof(section_offset));
  std::memcpy(&section_size, bytes.data() + 58, sizeof(section_size));
  std::memcpy(&section_count, bytes.data() + 60, sizeof(section_count));
  return machine == kMachineCuda && section_count > 0 && section_offset >= kHeader && section_offset < bytes.size() &&
         static_cast<uint64_t>(section_size) * section_count <= bytes.size() - section_offset;
}

absl::StatusOr<std::unique_ptr<LoadedModule>> LoadedModule::Load(const GpuContext& context, const std::string& cubin,
                                                                 absl::string_view what) {
  if (!LooksLikeCubin(cubin)) {
    return Error(absl::StatusCode::kFailedPrecondition, "BAD_CUBIN",
                 absl::StrCat(what, ": not a CUDA ELF file (", cubin.size(), " bytes)"));
  }
  std::unique_ptr<LoadedModule> module(new LoadedModule(context));
  // cuModuleLoadData refuses a cubin of another architecture at once; cuLibraryLoadData would load it empty.
  RT_RETURN_IF_ERROR(context.driver().Check(context.driver().ModuleLoadData(&module->module_, cubin.data()),
                                            absl::StrCat("loading ", what)));
  return module;
}

LoadedModule::~LoadedModule() {
  if (module_ != nullptr) context_.driver().ModuleUnload(module_);
}

absl::StatusOr<cuda::Function> LoadedModule::Function(const std::string& symbol) const {
  cuda::Function function = nullptr;
  RT_RETURN_IF_ERROR(context_.driver().Check(context_.driver().ModuleGetFunction(&function, module_, symbol.c_str()),
                                             absl::StrCat("kernel '", symbol, "'")));
  return function;
}

absl::StatusOr<GpuEvent> GpuEvent::Create(const GpuContext& context) {
  GpuEvent event(context);
  RT_RETURN_IF_ERROR(context.driver().Check(context.driver().EventCreate(&event.event_, 0), "cuEventCreate"));
  return event;
}

GpuEvent::~GpuEvent() {
  if (event_ != nullptr) context_->driver().EventDestroy(event_);
}

absl::Status GpuEvent::Record() const {
  return context_->driver().Check(context_->driver().EventRecord(event_, context_->stream()), "cuEventRecord");
}

absl::StatusOr<double> GpuEvent::SinceUs(const GpuEvent& start) const {
  float milliseconds = 0;
  RT_RETURN_IF_ERROR(context_->driver().Check(context_->driver().EventElapsedTime(&milliseconds, start.event_, event_),
                                              "cuEventElapsedTime"));
  return static_cast<double>(milliseconds) * 1000;
}

absl::StatusOr<std::unique_ptr<GpuGraph>> GpuGraph::Capture(const GpuContext& context,
                                                            const std::function<absl::Status()>& enqueue) {
  const CudaDriver& driver = context.driver();
  std::unique_ptr<GpuGraph> graph(new GpuGraph(context));
  RT_RETURN_IF_ERROR(
      driver.Check(driver.StreamBeginCapture(context.stream(), cuda::kCaptureThreadLocal), "cuStreamBeginCapture"));
  const absl::Status enqueued = enqueue();
  // Capture must be ended whatever happened, or the stream stays unusable.
  const absl::Status ended =
      driver.Check(driver.StreamEndCapture(context.stream(), &graph->graph_), "cuStreamEndCapture");
  RT_RETURN_IF_ERROR(enqueued);
  RT_RETURN_IF_ERROR(ended);
  RT_RETURN_IF_ERROR(driver.Check(driver.GraphInstantiate(&graph->exec_, graph->graph_, 0), "cuGraphInstantiate"));
  RT_RETURN_IF_ERROR(driver.Check(driver.GraphUpload(graph->exec_, context.stream()), "cuGraphUpload"));
  return graph;
}

GpuGraph::~GpuGraph() {
  if (exec_ != nullptr) context_.driver().GraphExecDestroy(exec_);
  if (graph_ != nullptr) context_.driver().GraphDestroy(graph_);
}

absl::Status GpuGraph::Launch() const {
  return context_.driver().Check(context_.driver().GraphLaunch(exec_, context_.stream()), "cuGraphLaunch");
}

}  // namespace rooftune

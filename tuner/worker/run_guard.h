// Device memory that shows writes outside of it. Where virtual memory works, the tensor ends where its mapping
// ends and both neighbours are unmapped, so that the first word past it faults; what lies between the mapping's
// start and the tensor, and the bytes that alignment leaves behind it, hold 0xFF and are checked. Elsewhere the
// tensor lies between two zones of 0xFF.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_GUARD_H_
#define ROOFTUNE_TUNER_WORKER_RUN_GUARD_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tuner/worker/run_device.h"

namespace rooftune {

// Where a tensor lies in the memory reserved for it, in bytes from its start.
struct GuardLayout {
  int64_t mapped = 0;  // whole size
  int64_t offset = 0;  // of the tensor
  int64_t after = 0;   // bytes behind the tensor
};
// `granularity` > 0: of mappings (the tensor ends at the end); 0: two zones of kRedzoneBytes.
inline constexpr int64_t kRedzoneBytes = 64 << 10;
GuardLayout LayOutGuarded(int64_t bytes, int64_t alignment, int64_t granularity);

class GuardedBuffer {
 public:
  struct Range {
    cuda::DevicePtr ptr = 0;
    int64_t bytes = 0;
  };

  // `alignment` is a power of two. RESOURCE_EXHAUSTED if it does not fit.
  static absl::StatusOr<std::unique_ptr<GuardedBuffer>> Create(const GpuContext& context, int64_t bytes,
                                                               int64_t alignment);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  cuda::DevicePtr ptr() const { return base_ + static_cast<cuda::DevicePtr>(layout_.offset); }
  int64_t bytes() const { return bytes_; }
  int64_t allocated() const { return layout_.mapped; }
  // The zones before and behind the tensor.
  std::array<Range, 2> zones() const;
  // Enqueues 0xFF into tensor and zones.
  absl::Status FillOnes() const;
  // From now on writes fault. Does nothing without virtual memory.
  absl::Status MakeReadOnly();
  bool read_only() const { return read_only_; }

 private:
  explicit GuardedBuffer(const GpuContext& context) : context_(context) {}
  absl::Status Map(int64_t granularity);
  absl::Status SetAccess(int flags) const;

  const GpuContext& context_;
  int64_t bytes_ = 0;
  GuardLayout layout_;
  cuda::DevicePtr base_ = 0;
  // Virtual memory only.
  cuda::DevicePtr reserved_ = 0;
  int64_t reserved_bytes_ = 0;
  cuda::MemHandle handle_ = 0;
  bool has_handle_ = false;
  bool is_mapped_ = false;
  bool read_only_ = false;
  DeviceBuffer plain_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_GUARD_H_

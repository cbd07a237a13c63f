#include "tuner/worker/run_guard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

constexpr int kReadOnly = 1;
constexpr int kReadWrite = 3;

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

cuda::MemAllocationProp PropOf(const GpuContext& context) {
  cuda::MemAllocationProp prop;
  prop.location.id = context.device();
  return prop;
}

// Smallest size of a mapping, or 0 where there is no virtual memory.
int64_t Granularity(const GpuContext& context) {
  if (!context.limits().virtual_memory) return 0;
  const cuda::MemAllocationProp prop = PropOf(context);
  size_t granularity = 0;
  if (context.driver().MemGetGranularity(&granularity, &prop, 0) != 0) return 0;
  return static_cast<int64_t>(granularity);
}

}  // namespace

GuardLayout LayOutGuarded(int64_t bytes, int64_t alignment, int64_t granularity) {
  GuardLayout layout;
  const int64_t padded = RoundUp(std::max<int64_t>(bytes, 1), alignment);
  if (granularity > 0) {
    layout.mapped = RoundUp(padded, granularity);
    layout.offset = layout.mapped - padded;
  } else {
    layout.mapped = kRedzoneBytes + padded + kRedzoneBytes;
    layout.offset = kRedzoneBytes;
  }
  layout.after = layout.mapped - layout.offset - bytes;
  return layout;
}

absl::StatusOr<std::unique_ptr<GuardedBuffer>> GuardedBuffer::Create(const GpuContext& context, int64_t bytes,
                                                                     int64_t alignment) {
  std::unique_ptr<GuardedBuffer> buffer(new GuardedBuffer(context));
  buffer->bytes_ = bytes;
  const int64_t granularity = Granularity(context);
  buffer->layout_ = LayOutGuarded(bytes, std::max<int64_t>(alignment, 16), granularity);
  if (granularity > 0) {
    RT_RETURN_IF_ERROR(buffer->Map(granularity));
  } else {
    RT_ASSIGN_OR_RETURN(buffer->plain_, DeviceBuffer::Create(context, buffer->layout_.mapped));
    buffer->base_ = buffer->plain_.ptr();
  }
  return buffer;
}

absl::Status GuardedBuffer::Map(int64_t granularity) {
  const CudaDriver& driver = context_.driver();
  const cuda::MemAllocationProp prop = PropOf(context_);
  const size_t size = static_cast<size_t>(layout_.mapped);
  RT_RETURN_IF_ERROR(
      driver.Check(driver.MemCreate(&handle_, size, &prop, 0), absl::StrCat("cuMemCreate of ", size, " bytes")));
  has_handle_ = true;
  // One unmapped page on either side.
  const int64_t reserved = layout_.mapped + 2 * granularity;
  RT_RETURN_IF_ERROR(driver.Check(driver.MemAddressReserve(&reserved_, static_cast<size_t>(reserved), 0, 0, 0),
                                  "cuMemAddressReserve"));
  reserved_bytes_ = reserved;
  base_ = reserved_ + static_cast<cuda::DevicePtr>(granularity);
  RT_RETURN_IF_ERROR(driver.Check(driver.MemMap(base_, size, 0, handle_, 0), "cuMemMap"));
  is_mapped_ = true;
  return SetAccess(kReadWrite);
}

absl::Status GuardedBuffer::SetAccess(int flags) const {
  cuda::MemAccessDesc access;
  access.location.id = context_.device();
  access.flags = flags;
  return context_.driver().Check(context_.driver().MemSetAccess(base_, static_cast<size_t>(layout_.mapped), &access, 1),
                                 "cuMemSetAccess");
}

GuardedBuffer::~GuardedBuffer() {
  const CudaDriver& driver = context_.driver();
  if (is_mapped_) driver.MemUnmap(base_, static_cast<size_t>(layout_.mapped));
  if (reserved_bytes_ != 0) driver.MemAddressFree(reserved_, static_cast<size_t>(reserved_bytes_));
  if (has_handle_) driver.MemRelease(handle_);
}

std::array<GuardedBuffer::Range, 2> GuardedBuffer::zones() const {
  return {Range{base_, layout_.offset}, Range{ptr() + static_cast<cuda::DevicePtr>(bytes_), layout_.after}};
}

absl::Status GuardedBuffer::FillOnes() const {
  return context_.driver().Check(
      context_.driver().MemsetD8Async(base_, 0xFF, static_cast<size_t>(layout_.mapped), context_.stream()),
      "cuMemsetD8Async");
}

absl::Status GuardedBuffer::MakeReadOnly() {
  if (!is_mapped_) return absl::OkStatus();
  RT_RETURN_IF_ERROR(SetAccess(kReadOnly));
  read_only_ = true;
  return absl::OkStatus();
}

}  // namespace rooftune

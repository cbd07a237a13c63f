#include "tuner/worker/run_support.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

constexpr const char* kSymbols[] = {"rt_fill",     "rt_poison",       "rt_reset_result", "rt_compare", "rt_check_bytes",
                                    "rt_copy",     "rt_read",         "rt_write",        "rt_empty",   "rt_read_write",
                                    "rt_ffma",     "rt_ex2",          "rt_flush_read",   "rt_l2_read", "rt_clock",
                                    "rt_checksum", "rt_scrub_shared", "rt_widen"};

// Bytes that a block of 512 threads moves in one go, and its size; the copy kernel has smaller ones.
constexpr int64_t kTileBytes = 32 << 10;
constexpr int kStreamBlock = 512;
constexpr int64_t kCopyTileBytes = 4 << 10;
constexpr int kCopyBlock = 256;
constexpr int64_t kMixTileBytes = 2 << 10;
constexpr int kMixBlock = 128;
constexpr int64_t kMixMostTiles = 8;
constexpr int kElementBlock = 256;
constexpr unsigned kScrubBlock = 1024;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t TileGrid(int64_t bytes) { return std::max<int64_t>(1, CeilDiv(bytes, kTileBytes)); }

}  // namespace

absl::StatusOr<std::unique_ptr<SupportModule>> SupportModule::Create(const GpuContext& context,
                                                                     const std::string& cubin) {
  std::unique_ptr<SupportModule> kernels(new SupportModule(context));
  RT_ASSIGN_OR_RETURN(kernels->module_, LoadedModule::Load(context, cubin, "the support kernels"));
  for (const char* symbol : kSymbols) {
    RT_ASSIGN_OR_RETURN(kernels->functions_[symbol], kernels->module_->Function(symbol));
  }
  // Beside it a block has no static shared memory, so it gets all.
  RT_RETURN_IF_ERROR(context.driver().Check(
      context.driver().FuncSetAttribute(kernels->functions_["rt_scrub_shared"], cuda::kFunctionMaxDynamicShared,
                                        context.limits().shared_optin_bytes),
      "raising shared memory of 'rt_scrub_shared'"));
  RT_ASSIGN_OR_RETURN(kernels->sink_, DeviceBuffer::Create(context, kernels->rate_threads() * 4));
  return kernels;
}

absl::Status SupportModule::Launch(const char* symbol, int64_t grid, int block, ArgumentPack arguments) {
  KernelLaunch launch;
  launch.function = functions_[symbol];
  launch.symbol = symbol;
  launch.config.grid_x = static_cast<unsigned>(grid);
  launch.config.block_x = static_cast<unsigned>(block);
  launch.arguments = std::move(arguments);
  return launch.Enqueue(context_);
}

int64_t SupportModule::ElementGrid(int64_t elements) const {
  // The kernels stride over the grid; more than 8 blocks an SM brings nothing.
  return std::clamp<int64_t>(CeilDiv(elements, kElementBlock), 1, int64_t{context_.limits().sm_count} * 8);
}

absl::Status SupportModule::Fill(cuda::DevicePtr out, int64_t elements, v1::DType dtype, uint64_t seed, uint32_t tensor,
                                 float mean, float stddev, const IndexFill& indices) {
  ArgumentPack pack;
  pack.AddPointer(out);
  pack.AddInt64(elements);
  pack.AddInt32(dtype);
  pack.AddInt64(static_cast<int64_t>(seed));
  pack.AddInt32(static_cast<int32_t>(tensor));
  pack.AddFloat(mean);
  pack.AddFloat(stddev);
  pack.AddInt64(indices.range);
  pack.AddInt32(indices.distinct ? 1 : 0);
  pack.AddInt64(indices.skip);
  pack.AddInt64(indices.total);
  pack.AddInt32(indices.offsets ? 1 : 0);
  return Launch("rt_fill", ElementGrid(elements), kElementBlock, std::move(pack));
}

absl::Status SupportModule::Poison(cuda::DevicePtr out, int64_t bytes) {
  ArgumentPack pack;
  pack.AddPointer(out);
  pack.AddInt64(bytes);
  return Launch("rt_poison", ElementGrid(bytes), kElementBlock, std::move(pack));
}

absl::Status SupportModule::ResetResult(cuda::DevicePtr result) {
  ArgumentPack pack;
  pack.AddPointer(result);
  return Launch("rt_reset_result", 1, 1, std::move(pack));
}

absl::Status SupportModule::Compare(cuda::DevicePtr out, cuda::DevicePtr reference, cuda::DevicePtr magnitude,
                                    int64_t elements, v1::DType dtype, const ErrorBound& bound,
                                    cuda::DevicePtr result) {
  ArgumentPack pack;
  pack.AddPointer(out);
  pack.AddPointer(reference);
  pack.AddPointer(magnitude);
  pack.AddInt64(elements);
  pack.AddInt32(dtype);
  pack.AddDouble(bound.relative);
  pack.AddDouble(bound.accumulate);
  pack.AddDouble(bound.tiny);
  pack.AddPointer(result);
  return Launch("rt_compare", ElementGrid(elements), kElementBlock, std::move(pack));
}

absl::Status SupportModule::CheckBytes(cuda::DevicePtr from, int64_t bytes, cuda::DevicePtr damaged) {
  ArgumentPack pack;
  pack.AddPointer(from);
  pack.AddInt64(bytes);
  pack.AddPointer(damaged);
  return Launch("rt_check_bytes", ElementGrid(bytes), kElementBlock, std::move(pack));
}

absl::Status SupportModule::Checksum(cuda::DevicePtr from, int64_t bytes, cuda::DevicePtr sum) {
  ArgumentPack pack;
  pack.AddPointer(from);
  pack.AddInt64(bytes);
  pack.AddPointer(sum);
  return Launch("rt_checksum", ElementGrid(CeilDiv(bytes, 4)), kElementBlock, std::move(pack));
}

absl::Status SupportModule::ScrubShared() {
  KernelLaunch launch;
  launch.symbol = "rt_scrub_shared";
  launch.function = functions_[launch.symbol];
  launch.config.grid_x = static_cast<unsigned>(context_.limits().sm_count);
  launch.config.block_x = kScrubBlock;
  launch.config.shared_bytes = static_cast<unsigned>(context_.limits().shared_optin_bytes);
  launch.arguments.AddInt32(context_.limits().shared_optin_bytes / 4);
  return launch.Enqueue(context_);
}

absl::Status SupportModule::FlushRead(cuda::DevicePtr from, int64_t bytes) {
  ArgumentPack pack;
  pack.AddPointer(from);
  pack.AddInt64(bytes);
  pack.AddPointer(sink_.ptr());
  return Launch("rt_flush_read", TileGrid(bytes), kStreamBlock, std::move(pack));
}

absl::Status SupportModule::Copy(cuda::DevicePtr from, cuda::DevicePtr to, int64_t bytes) {
  ArgumentPack pack;
  pack.AddPointer(from);
  pack.AddPointer(to);
  pack.AddInt64(bytes);
  return Launch("rt_copy", std::max<int64_t>(1, CeilDiv(bytes, kCopyTileBytes)), kCopyBlock, std::move(pack));
}

absl::Status SupportModule::Read(cuda::DevicePtr from, int64_t bytes) {
  ArgumentPack pack;
  pack.AddPointer(from);
  pack.AddInt64(bytes);
  pack.AddPointer(sink_.ptr());
  return Launch("rt_read", TileGrid(bytes), kStreamBlock, std::move(pack));
}

absl::Status SupportModule::Write(cuda::DevicePtr to, int64_t bytes) {
  ArgumentPack pack;
  pack.AddPointer(to);
  pack.AddInt64(bytes);
  return Launch("rt_write", TileGrid(bytes), kStreamBlock, std::move(pack));
}

absl::Status SupportModule::ReadWrite(cuda::DevicePtr from, int64_t read_bytes, cuda::DevicePtr to,
                                      int64_t write_bytes) {
  const int64_t read_tiles = CeilDiv(read_bytes, kMixTileBytes), write_tiles = CeilDiv(write_bytes, kMixTileBytes);
  const auto [less, more] = std::minmax(read_tiles, write_tiles);
  const int64_t blocks = std::max({int64_t{1}, less, CeilDiv(more, kMixMostTiles)});
  ArgumentPack pack;
  pack.AddPointer(from);
  pack.AddInt64(read_bytes);
  pack.AddInt64(CeilDiv(read_tiles << 32, blocks));
  pack.AddPointer(to);
  pack.AddInt64(write_bytes);
  pack.AddInt64(CeilDiv(write_tiles << 32, blocks));
  return Launch("rt_read_write", blocks, kMixBlock, std::move(pack));
}

absl::Status SupportModule::Widen(cuda::DevicePtr from, cuda::DevicePtr to, int64_t write_bytes, int writes) {
  ArgumentPack pack;
  pack.AddPointer(from);
  pack.AddPointer(to);
  pack.AddInt64(write_bytes);
  pack.AddInt32(writes);
  return Launch("rt_widen", std::max<int64_t>(1, CeilDiv(write_bytes, kMixTileBytes)), kMixBlock, std::move(pack));
}

absl::Status SupportModule::L2Read(cuda::DevicePtr from, int64_t bytes, int repeats) {
  ArgumentPack pack;
  pack.AddPointer(from);
  pack.AddInt64(bytes);
  pack.AddInt32(repeats);
  pack.AddPointer(sink_.ptr());
  return Launch("rt_l2_read", int64_t{context_.limits().sm_count} * 2, 1024, std::move(pack));
}

absl::Status SupportModule::Empty() { return Launch("rt_empty", 1, 32, ArgumentPack()); }

absl::Status SupportModule::Clock(cuda::DevicePtr out) {
  ArgumentPack pack;
  pack.AddPointer(out);
  return Launch("rt_clock", 1, 1, std::move(pack));
}

absl::Status SupportModule::Ffma(int iterations) {
  ArgumentPack pack;
  pack.AddPointer(sink_.ptr());
  pack.AddInt32(iterations);
  return Launch("rt_ffma", int64_t{context_.limits().sm_count} * kRateBlocksPerSm, kRateBlock, std::move(pack));
}

absl::Status SupportModule::Ex2(int iterations) {
  ArgumentPack pack;
  pack.AddPointer(sink_.ptr());
  pack.AddInt32(iterations);
  return Launch("rt_ex2", int64_t{context_.limits().sm_count} * kRateBlocksPerSm, kRateBlock, std::move(pack));
}

double ClockMhz(const uint64_t words[4]) {
  if (words[3] <= words[1] || words[2] <= words[0]) return 0;
  return static_cast<double>(words[2] - words[0]) * 1000 / static_cast<double>(words[3] - words[1]);
}

}  // namespace rooftune

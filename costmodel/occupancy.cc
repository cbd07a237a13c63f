#include "costmodel/occupancy.h"

#include <algorithm>

namespace rooftune {
namespace {

constexpr int kWarpSize = 32;
// Every SM since compute capability 5.0 has four partitions with a quarter of the registers each.
constexpr int kPartitions = 4;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return b > 1 ? CeilDiv(a, b) * b : a; }

// Blocks that the register file holds; 0 if one does not fit.
int64_t BlocksByRegisters(int64_t warps, int registers, const device::v1::DeviceProfile& p) {
  const int64_t per_warp = RoundUp(int64_t{registers} * kWarpSize, p.register_allocation_granularity());
  // The launch check assumes that a block takes its registers in all partitions at once.
  if (per_warp * RoundUp(warps, kPartitions) > p.registers_per_sm()) return 0;
  const int64_t warps_per_partition = p.registers_per_sm() / kPartitions / per_warp;
  return warps_per_partition * kPartitions / warps;
}

}  // namespace

// A limit that the profile does not know (0) does not limit.
Occupancy ComputeOccupancy(int threads_per_block, int registers_per_thread, int64_t shared_bytes,
                           const device::v1::DeviceProfile& p) {
  if (threads_per_block <= 0) return {0, "no threads"};
  if (p.threads_per_block_max() > 0 && threads_per_block > p.threads_per_block_max()) {
    return {0, "more threads than a block may have"};
  }
  if (p.registers_per_thread_max() > 0 && registers_per_thread > p.registers_per_thread_max()) {
    return {0, "more registers than a thread may have"};
  }
  if (p.shared_per_block_optin_bytes() > 0 && shared_bytes > p.shared_per_block_optin_bytes()) {
    return {0, "more shared memory than a block may have"};
  }
  const int64_t warps = CeilDiv(threads_per_block, kWarpSize);
  int64_t blocks = p.blocks_per_sm_max() > 0 ? p.blocks_per_sm_max() : 32;
  std::string limiter = "blocks";
  const auto limit = [&](int64_t to, const char* name) {
    if (to < blocks) {
      blocks = to;
      limiter = name;
    }
  };
  if (p.threads_per_sm() > 0) limit(p.threads_per_sm() / kWarpSize / warps, "threads");
  if (registers_per_thread > 0 && p.registers_per_sm() > 0) {
    limit(BlocksByRegisters(warps, registers_per_thread, p), "registers");
  }
  const int64_t shared = RoundUp(shared_bytes + p.shared_reserved_per_block_bytes(), p.shared_allocation_granularity());
  if (shared > 0 && p.shared_per_sm_bytes() > 0) limit(p.shared_per_sm_bytes() / shared, "shared");
  return {static_cast<int>(blocks), limiter};
}

}  // namespace rooftune

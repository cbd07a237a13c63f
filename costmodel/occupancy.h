// Resident blocks per SM from a kernel's resources: the rules of CUDA's occupancy calculator.
#ifndef ROOFTUNE_COSTMODEL_OCCUPANCY_H_
#define ROOFTUNE_COSTMODEL_OCCUPANCY_H_

#include <cstdint>
#include <string>

#include "rooftune/device/v1/profile.pb.h"

namespace rooftune {

struct Occupancy {
  int blocks_per_sm = 0;
  // "threads", "registers", "shared", "blocks", or why it does not fit at all.
  std::string limiter;
};

// `shared_bytes` is static + dynamic of one block.
Occupancy ComputeOccupancy(int threads_per_block, int registers_per_thread, int64_t shared_bytes,
                           const device::v1::DeviceProfile& profile);

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_OCCUPANCY_H_

// The counter-based random generator Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC'11): four random words for every (counter, key).
#ifndef ROOFTUNE_KERNELS_PHILOX_H_
#define ROOFTUNE_KERNELS_PHILOX_H_

#include <array>
#include <cstdint>

namespace rooftune {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_PHILOX_H_

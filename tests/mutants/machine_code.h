// The machine code of a cubin, for tests that look for instructions. No tool of the CUDA toolkit is needed.
#ifndef ROOFTUNE_TESTS_MUTANTS_MACHINE_CODE_H_
#define ROOFTUNE_TESTS_MUTANTS_MACHINE_CODE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace rooftune {

// One instruction of sm_70 or later: 128 bits.
struct Instruction {
  uint64_t offset = 0;  // in its section
  uint64_t low = 0, high = 0;
  // Bits 0 to 8 name it; bits 9 to 11 say where its operands are.
  int name() const { return static_cast<int>(low & 0x1ff); }
  int name_and_form() const { return static_cast<int>(low & 0xfff); }
};

// Names. Read off disassemblies (nvdisasm 13) of this repository's kernels, and found in no kernel that does not use
// the instruction.
namespace opcode {
inline constexpr int kHgmma = 0x1f0, kIgmma = 0x1f1, kQgmma = 0x1f3;  // products of 16-bit floats, int8, 8-bit floats
inline constexpr int kWarpgroup = 0x1c5;                              // ARRIVE or DEPBAR of products
inline constexpr int kUtmaldg = 0x1b4, kUtmastg = 0x1b5;              // tensor copies to and from shared memory
inline constexpr int kFenceView = 0x1c6;                              // fence of the asynchronous proxy
inline constexpr int kLdgsts = 0x1ae;                                 // copies of threads to shared memory
inline constexpr int kBar = 0x11d;                                    // barrier of threads
inline constexpr int kStsm = 0x044, kSts = 0x188;                     // stores to shared memory
inline constexpr int kLdl = 0x183, kStl = 0x187;                      // local memory
}  // namespace opcode

// The sections of code of a cubin, in order; empty if it is none.
std::vector<std::vector<Instruction>> MachineCode(const std::string& cubin);

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_MUTANTS_MACHINE_CODE_H_

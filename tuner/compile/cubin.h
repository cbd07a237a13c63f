// Reads what a compiled kernel needs of the device out of its cubin, without a driver.
#ifndef ROOFTUNE_TUNER_COMPILE_CUBIN_H_
#define ROOFTUNE_TUNER_COMPILE_CUBIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

struct Cubin {
  // "sm_90a". Without a note of the options (older compilers) the "a" is unknown and left out.
  std::string arch;
  // Kernels in symbol order. Resources: registers, static shared memory (without the part that the system reserves
  // from sm_90 on), code size, and as threads the launch bound (0 = none). Parameters by ordinal.
  std::vector<worker::v1::KernelInfo> kernel;
  // Names of the device functions that were not inlined into kernel[i].
  std::vector<std::vector<std::string>> called;
};

// DATA_LOSS for anything that is no whole CUDA ELF file; every read is checked, so input may be hostile.
absl::StatusOr<Cubin> ParseCubin(absl::string_view data);

// Adds stack and spill bytes, which only the assembler's verbose log (`-v`) tells exactly. A kernel's spills
// include those of the functions it calls.
void AddPtxasUsage(absl::string_view log, Cubin* cubin);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_COMPILE_CUBIN_H_

// Compiles one CompileRequest to SASS.
#ifndef ROOFTUNE_TUNER_WORKER_NVRTC_H_
#define ROOFTUNE_TUNER_WORKER_NVRTC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/worker/v1/worker.pb.h"
#include "tuner/worker/nvrtc_library.h"

namespace rooftune {

// The fixed option list (kOptionListVersion in kernels/candidate.h) for `arch`, then the defines.
std::vector<std::string> CompileOptions(const worker::v1::CompileRequest& request);

// A source that does not compile, also one that is refused before, is an outcome of the result; the same request
// gives the same bytes in every process. FAILED_PRECONDITION for another version of the option list, UNAVAILABLE
// if NVRTC itself fails.
absl::StatusOr<worker::v1::CompileResult> CompileWithNvrtc(const NvrtcLibrary& library,
                                                           const worker::v1::CompileRequest& request);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_NVRTC_H_

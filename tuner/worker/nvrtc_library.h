// Finds and loads NVRTC at run time: nothing of CUDA is linked.
#ifndef ROOFTUNE_TUNER_WORKER_NVRTC_LIBRARY_H_
#define ROOFTUNE_TUNER_WORKER_NVRTC_LIBRARY_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

// NVRTC's results that are told apart; their numbers are part of its ABI.
inline constexpr int kNvrtcSuccess = 0;
inline constexpr int kNvrtcOutOfMemory = 1;
inline constexpr int kNvrtcBuiltinFailure = 7;

// The entry points in use, with prototypes of our own: CUDA's headers are not needed to build.
struct NvrtcApi {
  using Program = void*;
  int (*version)(int* major, int* minor) = nullptr;
  int (*num_supported_archs)(int* count) = nullptr;
  int (*supported_archs)(int* archs) = nullptr;
  int (*create_program)(Program* program, const char* source, const char* name, int num_headers,
                        const char* const* headers, const char* const* header_names) = nullptr;
  int (*destroy_program)(Program* program) = nullptr;
  int (*compile_program)(Program program, int num_options, const char* const* options) = nullptr;
  int (*cubin_size)(Program program, size_t* size) = nullptr;
  int (*cubin)(Program program, char* data) = nullptr;
  int (*log_size)(Program program, size_t* size) = nullptr;
  int (*log)(Program program, char* data) = nullptr;
  const char* (*error_string)(int result) = nullptr;
};

// A loaded NVRTC; stays loaded until the process ends.
struct NvrtcLibrary {
  NvrtcApi api;
  // File that was really loaded.
  std::string path;
  // "13.0"
  std::string version;
  // Compute capability × 10, ascending.
  std::vector<int> archs;

  // `path`, a file or a folder, if it is not empty; else $ROOFTUNE_NVRTC; either is the only place then. Else the
  // loader's search path, $CUDA_PATH and $CUDA_HOME, /usr/local/cuda, $ROOFTUNE_NVRTC_DIR and the folders of
  // Python wheels. UNAVAILABLE (NO_NVRTC) with every place and why it did not do.
  static absl::StatusOr<NvrtcLibrary> Load(const std::string& path);
};

// Entry of a ProbeResult: where it is, or why it is not.
worker::v1::Library DescribeNvrtc(const absl::StatusOr<NvrtcLibrary>& library);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_NVRTC_LIBRARY_H_

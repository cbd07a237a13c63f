// One point of a search space, and the keys under which its parts are kept.
#ifndef ROOFTUNE_KERNELS_CANDIDATE_H_
#define ROOFTUNE_KERNELS_CANDIDATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

// Parameter values by name.
using Config = std::map<std::string, int64_t>;

// "block_m=128,stages=3": names sorted.
std::string ConfigToString(const Config& config);

// Version of the fixed NVRTC option list (tuner/worker/nvrtc.cc); part of every compile key.
inline constexpr int kOptionListVersion = 1;

// First 128 bits of SHA-256 over sources, headers, arch, defines, option-list version and NVRTC version.
std::string CompileKey(const worker::v1::CompileRequest& request, absl::string_view nvrtc_version);

// Key of (operator, device, objective): what a record answers. TIME and unspecified are one.
std::string TargetKey(absl::string_view canonical_op, absl::string_view device_key,
                      v1::Objective objective = v1::TIME);

// NVRTC major.minor and driver branch: "nvrtc 13.0/driver 580".
std::string EnvironmentKey(const v1::Environment& environment);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_CANDIDATE_H_

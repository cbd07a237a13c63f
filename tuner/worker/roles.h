// What rooftune-worker can be. Each serves frames on `fd` until end of stream and returns the exit code.
#ifndef ROOFTUNE_TUNER_WORKER_ROLES_H_
#define ROOFTUNE_TUNER_WORKER_ROLES_H_

#include <string>

#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

// Answers CompileRequests with NVRTC. `nvrtc_path` empty = search (flag, soname, CUDA_PATH, /usr/local/cuda,
// Python wheels).
int ServeCompile(int fd, const std::string& nvrtc_path);

// Answers Prepare, Run, Baseline, Race and Calibrate on GPU `ordinal`. Holds an exclusive lease (flock) on
// the device that ends with the process.
int ServeRun(int fd, int ordinal);

// Libraries and devices of this machine; needs neither GPU nor driver. Fills nvrtc's library entry by
// ProbeNvrtc and the rest by ProbeDriver.
worker::v1::ProbeResult Probe();
worker::v1::Library ProbeNvrtc(const std::string& nvrtc_path);
void ProbeDriver(worker::v1::ProbeResult* result);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_ROLES_H_

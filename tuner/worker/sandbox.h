// Takes from a compile process what compiling does not need.
#ifndef ROOFTUNE_TUNER_WORKER_SANDBOX_H_
#define ROOFTUNE_TUNER_WORKER_SANDBOX_H_

#include <cstdint>
#include <string>

namespace rooftune {

// Most private memory of a compile process in bytes. Real kernels stay below 300 MiB.
inline constexpr int64_t kCompileMemoryBytes = int64_t{2} << 30;

// Where memory runs out, the kernel ends this process before the daemon: it is made to be replaced.
void VolunteerForOutOfMemory();

// Memory limit, no core files, low CPU priority, no new privileges, an empty working folder and, where the kernel
// has Landlock, no files but NVRTC's folder and the system's libraries. Call after NVRTC is loaded, from the thread
// that compiles: Landlock binds it and the threads it starts. Returns what holds, for the log.
std::string EnterCompileSandbox(const std::string& nvrtc_folder);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_SANDBOX_H_

// How many compile processes this machine can bear.
#ifndef ROOFTUNE_TUNER_COMPILE_DEFAULT_PROCESSES_H_
#define ROOFTUNE_TUNER_COMPILE_DEFAULT_PROCESSES_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace rooftune {

// One a core, but only as many as fit into `available_bytes` at 300 MiB each; at least one.
int ProcessesFor(int cores, int64_t available_bytes);

// Cores this process may run on, and the smaller of the machine's available memory and what the control group's
// limit leaves.
int DefaultProcesses();

// MemAvailable of a /proc/meminfo text in bytes, 0 if it is not there.
int64_t AvailableBytes(absl::string_view meminfo);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_COMPILE_DEFAULT_PROCESSES_H_

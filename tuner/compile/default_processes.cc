#include "tuner/compile/default_processes.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace rooftune {
namespace {

// Resident memory of a compile process: 85 MiB for usual kernels, up to about 300 MiB for the largest tiles.
constexpr int64_t kBytesPerProcess = int64_t{300} << 20;

// Files of /proc and /sys tell no size, so ReadFile of base/ does not fit.
std::string Slurp(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int64_t NumberIn(const char* path, int64_t otherwise) {
  int64_t value = 0;
  return absl::SimpleAtoi(absl::StripAsciiWhitespace(Slurp(path)), &value) ? value : otherwise;
}

}  // namespace

int ProcessesFor(int cores, int64_t available_bytes) {
  return static_cast<int>(std::clamp<int64_t>(available_bytes / kBytesPerProcess, 1, std::max(1, cores)));
}

int64_t AvailableBytes(absl::string_view meminfo) {
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    int64_t kib = 0;
    if (!absl::ConsumePrefix(&line, "MemAvailable:") || !absl::ConsumeSuffix(&line, " kB")) continue;
    if (absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kib)) return kib * 1024;
  }
  return 0;
}

int DefaultProcesses() {
  int64_t available = AvailableBytes(Slurp("/proc/meminfo"));
  // "max" is no number: no limit.
  const int64_t limit = NumberIn("/sys/fs/cgroup/memory.max", std::numeric_limits<int64_t>::max());
  const int64_t used = NumberIn("/sys/fs/cgroup/memory.current", 0);
  available = std::min(available, limit - used);
  return ProcessesFor(static_cast<int>(std::thread::hardware_concurrency()), available);
}

}  // namespace rooftune

// Command line and configuration file of rooftuned.
#ifndef ROOFTUNE_SERVER_FLAGS_H_
#define ROOFTUNE_SERVER_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "tuner/sweep/backend.h"

namespace rooftune {

struct DaemonFlags {
  std::vector<std::string> listen;  // default: DefaultSocketPath()
  std::string data_dir;             // default: DefaultDataDir()
  std::vector<std::string> device;  // default: auto
  std::vector<std::string> template_dir;
  std::vector<std::string> profile_dir;
  bool allow_remote = false;
  // Of binaries; 0 = no limit.
  int64_t artifact_limit_bytes = 0;
  MeasurePolicy policy;
  absl::Duration drain_timeout = absl::Seconds(20);
  std::string worker;  // default: rooftune-worker beside the executable
  int ready_fd = -1;
  LogLevel log_level = LogLevel::kInfo;
  bool version = false;
  bool help = false;
};

// `args` without the program's name. Values as "--name value" or "--name=value"; --config FILE holds "name = value"
// lines
// (# starts a comment), over which the command line goes. INVALID_ARGUMENT (BAD_FLAG) names the flag, or file
// and line, and the nearest known name.
absl::StatusOr<DaemonFlags> ParseDaemonFlags(const std::vector<std::string>& args);

// What --help prints.
std::string DaemonUsage();

// "$XDG_DATA_HOME/rooftune" or "~/.local/share/rooftune".
std::string DefaultDataDir();

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_FLAGS_H_

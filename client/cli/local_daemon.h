// A private daemon for `--local`: started beside this program, ended with it, however it ends.
#ifndef ROOFTUNE_CLIENT_CLI_LOCAL_DAEMON_H_
#define ROOFTUNE_CLIENT_CLI_LOCAL_DAEMON_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rooftune::cli {

class LocalDaemon {
 public:
  // Waits until it listens. UNAVAILABLE if it can't start; its messages are on stderr. Call it before any thread
  // exists.
  static absl::StatusOr<std::unique_ptr<LocalDaemon>> Start(const std::string& device, const std::string& data_dir,
                                                            const std::vector<std::string>& template_dirs);
  // SIGTERM, then waits.
  ~LocalDaemon();
  const std::string& address() const { return address_; }
  int pid() const { return pid_; }

 private:
  LocalDaemon() = default;
  std::string dir_;
  std::string address_;
  int pid_ = -1;
};

}  // namespace rooftune::cli

#endif  // ROOFTUNE_CLIENT_CLI_LOCAL_DAEMON_H_

// Runs a program and catches what it prints.
#ifndef ROOFTUNE_TESTS_CLIENT_PROCESS_H_
#define ROOFTUNE_TESTS_CLIENT_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace rooftune {

struct ProcessResult {
  int code = -1;  // exit status, or 128 + signal
  std::string out, err;
};

class Process {
 public:
  // args[0] is the program. `environment` is added to ours; an empty value removes. `out`: a file for stdout instead
  // of catching it.
  explicit Process(std::vector<std::string> args, const std::map<std::string, std::string>& environment = {},
                   const std::string& out = "");
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  // Kills it if it was not waited for.
  ~Process();

  pid_t pid() const { return pid_; }
  ProcessResult Wait();

 private:
  const TempDir dir_;
  pid_t pid_ = -1;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_CLIENT_PROCESS_H_

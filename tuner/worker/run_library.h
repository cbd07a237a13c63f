// A dynamic library that may be missing: opened by name, never closed (the driver's libraries keep threads that
// outlive a dlclose).
#ifndef ROOFTUNE_TUNER_WORKER_RUN_LIBRARY_H_
#define ROOFTUNE_TUNER_WORKER_RUN_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rooftune {

class DynamicLibrary {
 public:
  // The first of `names` (sonames or paths; empty ones are skipped) that opens. UNAVAILABLE with the loader's
  // reason for the last one.
  static absl::StatusOr<DynamicLibrary> Open(const std::vector<std::string>& names);

  // nullptr if it is not there.
  void* Find(const char* symbol) const;
  // Path of the file as loaded.
  const std::string& path() const { return path_; }

 private:
  DynamicLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_;
  std::string path_;
};

// Value of an environment variable, or empty.
std::string EnvironmentOr(const char* name);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_LIBRARY_H_

// Turns sources into SASS. Thread-safe: many threads call Compile at once.
#ifndef ROOFTUNE_TUNER_COMPILE_COMPILER_H_
#define ROOFTUNE_TUNER_COMPILE_COMPILER_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

class Compiler {
 public:
  virtual ~Compiler() = default;

  // NVRTC version, "13.0"; part of compile keys. UNAVAILABLE (NO_NVRTC) with where it was looked for.
  virtual absl::StatusOr<std::string> NvrtcVersion() = 0;

  // Blocks until compiled or `request.timeout_ms` is over. A source that does not compile, takes too long or
  // kills its compiler is an outcome of the result. UNAVAILABLE only if no compiler can be started,
  // CANCELLED after Shutdown.
  virtual absl::StatusOr<worker::v1::CompileResult> Compile(const worker::v1::CompileRequest& request) = 0;

  // Compiles that can run at once.
  virtual int parallelism() const = 0;

  // What happened so far, by name ("compiles", "compile_cache_hits", …); only grows.
  virtual std::map<std::string, int64_t> Counters() const { return {}; }
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_COMPILE_COMPILER_H_

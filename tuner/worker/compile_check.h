// What a CompileRequest may hold before NVRTC sees it.
#ifndef ROOFTUNE_TUNER_WORKER_COMPILE_CHECK_H_
#define ROOFTUNE_TUNER_WORKER_COMPILE_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

// INVALID_ARGUMENT naming the offending part: an architecture other than sm_<digits>[a], a define other than
// NAME=integers, a file name that leaves the request, a source that reaches for files (see below).
absl::Status CheckCompileRequest(const worker::v1::CompileRequest& request);

// A compiler reads any file that an #include names and prints lines of it in its errors. So `#include` and
// `__has_include` must name a relative path without "..", written out. Where the sandbox is missing (old kernels)
// this is the only wall, so constructs that could hide a directive from this scan (raw strings, trigraphs) are
// refused, too. INVALID_ARGUMENT with file and line.
absl::Status CheckIncludes(absl::string_view name, absl::string_view text);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_COMPILE_CHECK_H_

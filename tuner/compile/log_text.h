// Makes a compiler's log fit for messages.
#ifndef ROOFTUNE_TUNER_COMPILE_LOG_TEXT_H_
#define ROOFTUNE_TUNER_COMPILE_LOG_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace rooftune {

// Limit of CompileResult.log.
inline constexpr size_t kMaxLogBytes = 16 << 10;

// Valid UTF-8 without control characters (proto strings take nothing else), no trailing NUL or white space, at most
// `max_bytes`: the middle is left out and said to be, since the first error and the last summary matter most.
std::string CleanLog(absl::string_view log, size_t max_bytes = kMaxLogBytes);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_COMPILE_LOG_TEXT_H_

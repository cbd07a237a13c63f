// One log line an event on stderr: `2026-11-29T18:00:00.123Z INFO sweep 3f2a started op=…`.
#ifndef ROOFTUNE_BASE_LOG_H_
#define ROOFTUNE_BASE_LOG_H_

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rooftune {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines below this level are dropped. Default: kInfo.
void SetLogLevel(LogLevel level);

void LogLine(LogLevel level, absl::string_view message);

template <typename... Args>
void LogInfo(const Args&... args) { LogLine(LogLevel::kInfo, absl::StrCat(args...)); }
template <typename... Args>
void LogWarning(const Args&... args) { LogLine(LogLevel::kWarning, absl::StrCat(args...)); }
template <typename... Args>
void LogError(const Args&... args) { LogLine(LogLevel::kError, absl::StrCat(args...)); }
template <typename... Args>
void LogDebug(const Args&... args) { LogLine(LogLevel::kDebug, absl::StrCat(args...)); }

}  // namespace rooftune

#endif  // ROOFTUNE_BASE_LOG_H_

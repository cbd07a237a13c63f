// RT_RETURN_IF_ERROR(expr) and RT_ASSIGN_OR_RETURN(lhs, expr): early return of an error.
// Debian's Abseil has none of its own.
#ifndef ROOFTUNE_BASE_STATUS_MACROS_H_
#define ROOFTUNE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RT_RETURN_IF_ERROR(expr)                    \
  do {                                              \
    const absl::Status rt_status_ = (expr);         \
    if (!rt_status_.ok()) return rt_status_;        \
  } while (false)

#define RT_CONCAT_INNER_(a, b) a##b
#define RT_CONCAT_(a, b) RT_CONCAT_INNER_(a, b)
#define RT_ASSIGN_OR_RETURN(lhs, expr) RT_ASSIGN_OR_RETURN_IMPL_(RT_CONCAT_(rt_statusor_, __LINE__), lhs, expr)
#define RT_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                              \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = *std::move(statusor)

#endif  // ROOFTUNE_BASE_STATUS_MACROS_H_

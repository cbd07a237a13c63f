// Checked arithmetic for counts that overflow 64 bits (2^61 FLOPs and more).
#ifndef ROOFTUNE_BASE_INT128_H_
#define ROOFTUNE_BASE_INT128_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace rooftune {

using Int128 = __int128;

// nullopt on overflow.
inline std::optional<Int128> CheckedAdd(Int128 a, Int128 b) {
  Int128 r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}
inline std::optional<Int128> CheckedMul(Int128 a, Int128 b) {
  Int128 r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// Decimal text.
std::string Int128ToString(Int128 value);
// nullopt unless the whole text is a decimal integer in range.
std::optional<Int128> ParseInt128(absl::string_view text);

}  // namespace rooftune

#endif  // ROOFTUNE_BASE_INT128_H_

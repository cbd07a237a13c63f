#include "base/int128.h"

#include <algorithm>

namespace rooftune {

std::string Int128ToString(Int128 value) {
  const bool negative = value < 0;
  auto rest = negative ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  std::string text;
  do {
    text.push_back(static_cast<char>('0' + static_cast<int>(rest % 10)));
    rest /= 10;
  } while (rest != 0);
  if (negative) text.push_back('-');
  std::reverse(text.begin(), text.end());
  return text;
}

std::optional<Int128> ParseInt128(absl::string_view text) {
  const bool negative = !text.empty() && text[0] == '-';
  if (negative) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  Int128 value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    // Accumulates the negative so that the smallest value parses too.
    const auto scaled = CheckedMul(value, 10);
    if (!scaled) return std::nullopt;
    const auto sum = CheckedAdd(*scaled, -(c - '0'));
    if (!sum) return std::nullopt;
    value = *sum;
  }
  if (negative) return value;
  return CheckedMul(value, -1);
}

}  // namespace rooftune

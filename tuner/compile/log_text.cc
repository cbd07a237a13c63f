#include "tuner/compile/log_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace rooftune {
namespace {

// Length of the valid UTF-8 sequence at `at`, 0 if there is none.
size_t SequenceLength(absl::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                        : lead >= 0xe0 && lead <= 0xef ? 3
                        : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                       : 0;
  if (length == 0 || text.size() - at < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies past U+10FFFF.
  const unsigned char second = byte(at + 1);
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) ||
      (lead == 0xf4 && second > 0x8f)) {
    return 0;
  }
  return length;
}

std::string ValidText(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = SequenceLength(text, at);
    const bool control = length == 1 && absl::ascii_iscntrl(text[at]) && text[at] != '\n' && text[at] != '\t';
    if (length == 0 || control) {
      out.push_back('?');
      ++at;
    } else {
      out.append(text.data() + at, length);
      at += length;
    }
  }
  return out;
}

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

std::string CleanLog(absl::string_view log, size_t max_bytes) {
  while (!log.empty() && (log.back() == '\0' || absl::ascii_isspace(log.back()))) log.remove_suffix(1);
  std::string text = ValidText(log);
  if (text.size() <= max_bytes) return text;
  constexpr size_t kNoteBytes = 64;
  if (max_bytes <= 2 * kNoteBytes) {
    size_t end = max_bytes;
    while (end > 0 && IsContinuation(text[end])) --end;
    return text.substr(0, end);
  }
  size_t head = (max_bytes - kNoteBytes) * 3 / 4;
  size_t tail = text.size() - (max_bytes - kNoteBytes - head);
  while (head > 0 && IsContinuation(text[head])) --head;
  while (tail < text.size() && IsContinuation(text[tail])) ++tail;
  return absl::StrCat(text.substr(0, head), "\n[", tail - head, " bytes left out]\n", text.substr(tail));
}

}  // namespace rooftune

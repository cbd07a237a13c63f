#include "expr/inline.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace rooftune {
namespace {

bool IsWordPart(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

std::string InlineNames(absl::string_view text, const std::map<std::string, std::string>& definitions) {
  const auto whole = definitions.find(std::string(absl::StripAsciiWhitespace(text)));
  if (whole != definitions.end()) return whole->second;
  std::string result;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && IsWordPart(text[end])) ++end;
    if (end == at) {
      result += text[at++];
      continue;
    }
    // Numbers are words too, so that the letters of 0x1F are not taken for a name.
    const std::string word(text.substr(at, end - at));
    const auto definition = definitions.find(word);
    if (definition == definitions.end()) {
      result += word;
    } else if (std::all_of(definition->second.begin(), definition->second.end(), IsWordPart)) {
      result += definition->second;
    } else {
      absl::StrAppend(&result, "(", definition->second, ")");
    }
    at = end;
  }
  return result;
}

}  // namespace rooftune

#include "kernels/source_files.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace rooftune {
namespace {

// "name" of an `#include "name"` line, or empty.
std::string IncludedName(absl::string_view line) {
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "#")) return "";
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "include")) return "";
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "\"")) return "";
  return std::string(line.substr(0, line.find('"')));
}

}  // namespace

std::vector<worker::v1::SourceFile> HeadersOf(absl::string_view text,
                                              const std::vector<worker::v1::SourceFile>& available) {
  std::map<std::string, const worker::v1::SourceFile*> used;
  std::vector<absl::string_view> unread = {text};
  while (!unread.empty()) {
    const absl::string_view next = unread.back();
    unread.pop_back();
    for (const absl::string_view line : absl::StrSplit(next, '\n')) {
      const std::string name = IncludedName(line);
      if (name.empty() || used.count(name) > 0) continue;
      for (const worker::v1::SourceFile& header : available) {
        if (header.name() != name) continue;
        used[name] = &header;
        unread.push_back(header.text());
        break;
      }
    }
  }
  std::vector<worker::v1::SourceFile> headers;
  for (const auto& [name, header] : used) headers.push_back(*header);
  return headers;
}

}  // namespace rooftune

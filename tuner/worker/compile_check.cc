#include "tuner/worker/compile_check.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

using worker::v1::CompileRequest;

// Limits on what is built for the compiler; real templates have a handful of files of some 10 KiB.
constexpr int kMaxFiles = 256;
constexpr int kMaxDefines = 1024;
constexpr size_t kMaxDefineBytes = 4096;
constexpr size_t kMaxSourceBytes = 8 << 20;

// A source text as the preprocessor sees it: line ends joined, comments blanked.
struct Line {
  int number;
  std::string text;
};

bool StaysInside(absl::string_view name) {
  if (name.empty() || name.front() == '/' || name.size() > 255) return false;
  for (absl::string_view part : absl::StrSplit(name, '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  for (const char c : name) {
    if (!absl::ascii_isalnum(c) && !absl::StrContains("_-+./", absl::string_view(&c, 1))) return false;
  }
  return true;
}

// Joins lines that end in a backslash. Whether white space may stand between the backslash and the line end, and
// whether a lone carriage return ends a line, differs between compilers: refused, not guessed.
absl::StatusOr<std::vector<Line>> SplicedLines(absl::string_view text) {
  std::vector<Line> lines;
  bool continues = false;
  int number = 0;
  for (absl::string_view raw : absl::StrSplit(text, '\n')) {
    ++number;
    const bool spliced = absl::EndsWith(raw, "\\");
    if (!spliced && absl::EndsWith(absl::StripTrailingAsciiWhitespace(raw), "\\")) {
      return absl::InvalidArgumentError(
          absl::StrCat("(", number, "): white space behind the backslash at a line's end"));
    }
    absl::ConsumeSuffix(&raw, "\r");
    if (absl::StrContains(raw, "\r")) {
      return absl::InvalidArgumentError(absl::StrCat("(", number, "): carriage return inside a line"));
    }
    const absl::string_view part = spliced ? raw.substr(0, raw.size() - 1) : raw;
    if (continues) {
      absl::StrAppend(&lines.back().text, part);
    } else {
      lines.push_back({number, std::string(part)});
    }
    continues = spliced;
  }
  return lines;
}

// Bytes past ASCII are letters of identifiers.
bool IsWordChar(char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '$' || static_cast<unsigned char>(c) > 127;
}

// End of the identifier or number at `at`. A quote inside a number separates digits: 1'000.
size_t WordEnd(absl::string_view line, size_t at) {
  const bool number = absl::ascii_isdigit(line[at]);
  size_t end = at + 1;
  while (end < line.size()) {
    const bool separator = number && line[end] == '\'' && end + 1 < line.size() && IsWordChar(line[end + 1]);
    if (!IsWordChar(line[end]) && !separator) break;
    ++end;
  }
  return end;
}

// End of the literal that starts at `at`; a literal never goes over the end of a line.
size_t LiteralEnd(absl::string_view line, size_t at) {
  const char quote = line[at];
  for (size_t i = at + 1; i < line.size(); ++i) {
    if (line[i] == '\\') {
      ++i;
    } else if (line[i] == quote) {
      return i + 1;
    }
  }
  return line.size();
}

bool IsRawStringPrefix(absl::string_view word) {
  return word == "R" || word == "u8R" || word == "uR" || word == "UR" || word == "LR";
}

// Replaces comments by a space. `in_comment` carries a block comment over lines.
absl::StatusOr<std::string> WithoutComments(absl::string_view line, bool* in_comment) {
  std::string out;
  for (size_t at = 0; at < line.size();) {
    const absl::string_view rest = line.substr(at);
    size_t end = at + 1;
    if (*in_comment) {
      const size_t close = rest.find("*/");
      if (close == absl::string_view::npos) return out;
      *in_comment = false;
      out.push_back(' ');
      at += close + 2;
      continue;
    }
    if (absl::StartsWith(rest, "//")) return out;
    if (absl::StartsWith(rest, "/*")) {
      *in_comment = true;
      at += 2;
      continue;
    }
    if (IsWordChar(line[at])) {
      end = WordEnd(line, at);
      if (end < line.size() && line[end] == '"' && IsRawStringPrefix(line.substr(at, end - at))) {
        return absl::InvalidArgumentError("raw string literals are not allowed in kernel sources");
      }
    } else if (line[at] == '"' || line[at] == '\'') {
      end = LiteralEnd(line, at);
    }
    absl::StrAppend(&out, line.substr(at, end - at));
    at = end;
  }
  return out;
}

// The operand must be "name" or <name>, and the name must stay inside.
absl::Status CheckOperand(absl::string_view directive, absl::string_view operand) {
  operand = absl::StripLeadingAsciiWhitespace(operand);
  const char close = operand.empty() ? '\0' : operand.front() == '"' ? '"' : operand.front() == '<' ? '>' : '\0';
  const size_t end = close == '\0' ? absl::string_view::npos : operand.find(close, 1);
  if (end == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(directive, " must name its file directly, in quotes"));
  }
  const absl::string_view name = operand.substr(1, end - 1);
  if (StaysInside(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(directive, " of '", name, "' is not allowed: only headers of the template, by relative name"));
}

absl::Status CheckDirective(absl::string_view line) {
  absl::string_view rest = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&rest, "#") && !absl::ConsumePrefix(&rest, "%:")) return absl::OkStatus();
  rest = absl::StripLeadingAsciiWhitespace(rest);
  for (absl::string_view directive : {"include_next", "include", "import", "embed"}) {
    if (absl::ConsumePrefix(&rest, directive)) return CheckOperand(absl::StrCat("#", directive), rest);
  }
  return absl::OkStatus();
}

// "#ifdef __has_include" and "defined(__has_include)" ask whether the operator exists, not for a file.
bool AsksForOperator(absl::string_view before) {
  before = absl::StripTrailingAsciiWhitespace(before);
  if (absl::ConsumeSuffix(&before, "(")) {
    return absl::EndsWith(absl::StripTrailingAsciiWhitespace(before), "defined");
  }
  return absl::EndsWith(before, "ifdef") || absl::EndsWith(before, "ifndef") || absl::EndsWith(before, "defined");
}

// Anywhere in a line, also in a macro's body.
absl::Status CheckQueries(absl::string_view line) {
  for (absl::string_view query : {"__has_include_next", "__has_include", "__has_embed"}) {
    for (size_t at = line.find(query); at != absl::string_view::npos; at = line.find(query, at + query.size())) {
      absl::string_view rest = absl::StripLeadingAsciiWhitespace(line.substr(at + query.size()));
      const bool checked = absl::StartsWith(rest, "_next");
      if (checked || AsksForOperator(line.substr(0, at))) continue;
      if (!absl::ConsumePrefix(&rest, "(")) {
        return absl::InvalidArgumentError(absl::StrCat(query, " must be followed by its file"));
      }
      RT_RETURN_IF_ERROR(CheckOperand(query, rest));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLine(absl::string_view line, bool* in_comment) {
  RT_ASSIGN_OR_RETURN(const std::string code, WithoutComments(line, in_comment));
  RT_RETURN_IF_ERROR(CheckDirective(code));
  return CheckQueries(code);
}

// Removes decimal digits from the front; false if there are none.
bool ConsumeDigits(absl::string_view* text) {
  const size_t before = text->size();
  while (!text->empty() && absl::ascii_isdigit(text->front())) text->remove_prefix(1);
  return text->size() < before;
}

// NAME=integer[,integer]…, written by hand since std::regex recurses by the length of its input.
bool IsDefine(absl::string_view text) {
  size_t name = 0;
  while (name < text.size() &&
         (absl::ascii_isupper(text[name]) || text[name] == '_' || (name > 0 && absl::ascii_isdigit(text[name])))) {
    ++name;
  }
  absl::string_view rest = text.substr(name);
  if (name == 0 || !absl::ConsumePrefix(&rest, "=")) return false;
  do {
    absl::ConsumePrefix(&rest, "-");
    if (!ConsumeDigits(&rest)) return false;
  } while (absl::ConsumePrefix(&rest, ","));
  return rest.empty();
}

// sm_<digits>[a]
bool IsArch(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "sm_") || !ConsumeDigits(&text)) return false;
  absl::ConsumePrefix(&text, "a");
  return text.empty();
}

absl::Status CheckDefines(const CompileRequest& request) {
  if (request.define_size() > kMaxDefines) return absl::InvalidArgumentError("more than 1024 defines");
  for (const std::string& text : request.define()) {
    if (text.size() > kMaxDefineBytes || !IsDefine(text)) {
      return absl::InvalidArgumentError(
          absl::StrCat("define '", text.substr(0, 80), "' is not NAME=integer or NAME=integer,integer,…"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFile(const worker::v1::SourceFile& file, size_t* bytes) {
  *bytes += file.text().size();
  if (*bytes > kMaxSourceBytes) return absl::InvalidArgumentError("sources of more than 8 MiB");
  if (!StaysInside(file.name())) {
    return absl::InvalidArgumentError(
        absl::StrCat("file name '", file.name().substr(0, 80), "' is not a plain relative path"));
  }
  return CheckIncludes(file.name(), file.text());
}

}  // namespace

absl::Status CheckIncludes(absl::string_view name, absl::string_view text) {
  // NVRTC takes C strings: what lies behind a NUL would be checked, but not compiled.
  if (absl::StrContains(text, absl::string_view("\0", 1))) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": source holds a NUL character"));
  }
  if (absl::StrContains(text, "\?\?=") || absl::StrContains(text, "\?\?/")) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": trigraphs are not allowed in kernel sources"));
  }
  const auto lines = SplicedLines(text);
  if (!lines.ok()) return absl::InvalidArgumentError(absl::StrCat(name, std::string(lines.status().message())));
  bool in_comment = false;
  for (const Line& line : *lines) {
    const absl::Status status = CheckLine(line.text, &in_comment);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(name, "(", line.number, "): ", std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCompileRequest(const CompileRequest& request) {
  if (!IsArch(request.arch())) {
    return absl::InvalidArgumentError(
        absl::StrCat("architecture '", request.arch().substr(0, 80), "' is not of the form sm_90 or sm_90a"));
  }
  RT_RETURN_IF_ERROR(CheckDefines(request));
  if (request.header_size() > kMaxFiles) return absl::InvalidArgumentError("more than 256 headers");
  size_t bytes = 0;
  RT_RETURN_IF_ERROR(CheckFile(request.source(), &bytes));
  for (const worker::v1::SourceFile& header : request.header()) RT_RETURN_IF_ERROR(CheckFile(header, &bytes));
  return absl::OkStatus();
}

}  // namespace rooftune

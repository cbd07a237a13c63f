#include "client/evidence_file.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

constexpr size_t kMaxLineBytes = 4 << 20;
constexpr size_t kMaxFileBytes = size_t{1} << 30;

class FileWriter : public EvidenceWriter {
 public:
  FileWriter(std::string path, gzFile file) : path_(std::move(path)), file_(file) {}
  ~FileWriter() override {
    if (file_ == nullptr) return;
    gzclose(file_);
    unlink(Temporary(path_).c_str());
  }
  static std::string Temporary(const std::string& path) { return absl::StrCat(path, ".part"); }

  absl::Status Write(const v1::ExportLine& line) override {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    std::string text;
    const auto status = google::protobuf::util::MessageToJsonString(line, &text, options);
    if (!status.ok()) return absl::InternalError(std::string(status.message()));
    text += '\n';
    if (path_ == "-") return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? absl::OkStatus() : Failed();
    if (gzwrite(file_, text.data(), static_cast<unsigned>(text.size())) != static_cast<int>(text.size())) return Failed();
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    if (path_ == "-") return std::fflush(stdout) == 0 ? absl::OkStatus() : Failed();
    const int closed = gzclose(std::exchange(file_, nullptr));
    if (closed != Z_OK || rename(Temporary(path_).c_str(), path_.c_str()) != 0) {
      unlink(Temporary(path_).c_str());
      return Failed();
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Failed() const { return ErrnoStatus(errno != 0 ? errno : EIO, absl::StrCat("write ", path_)); }

  const std::string path_;
  gzFile file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<EvidenceWriter>> EvidenceWriter::Create(const std::string& path) {
  if (path == "-") return std::make_unique<FileWriter>(path, nullptr);
  // Mode T writes without compressing.
  gzFile file = gzopen(FileWriter::Temporary(path).c_str(), absl::EndsWith(path, ".gz") ? "wb9e" : "wbTe");
  if (file == nullptr) return ErrnoStatus(errno, absl::StrCat("create ", path));
  return std::make_unique<FileWriter>(path, file);
}

absl::StatusOr<std::vector<v1::ExportLine>> ReadEvidence(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rbe");  // reads plain files as they are
  if (file == nullptr) return ErrnoStatus(errno, absl::StrCat("open ", path));
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> closer(file, gzclose);
  const auto bad = [&](size_t line, absl::string_view what) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_EVIDENCE", absl::StrCat(path, ":", line, ": ", what));
  };
  std::vector<v1::ExportLine> lines;
  std::string pending;
  std::vector<char> buffer(1 << 16);
  size_t total = 0;
  const auto take = [&](absl::string_view text) -> absl::Status {
    if (text.empty()) return absl::OkStatus();
    const auto parsed = google::protobuf::util::JsonStringToMessage({text.data(), text.size()}, &lines.emplace_back());
    if (!parsed.ok()) return bad(lines.size(), absl::StrCat("no evidence line: ", std::string(parsed.message())));
    return absl::OkStatus();
  };
  while (true) {
    const int n = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()));
    if (n < 0) return bad(lines.size() + 1, "the file is damaged");
    if (n == 0) break;
    total += static_cast<size_t>(n);
    if (total > kMaxFileBytes) return bad(lines.size() + 1, "the file is larger than 1 GiB");
    pending.append(buffer.data(), static_cast<size_t>(n));
    size_t begin = 0;
    for (size_t end; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1) {
      RT_RETURN_IF_ERROR(take(absl::string_view(pending).substr(begin, end - begin)));
    }
    pending.erase(0, begin);
    if (pending.size() > kMaxLineBytes) return bad(lines.size() + 1, "the line is longer than 4 MiB");
  }
  int error = Z_OK;
  gzerror(file, &error);
  if (error != Z_OK && error != Z_STREAM_END) return bad(lines.size() + 1, "the file is cut off or damaged");
  RT_RETURN_IF_ERROR(take(pending));
  return lines;
}

}  // namespace rooftune

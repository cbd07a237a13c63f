#include "client/evidence_file.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
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
  // Takes `fd` and `file` (which has a descriptor of its own). Nothing is renamed if `temporary` is empty.
  FileWriter(std::string path, std::string temporary, int fd, gzFile file)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd), file_(file) {}
  ~FileWriter() override {
    if (file_ != nullptr) gzclose(file_);
    if (fd_ >= 0) close(fd_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }

  absl::Status Write(const v1::ExportLine& line) override {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    std::string text;
    const auto status = google::protobuf::util::MessageToJsonString(line, &text, options);
    if (!status.ok()) return absl::InternalError(std::string(status.message()));
    text += '\n';
    errno = 0;
    if (gzwrite(file_, text.data(), static_cast<unsigned>(text.size())) != static_cast<int>(text.size()))
      return Failed();
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    errno = 0;
    if (gzclose(std::exchange(file_, nullptr)) != Z_OK) return Failed();
    if (temporary_.empty()) return absl::OkStatus();
    if (fsync(fd_) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) return Failed();
    temporary_.clear();
    return absl::OkStatus();
  }

 private:
  absl::Status Failed() const {
    return ErrnoStatus(errno != 0 ? errno : EIO, absl::StrCat("write ", path_ == "-" ? "standard output" : path_));
  }

  const std::string path_;
  std::string temporary_;
  const int fd_;
  gzFile file_;
};

// Splits what it is fed into lines and parses each.
class LineParser {
 public:
  explicit LineParser(std::string path) : path_(std::move(path)) {}

  absl::Status Feed(absl::string_view data) {
    total_ += data.size();
    if (total_ > kMaxFileBytes) return Bad("the file is larger than 1 GiB");
    for (size_t end; (end = data.find('\n')) != absl::string_view::npos; data.remove_prefix(end + 1)) {
      RT_RETURN_IF_ERROR(Append(data.substr(0, end)));
      RT_RETURN_IF_ERROR(EndLine());
    }
    return Append(data);
  }

  absl::StatusOr<std::vector<v1::ExportLine>> Finish() {
    RT_RETURN_IF_ERROR(EndLine());
    if (lines_.empty()) return Bad("the file holds no evidence");
    return std::move(lines_);
  }

  absl::Status Bad(absl::string_view what) const {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_EVIDENCE", absl::StrCat(path_, ":", number_, ": ", what));
  }

 private:
  absl::Status Append(absl::string_view data) {
    if (pending_.size() + data.size() > kMaxLineBytes) return Bad("the line is longer than 4 MiB");
    pending_.append(data.data(), data.size());
    return absl::OkStatus();
  }

  absl::Status EndLine() {
    if (!pending_.empty()) {
      v1::ExportLine& line = lines_.emplace_back();
      const auto parsed = google::protobuf::util::JsonStringToMessage(pending_, &line);
      if (!parsed.ok()) return Bad(absl::StrCat("no evidence line: ", std::string(parsed.message())));
      if (line.line_case() == v1::ExportLine::LINE_NOT_SET) return Bad("no evidence line: nothing in it");
      pending_.clear();
    }
    ++number_;
    return absl::OkStatus();
  }

  const std::string path_;
  std::string pending_;
  std::vector<v1::ExportLine> lines_;
  size_t total_ = 0;
  size_t number_ = 1;  // of the line that is being read
};

}  // namespace

absl::StatusOr<std::unique_ptr<EvidenceWriter>> EvidenceWriter::Create(const std::string& path) {
  std::string temporary;
  int fd = -1;
  struct stat info;
  if (path == "-") {
    fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  } else if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    temporary = absl::StrCat(path, ".", getpid(), ".part");
    fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  const int error = errno;
  if (fd < 0) return ErrnoStatus(error, absl::StrCat("create ", path));
  // gzclose tells no descriptor to sync, so it gets one of its own. Mode T writes without compressing.
  gzFile file = gzdopen(fcntl(fd, F_DUPFD_CLOEXEC, 0), absl::EndsWith(path, ".gz") ? "wb9" : "wbT");
  auto writer = std::make_unique<FileWriter>(path, temporary, fd, file);
  if (file == nullptr) return ErrnoStatus(errno != 0 ? errno : ENOMEM, absl::StrCat("create ", path));
  return writer;
}

absl::StatusOr<std::vector<v1::ExportLine>> ReadEvidence(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  if (S_ISDIR(info.st_mode)) return ErrnoStatus(EISDIR, absl::StrCat("read ", path));
  gzFile file = gzopen(path.c_str(), "rbe");  // reads plain files as they are
  if (file == nullptr) return ErrnoStatus(errno != 0 ? errno : ENOMEM, absl::StrCat("open ", path));
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> closer(file, gzclose);
  LineParser parser(path);
  std::vector<char> buffer(1 << 16);
  while (true) {
    const int n = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()));
    if (n > 0) RT_RETURN_IF_ERROR(parser.Feed({buffer.data(), static_cast<size_t>(n)}));
    if (n <= 0) break;
  }
  // A read that failed gives -1; a gzip stream that ends early only shows here.
  int error = Z_OK;
  gzerror(file, &error);
  if (error != Z_OK && error != Z_STREAM_END) return parser.Bad("the file is cut off or damaged");
  return parser.Finish();
}

}  // namespace rooftune

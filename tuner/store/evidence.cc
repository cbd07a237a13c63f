#include "tuner/store/evidence.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver_util.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tuner/store/sqlite_rows.h"

namespace rooftune {
namespace {

constexpr char kTypeUrl[] = "type.googleapis.com/rooftune.v1.ExportLine";
// Trials asked for at a time while collecting.
constexpr int kCollectPage = 500;

absl::Status BadEvidence(absl::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_EVIDENCE", what);
}

google::protobuf::util::TypeResolver* Resolver() {
  static auto* const resolver = google::protobuf::util::NewTypeResolverForDescriptorPool(
      "type.googleapis.com", google::protobuf::DescriptorPool::generated_pool());
  return resolver;
}

absl::Status CheckSchemaOf(absl::string_view json) {
  // A newer file may hold fields that are unknown here: only its number is of interest.
  v1::ExportLine line;
  google::protobuf::util::JsonParseOptions lenient;
  lenient.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &line, lenient);
  if (!parsed.ok() || !line.has_run() || line.run().schema() <= kEvidenceSchema) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, "EVIDENCE_NEWER",
               absl::StrCat("evidence of schema ", line.run().schema(), "; this rooftune reads up to ", kEvidenceSchema,
                            ": use the newer one that wrote it"));
}

absl::StatusOr<std::string> Compress(const std::string& text) {
  z_stream stream = {};
  // 16 + 15: gzip framing, largest window; the header has no name and no time, so equal text gives equal bytes.
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::ResourceExhaustedError("no memory to compress");
  }
  std::string out;
  std::string buffer(1 << 16, '\0');
  size_t taken = 0;
  int code = Z_OK;
  while (code == Z_OK) {
    if (stream.avail_in == 0 && taken < text.size()) {
      const size_t bytes = std::min<size_t>(text.size() - taken, 1 << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data() + taken));
      stream.avail_in = static_cast<uInt>(bytes);
      taken += bytes;
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    code = deflate(&stream, taken == text.size() ? Z_FINISH : Z_NO_FLUSH);
    out.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  if (code != Z_STREAM_END) return absl::InternalError("cannot compress");
  return out;
}

// Lines of a plain or compressed file.
class LineReader {
 public:
  static absl::StatusOr<std::unique_ptr<LineReader>> Open(const std::string& path) {
    errno = 0;
    gzFile file = gzopen(path.c_str(), "rbe");
    if (file == nullptr) return ErrnoStatus(errno == 0 ? ENOMEM : errno, absl::StrCat("open ", path));
    std::unique_ptr<LineReader> reader(new LineReader(file));
    RT_RETURN_IF_ERROR(reader->Fill());
    if (absl::EndsWith(path, ".gz") && gzdirect(file) != 0) {
      return BadEvidence(absl::StrCat(path, " is not a gzip file, although its name says so"));
    }
    return reader;
  }
  ~LineReader() { gzclose(file_); }

  // False at the end.
  absl::StatusOr<bool> Next(std::string* line) {
    line->clear();
    while (true) {
      const size_t newline = buffer_.find('\n', position_);
      line->append(buffer_, position_, newline == std::string::npos ? newline : newline - position_);
      if (line->size() > kMaxEvidenceLineBytes) {
        return BadEvidence(absl::StrCat("a line longer than ", kMaxEvidenceLineBytes, " bytes"));
      }
      if (newline != std::string::npos) {
        position_ = newline + 1;
        return true;
      }
      RT_RETURN_IF_ERROR(Fill());
      if (buffer_.empty()) return !line->empty();
    }
  }

 private:
  explicit LineReader(gzFile file) : file_(file) {}

  absl::Status Fill() {
    buffer_.resize(1 << 16);
    position_ = 0;
    const int bytes = gzread(file_, buffer_.data(), static_cast<unsigned>(buffer_.size()));
    buffer_.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
    int code = Z_OK;
    const char* const message = gzerror(file_, &code);
    // At the end of a file that was cut, the last read succeeds but leaves this error behind.
    if (code == Z_OK || code == Z_STREAM_END) return absl::OkStatus();
    return Error(absl::StatusCode::kDataLoss, "TRUNCATED_EVIDENCE",
                 absl::StrCat("the compressed data is cut or damaged (", message, ")"));
  }

  gzFile file_;
  std::string buffer_;
  size_t position_ = 0;
};

absl::Status CollectTrials(Store& store, const std::string& sweep,
                           const std::function<absl::Status(v1::ExportLine)>& take) {
  std::string token;
  do {
    RT_ASSIGN_OR_RETURN(Page<v1::Trial> page, store.ListTrials({.sweep = sweep}, kCollectPage, token));
    for (v1::Trial& trial : page.items) {
      v1::ExportLine line;
      *line.mutable_trial() = std::move(trial);
      RT_RETURN_IF_ERROR(take(std::move(line)));
    }
    token = page.next_token;
  } while (!token.empty());
  return absl::OkStatus();
}

absl::Status CollectSweep(Store& store, const v1::Sweep& sweep,
                          const std::function<absl::Status(v1::ExportLine)>& take) {
  v1::ExportLine head;
  *head.mutable_sweep() = sweep;
  head.mutable_sweep()->clear_baseline();
  head.mutable_sweep()->clear_request_id();
  RT_RETURN_IF_ERROR(take(std::move(head)));
  RT_RETURN_IF_ERROR(CollectTrials(store, sweep.name(), take));
  for (const v1::Baseline& baseline : sweep.baseline()) {
    v1::ExportLine line;
    line.mutable_baseline()->set_sweep(sweep.name());
    line.mutable_baseline()->set_op(sweep.spec().op());
    line.mutable_baseline()->set_device_key(sweep.device_key());
    *line.mutable_baseline()->mutable_baseline() = baseline;
    RT_RETURN_IF_ERROR(take(std::move(line)));
  }
  for (const std::string& name : sweep.record()) {
    absl::StatusOr<v1::TuningRecord> record = store.GetRecord(name);
    if (absl::IsNotFound(record.status()) || absl::IsDataLoss(record.status())) {
      LogWarning("export: ", name, " of ", sweep.name(), " is left out: ", record.status().message());
      continue;
    }
    RT_RETURN_IF_ERROR(record.status());
    v1::ExportLine line;
    *line.mutable_record() = *std::move(record);
    RT_RETURN_IF_ERROR(take(std::move(line)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> EndedSweeps(Store& store) {
  std::vector<std::string> names;
  std::string token;
  do {
    RT_ASSIGN_OR_RETURN(const Page<v1::Sweep> page, store.ListSweeps(std::nullopt, kCollectPage, token));
    for (const v1::Sweep& sweep : page.items) {
      if (sweep.state() >= v1::DONE) names.push_back(sweep.name());
    }
    token = page.next_token;
  } while (!token.empty());
  std::reverse(names.begin(), names.end());
  return names;
}

}  // namespace

absl::StatusOr<std::string> EvidenceToJson(const v1::ExportLine& line) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  // Over the sorted serialization: the message itself would give its maps in any order.
  const auto printed =
      google::protobuf::util::BinaryToJsonString(Resolver(), kTypeUrl, SerializePayload(line), &json, options);
  if (!printed.ok()) return absl::InternalError(absl::StrCat("cannot print evidence: ", printed.ToString()));
  return json;
}

absl::StatusOr<v1::ExportLine> EvidenceFromJson(absl::string_view json) {
  if (json.size() > kMaxEvidenceLineBytes) {
    return BadEvidence(absl::StrCat("a line longer than ", kMaxEvidenceLineBytes, " bytes"));
  }
  v1::ExportLine line;
  const auto parsed = google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &line, {});
  if (!parsed.ok() || line.has_run()) RT_RETURN_IF_ERROR(CheckSchemaOf(json));
  if (!parsed.ok()) return BadEvidence(parsed.ToString());
  if (line.line_case() == v1::ExportLine::LINE_NOT_SET) {
    return BadEvidence("holds none of run, sweep, trial, baseline, record");
  }
  return line;
}

absl::Status WriteEvidence(const std::vector<v1::ExportLine>& lines, const std::string& path) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    RT_ASSIGN_OR_RETURN(const std::string json, EvidenceToJson(lines[i]));
    if (json.size() > kMaxEvidenceLineBytes) {
      return BadEvidence(absl::StrCat("line ", i + 1, " would be longer than ", kMaxEvidenceLineBytes, " bytes"));
    }
    absl::StrAppend(&text, json, "\n");
  }
  if (!absl::EndsWith(path, ".gz")) return WriteFileAtomic(path, text);
  RT_ASSIGN_OR_RETURN(const std::string compressed, Compress(text));
  return WriteFileAtomic(path, compressed);
}

absl::Status ReadEvidence(const std::string& path, const std::function<absl::Status(v1::ExportLine)>& take) {
  RT_ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader, LineReader::Open(path));
  std::string json;
  for (int64_t number = 1;; ++number) {
    const std::string where = absl::StrCat(path, ":", number);
    absl::StatusOr<bool> more = reader->Next(&json);
    if (!more.ok()) return Annotate(more.status(), where);
    if (!*more) return number > 1 ? absl::OkStatus() : Annotate(BadEvidence("the file is empty"), path);
    if (number > kMaxEvidenceLines) return Annotate(BadEvidence("too many lines"), where);
    absl::StatusOr<v1::ExportLine> line = EvidenceFromJson(json);
    if (!line.ok()) return Annotate(line.status(), where);
    RT_RETURN_IF_ERROR(Annotate(take(*std::move(line)), where));
  }
}

absl::StatusOr<std::vector<v1::ExportLine>> ReadEvidence(const std::string& path, size_t max_bytes) {
  std::vector<v1::ExportLine> lines;
  size_t bytes = 0;
  RT_RETURN_IF_ERROR(ReadEvidence(path, [&](v1::ExportLine line) {
    bytes += line.ByteSizeLong() + sizeof(v1::ExportLine);
    if (bytes > max_bytes) {
      return Error(absl::StatusCode::kResourceExhausted, "EVIDENCE_TOO_LARGE",
                   absl::StrCat("more than ", max_bytes, " bytes of evidence in one file: split it by sweep"));
    }
    lines.push_back(std::move(line));
    return absl::OkStatus();
  }));
  return lines;
}

absl::Status CollectEvidence(Store& store, const std::vector<std::string>& sweeps, v1::EvidenceRun run,
                             const std::function<absl::Status(v1::ExportLine)>& take) {
  std::vector<std::string> names = sweeps;
  if (names.empty()) {
    RT_ASSIGN_OR_RETURN(names, EndedSweeps(store));
  } else {
    for (const std::string& name : names) RT_RETURN_IF_ERROR(store.GetSweep(name).status());
  }
  v1::ExportLine head;
  run.set_schema(kEvidenceSchema);
  *head.mutable_run() = std::move(run);
  RT_RETURN_IF_ERROR(take(std::move(head)));
  for (const std::string& name : names) {
    RT_ASSIGN_OR_RETURN(const v1::Sweep sweep, store.GetSweep(name));
    RT_RETURN_IF_ERROR(CollectSweep(store, sweep, take));
  }
  return absl::OkStatus();
}

}  // namespace rooftune

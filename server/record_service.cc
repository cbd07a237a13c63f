#include "server/record_service.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/stream_call.h"
#include "server/unary_call.h"

namespace rooftune {
namespace {

using ExportStream = StreamCall<v1::ExportLine>;

// Sends lines as they are read, a piece of the store at a time.
class ExportSender : public std::enable_shared_from_this<ExportSender> {
 public:
  ExportSender(std::shared_ptr<ExportStream> stream, ServerContext& context)
      : stream_(std::move(stream)), context_(context) {}

  void Start(const v1::ExportEvidenceRequest& request) {
    Post([self = shared_from_this(), request] {
      auto reader = EvidenceReader::Create(self->context_, request);
      if (!reader.ok()) return self->stream_->Finish(reader.status());
      self->reader_ = *std::move(reader);
      self->Refill();
    });
  }

 private:
  void Post(std::function<void()> task) {
    const absl::Status posted = context_.work.Post(std::move(task));
    if (!posted.ok()) stream_->Finish(posted);
  }
  void Refill() {
    if (stream_->token()->cancelled()) return;
    auto lines = reader_->Next();
    if (!lines.ok()) return stream_->Finish(lines.status());
    if (lines->empty()) return stream_->Finish(absl::OkStatus());
    lines_ = *std::move(lines);
    next_ = 0;
    WriteNext();
  }
  void WriteNext() {
    v1::ExportLine line = std::move(lines_[next_++]);
    stream_->Write(std::move(line), [self = shared_from_this()](bool ok) {
      if (!ok) return self->stream_->Finish(absl::CancelledError("the client went away"));
      if (self->next_ < self->lines_.size()) return self->WriteNext();
      self->Post([self] { self->Refill(); });
    });
  }

  const std::shared_ptr<ExportStream> stream_;
  ServerContext& context_;
  std::unique_ptr<EvidenceReader> reader_;
  std::vector<v1::ExportLine> lines_;
  size_t next_ = 0;
};

// Collects the lines of an import, within limits, then hands them to the store in one piece.
class ImportReactor : public grpc::ServerReadReactor<v1::ExportLine> {
 public:
  ImportReactor(ServerCore& core, v1::ImportEvidenceResponse* response) : core_(core), response_(response) {
    StartRead(&line_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Submit();
    const ServerLimits& limits = core_.context.limits;
    bytes_ += line_.ByteSizeLong();
    if (lines_.size() >= limits.import_lines || bytes_ > limits.import_bytes) {
      return End(Error(absl::StatusCode::kResourceExhausted, "IMPORT_TOO_LARGE",
                       absl::StrCat("an import takes at most ", limits.import_lines, " lines and ", limits.import_bytes,
                                    " bytes; nothing was taken in: split the file by sweeps")));
    }
    lines_.push_back(std::move(line_));
    line_.Clear();
    StartRead(&line_);
  }
  // The read under way ends with !ok and an import under way can't be taken back, so there is nothing to do but
  // to not start one.
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { delete this; }

 private:
  void Submit() {
    if (cancelled_) return End(absl::CancelledError("the client went away; nothing was taken in"));
    // The call is not finished before the task runs, so `this` lives.
    const absl::Status posted = core_.context.work.Post([this] {
      absl::StatusOr<v1::ImportEvidenceResponse> result = core_.records.Import(lines_);
      if (result.ok()) *response_ = *std::move(result);
      End(result.status());
    });
    if (!posted.ok()) End(posted);
  }
  void End(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

  ServerCore& core_;
  v1::ImportEvidenceResponse* const response_;
  std::atomic<bool> cancelled_{false};
  v1::ExportLine line_;
  std::vector<v1::ExportLine> lines_;
  size_t bytes_ = 0;
};

}  // namespace

grpc::ServerUnaryReactor* RecordServiceImpl::ListTrials(Context*, const v1::ListTrialsRequest* request,
                                                        v1::ListTrialsResponse* response) {
  return AnswerOn<v1::ListTrialsRequest, v1::ListTrialsResponse>(
      core_.context.reads, *request, response, [this](const auto& r) { return core_.records.ListTrials(r); });
}

grpc::ServerUnaryReactor* RecordServiceImpl::ListRecords(Context*, const v1::ListRecordsRequest* request,
                                                         v1::ListRecordsResponse* response) {
  return AnswerOn<v1::ListRecordsRequest, v1::ListRecordsResponse>(
      core_.context.reads, *request, response, [this](const auto& r) { return core_.records.ListRecords(r); });
}

grpc::ServerUnaryReactor* RecordServiceImpl::GetRecord(Context*, const v1::GetRecordRequest* request,
                                                       v1::TuningRecord* response) {
  return AnswerOn<v1::GetRecordRequest, v1::TuningRecord>(core_.context.reads, *request, response,
                                                          [this](const auto& r) { return core_.records.GetRecord(r); });
}

grpc::ServerWriteReactor<v1::ExportLine>* RecordServiceImpl::ExportEvidence(Context*,
                                                                            const v1::ExportEvidenceRequest* request) {
  auto [reactor, stream] = ExportStream::Start();
  std::make_shared<ExportSender>(stream, core_.context)->Start(*request);
  return reactor;
}

grpc::ServerReadReactor<v1::ExportLine>* RecordServiceImpl::ImportEvidence(Context*,
                                                                           v1::ImportEvidenceResponse* response) {
  return new ImportReactor(core_, response);
}

}  // namespace rooftune

#include "server/record_core.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// Read from the store at a time: one such piece stays below 2 MiB with the longest messages and samples.
constexpr int kPiece = 16;
// A page ends here even if it has fewer items than asked for, so that it fits the 4 MiB that gRPC clients
// take by default.
constexpr size_t kMaxPageBytes = 1'500'000;
// Pieces looked at for one page when the filter drops most of them.
constexpr int kMaxPieces = 2000;

// Collects a page from small pieces. `keep` may drop items.
template <typename T>
absl::StatusOr<Page<T>> Collect(int page_size, const std::string& token,
                                const std::function<absl::StatusOr<Page<T>>(int, const std::string&)>& read,
                                const std::function<bool(const T&)>& keep) {
  Page<T> page;
  page.next_token = token;
  size_t bytes = 0;
  for (int piece = 0; piece < kMaxPieces; ++piece) {
    const int wanted = std::min(kPiece, page_size - static_cast<int>(page.items.size()));
    RT_ASSIGN_OR_RETURN(Page<T> part, read(wanted, page.next_token));
    for (T& item : part.items) {
      if (!keep(item)) continue;
      bytes += item.ByteSizeLong();
      page.items.push_back(std::move(item));
    }
    page.next_token = part.next_token;
    if (page.next_token.empty() || static_cast<int>(page.items.size()) >= page_size || bytes >= kMaxPageBytes) break;
  }
  return page;
}

}  // namespace

absl::StatusOr<v1::ListTrialsResponse> RecordCore::ListTrials(const v1::ListTrialsRequest& request) {
  RT_ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size()));
  if (!request.sweep().empty()) RT_RETURN_IF_ERROR(ResourceId(request.sweep(), "sweeps/").status());
  TrialFilter filter;
  filter.sweep = request.sweep();
  filter.outcome = request.outcome();
  // A sweep that does not exist is an error, not an empty list.
  if (!filter.sweep.empty()) RT_RETURN_IF_ERROR(context_.deps.store.GetSweep(filter.sweep).status());
  RT_ASSIGN_OR_RETURN(Page<v1::Trial> page, Collect<v1::Trial>(
                                                page_size, request.page_token(),
                                                [&](int limit, const std::string& token) {
                                                  return context_.deps.store.ListTrials(filter, limit, token);
                                                },
                                                [](const v1::Trial&) { return true; }));
  v1::ListTrialsResponse response;
  for (v1::Trial& trial : page.items) *response.add_trial() = std::move(trial);
  response.set_next_page_token(page.next_token);
  return response;
}

absl::StatusOr<v1::ListRecordsResponse> RecordCore::ListRecords(const v1::ListRecordsRequest& request) {
  RT_ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size()));
  RecordFilter filter;
  filter.device_key = request.device_key();
  filter.min_evidence = request.min_evidence();
  filter.include_superseded = request.include_superseded();
  std::string op_text;
  const std::string op(absl::StripAsciiWhitespace(request.op()));
  if (op.find(' ') != std::string::npos) {
    RT_ASSIGN_OR_RETURN(const Op parsed, ParseOp(context_, op));
    filter.op_kind = parsed.kind;
    op_text = parsed.text;
  } else if (!op.empty()) {
    // Parsing names the nearest kind for a misspelt one.
    if (context_.deps.library.ops().Find(op) == nullptr) RT_RETURN_IF_ERROR(ParseOp(context_, op).status());
    filter.op_kind = op;
  }
  RT_ASSIGN_OR_RETURN(
      Page<v1::TuningRecord> page,
      Collect<v1::TuningRecord>(
          page_size, request.page_token(),
          [&](int limit, const std::string& token) { return context_.deps.store.ListRecords(filter, limit, token); },
          [&](const v1::TuningRecord& record) { return op_text.empty() || record.op() == op_text; }));
  v1::ListRecordsResponse response;
  for (v1::TuningRecord& record : page.items) *response.add_record() = std::move(record);
  response.set_next_page_token(page.next_token);
  return response;
}

absl::StatusOr<v1::TuningRecord> RecordCore::GetRecord(const v1::GetRecordRequest& request) {
  RT_RETURN_IF_ERROR(ResourceId(request.name(), "records/").status());
  if (const RecordPtr estimate = estimates_.FindByName(request.name())) return *estimate;
  return context_.deps.store.GetRecord(request.name());
}

absl::StatusOr<v1::ImportEvidenceResponse> RecordCore::Import(const std::vector<v1::ExportLine>& lines) {
  if (lines.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "EMPTY_IMPORT", "the evidence file holds no line");
  }
  int sweeps = 0, trials = 0, records = 0, duplicates = 0;
  RT_RETURN_IF_ERROR(context_.deps.store.Import(lines, &sweeps, &trials, &records, &duplicates));
  // Imported records may have become current.
  if (records > 0) RT_RETURN_IF_ERROR(context_.index.Load(context_.deps.store));
  v1::ImportEvidenceResponse response;
  response.set_sweeps(sweeps);
  response.set_trials(trials);
  response.set_records(records);
  response.set_duplicates(duplicates);
  return response;
}

}  // namespace rooftune

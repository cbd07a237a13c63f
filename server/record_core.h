// Trials and records: listing, and evidence files out and in.
#ifndef ROOFTUNE_SERVER_RECORD_CORE_H_
#define ROOFTUNE_SERVER_RECORD_CORE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/context.h"
#include "server/estimates.h"

namespace rooftune {

// Evidence lines of one export, a few at a time. Single-threaded; Next blocks.
class EvidenceReader {
 public:
  // NOT_FOUND (NOTHING_TO_EXPORT) if no sweep is left.
  static absl::StatusOr<std::unique_ptr<EvidenceReader>> Create(ServerContext& context,
                                                                const v1::ExportEvidenceRequest& request);
  // The next lines; empty at the end.
  absl::StatusOr<std::vector<v1::ExportLine>> Next();

 private:
  EvidenceReader(ServerContext& context, std::string suite) : context_(context), suite_(std::move(suite)) {}
  void AddRun(const v1::Sweep& sweep, std::vector<v1::ExportLine>& lines);
  absl::Status AddRecords(const v1::Sweep& sweep, std::vector<v1::ExportLine>& lines);

  ServerContext& context_;
  const std::string suite_;
  // Names, so that devices follow each other.
  std::vector<std::string> sweeps_;
  size_t next_sweep_ = 0;
  std::string device_key_;
  // The sweep whose trials are being read.
  v1::Sweep current_;
  bool in_trials_ = false;
  std::string token_;
};

// Thread-safe. All methods block: call them from an executor.
class RecordCore {
 public:
  RecordCore(ServerContext& context, EstimateTable& estimates) : context_(context), estimates_(estimates) {}

  absl::StatusOr<v1::ListTrialsResponse> ListTrials(const v1::ListTrialsRequest& request);
  absl::StatusOr<v1::ListRecordsResponse> ListRecords(const v1::ListRecordsRequest& request);
  absl::StatusOr<v1::TuningRecord> GetRecord(const v1::GetRecordRequest& request);
  absl::StatusOr<v1::ImportEvidenceResponse> Import(const std::vector<v1::ExportLine>& lines);
  const ServerLimits& limits() const { return context_.limits; }
  ServerContext& context() { return context_; }

 private:
  ServerContext& context_;
  EstimateTable& estimates_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_RECORD_CORE_H_

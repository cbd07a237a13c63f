// Evidence files: JSON lines, one ExportLine each, plain or gzip (".gz"). Format: docs/storage.md.
#ifndef ROOFTUNE_CLIENT_EVIDENCE_FILE_H_
#define ROOFTUNE_CLIENT_EVIDENCE_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/v1/records.pb.h"

namespace rooftune {

// Writes to a temporary file beside `path`; the file appears only when Finish() succeeds.
class EvidenceWriter {
 public:
  // "-" = standard output.
  static absl::StatusOr<std::unique_ptr<EvidenceWriter>> Create(const std::string& path);
  virtual ~EvidenceWriter() = default;
  virtual absl::Status Write(const v1::ExportLine& line) = 0;
  virtual absl::Status Finish() = 0;
};

// INVALID_ARGUMENT with the line number for anything that is no evidence line; lines are at most 4 MiB, files
// at most 1 GiB unpacked. A missing last newline is fine.
absl::StatusOr<std::vector<v1::ExportLine>> ReadEvidence(const std::string& path);

}  // namespace rooftune

#endif  // ROOFTUNE_CLIENT_EVIDENCE_FILE_H_

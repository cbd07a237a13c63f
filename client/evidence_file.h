// Evidence files: JSON lines, one ExportLine each, plain or gzip (".gz"). Format: docs/storage.md.
#ifndef ROOFTUNE_CLIENT_EVIDENCE_FILE_H_
#define ROOFTUNE_CLIENT_EVIDENCE_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/v1/records.pb.h"

namespace rooftune {

// Writes to a temporary file beside `path`; the file appears, synced, only when Finish() succeeds. An existing `path`
// that is no regular file (a pipe, /dev/stdout) is written to directly.
class EvidenceWriter {
 public:
  // "-" = standard output. Errors of the file system, RESOURCE_EXHAUSTED for a full disk, here or at any later call.
  static absl::StatusOr<std::unique_ptr<EvidenceWriter>> Create(const std::string& path);
  // Removes the temporary file unless finished.
  virtual ~EvidenceWriter() = default;
  virtual absl::Status Write(const v1::ExportLine& line) = 0;
  virtual absl::Status Finish() = 0;
};

// INVALID_ARGUMENT (BAD_EVIDENCE) with the line number for anything that is no evidence line, for a damaged or cut-off
// file and for one without lines. Lines are at most 4 MiB, files at most 1 GiB unpacked. Empty lines are skipped and a
// missing last newline is fine. NOT_FOUND or PERMISSION_DENIED as the file system says.
absl::StatusOr<std::vector<v1::ExportLine>> ReadEvidence(const std::string& path);

}  // namespace rooftune

#endif  // ROOFTUNE_CLIENT_EVIDENCE_FILE_H_

// Evidence files: JSON lines, one v1.ExportLine each in proto3 JSON with the proto's field names, `run` first;
// compressed when the name ends in ".gz". The format is described in docs/storage.md.
#ifndef ROOFTUNE_TUNER_STORE_EVIDENCE_H_
#define ROOFTUNE_TUNER_STORE_EVIDENCE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rooftune/v1/records.pb.h"
#include "tuner/store/store.h"

namespace rooftune {

// EvidenceRun.schema of files written now; larger ones are refused.
inline constexpr int kEvidenceSchema = 1;
inline constexpr size_t kMaxEvidenceLineBytes = 4 << 20;
inline constexpr int64_t kMaxEvidenceLines = 10'000'000;

// One line without its newline; equal messages give equal text.
absl::StatusOr<std::string> EvidenceToJson(const v1::ExportLine& line);
// INVALID_ARGUMENT (BAD_EVIDENCE): not JSON, an unknown field or name, a wrong type, nothing set.
// FAILED_PRECONDITION (EVIDENCE_NEWER): a run of a newer schema.
absl::StatusOr<v1::ExportLine> EvidenceFromJson(absl::string_view json);

// INVALID_ARGUMENT for a line over the limit. The file is replaced whole or not at all.
absl::Status WriteEvidence(const std::vector<v1::ExportLine>& lines, const std::string& path);

// Hands every line to `take` in order until it returns an error, which is returned with the line's number. The
// last newline may be missing; empty lines are errors. DATA_LOSS (TRUNCATED_EVIDENCE) for a damaged or cut .gz.
absl::Status ReadEvidence(const std::string& path, const std::function<absl::Status(v1::ExportLine)>& take);
// All lines; RESOURCE_EXHAUSTED when they take more than `max_bytes` of memory.
absl::StatusOr<std::vector<v1::ExportLine>> ReadEvidence(const std::string& path, size_t max_bytes = size_t{1} << 30);

// Everything of `sweeps` ("sweeps/…"; empty = all that ended, oldest first), in the order of a file: `run`, then for
// each sweep itself, its trials, its baselines and the records it published. Stops at the first error of `take`.
// The sweep's line is without its baselines (they have lines of their own) and request id. NOT_FOUND for an unknown
// sweep, before anything was handed out.
absl::Status CollectEvidence(Store& store, const std::vector<std::string>& sweeps, v1::EvidenceRun run,
                             const std::function<absl::Status(v1::ExportLine)>& take);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_EVIDENCE_H_

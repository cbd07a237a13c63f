// What writes mean, for every backend: each function is one write of Store, to be run in a transaction that is
// rolled back when it returns an error. Errors are those of tuner/store/store.h, and INVALID_ARGUMENT (BAD_ROW)
// for a message that does not hold together.
#ifndef ROOFTUNE_TUNER_STORE_RULES_H_
#define ROOFTUNE_TUNER_STORE_RULES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rooftune/v1/records.pb.h"
#include "tuner/store/tables.h"

namespace rooftune {

// Rows larger than this are refused: a trial with 10,000 samples takes about 80 KiB.
inline constexpr size_t kMaxRowBytes = 16 << 20;

// Items of a page: `limit` ≤ 0 means the default, larger ones are cut.
inline constexpr int kDefaultPage = 50;
inline constexpr int kMaxPage = 10'000;
int PageLimit(int limit);

absl::Status ApplyPutSweep(Tables& tables, const v1::Sweep& sweep);
absl::Status ApplyPutTrial(Tables& tables, const v1::Trial& trial);
absl::Status ApplyPutCalibration(Tables& tables, const device::v1::Calibration& calibration);
absl::Status ApplyPutCompileFailure(Tables& tables, const std::string& key, const worker::v1::CompileResult& result);
// The new generation.
absl::StatusOr<int64_t> ApplyPublish(Tables& tables, const std::vector<v1::TuningRecord>& records);

struct ImportCounts {
  int sweeps = 0;
  int trials = 0;
  int records = 0;
  int duplicates = 0;
};
absl::StatusOr<ImportCounts> ApplyImport(Tables& tables, const std::vector<v1::ExportLine>& lines);

// Checks of single messages; shared with the import.
absl::Status ValidateSweep(const v1::Sweep& sweep);
absl::Status ValidateTrial(const v1::Trial& trial);
absl::Status ValidateRecord(const v1::TuningRecord& record);
// "sweeps/a" of "sweeps/a/trials/3".
std::string SweepOfTrial(const v1::Trial& trial);
// First word of an operator's text.
std::string OpKind(const std::string& op);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_RULES_H_

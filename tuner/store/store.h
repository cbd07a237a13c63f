// Everything learned, kept. Thread-safe. Every write is durable when it returns OK.
//
// Backends: SqliteStore (tuner/store/sqlite_store.h) and MemoryStore (tests); one conformance suite
// (tests/tuner/store/store_conformance.h) runs on both. Any call may return UNAVAILABLE; writes may return
// RESOURCE_EXHAUSTED (DISK_FULL), after which nothing of the call is visible.
#ifndef ROOFTUNE_TUNER_STORE_STORE_H_
#define ROOFTUNE_TUNER_STORE_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/v1/records.pb.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

// A page of a listing: items after `token` (exclusive), and where to go on (empty = the end).
template <typename T>
struct Page {
  std::vector<T> items;
  std::string next_token;
};

struct TrialFilter {
  std::string sweep = "";  // "sweeps/…"; empty = all
  v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
};
struct RecordFilter {
  std::string target_key = "";  // empty = all
  std::string op_kind = "";
  std::string device_key = "";
  v1::EvidenceLevel min_evidence = v1::EVIDENCE_LEVEL_UNSPECIFIED;
  bool include_superseded = false;
};

inline constexpr int64_t kMaxCompileFailures = 20'000;

class Store {
 public:
  virtual ~Store() = default;

  // Inserts or replaces by name. For a new sweep with a request_id that exists: ALREADY_EXISTS.
  virtual absl::Status PutSweep(const v1::Sweep& sweep) = 0;
  virtual absl::StatusOr<v1::Sweep> GetSweep(const std::string& name) = 0;
  // Newest first. INVALID_ARGUMENT for a malformed token.
  virtual absl::StatusOr<Page<v1::Sweep>> ListSweeps(std::optional<v1::SweepState> state, int limit,
                                                     const std::string& token) = 0;
  // NOT_FOUND if no sweep has it.
  virtual absl::StatusOr<v1::Sweep> FindSweepByRequestId(const std::string& request_id) = 0;

  // Inserts or replaces by name (sweep and index); a trial with a measurement is never replaced by one
  // without.
  virtual absl::Status PutTrial(const v1::Trial& trial) = 0;
  // By sweep, then index. NOT_FOUND (SWEEP_NOT_FOUND) from PutTrial if its sweep is not stored.
  virtual absl::StatusOr<Page<v1::Trial>> ListTrials(const TrialFilter& filter, int limit,
                                                     const std::string& token) = 0;

  // Makes these the current records of their target key in one new generation, in order of rank; what was
  // current there is superseded (kept, to_generation set). A key that holds MEASURED or better records is not
  // touched by weaker ones: FAILED_PRECONDITION (WEAKER_EVIDENCE). ALREADY_EXISTS for a known name. Returns the
  // new generation.
  virtual absl::StatusOr<int64_t> PublishRecords(const std::vector<v1::TuningRecord>& records) = 0;
  virtual absl::StatusOr<v1::TuningRecord> GetRecord(const std::string& name) = 0;
  // Newest generation first, within it by rank. All pages of a listing are of its first page's generation.
  virtual absl::StatusOr<Page<v1::TuningRecord>> ListRecords(const RecordFilter& filter, int limit,
                                                             const std::string& token) = 0;
  virtual absl::StatusOr<int64_t> CurrentGeneration() = 0;

  // Digests of the binaries of all records that are current or were within the last `generations_back` generations.
  virtual absl::StatusOr<std::set<std::string>> ServedArtifacts(int64_t generations_back) = 0;

  // Newest calibration of a device.
  virtual absl::Status PutCalibration(const device::v1::Calibration& calibration) = 0;
  virtual absl::StatusOr<device::v1::Calibration> GetCalibration(const std::string& device_key) = 0;

  // Sources that the compiler refused, by a key of everything that decides (kernels/candidate.h), so that they are not
  // compiled again after a restart. The newest kMaxCompileFailures are kept. INVALID_ARGUMENT (BAD_ROW) for anything
  // but COMPILE_FAILED.
  virtual absl::Status PutCompileFailure(const std::string& key, const worker::v1::CompileResult& result) = 0;
  // NOT_FOUND (NO_COMPILE_FAILURE).
  virtual absl::StatusOr<worker::v1::CompileResult> GetCompileFailure(const std::string& key) = 0;

  // What happened so far, by name ("store_commits", …); only grows.
  virtual std::map<std::string, int64_t> Counters() const { return {}; }

  // All or nothing, idempotent by name. Counts into `response`. INVALID_ARGUMENT for lines that do not hold
  // together (no run first, a trial of an unknown sweep, measurements without a device).
  virtual absl::Status Import(const std::vector<v1::ExportLine>& lines, int* sweeps, int* trials, int* records,
                              int* duplicates) = 0;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_STORE_STORE_H_

// The cost model's choices, remembered so that everybody who asks gets the same.
#ifndef ROOFTUNE_SERVER_ESTIMATES_H_
#define ROOFTUNE_SERVER_ESTIMATES_H_

#include <deque>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/context.h"
#include "tuner/sweep/planner.h"

namespace rooftune {

// The cost model's view of one configuration of a plan. FAILED_PRECONDITION or OUT_OF_RANGE if the template has no
// recipe for it.
struct PredictedConfig {
  const KernelTemplate* kernel = nullptr;
  Config config;
  v1::Prediction prediction;
  v1::Resources resources;
  int64_t workspace_bytes = 0;
};
absl::StatusOr<PredictedConfig> Predict(const Plan& plan, const KernelTemplate& kernel, const Config& config,
                                        const DeviceProfile& device, const Calibration* calibration);

// Thread-safe.
class EstimateTable {
 public:
  explicit EstimateTable(ServerContext& context) : context_(context) {}

  // The estimate made before for this key, or nullptr.
  RecordPtr Find(const std::string& target_key, bool deterministic) const;
  // By record name; the compiled form if there is one. nullptr if unknown.
  RecordPtr FindByName(const std::string& name) const;
  // Plans and picks the best predicted configuration; an ESTIMATED record with recipe. Blocks. The first to
  // finish decides for all. FAILED_PRECONDITION: NO_PROFILE, NO_TEMPLATE, EMPTY_SPACE.
  absl::StatusOr<RecordPtr> Make(const Op& op, const KnownDevice& device, const std::string& target_key,
                                 bool deterministic);
  // Compiles an ESTIMATED record's kernel: the same record with evidence COMPILED, artifact and resources.
  // Blocks. FAILED_PRECONDITION (COMPILE_FAILED) with the compiler's log.
  absl::StatusOr<RecordPtr> Compile(const v1::TuningRecord& record);

  static bool IsEstimate(const std::string& record_name);

 private:
  absl::StatusOr<RecordPtr> Choose(const Op& op, const KnownDevice& device, const std::string& target_key,
                                   bool deterministic) const;
  ServerContext& context_;
  mutable absl::Mutex mutex_;
  // By record name.
  absl::flat_hash_map<std::string, RecordPtr> estimates_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, RecordPtr> compiled_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> order_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_ESTIMATES_H_

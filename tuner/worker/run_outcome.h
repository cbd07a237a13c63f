// What a CUresult says about the candidate that caused it and about the process it happened in.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_OUTCOME_H_
#define ROOFTUNE_TUNER_WORKER_RUN_OUTCOME_H_

#include "absl/status/status.h"
#include "rooftune/v1/types.pb.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

// True if the code poisons the whole process: every later call, other contexts and new ones included, returns it
// again, so that only a new process helps.
bool IsStickyCudaError(int code);

// What became of a candidate whose launch or synchronisation returned `code`.
v1::Outcome OutcomeOfCudaError(int code);

// Status of a failed driver call carries its code; 0 if the status has none.
absl::Status CudaStatus(int code, absl::string_view message);
int CudaErrorOf(const absl::Status& status);

// Outcome of a status: of its CUDA code, else RESOURCE_EXHAUSTED is OUT_OF_MEMORY and anything else LAUNCH_FAILED.
v1::Outcome OutcomeOfStatus(const absl::Status& status);

// Puts a failure into a result.
void SetFailure(const absl::Status& status, worker::v1::RunResult& result);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_OUTCOME_H_

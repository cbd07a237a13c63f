// Recipe and binary of a record.
#ifndef ROOFTUNE_SERVER_KERNEL_CORE_H_
#define ROOFTUNE_SERVER_KERNEL_CORE_H_

#include <memory>
#include <string>

#include "server/call.h"
#include "server/config_core.h"
#include "server/context.h"
#include "server/estimates.h"
#include "server/single_flight.h"

namespace rooftune {

struct Kernel {
  v1::TuningRecord record;
  std::shared_ptr<const std::string> binary;
};

// Thread-safe.
class KernelCore {
 public:
  KernelCore(ServerContext& context, ConfigCore& configs, EstimateTable& estimates)
      : context_(context), configs_(configs), estimates_(estimates) {}

  // Never blocks; `done` is called once, on an executor. A query accepts VERIFIED or better unless it says
  // otherwise; a record asked for by name is served whatever its evidence. An estimate is compiled.
  // FAILED_PRECONDITION (EVIDENCE_TOO_WEAK, NO_BINARY, COMPILE_FAILED), DATA_LOSS (CORRUPT_ARTIFACT),
  // OUT_OF_RANGE (BAD_OFFSET).
  void GetKernel(const v1::GetKernelRequest& request, const CallPtr& call, Done<Kernel> done);

 private:
  void ByName(const std::string& name, Done<Kernel> done);
  void WithBinary(v1::TuningRecord record, Done<Kernel> done);
  absl::StatusOr<Kernel> Load(const v1::TuningRecord& record);

  ServerContext& context_;
  ConfigCore& configs_;
  EstimateTable& estimates_;
  // Compiles under way, by record.
  SingleFlight<RecordPtr> compiles_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_KERNEL_CORE_H_

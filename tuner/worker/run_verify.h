// Is a kernel right? One launch on pristine inputs and poisoned outputs, the whole output compared on the device
// with the reference, the zones around every buffer checked.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_VERIFY_H_
#define ROOFTUNE_TUNER_WORKER_RUN_VERIFY_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/worker/v1/worker.pb.h"
#include "tuner/worker/run_problem.h"

namespace rooftune {

// What the CPU said about the reference.
struct CpuCheck {
  int64_t elements = 0;
  // Largest |error| / bound.
  double max_error_ratio = 0;
  // What disagrees; empty if nothing.
  std::string disagreement;
};

// Where a launch that is verified writes.
struct VerifyTarget {
  // Address of output tensor i.
  std::function<cuda::DevicePtr(int tensor)> output;
  // Must hold 0xFF before and after.
  std::vector<GuardedBuffer*> guarded;
};

class Verifier {
 public:
  static absl::StatusOr<std::unique_ptr<Verifier>> Create(const GpuContext& context, SupportModule& support);

  // Recomputes request.cpu_check_elements of every output on the CPU and compares values (1e-9 of the magnitude)
  // and magnitudes. Elements = 0 where the operator has no CPU reference or the request wants none.
  absl::StatusOr<CpuCheck> CheckReference(const PreparedProblem& problem) const;

  // Runs `launch` (which enqueues one execution into the target, already reset) and compares. An error is the
  // launch's own; what the comparison finds is in `verification`, and `message` says it for people.
  absl::Status Verify(const PreparedProblem& problem, const CpuCheck& cpu, const VerifyTarget& target,
                      const std::function<absl::Status()>& launch, rooftune::v1::Verification* verification,
                      std::string* message);

  // What the outputs hold, as a checksum: equal bits give equal sums.
  absl::StatusOr<uint64_t> Checksum(const PreparedProblem& problem, const VerifyTarget& target);

 private:
  explicit Verifier(const GpuContext& context, SupportModule& support) : context_(context), support_(support) {}
  absl::Status CompareOutput(const PreparedProblem& problem, const PreparedProblem::Output& output, cuda::DevicePtr at,
                             rooftune::v1::Verification* verification, std::string* message);
  absl::StatusOr<int64_t> DamagedBytes(const std::vector<GuardedBuffer*>& guarded);

  const GpuContext& context_;
  SupportModule& support_;
  DeviceBuffer result_;   // CompareResult
  DeviceBuffer damaged_;  // 64-bit counter, also for checksums
};

// OUT_OF_BOUNDS for damage outside, WRONG_RESULT for wrong elements, else OK.
rooftune::v1::Outcome OutcomeOfVerification(const rooftune::v1::Verification& verification);

// One stored element as a double: FP32, FP16 or BF16 bits, little endian.
double DecodeElement(const unsigned char* bytes, rooftune::v1::DType dtype);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_VERIFY_H_

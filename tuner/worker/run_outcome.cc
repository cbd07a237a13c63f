#include "tuner/worker/run_outcome.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace rooftune {
namespace {

constexpr char kCodeFact[] = "cuda_error";

}  // namespace

bool IsStickyCudaError(int code) {
  switch (code) {
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 226:  // CONTAINED
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
    case 721:  // TENSOR_MEMORY_LEAK
    case 911:  // EXTERNAL_DEVICE
    case 999:  // UNKNOWN: nothing can be relied on
      return true;
    default:
      return false;
  }
}

v1::Outcome OutcomeOfCudaError(int code) {
  switch (code) {
    case 0:
      return v1::OK;
    case 2:  // OUT_OF_MEMORY
      return v1::OUT_OF_MEMORY;
    case 700:
      return v1::OUT_OF_BOUNDS;
    case 702:
      return v1::TIMEOUT;
    case 46:   // DEVICE_UNAVAILABLE
    case 100:  // NO_DEVICE
    case 101:  // INVALID_DEVICE
    case 214:
    case 220:
    case 226:
    case 911:
      return v1::DEVICE_LOST;
    case 710:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
    case 721:
    case 999:
      return v1::CRASHED;
    default:
      return v1::LAUNCH_FAILED;
  }
}

absl::Status CudaStatus(int code, absl::string_view message) {
  const absl::StatusCode status = code == 2 ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal;
  return Error(status, "CUDA_ERROR", message, {{kCodeFact, absl::StrCat(code)}});
}

int CudaErrorOf(const absl::Status& status) {
  const auto facts = ErrorMetadata(status);
  const auto fact = facts.find(kCodeFact);
  int code = 0;
  return fact != facts.end() && absl::SimpleAtoi(fact->second, &code) ? code : 0;
}

v1::Outcome OutcomeOfStatus(const absl::Status& status) {
  if (status.ok()) return v1::OK;
  const int code = CudaErrorOf(status);
  if (code != 0) return OutcomeOfCudaError(code);
  return status.code() == absl::StatusCode::kResourceExhausted ? v1::OUT_OF_MEMORY : v1::LAUNCH_FAILED;
}

void SetFailure(const absl::Status& status, worker::v1::RunResult& result) {
  result.set_outcome(OutcomeOfStatus(status));
  result.set_message(std::string(status.message()));
  result.set_cuda_error(CudaErrorOf(status));
}

}  // namespace rooftune

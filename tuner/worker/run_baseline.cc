// Baselines of a session: what others need for the same problem, through the same timer.
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "tuner/worker/run_session.h"

namespace rooftune {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;

}  // namespace

absl::Status RunSession::SetUpBaseline(const std::string& name, Participant* participant) {
  if (problem_ == nullptr)
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_PREPARED", "no problem is prepared");
  if (name == "cublaslt_first") return SetUpFirst(participant);
  if (name == "cublas") return SetUpCublas(participant);
  if (name == "copy") return SetUpCopy(participant);
  return Error(absl::StatusCode::kInvalidArgument, "UNKNOWN_BASELINE",
               absl::StrCat("unknown baseline '", name, "': there are cublas, cublaslt_first and copy"));
}

absl::Status RunSession::SetUpFirst(Participant* participant) {
  RT_ASSIGN_OR_RETURN(const v1::CublasLtMatmul product, PreparedProduct());
  RT_ASSIGN_OR_RETURN(const std::vector<CublasLt::Offer> offers, cublaslt_->Algorithms(product, kWorkspaceBytes, 1));
  return SetUpVendor(PlanOf(offers[0]), /*verify=*/true, /*twice=*/false, participant);
}

absl::Status RunSession::SetUpCublas(Participant* participant) {
  RT_ASSIGN_OR_RETURN(const GemmProblem gemm, PreparedGemm());
  RT_RETURN_IF_ERROR(Cublas::Supports(gemm));
  if (cublas_ == nullptr) {
    RT_ASSIGN_OR_RETURN(cublas_, Cublas::Load(context_));
  }
  participant->result.set_version(cublas_->version());
  const auto enqueue = [this, gemm](const Bindings& bindings) { return cublas_->Enqueue(gemm, bindings); };
  RT_RETURN_IF_ERROR(VerifyLibrary(enqueue, 0, /*twice=*/false, participant));
  if (!Passed(participant)) return absl::OkStatus();
  return TimeLibrary(enqueue, 0, participant);
}

absl::Status RunSession::SetUpCopy(Participant* participant) {
  participant->result.set_version("rooftune copy kernel");
  participant->result.set_peak_bytes(problem_->allocated_bytes());
  const int64_t read = problem_->bytes_read();
  const int64_t written = problem_->bytes_written();
  participant->work.nodes = 1;
  participant->work.enqueue = [this, read, written](int set) {
    const cuda::DevicePtr from = problem_->SetInputs(set);
    const cuda::DevicePtr to = problem_->SetOutputs(set);
    return read == written ? support_->Copy(from, to, read) : support_->ReadWrite(from, read, to, written);
  };
  return absl::OkStatus();
}

}  // namespace rooftune

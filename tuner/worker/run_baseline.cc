// Baselines of a session: what others need for the same problem, through the same timer.
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "tuner/worker/run_session.h"

namespace rooftune {
namespace {

// Position of the tensor of this name, or -1.
int FindTensor(const PreparedProblem& problem, absl::string_view name) {
  for (int i = 0; i < problem.tensors().size(); ++i) {
    if (problem.tensors(i).spec().name() == name) return i;
  }
  return -1;
}

// A product may be several kernels (split-K and its reduction).
constexpr int kMatmulNodes = 2;

}  // namespace

absl::Status RunSession::SetUpBaseline(const std::string& name, Participant* participant) {
  if (problem_ == nullptr)
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_PREPARED", "no problem is prepared");
  if (name == "cublaslt_first") return SetUpMatmul(participant);
  if (name == "copy") return SetUpCopy(participant);
  return Error(absl::StatusCode::kInvalidArgument, "UNKNOWN_BASELINE",
               absl::StrCat("unknown baseline '", name, "': there are cublaslt_first and copy"));
}

absl::Status RunSession::SetUpMatmul(Participant* participant) {
  RT_ASSIGN_OR_RETURN(const OpCatalog catalog, OpCatalog::Builtin());
  const std::string& text = problem_->request().op();
  const absl::StatusOr<Op> op = catalog.Parse(text);
  const int a = FindTensor(*problem_, "a");
  const int b = FindTensor(*problem_, "b");
  const int d = FindTensor(*problem_, "d");
  if (!op.ok() || op->kind != "gemm" || a < 0 || b < 0 || d < 0) {
    return Error(absl::StatusCode::kUnimplemented, "NO_BASELINE", absl::StrCat("cublaslt_first can't do '", text, "'"));
  }
  const auto scalars = DefaultScalars(problem_->request().scalar());
  const auto alpha = scalars.find("alpha");
  RT_ASSIGN_OR_RETURN(const GemmProblem gemm,
                      GemmProblemOf(*op, problem_->tensors(d).spec().dtype(),
                                    alpha != scalars.end() ? static_cast<float>(alpha->second) : 1.0f));
  if (cublaslt_ == nullptr) {
    RT_ASSIGN_OR_RETURN(cublaslt_, CublasLt::Load(context_));
  }
  participant->result.set_version(cublaslt_->version());
  RT_ASSIGN_OR_RETURN(participant->matmul, cublaslt_->First(gemm));
  participant->work.nodes = kMatmulNodes;
  participant->work.enqueue = [this, participant, a, b, d](int set) {
    return participant->matmul->Enqueue(problem_->SetPointer(a, set), problem_->SetPointer(b, set),
                                        problem_->SetPointer(d, set));
  };
  participant->result.set_peak_bytes(problem_->allocated_bytes());

  // On a rotation set, not on the guarded buffers: the library counts on addresses aligned to 256 bytes.
  RT_RETURN_IF_ERROR(support_->Poison(problem_->SetPointer(d, 0), problem_->tensors(d).bytes()));
  VerifyTarget target;
  target.output = [this](int tensor) { return problem_->SetPointer(tensor, 0); };
  std::string message;
  RT_RETURN_IF_ERROR(verifier_->Verify(
      *problem_, cpu_check_, target, [&] { return participant->work.enqueue(0); },
      participant->result.mutable_verification(), &message));
  if (!Passed(participant)) participant->result.set_message(message);
  return absl::OkStatus();
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

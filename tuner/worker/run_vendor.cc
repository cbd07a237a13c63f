// The vendor's library in a session: its algorithms listed, and one of them verified and timed like any candidate.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "tuner/worker/run_outcome.h"
#include "tuner/worker/run_session.h"

namespace rooftune {
namespace {

// A product may be several kernels (split-K and its reduction).
constexpr int kMatmulNodes = 2;
// What the library assumes of every address, and cudaMalloc gives.
constexpr int kAddressAlignment = 256;
// Limits of a request: what is beyond them is cut.
constexpr int kMaxAlgorithms = 256;
constexpr int64_t kMaxWorkspaceBytes = int64_t{1} << 30;

// What the library's numbers say of an algorithm, as a configuration. Names are sorted in a map, values are the
// library's own.
void FillConfig(const v1::CublasLtMatmul::Algorithm& algorithm, v1::LaunchPlan* plan) {
  auto& config = *plan->mutable_config();
  config["algo"] = algorithm.id();
  config["tile"] = algorithm.tile_id();
  config["stages"] = algorithm.stages_id();
  config["split_k"] = algorithm.split_k();
  config["reduction"] = algorithm.reduction_scheme();
  config["swizzling"] = algorithm.swizzling();
  config["custom"] = algorithm.custom_option();
  config["inner_shape"] = algorithm.inner_shape_id();
  config["cluster"] = algorithm.cluster_shape_id();
}

}  // namespace

absl::StatusOr<GemmProblem> RunSession::PreparedGemm() const {
  RT_ASSIGN_OR_RETURN(const OpCatalog catalog, OpCatalog::Builtin());
  const absl::StatusOr<Op> op = catalog.Parse(problem_->request().op());
  // A user's own operator: whatever it is, it is no gemm of ours.
  if (!op.ok()) return Error(absl::StatusCode::kUnimplemented, "NO_VENDOR", op.status().message());
  TensorTypes types;
  for (const worker::v1::ProblemTensor& tensor : problem_->tensors()) {
    types[tensor.spec().name()] = tensor.spec().dtype();
  }
  return GemmProblemOf(*op, types);
}

absl::StatusOr<v1::CublasLtMatmul> RunSession::PreparedProduct() {
  RT_ASSIGN_OR_RETURN(const GemmProblem gemm, PreparedGemm());
  RT_ASSIGN_OR_RETURN(v1::CublasLtMatmul product, CublasLtProduct(gemm));
  const auto scalars = DefaultScalars(problem_->request().scalar());
  if (scalars.count(product.alpha()) == 0) product.clear_alpha();
  if (cublaslt_ == nullptr) {
    RT_ASSIGN_OR_RETURN(cublaslt_, CublasLt::Load(context_));
  }
  return product;
}

v1::LaunchPlan RunSession::PlanOf(const CublasLt::Offer& offer) const {
  v1::LaunchPlan plan;
  plan.set_op(problem_->request().op());
  plan.set_arch(absl::StrCat("sm_", context_.limits().cc));
  for (const worker::v1::ProblemTensor& tensor : problem_->tensors()) {
    v1::TensorSpec& spec = *plan.add_tensor();
    spec = tensor.spec();
    spec.set_alignment(std::max(spec.alignment(), kAddressAlignment));
  }
  *plan.mutable_scalar() = problem_->request().scalar();
  plan.mutable_workspace_bytes()->set_value(offer.workspace_bytes);
  plan.mutable_workspace_bytes()->set_expr(absl::StrCat(offer.workspace_bytes));
  plan.set_workspace_init(v1::LaunchPlan::NONE);
  plan.set_template_id("cublaslt");
  // The library promises equal bits for equal inputs on one GPU model; a race launches twice and looks.
  plan.set_deterministic(true);
  *plan.mutable_cublaslt() = offer.matmul;
  FillConfig(offer.matmul.algorithm(), &plan);
  return plan;
}

worker::v1::VendorResult RunSession::Vendor(const worker::v1::VendorRequest& request) {
  worker::v1::VendorResult result;
  const auto fail = [&](const absl::Status& status) {
    const bool absent =
        status.code() == absl::StatusCode::kUnimplemented || status.code() == absl::StatusCode::kUnavailable;
    result.set_outcome(absent ? v1::NOT_RUN : OutcomeOfStatus(status));
    result.set_message(std::string(status.message()));
    return result;
  };
  if (problem_ == nullptr) return fail(absl::UnavailableError("no problem is prepared"));
  const absl::StatusOr<v1::CublasLtMatmul> product = PreparedProduct();
  if (!product.ok()) return fail(product.status());
  result.set_version(cublaslt_->version());
  const absl::StatusOr<std::vector<CublasLt::Offer>> offers =
      cublaslt_->Algorithms(*product, std::clamp<int64_t>(request.workspace_bytes(), 0, kMaxWorkspaceBytes),
                            std::clamp(request.max_algorithms(), 1, kMaxAlgorithms));
  if (!offers.ok()) return fail(offers.status());
  for (const CublasLt::Offer& offer : *offers) *result.add_plan() = PlanOf(offer);
  result.set_outcome(v1::OK);
  return result;
}

absl::Status RunSession::SetUpVendor(const v1::LaunchPlan& plan, bool verify, bool twice, Participant* participant) {
  if (cublaslt_ == nullptr) {
    RT_ASSIGN_OR_RETURN(cublaslt_, CublasLt::Load(context_));
  }
  participant->result.set_version(cublaslt_->version());
  const int64_t workspace_bytes = std::max<int64_t>(plan.workspace_bytes().value(), 0);
  RT_ASSIGN_OR_RETURN(participant->matmul, cublaslt_->Make(plan.cublaslt(), workspace_bytes));
  const auto enqueue = [participant](const Bindings& bindings) { return participant->matmul->Enqueue(bindings); };
  if (verify) {
    const absl::Time begin = absl::Now();
    const absl::Status verified = VerifyLibrary(enqueue, workspace_bytes, twice, participant);
    participant->result.set_verify_ms(absl::ToDoubleMilliseconds(absl::Now() - begin));
    RT_RETURN_IF_ERROR(verified);
    if (!Passed(participant)) return absl::OkStatus();
  }
  return TimeLibrary(enqueue, workspace_bytes, participant);
}

absl::Status RunSession::VerifyLibrary(const std::function<absl::Status(const Bindings&)>& enqueue,
                                       int64_t workspace_bytes, bool twice, Participant* participant) {
  // On a rotation set, not on the guarded buffers: a library counts on addresses aligned to 256 bytes.
  Bindings bindings = problem_->SetBindings(0);
  std::unique_ptr<GuardedBuffer> workspace;
  VerifyTarget target;
  if (workspace_bytes > 0) {
    RT_ASSIGN_OR_RETURN(workspace, GuardedBuffer::Create(context_, workspace_bytes, kAddressAlignment));
    bindings.workspace = workspace->ptr();
    bindings.workspace_bytes = workspace_bytes;
    target.guarded.push_back(workspace.get());
  }
  const auto reset = [&]() -> absl::Status {
    if (workspace != nullptr) RT_RETURN_IF_ERROR(workspace->FillOnes());
    for (const PreparedProblem::Output& output : problem_->outputs()) {
      RT_RETURN_IF_ERROR(
          support_->Poison(problem_->SetPointer(output.tensor, 0), problem_->tensors(output.tensor).bytes()));
    }
    return absl::OkStatus();
  };
  const auto launch = [&] { return enqueue(bindings); };
  RT_RETURN_IF_ERROR(reset());
  target.output = [this](int tensor) { return problem_->SetPointer(tensor, 0); };
  std::string message;
  RT_RETURN_IF_ERROR(
      verifier_->Verify(*problem_, cpu_check_, target, launch, participant->result.mutable_verification(), &message));
  participant->result.set_message(message);
  if (!twice || !participant->result.verification().passed()) return absl::OkStatus();
  return VerifyAgain(target, reset, launch, participant);
}

absl::Status RunSession::TimeLibrary(const std::function<absl::Status(const Bindings&)>& enqueue,
                                     int64_t workspace_bytes, Participant* participant) {
  if (workspace_bytes > 0) {
    RT_ASSIGN_OR_RETURN(participant->workspace, DeviceBuffer::Create(context_, workspace_bytes));
  }
  std::vector<Bindings> sets;
  for (int set = 0; set < problem_->sets(); ++set) {
    sets.push_back(problem_->SetBindings(set));
    sets.back().workspace = participant->workspace.ptr();
    sets.back().workspace_bytes = workspace_bytes;
  }
  participant->work.enqueue = [enqueue, sets = std::move(sets)](int set) {
    return enqueue(sets[static_cast<size_t>(set)]);
  };
  participant->work.nodes = kMatmulNodes;
  participant->result.set_peak_bytes(problem_->allocated_bytes() + workspace_bytes);
  return absl::OkStatus();
}

}  // namespace rooftune

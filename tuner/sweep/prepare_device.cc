#include "tuner/sweep/prepare_device.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

constexpr int kPrepareTimeoutMs = 120'000;
constexpr size_t kLogLimit = 4096;

absl::StatusOr<std::string> CompileHelper(Compiler& compiler, const worker::v1::CompileRequest& request,
                                          const char* what) {
  RT_ASSIGN_OR_RETURN(const auto compiled, compiler.Compile(request));
  if (compiled.outcome() == v1::OK) return compiled.cubin();
  return Error(absl::StatusCode::kFailedPrecondition, "HARNESS_COMPILE_FAILED",
               absl::StrCat(what, " does not compile for ", request.arch(), ": ", compiled.log().substr(0, kLogLimit)));
}

}  // namespace

absl::Status PrepareDevice(const TemplateLibrary& library, Backend& backend, const Op& op, uint64_t seed,
                           v1::L2State l2) {
  RT_ASSIGN_OR_RETURN(auto request, MakePrepare(library, op, backend.profile, seed));
  RT_ASSIGN_OR_RETURN(const auto reference, library.ReferenceOf(op, backend.profile));
  RT_ASSIGN_OR_RETURN(*request.mutable_support_cubin(),
                      CompileHelper(*backend.compiler, SupportKernels(backend.profile), "the harness"));
  RT_ASSIGN_OR_RETURN(*request.mutable_reference_cubin(),
                      CompileHelper(*backend.compiler, reference.compile, "the reference kernel"));
  request.set_l2(l2);
  request.set_memory_cap_bytes(backend.policy.memory_cap_bytes);
  request.set_timeout_ms(kPrepareTimeoutMs);
  RT_ASSIGN_OR_RETURN(const auto prepared, backend.runner->Prepare(request));
  if (prepared.outcome() == v1::OK) return absl::OkStatus();
  const bool memory = prepared.outcome() == v1::OUT_OF_MEMORY;
  return Error(memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kFailedPrecondition,
               memory ? "OUT_OF_MEMORY" : "PREPARE_FAILED",
               absl::StrCat("the problem could not be set up on the device (", v1::Outcome_Name(prepared.outcome()),
                            "): ", prepared.message()));
}

}  // namespace rooftune

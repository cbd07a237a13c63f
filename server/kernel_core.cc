#include "server/kernel_core.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

absl::Status CheckOffset(const Kernel& kernel, int64_t offset) {
  const auto size = static_cast<int64_t>(kernel.binary->size());
  if (offset >= 0 && offset <= size) return absl::OkStatus();
  return Error(absl::StatusCode::kOutOfRange, "BAD_OFFSET",
               absl::StrCat("offset ", offset, " lies outside the binary's ", size, " bytes"), {{"field", "offset"}});
}

}  // namespace

void KernelCore::GetKernel(const v1::GetKernelRequest& request, const CallPtr& call, Done<Kernel> done) {
  Done<Kernel> checked = [done = std::move(done), offset = request.offset()](absl::StatusOr<Kernel> kernel) {
    if (kernel.ok()) {
      const absl::Status in_range = CheckOffset(*kernel, offset);
      if (!in_range.ok()) return done(in_range);
    }
    done(std::move(kernel));
  };
  if (request.which_case() == v1::GetKernelRequest::kRecord) return ByName(request.record(), std::move(checked));
  if (request.which_case() != v1::GetKernelRequest::kQuery) {
    return checked(Error(absl::StatusCode::kInvalidArgument, "MISSING_FIELD", "neither record nor query is set",
                         {{"field", "which"}}));
  }
  v1::GetBestConfigRequest query = request.query();
  if (query.min_evidence() == v1::EVIDENCE_LEVEL_UNSPECIFIED) query.set_min_evidence(v1::VERIFIED);
  configs_.GetBestConfig(query, /*will_compile=*/true, call,
                         [this, checked](absl::StatusOr<v1::GetBestConfigResponse> best) {
                           if (best.ok())
                             WithBinary(std::move(*best->mutable_record()), checked);
                           else
                             checked(best.status());
                         });
}

void KernelCore::ByName(const std::string& name, Done<Kernel> done) {
  const absl::Status named = ResourceId(name, "records/").status();
  if (!named.ok()) return done(named);
  if (const RecordPtr estimate = estimates_.FindByName(name)) return WithBinary(*estimate, std::move(done));
  if (EstimateTable::IsEstimate(name)) {
    return done(
        Error(absl::StatusCode::kNotFound, "RECORD_NOT_FOUND",
              absl::StrCat("no record ", name, "; estimates are forgotten by a restart: ask GetBestConfig again")));
  }
  const absl::Status posted = context_.reads.Post([this, name, done] {
    absl::StatusOr<v1::TuningRecord> record = context_.deps.store.GetRecord(name);
    if (record.ok())
      WithBinary(*std::move(record), done);
    else
      done(record.status());
  });
  if (!posted.ok()) done(posted);
}

void KernelCore::WithBinary(v1::TuningRecord record, Done<Kernel> done) {
  const auto load = [this, done](const v1::TuningRecord& ready) {
    const absl::Status posted = context_.reads.Post([this, done, ready] { done(Load(ready)); });
    if (!posted.ok()) done(posted);
  };
  // An estimate's binary may have made room for others: compiling looks, and compiles again if it has to.
  if (!record.artifact_digest().empty() && !EstimateTable::IsEstimate(record.name())) return load(record);
  // The call of a library: the recipe is all there is.
  if (record.plan().has_cublaslt()) {
    return done(Kernel{std::move(record), std::make_shared<const std::string>()});
  }
  if (!EstimateTable::IsEstimate(record.name())) {
    return done(
        Error(absl::StatusCode::kFailedPrecondition, "NO_BINARY",
              absl::StrCat(record.name(), " has no binary: its provider is ", v1::Provider_Name(record.provider())),
              {{"provider", v1::Provider_Name(record.provider())}}));
  }
  const std::string name = record.name();
  compiles_.Do(
      name, context_.work, [this, record = std::move(record)] { return estimates_.Compile(record); },
      [load, done](const absl::StatusOr<RecordPtr>& compiled) {
        if (compiled.ok())
          load(**compiled);
        else
          done(compiled.status());
      });
}

absl::StatusOr<Kernel> KernelCore::Load(const v1::TuningRecord& record) {
  absl::StatusOr<std::string> binary = context_.deps.artifacts.Get(record.artifact_digest());
  if (absl::IsNotFound(binary.status())) {
    return Error(
        absl::StatusCode::kFailedPrecondition, "ARTIFACT_MISSING",
        absl::StrCat("the binary of ", record.name(), " (sha256 ", record.artifact_digest(),
                     ") is not in the data directory; imported evidence has none. Tune ", record.op(), " here"),
        {{"artifact_digest", record.artifact_digest()}});
  }
  if (!binary.ok()) return binary.status();
  return Kernel{record, std::make_shared<const std::string>(*std::move(binary))};
}

}  // namespace rooftune

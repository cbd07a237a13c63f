#include "tuner/sweep/describe_trial.h"

#include "base/status_macros.h"
#include "costmodel/occupancy.h"
#include "tuner/search/policies.h"

namespace rooftune {

absl::Status DescribeTrial(const CompiledCandidate& candidate, v1::Trial& trial) {
  RT_ASSIGN_OR_RETURN(const KernelTemplate::Analysis analysis,
                      candidate.source.Analyse(candidate.op, candidate.config, candidate.device));
  trial.set_evidence(v1::COMPILED);
  // Dynamic shared memory is in the plan, not in the cubin.
  const v1::Launch& launch = MainLaunch(candidate.plan);
  v1::Resources& resources = *trial.mutable_resources();
  for (const auto& kernel : candidate.compiled.kernel()) {
    if (kernel.symbol() == launch.symbol()) resources = kernel.resources();
  }
  resources.set_dynamic_shared_bytes(static_cast<int32_t>(launch.dynamic_shared_bytes().value()));
  resources.set_threads_per_block(
      static_cast<int32_t>(launch.block_x().value() * launch.block_y().value() * launch.block_z().value()));
  resources.set_blocks_per_sm(ComputeOccupancy(resources.threads_per_block(), resources.registers_per_thread(),
                                               resources.static_shared_bytes() + resources.dynamic_shared_bytes(),
                                               candidate.device)
                                  .blocks_per_sm);
  *trial.mutable_prediction() = PredictTime(candidate.work, analysis.mapped, resources, candidate.device, candidate.calibration);
  const CompiledVerdict verdict = JudgeCompiled(resources, candidate.max_spill_bytes, candidate.device);
  trial.set_outcome(verdict.outcome);
  trial.set_message(verdict.message);
  return absl::OkStatus();
}

}  // namespace rooftune

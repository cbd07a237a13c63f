// The prepared problem: guarded buffers for verification, the reference's results, and the buffer sets that timed
// launches rotate over.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_PROBLEM_H_
#define ROOFTUNE_TUNER_WORKER_RUN_PROBLEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rooftune/worker/v1/worker.pb.h"
#include "tuner/worker/run_guard.h"
#include "tuner/worker/run_launch.h"
#include "tuner/worker/run_support.h"

namespace rooftune {

// How many buffer sets a problem gets.
struct SetPlan {
  int sets = 1;
  // False if even all sets together may sit in the L2: then it is flushed before every sample.
  bool cold_by_rotation = false;
};
// Bytes that must be touched between two uses of a buffer for it to have left the L2.
int64_t ColdBytes(int64_t l2_bytes);
// `set_bytes`: all tensors once. `available`: device memory left for sets; sets = 0 if not even one fits.
SetPlan PlanSets(int64_t set_bytes, int64_t l2_bytes, int64_t available, bool warm);

// Everything a Prepare sets up. Owns device memory; borrows context and support kernels.
class PreparedProblem {
 public:
  struct Output {
    int tensor = 0;          // index into tensors()
    DeviceBuffer value;      // doubles
    DeviceBuffer magnitude;  // floats
  };

  // Allocates, fills, runs the reference. RESOURCE_EXHAUSTED with the sizes if the tensors do not fit.
  static absl::StatusOr<std::unique_ptr<PreparedProblem>> Create(const GpuContext& context, SupportModule& support,
                                                                 const worker::v1::PrepareRequest& request);

  const worker::v1::PrepareRequest& request() const { return request_; }
  const google::protobuf::RepeatedPtrField<worker::v1::ProblemTensor>& tensors() const { return request_.tensor(); }
  const worker::v1::ProblemTensor& tensors(int i) const { return request_.tensor(i); }
  const std::vector<Output>& outputs() const { return outputs_; }
  // The guarded buffer of tensor i.
  GuardedBuffer& guarded(int i) { return *guarded_[static_cast<size_t>(i)]; }

  // Puts inputs back where a kernel may have changed them (inout) and poisons outputs, zones included.
  absl::Status ResetGuarded();
  // Tensors that kernels read and write, and putting those of all sets back to what they were.
  bool has_in_place() const;
  absl::Status RefillInPlace();
  // Names bound to the guarded buffers, and to rotation set `set`. No workspace yet.
  Bindings GuardedBindings() const;
  Bindings SetBindings(int set) const;
  // Address of tensor i in set `set`.
  cuda::DevicePtr SetPointer(int i, int set) const;

  int sets() const { return set_plan_.sets; }
  bool cold_by_rotation() const { return set_plan_.cold_by_rotation; }
  // Start of the inputs and of the outputs of a set: bytes_read() and bytes_written() of them are there.
  cuda::DevicePtr SetInputs(int set) const;
  cuda::DevicePtr SetOutputs(int set) const;
  // Compulsory traffic: inputs once, outputs once.
  int64_t bytes_read() const;
  int64_t bytes_written() const;
  // Read before a sample to empty the L2; made when first asked for.
  absl::StatusOr<cuda::DevicePtr> FlushBuffer();
  int64_t flush_bytes() const { return ColdBytes(context_.limits().l2_bytes); }
  int64_t allocated_bytes() const;

 private:
  PreparedProblem(const GpuContext& context, SupportModule& support, worker::v1::PrepareRequest request)
      : context_(context), support_(support), request_(std::move(request)) {}
  absl::Status CheckRequest() const;
  void LayOutSlabs();
  absl::Status PlanMemory();
  absl::Status AllocateGuarded();
  absl::Status AllocateSets();
  absl::Status FillTensor(int i, cuda::DevicePtr at);
  absl::Status RunReference();
  absl::Status AddReferenceArgument(const worker::v1::ReferencePlan::Argument& argument, const Bindings& bindings,
                                    ArgumentPack& pack) const;

  const GpuContext& context_;
  SupportModule& support_;
  const worker::v1::PrepareRequest request_;
  SetPlan set_plan_;
  std::vector<std::unique_ptr<GuardedBuffer>> guarded_;
  std::vector<Output> outputs_;
  // The sets: all inputs of a set lie together, and all outputs, so that the copy baseline can run over them.
  struct Slab {
    DeviceBuffer block;
    int64_t stride = 0;  // bytes from set to set
  };
  Slab input_slab_;
  Slab output_slab_;
  std::vector<int64_t> slab_offset_;  // of each tensor in its set
  DeviceBuffer flush_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_PROBLEM_H_

#include "tuner/worker/run_problem.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// An H200's L2 holds nothing of what was touched 1.3 of its sizes ago; a cache that evicts at random still has 20 % after
// two and 6 % after three.
constexpr int64_t kColdTimes = 3;
constexpr int64_t kColdFloorBytes = int64_t{128} << 20;
constexpr int64_t kOneGigabyte = int64_t{1} << 30;
// As many as the nodes of one graph allow (PlanReplays).
constexpr int kMaxSets = 256;
// Addresses of sets are as aligned as those of an allocator.
constexpr int64_t kSetAlignment = 512;
constexpr int kMaxTensors = 64;
// Indices are non-negative int32.
constexpr int64_t kIndexRangeMax = int64_t{1} << 31;
// Of a tensor that holds sizes of groups: each is computed from all before it.
constexpr int64_t kGroupsMax = 4096;
// Left for the driver, libraries' workspaces and the timer.
constexpr double kShareOfFree = 0.9;

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

bool IsInput(const worker::v1::ProblemTensor& tensor) { return tensor.spec().role() != v1::TensorSpec::OUTPUT; }
bool IsOutput(const worker::v1::ProblemTensor& tensor) { return tensor.spec().role() != v1::TensorSpec::INPUT; }

// Types that an output may have and an input may not: they are compared, but not generated.
bool IsQuantized(v1::DType dtype) {
  return dtype == v1::FP8_E4M3 || dtype == v1::FP8_E5M2 || dtype == v1::INT8 || dtype == v1::INT4;
}

bool IsFloat(v1::DType dtype) { return dtype == v1::FP32 || dtype == v1::FP16 || dtype == v1::BF16; }

}  // namespace

int64_t ColdBytes(int64_t l2_bytes) { return std::max(kColdTimes * l2_bytes, kColdFloorBytes); }

SetPlan PlanSets(int64_t set_bytes, int64_t l2_bytes, int64_t available, bool warm) {
  SetPlan plan;
  const int64_t bytes = std::max<int64_t>(set_bytes, 1);
  const int64_t fitting = std::max<int64_t>(available, 0) / bytes;
  int64_t wanted = 1;
  if (!warm) {
    const int64_t cold = ColdBytes(l2_bytes);
    wanted = (cold + bytes - 1) / bytes;
    if (bytes < kOneGigabyte) wanted = std::max<int64_t>(wanted, 2);
  }
  plan.sets = static_cast<int>(std::min({wanted, fitting, int64_t{kMaxSets}}));
  plan.cold_by_rotation = !warm && plan.sets >= wanted;
  return plan;
}

absl::StatusOr<std::unique_ptr<PreparedProblem>> PreparedProblem::Create(const GpuContext& context,
                                                                         SupportModule& support,
                                                                         const worker::v1::PrepareRequest& request) {
  std::unique_ptr<PreparedProblem> problem(new PreparedProblem(context, support, request));
  RT_RETURN_IF_ERROR(problem->CheckRequest());
  RT_RETURN_IF_ERROR(problem->PlanMemory());
  RT_RETURN_IF_ERROR(problem->AllocateGuarded());
  RT_RETURN_IF_ERROR(problem->RunReference());
  for (int i = 0; i < problem->tensors().size(); ++i) {
    if (!IsOutput(problem->tensors(i))) RT_RETURN_IF_ERROR(problem->guarded(i).MakeReadOnly());
  }
  RT_RETURN_IF_ERROR(problem->AllocateSets());
  return problem;
}

absl::Status PreparedProblem::CheckRequest() const {
  if (request_.tensor().empty() || request_.tensor_size() > kMaxTensors) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_PROBLEM", "a problem has 1 to 64 tensors");
  }
  for (const worker::v1::ProblemTensor& tensor : request_.tensor()) {
    const std::string& name = tensor.spec().name();
    const int64_t alignment = tensor.spec().alignment();
    if (tensor.elements() <= 0 || tensor.bytes() <= 0 || (alignment & (alignment - 1)) != 0 || alignment > 4096) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_PROBLEM", absl::StrCat("tensor '", name, "' is malformed"));
    }
    // Zeros draw less power and hold higher clocks: times on them flatter.
    if (IsInput(tensor) && IsFloat(tensor.spec().dtype()) && tensor.fill().mean() == 0 && tensor.fill().stddev() == 0) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_PROBLEM",
                   absl::StrCat("input '", name, "' would be all zeros; give it a mean or a deviation"));
    }
    const v1::DType dtype = tensor.spec().dtype();
    const int64_t range = tensor.fill().range();
    const bool index = dtype == v1::INT32 || dtype == v1::INT64;
    const bool crowded = tensor.fill().distinct() && tensor.elements() > range;
    if (range < 0 || range > kIndexRangeMax || (range > 0 && !index) || crowded || tensor.fill().skip() < 0) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_PROBLEM",
                   absl::StrCat("tensor '", name, "': a fill range of ", range, " for ", v1::DType_Name(dtype)));
    }
    const int64_t total = tensor.fill().total(), groups = tensor.elements() - (tensor.fill().offsets() ? 1 : 0);
    if (total < 0 || total > kIndexRangeMax ||
        (total > 0 && (dtype != v1::INT32 || groups < 1 || groups > kGroupsMax || range > 0))) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_PROBLEM",
                   absl::StrCat("tensor '", name, "': ", groups, " groups of ", total, " for ", v1::DType_Name(dtype)));
    }
    const bool known = IsFloat(dtype) || dtype == v1::INT32 || IsQuantized(dtype);
    if (!known && (IsOutput(tensor) || !(dtype == v1::FP64 || (dtype == v1::INT64 && range > 0)))) {
      return Error(
          absl::StatusCode::kUnimplemented, "DTYPE",
          absl::StrCat("tensor '", name, "': ", v1::DType_Name(dtype),
                       " can't be generated and compared; use FP32, FP16, BF16, INT32, FP8_E4M3, FP8_E5M2, INT8 or "
                       "INT4 (inputs also FP64, and INT64 for indices)"));
    }
  }
  return absl::OkStatus();
}

absl::Status PreparedProblem::PlanMemory() {
  LayOutSlabs();
  const int64_t set_bytes = input_slab_.stride + output_slab_.stride;
  int64_t fixed = std::max<int64_t>(request_.workspace_bytes(), 0) * 2 + flush_bytes();
  for (const worker::v1::ProblemTensor& tensor : request_.tensor()) {
    constexpr int64_t kMappingSlack = int64_t{4} << 20;
    fixed += tensor.bytes() + kMappingSlack;
    // A double and a float for each expected element.
    if (IsOutput(tensor)) fixed += 12 * tensor.elements();
  }
  RT_ASSIGN_OR_RETURN(const int64_t free, context_.FreeBytes());
  int64_t cap = static_cast<int64_t>(static_cast<double>(free) * kShareOfFree);
  if (request_.memory_cap_bytes() > 0) cap = std::min(cap, request_.memory_cap_bytes());
  set_plan_ = PlanSets(set_bytes, context_.limits().l2_bytes, cap - fixed, request_.l2() == v1::WARM);
  if (set_plan_.sets < 1) {
    return Error(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                 absl::StrCat("the problem needs ", fixed + set_bytes,
                              " bytes of device memory (tensors twice, 12 bytes "
                              "for each expected element, workspace); ",
                              cap, " may be used"));
  }
  return absl::OkStatus();
}

absl::Status PreparedProblem::AllocateGuarded() {
  for (int i = 0; i < tensors().size(); ++i) {
    const worker::v1::ProblemTensor& tensor = tensors(i);
    RT_ASSIGN_OR_RETURN(std::unique_ptr<GuardedBuffer> buffer,
                        GuardedBuffer::Create(context_, tensor.bytes(), tensor.spec().alignment()));
    RT_RETURN_IF_ERROR(buffer->FillOnes());
    if (IsInput(tensor)) RT_RETURN_IF_ERROR(FillTensor(i, buffer->ptr()));
    guarded_.push_back(std::move(buffer));
    if (!IsOutput(tensor)) continue;
    Output output;
    output.tensor = i;
    RT_ASSIGN_OR_RETURN(output.value, DeviceBuffer::Create(context_, tensor.elements() * 8));
    RT_ASSIGN_OR_RETURN(output.magnitude, DeviceBuffer::Create(context_, tensor.elements() * 4));
    // Not a number until the reference has written it.
    RT_RETURN_IF_ERROR(support_.Poison(output.value.ptr(), tensor.elements() * 8));
    RT_RETURN_IF_ERROR(support_.Poison(output.magnitude.ptr(), tensor.elements() * 4));
    outputs_.push_back(std::move(output));
  }
  return context_.Synchronize("filling the inputs");
}

void PreparedProblem::LayOutSlabs() {
  for (const worker::v1::ProblemTensor& tensor : request_.tensor()) {
    const int64_t bytes = RoundUp(tensor.bytes(), kSetAlignment);
    Slab& slab = IsOutput(tensor) ? output_slab_ : input_slab_;
    slab_offset_.push_back(slab.stride);
    slab.stride += bytes;
    // What is read and written lies with the outputs; the copy baseline reads as many bytes here.
    if (IsOutput(tensor) && IsInput(tensor)) input_slab_.stride += bytes;
  }
}

absl::Status PreparedProblem::AllocateSets() {
  for (Slab* slab : {&input_slab_, &output_slab_}) {
    RT_ASSIGN_OR_RETURN(slab->block, DeviceBuffer::Create(context_, slab->stride * sets()));
  }
  for (int i = 0; i < tensors().size(); ++i) {
    for (int set = 0; set < sets(); ++set) {
      if (IsInput(tensors(i))) {
        RT_RETURN_IF_ERROR(FillTensor(i, SetPointer(i, set)));
      } else {
        RT_RETURN_IF_ERROR(support_.Poison(SetPointer(i, set), tensors(i).bytes()));
      }
    }
  }
  return context_.Synchronize("filling the buffer sets");
}

bool PreparedProblem::has_in_place() const {
  return std::any_of(tensors().begin(), tensors().end(),
                     [](const worker::v1::ProblemTensor& tensor) { return IsInput(tensor) && IsOutput(tensor); });
}

absl::Status PreparedProblem::RefillInPlace() {
  for (int i = 0; i < tensors().size(); ++i) {
    if (!IsInput(tensors(i)) || !IsOutput(tensors(i))) continue;
    for (int set = 0; set < sets(); ++set) RT_RETURN_IF_ERROR(FillTensor(i, SetPointer(i, set)));
  }
  return absl::OkStatus();
}

absl::Status PreparedProblem::FillTensor(int i, cuda::DevicePtr at) {
  const worker::v1::ProblemTensor& tensor = tensors(i);
  // The tensor's position in the operator's list is its number in the generator; kernels/generate.h.
  return support_.Fill(at, tensor.elements(), tensor.spec().dtype(), request_.seed(), static_cast<uint32_t>(i),
                       static_cast<float>(tensor.fill().mean()), static_cast<float>(tensor.fill().stddev()),
                       IndexFill{tensor.fill().range(), tensor.fill().distinct(), tensor.fill().skip(),
                                 tensor.fill().total(), tensor.fill().offsets()});
}

absl::Status PreparedProblem::RunReference() {
  const worker::v1::ReferencePlan& plan = request_.reference();
  RT_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModule> module,
                      LoadedModule::Load(context_, request_.reference_cubin(), "the reference kernel"));
  KernelLaunch launch;
  launch.symbol = plan.symbol();
  RT_ASSIGN_OR_RETURN(launch.function, module->Function(plan.symbol()));
  const int64_t threads = std::max<int64_t>(plan.block_x(), 1);
  if (plan.grid_x() < 1 || plan.grid_x() > context_.limits().grid[0] || threads > context_.limits().threads_per_block) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_REFERENCE",
                 absl::StrCat("the reference kernel wants ", plan.grid_x(), " blocks of ", threads, " threads"));
  }
  launch.config.grid_x = static_cast<unsigned>(plan.grid_x());
  launch.config.block_x = static_cast<unsigned>(threads);
  const Bindings bindings = GuardedBindings();
  for (const worker::v1::ReferencePlan::Argument& argument : plan.argument()) {
    RT_RETURN_IF_ERROR(AddReferenceArgument(argument, bindings, launch.arguments));
  }
  RT_RETURN_IF_ERROR(launch.Enqueue(context_));
  return context_.Synchronize("the reference kernel");
}

absl::Status PreparedProblem::AddReferenceArgument(const worker::v1::ReferencePlan::Argument& argument,
                                                   const Bindings& bindings, ArgumentPack& pack) const {
  using Argument = worker::v1::ReferencePlan::Argument;
  const auto output_named = [&](const std::string& name) -> const Output* {
    for (const Output& output : outputs_) {
      if (tensors(output.tensor).spec().name() == name) return &output;
    }
    return nullptr;
  };
  const auto unknown = [](absl::string_view what, absl::string_view name) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_REFERENCE",
                 absl::StrCat("the reference kernel's argument names no ", what, ": '", name, "'"));
  };
  switch (argument.kind_case()) {
    case Argument::kTensor: {
      const auto tensor = bindings.tensor.find(argument.tensor());
      if (tensor == bindings.tensor.end()) return unknown("tensor", argument.tensor());
      pack.AddPointer(tensor->second);
      return absl::OkStatus();
    }
    case Argument::kScalar: {
      const auto scalar = bindings.scalar.find(argument.scalar());
      if (scalar == bindings.scalar.end()) return unknown("scalar", argument.scalar());
      pack.AddFloat(static_cast<float>(scalar->second));
      return absl::OkStatus();
    }
    case Argument::kInt64:
      pack.AddInt64(argument.int64());
      return absl::OkStatus();
    case Argument::kInt32:
      pack.AddInt32(argument.int32());
      return absl::OkStatus();
    case Argument::kReferenceValue: {
      const Output* const output = output_named(argument.reference_value());
      if (output == nullptr) return unknown("output", argument.reference_value());
      pack.AddPointer(output->value.ptr());
      return absl::OkStatus();
    }
    case Argument::kReferenceMagnitude: {
      const Output* const output = output_named(argument.reference_magnitude());
      if (output == nullptr) return unknown("output", argument.reference_magnitude());
      pack.AddPointer(output->magnitude.ptr());
      return absl::OkStatus();
    }
    case Argument::KIND_NOT_SET:
      break;
  }
  return unknown("kind", "");
}

absl::Status PreparedProblem::ResetGuarded() {
  for (int i = 0; i < tensors().size(); ++i) {
    // A kernel can't have changed what it may not write.
    if (guarded(i).read_only()) continue;
    RT_RETURN_IF_ERROR(guarded(i).FillOnes());
    if (IsInput(tensors(i))) {
      RT_RETURN_IF_ERROR(FillTensor(i, guarded(i).ptr()));
    } else {
      RT_RETURN_IF_ERROR(support_.Poison(guarded(i).ptr(), guarded(i).bytes()));
    }
  }
  return absl::OkStatus();
}

Bindings PreparedProblem::GuardedBindings() const {
  Bindings bindings;
  bindings.scalar = DefaultScalars(request_.scalar());
  for (int i = 0; i < tensors().size(); ++i) {
    bindings.tensor[tensors(i).spec().name()] = guarded_[static_cast<size_t>(i)]->ptr();
  }
  return bindings;
}

Bindings PreparedProblem::SetBindings(int set) const {
  Bindings bindings;
  bindings.scalar = DefaultScalars(request_.scalar());
  for (int i = 0; i < tensors().size(); ++i) bindings.tensor[tensors(i).spec().name()] = SetPointer(i, set);
  return bindings;
}

cuda::DevicePtr PreparedProblem::SetInputs(int set) const {
  return input_slab_.block.ptr() + static_cast<cuda::DevicePtr>(input_slab_.stride * set);
}

cuda::DevicePtr PreparedProblem::SetOutputs(int set) const {
  return output_slab_.block.ptr() + static_cast<cuda::DevicePtr>(output_slab_.stride * set);
}

cuda::DevicePtr PreparedProblem::SetPointer(int i, int set) const {
  const cuda::DevicePtr start = IsOutput(tensors(i)) ? SetOutputs(set) : SetInputs(set);
  return start + static_cast<cuda::DevicePtr>(slab_offset_[static_cast<size_t>(i)]);
}

int64_t PreparedProblem::bytes_read() const {
  if (request_.bytes_read() > 0) return std::min(request_.bytes_read(), input_slab_.stride);
  int64_t bytes = 0;
  for (const worker::v1::ProblemTensor& tensor : tensors()) bytes += IsInput(tensor) ? tensor.bytes() : 0;
  return bytes;
}

int64_t PreparedProblem::bytes_written() const {
  if (request_.bytes_written() > 0) return std::min(request_.bytes_written(), output_slab_.stride);
  int64_t bytes = 0;
  for (const worker::v1::ProblemTensor& tensor : tensors()) bytes += IsOutput(tensor) ? tensor.bytes() : 0;
  return bytes;
}

absl::StatusOr<cuda::DevicePtr> PreparedProblem::FlushBuffer() {
  if (flush_.ptr() == 0) {
    RT_ASSIGN_OR_RETURN(flush_, DeviceBuffer::Create(context_, flush_bytes()));
    RT_RETURN_IF_ERROR(support_.Write(flush_.ptr(), flush_bytes()));
  }
  return flush_.ptr();
}

int64_t PreparedProblem::allocated_bytes() const {
  int64_t bytes = flush_.size();
  for (const auto& buffer : guarded_) bytes += buffer->allocated();
  for (const Output& output : outputs_) bytes += output.value.size() + output.magnitude.size();
  return bytes + input_slab_.block.size() + output_slab_.block.size();
}

}  // namespace rooftune

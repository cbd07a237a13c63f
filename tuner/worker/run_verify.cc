#include "tuner/worker/run_verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "costmodel/op.h"
#include "kernels/host_reference.h"
#include "kernels/tolerance.h"

namespace rooftune {
namespace {

// Two double computations of the same sum differ by its length times 2^-53; 1e-9 of the sum of magnitudes leaves
// room for 10^6 terms and still is 10^-2 of any output type's rounding.
constexpr double kValueTolerance = 1e-9;
// The magnitude scales the candidates' tolerance and is a float: it must be right, not exact.
constexpr double kMagnitudeTolerance = 1e-2;
// Below this a magnitude is a float subnormal.
constexpr double kTinyMagnitude = 1e-37;
// Gap up to which two wanted elements are fetched by one copy.
constexpr int64_t kMergeGap = 4096;

std::vector<int64_t> DimsOf(const v1::TensorSpec& spec) {
  std::vector<int64_t> dims;
  for (const v1::IntExpr& dim : spec.dim()) dims.push_back(dim.value());
  return dims;
}

// Elements at `indices` (sorted) of a device array.
template <typename T>
absl::StatusOr<std::vector<double>> Gather(const GpuContext& context, cuda::DevicePtr from,
                                           const std::vector<int64_t>& indices) {
  std::vector<double> values;
  values.reserve(indices.size());
  for (size_t begin = 0; begin < indices.size();) {
    size_t end = begin + 1;
    while (end < indices.size() && indices[end] - indices[end - 1] <= kMergeGap) ++end;
    std::vector<T> run(static_cast<size_t>(indices[end - 1] - indices[begin] + 1));
    RT_RETURN_IF_ERROR(context.driver().Check(
        context.driver().MemcpyDtoH(run.data(), from + static_cast<cuda::DevicePtr>(indices[begin]) * sizeof(T),
                                    run.size() * sizeof(T)),
        "reading the reference"));
    for (size_t i = begin; i < end; ++i) values.push_back(run[static_cast<size_t>(indices[i] - indices[begin])]);
    begin = end;
  }
  return values;
}

// Compares one output's elements and adds to `check`.
void CompareWithCpu(const std::string& tensor, const std::vector<int64_t>& indices, const std::vector<double>& value,
                    const std::vector<double>& magnitude, const std::vector<ReferenceValue>& expected,
                    CpuCheck* check) {
  for (size_t i = 0; i < indices.size(); ++i) {
    const ReferenceValue& cpu = expected[i];
    const double scale = std::max(std::abs(cpu.magnitude), std::abs(cpu.value));
    const double bound = kValueTolerance * scale + std::numeric_limits<double>::min();
    const bool both_nan = std::isnan(value[i]) && std::isnan(cpu.value);
    const bool same = both_nan || value[i] == cpu.value;
    const double ratio = same ? 0 : std::abs(value[i] - cpu.value) / bound;
    ++check->elements;
    if (std::isfinite(ratio)) check->max_error_ratio = std::max(check->max_error_ratio, ratio);
    // Negated, so that a NaN is a disagreement.
    const bool value_right = same || ratio <= 1;
    const bool magnitude_right =
        both_nan || magnitude[i] == cpu.magnitude ||
        std::abs(magnitude[i] - cpu.magnitude) <= kMagnitudeTolerance * std::abs(cpu.magnitude) + kTinyMagnitude;
    if ((value_right && magnitude_right) || !check->disagreement.empty()) continue;
    check->disagreement =
        absl::StrCat("reference kernel disagrees with CPU: ", tensor, "[", indices[i], "] value ", value[i], " (CPU ",
                     cpu.value, "), magnitude ", magnitude[i], " (CPU ", cpu.magnitude, ")");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Verifier>> Verifier::Create(const GpuContext& context, SupportModule& support) {
  std::unique_ptr<Verifier> verifier(new Verifier(context, support));
  RT_ASSIGN_OR_RETURN(verifier->result_, DeviceBuffer::Create(context, sizeof(CompareResult)));
  RT_ASSIGN_OR_RETURN(verifier->damaged_, DeviceBuffer::Create(context, sizeof(uint64_t)));
  return verifier;
}

absl::StatusOr<CpuCheck> Verifier::CheckReference(const PreparedProblem& problem) const {
  CpuCheck check;
  const worker::v1::PrepareRequest& request = problem.request();
  if (request.cpu_check_elements() <= 0) return check;
  RT_ASSIGN_OR_RETURN(const OpCatalog catalog, OpCatalog::Builtin());
  RT_ASSIGN_OR_RETURN(const Op op, catalog.Parse(request.op()));
  const OpSchema* const schema = catalog.Find(op.kind);
  RT_ASSIGN_OR_RETURN(const std::unique_ptr<HostReference> host,
                      MakeHostReference(*schema, op, request.seed(), DefaultScalars(request.scalar())));
  for (const PreparedProblem::Output& output : problem.outputs()) {
    const v1::TensorSpec& spec = problem.tensors(output.tensor).spec();
    const int count = host->CheckCount(spec.name(), request.cpu_check_elements());
    const std::vector<int64_t> indices = CheckIndices(DimsOf(spec), count, request.seed());
    RT_ASSIGN_OR_RETURN(const std::vector<ReferenceValue> expected, host->Evaluate(spec.name(), indices));
    RT_ASSIGN_OR_RETURN(const std::vector<double> value, Gather<double>(context_, output.value.ptr(), indices));
    RT_ASSIGN_OR_RETURN(const std::vector<double> magnitude, Gather<float>(context_, output.magnitude.ptr(), indices));
    if (expected.size() != indices.size()) return absl::InternalError("the CPU reference left elements out");
    CompareWithCpu(spec.name(), indices, value, magnitude, expected, &check);
  }
  return check;
}

absl::Status Verifier::Verify(const PreparedProblem& problem, const CpuCheck& cpu, const VerifyTarget& target,
                              const std::function<absl::Status()>& launch, v1::Verification* verification,
                              std::string* message) {
  const worker::v1::PrepareRequest& request = problem.request();
  verification->set_reference(request.reference().name());
  verification->set_seed(request.seed());
  verification->set_cpu_checked_elements(cpu.elements);
  RT_RETURN_IF_ERROR(launch());
  RT_RETURN_IF_ERROR(context_.Synchronize("the verified launch"));
  for (const PreparedProblem::Output& output : problem.outputs()) {
    RT_RETURN_IF_ERROR(CompareOutput(problem, output, target.output(output.tensor), verification, message));
  }
  RT_ASSIGN_OR_RETURN(const int64_t damaged, DamagedBytes(target.guarded));
  verification->set_redzone_bytes(damaged);
  if (damaged > 0) *message = absl::StrCat(damaged, " bytes outside of the buffers were overwritten; ", *message);
  verification->set_passed(verification->wrong_elements() == 0 && verification->unwritten_elements() == 0 &&
                           damaged == 0);
  return absl::OkStatus();
}

absl::Status Verifier::CompareOutput(const PreparedProblem& problem, const PreparedProblem::Output& output,
                                     cuda::DevicePtr at, v1::Verification* verification, std::string* message) {
  const worker::v1::ProblemTensor& tensor = problem.tensors(output.tensor);
  const v1::DType dtype = tensor.spec().dtype();
  const worker::v1::Tolerance& tolerance = problem.request().tolerance();
  const double scale = tolerance.scale() > 0 ? tolerance.scale() : 1;
  const ErrorBound bound = MakeErrorBound(dtype, tolerance.accumulation_length(), scale);
  const CudaDriver& driver = context_.driver();
  RT_RETURN_IF_ERROR(support_.ResetResult(result_.ptr()));
  RT_RETURN_IF_ERROR(
      support_.Compare(at, output.value.ptr(), output.magnitude.ptr(), tensor.elements(), dtype, bound, result_.ptr()));
  RT_RETURN_IF_ERROR(context_.Synchronize("comparing"));
  CompareResult result;
  RT_RETURN_IF_ERROR(driver.Check(driver.MemcpyDtoH(&result, result_.ptr(), sizeof(result)), "comparing"));
  const bool first_wrong_output = verification->wrong_elements() == 0;
  if (verification->tolerance().empty()) {
    verification->set_tolerance(DescribeErrorBound(dtype, tolerance.accumulation_length(), scale));
  }
  verification->set_elements(verification->elements() + tensor.elements());
  verification->set_wrong_elements(verification->wrong_elements() + static_cast<int64_t>(result.wrong));
  verification->set_unwritten_elements(verification->unwritten_elements() + static_cast<int64_t>(result.unwritten));
  verification->set_max_error_ratio(std::max(verification->max_error_ratio(), result.max_ratio));
  verification->set_max_abs_error(std::max(verification->max_abs_error(), result.max_abs));
  if (result.wrong == 0 || !first_wrong_output) return absl::OkStatus();

  unsigned char stored[4] = {};
  double expected = 0;
  const cuda::DevicePtr index = result.first_wrong_index;
  const size_t size = static_cast<size_t>(DTypeBytes(dtype));
  const cuda::DevicePtr from = at + index * static_cast<cuda::DevicePtr>(DTypeBits(dtype)) / 8;
  RT_RETURN_IF_ERROR(
      driver.Check(driver.MemcpyDtoH(stored, from, std::min(size, sizeof(stored))), "reading a wrong element"));
  // The other element of its byte.
  if (dtype == v1::INT4 && index % 2 == 1) stored[0] = static_cast<unsigned char>(stored[0] >> 4);
  RT_RETURN_IF_ERROR(
      driver.Check(driver.MemcpyDtoH(&expected, output.value.ptr() + index * sizeof(double), sizeof(double)),
                   "reading its reference"));
  verification->set_first_wrong_index(static_cast<int64_t>(index));
  verification->set_first_wrong_value(DecodeElement(stored, dtype));
  verification->set_first_wrong_expected(expected);
  *message =
      absl::StrCat(result.wrong, " of ", tensor.elements(), " elements of '", tensor.spec().name(), "' are wrong (",
                   result.unwritten, " never written, ", result.nonfinite, " not finite); the first is [", index,
                   "]: ", verification->first_wrong_value(), ", expected ", expected);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Verifier::DamagedBytes(const std::vector<GuardedBuffer*>& guarded) {
  const CudaDriver& driver = context_.driver();
  RT_RETURN_IF_ERROR(
      driver.Check(driver.MemsetD8Async(damaged_.ptr(), 0, sizeof(uint64_t), context_.stream()), "cuMemsetD8Async"));
  for (const GuardedBuffer* buffer : guarded) {
    for (const GuardedBuffer::Range& zone : buffer->zones()) {
      if (zone.bytes > 0) RT_RETURN_IF_ERROR(support_.CheckBytes(zone.ptr, zone.bytes, damaged_.ptr()));
    }
  }
  RT_RETURN_IF_ERROR(context_.Synchronize("checking the zones"));
  uint64_t damaged = 0;
  RT_RETURN_IF_ERROR(driver.Check(driver.MemcpyDtoH(&damaged, damaged_.ptr(), sizeof(damaged)), "checking the zones"));
  return static_cast<int64_t>(damaged);
}

absl::StatusOr<uint64_t> Verifier::Checksum(const PreparedProblem& problem, const VerifyTarget& target) {
  const CudaDriver& driver = context_.driver();
  RT_RETURN_IF_ERROR(
      driver.Check(driver.MemsetD8Async(damaged_.ptr(), 0, sizeof(uint64_t), context_.stream()), "cuMemsetD8Async"));
  for (const PreparedProblem::Output& output : problem.outputs()) {
    RT_RETURN_IF_ERROR(
        support_.Checksum(target.output(output.tensor), problem.tensors(output.tensor).bytes(), damaged_.ptr()));
  }
  RT_RETURN_IF_ERROR(context_.Synchronize("the checksum"));
  uint64_t sum = 0;
  RT_RETURN_IF_ERROR(driver.Check(driver.MemcpyDtoH(&sum, damaged_.ptr(), sizeof(sum)), "the checksum"));
  return sum;
}

v1::Outcome OutcomeOfVerification(const v1::Verification& verification) {
  if (verification.redzone_bytes() > 0) return v1::OUT_OF_BOUNDS;
  return verification.passed() ? v1::OK : v1::WRONG_RESULT;
}

double DecodeElement(const unsigned char* bytes, v1::DType dtype) {
  if (dtype == v1::FP32) {
    float value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  if (dtype == v1::INT8) return static_cast<signed char>(bytes[0]);
  if (dtype == v1::INT4) return (bytes[0] & 15) - (bytes[0] & 8) * 2;
  // The upper byte of an fp16.
  if (dtype == v1::FP8_E5M2) {
    const unsigned char half[] = {0, bytes[0]};
    return DecodeElement(half, v1::FP16);
  }
  if (dtype == v1::FP8_E4M3) {
    const int exponent = bytes[0] >> 3 & 15;
    const double fraction = (bytes[0] & 7) / 8.0;
    if ((bytes[0] & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
    const double size = exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
    return (bytes[0] & 0x80) != 0 ? -size : size;
  }
  if (dtype == v1::INT32) {
    int32_t value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  const uint32_t bits = bytes[0] | static_cast<uint32_t>(bytes[1]) << 8;
  if (dtype == v1::BF16) {
    const uint32_t wide = bits << 16;
    float value = 0;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double fraction = static_cast<double>(bits & 1023) / 1024;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -14) : sign * std::ldexp(1 + fraction, exponent - 15);
}

}  // namespace rooftune

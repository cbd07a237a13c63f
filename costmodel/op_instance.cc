// What an instance of an operator has and needs: tensors, scalars and exact work.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "costmodel/op_parsed.h"

namespace rooftune {
namespace {

// Vector loads and tensor maps want 16 bytes; CUDA's allocations give 256.
constexpr int kTensorAlignment = 16;
// Inputs of chains with sqrt, log or division: generated values stay within 3.47 standard deviations of the
// mean (kernels/generate.h), so these are positive and away from zero.
constexpr double kPositiveMean = 4;
// Indices are non-negative int32.
constexpr int64_t kIndexRangeMax = int64_t{1} << 31;
// Ragged groups of a generated tensor: each is computed from all before it.
constexpr int64_t kGroupsMax = 4096;

absl::Status BadSize(const Op& op, absl::string_view tensor, absl::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", absl::StrCat(op.text, ": tensor ", tensor, ": ", what),
               {{"field", std::string(tensor)}});
}

absl::StatusOr<bool> Holds(const std::optional<Expression>& when, const Op& op) {
  if (!when.has_value()) return true;
  RT_ASSIGN_OR_RETURN(const int64_t value, when->Eval(op.names));
  return value != 0;
}

// The chain's name, empty where the operator has none.
std::string ChainOf(const Op& op) {
  for (const auto& [name, program] : op.lists) {
    if (op.names.count(absl::StrCat(name, "_inputs")) > 0) return name;
  }
  return "";
}

bool NeedsPositiveInputs(const Op& op) {
  const auto program = op.lists.find(ChainOf(op));
  if (program == op.lists.end()) return false;
  for (const int64_t code : program->second) {
    const ChainOp chain_op = static_cast<ChainOp>(code);
    if (chain_op == ChainOp::kSqrt || chain_op == ChainOp::kRsqrt || chain_op == ChainOp::kLog ||
        chain_op == ChainOp::kDiv) {
      return true;
    }
  }
  return false;
}

// The chain's inputs from number `first` on; `result` has the result's dims and the type of inputs that say none.
absl::Status AddChainInputs(const Op& op, OpTensorInstance result, int64_t first,
                            std::vector<OpTensorInstance>* tensors) {
  const std::string chain = ChainOf(op);
  if (NeedsPositiveInputs(op)) result.fill_mean = kPositiveMean;
  const std::vector<int64_t>& axes = op.lists.at(ChainLists(chain)[0]);
  const std::vector<int64_t>& dtypes = op.lists.at(ChainLists(chain)[1]);
  for (size_t input = first; input < axes.size(); ++input) {
    OpTensorInstance tensor = result;
    tensor.spec.set_name(std::string(1, static_cast<char>('a' + input)));
    if (dtypes[input] != 0) tensor.spec.set_dtype(static_cast<v1::DType>(dtypes[input]));
    for (int axis = 0; axis < tensor.spec.dim_size(); ++axis) {
      if (axes[input] >> axis & 1) continue;
      tensor.elements /= tensor.spec.dim(axis).value();
      tensor.spec.mutable_dim(axis)->set_value(1);
      tensor.spec.mutable_dim(axis)->set_expr("1");
    }
    const Int128 bytes = Int128{tensor.elements} * DTypeBytes(tensor.spec.dtype());
    if (bytes > kTensorBytesMax) return BadSize(op, tensor.spec.name(), "is larger than 2^62 bytes");
    tensor.bytes = static_cast<int64_t>(bytes);
    tensors->push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

// 0 where there is no expression.
absl::StatusOr<Int128> Count(const std::optional<Expression>& expression, const Op& op, absl::string_view field) {
  if (!expression.has_value()) return Int128{0};
  const absl::StatusOr<Int128> value = expression->Eval128(op.names);
  if (value.ok() && *value >= 0) return *value;
  const std::string why = value.ok() ? "is negative" : std::string(value.status().message());
  return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", absl::StrCat(op.text, ": work.", field, " ", why),
               {{"field", absl::StrCat("work.", field)}});
}

// What the generated tensor holds.
absl::Status SetFill(const Op& op, const manifest::v1::OpTensor& declared, const std::optional<Expression>& range,
                     const std::optional<Expression>& divisor, OpTensorInstance* tensor) {
  tensor->fill_mean = declared.fill_mean();
  tensor->fill_stddev = declared.fill_stddev() == 0 ? 1 : declared.fill_stddev();
  if (divisor.has_value()) {
    RT_ASSIGN_OR_RETURN(const int64_t by, divisor->Eval(op.names));
    if (by < 1) return BadSize(op, declared.name(), absl::StrCat("fill_divisor is ", by, ", not positive"));
    tensor->fill_mean /= static_cast<double>(by);
    tensor->fill_stddev /= static_cast<double>(by);
  }
  if (!range.has_value()) return absl::OkStatus();
  RT_ASSIGN_OR_RETURN(tensor->fill_range, range->Eval(op.names));
  const bool index = tensor->spec.dtype() == v1::INT32 || tensor->spec.dtype() == v1::INT64;
  if (!index || tensor->fill_range < 1 || tensor->fill_range > kIndexRangeMax) {
    return BadSize(op, declared.name(),
                   absl::StrCat("fill_range is for int32 and int64 and within 1 … 2^31, not ", tensor->fill_range));
  }
  tensor->fill_distinct = declared.fill_distinct();
  tensor->fill_skip = declared.fill_skip();
  if (tensor->fill_distinct && tensor->elements > tensor->fill_range) {
    return BadSize(op, declared.name(),
                   absl::StrCat("has ", tensor->elements, " different indices below ", tensor->fill_range));
  }
  return absl::OkStatus();
}

// The same where it holds sizes of groups.
absl::Status SetGroups(const Op& op, const manifest::v1::OpTensor& declared, const Expression& total,
                       const std::optional<Expression>& offsets, OpTensorInstance* tensor) {
  RT_ASSIGN_OR_RETURN(tensor->fill_total, total.Eval(op.names));
  RT_ASSIGN_OR_RETURN(tensor->fill_offsets, offsets.has_value() ? Holds(offsets, op) : false);
  const int64_t groups = tensor->elements - (tensor->fill_offsets ? 1 : 0);
  if (tensor->spec.dtype() != v1::INT32 || tensor->fill_total < 1 || tensor->fill_total > kIndexRangeMax ||
      groups < 1 || groups > kGroupsMax || tensor->fill_range > 0) {
    return BadSize(op, declared.name(),
                   absl::StrCat("fill_total is for int32, within 1 … 2^31 and for 1 to 4096 groups, not ",
                                tensor->fill_total, " for ", groups));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<OpTensorInstance>> OpSchema::Tensors(const Op& op) const {
  std::vector<OpTensorInstance> tensors;
  for (int i = 0; i < proto_.tensor_size(); ++i) {
    const manifest::v1::OpTensor& declared = proto_.tensor(i);
    const Parsed::Tensor& parsed = parsed_->tensors[i];
    RT_ASSIGN_OR_RETURN(const bool exists, Holds(parsed.when, op));
    if (!exists) continue;
    OpTensorInstance tensor;
    RT_ASSIGN_OR_RETURN(const int64_t dtype, parsed.dtype->Eval(op.names));
    const int64_t bits = v1::DType_IsValid(static_cast<int>(dtype)) ? DTypeBits(static_cast<v1::DType>(dtype)) : 0;
    if (bits == 0) return BadSize(op, declared.name(), absl::StrCat("dtype code ", dtype, " does not exist"));
    tensor.spec.set_name(declared.name());
    tensor.spec.set_role(parsed.role);
    tensor.spec.set_dtype(static_cast<v1::DType>(dtype));
    tensor.spec.set_alignment(kTensorAlignment);
    Int128 elements = 1;
    for (const Expression& dim : parsed.dims) {
      const absl::StatusOr<int64_t> extent = dim.Eval(op.names);
      if (!extent.ok()) return BadSize(op, declared.name(), extent.status().message());
      if (*extent < 1) return BadSize(op, declared.name(), absl::StrCat("extent ", dim.text(), " is ", *extent));
      // Both factors are below 2^63, so the product can't wrap before it is compared.
      elements *= *extent;
      if (elements > kTensorBytesMax || elements * bits > 8 * kTensorBytesMax)
        return BadSize(op, declared.name(), "is larger than 2^62 bytes");
      v1::IntExpr* out = tensor.spec.add_dim();
      out->set_value(*extent);
      out->set_expr(dim.text());
    }
    tensor.elements = static_cast<int64_t>(elements);
    tensor.bytes = static_cast<int64_t>((elements * bits + 7) / 8);
    RT_RETURN_IF_ERROR(SetFill(op, declared, parsed.fill_range, parsed.fill_divisor, &tensor));
    if (parsed.fill_total.has_value()) {
      RT_RETURN_IF_ERROR(SetGroups(op, declared, *parsed.fill_total, parsed.fill_offsets, &tensor));
    }
    if (parsed.role == v1::TensorSpec::INOUT && NeedsPositiveInputs(op)) tensor.fill_mean = kPositiveMean;
    if (!declared.chain_inputs()) {
      tensors.push_back(std::move(tensor));
      continue;
    }
    RT_ASSIGN_OR_RETURN(const Int128 skipped, Count(parsed.chain_skip, op, "chain_skip"));
    RT_RETURN_IF_ERROR(AddChainInputs(op, std::move(tensor), skipped > 0 ? 1 : 0, &tensors));
  }
  return tensors;
}

std::vector<v1::ScalarSpec> OpSchema::Scalars(const Op& op) const {
  std::vector<v1::ScalarSpec> scalars;
  for (int i = 0; i < proto_.scalar_size(); ++i) {
    const absl::StatusOr<bool> exists = Holds(parsed_->scalar_whens[i], op);
    // Names were checked when the schema was made; what is left is arithmetic, and then the scalar makes no sense.
    if (!exists.ok() || !*exists) continue;
    v1::ScalarSpec scalar;
    scalar.set_name(proto_.scalar(i).name());
    scalar.set_dtype(v1::FP32);
    scalar.set_default_value(proto_.scalar(i).default_value());
    scalars.push_back(std::move(scalar));
  }
  return scalars;
}

absl::StatusOr<Work> OpSchema::ComputeWork(const Op& op) const {
  const Parsed::WorkExprs& exprs = parsed_->work;
  Work work;
  RT_ASSIGN_OR_RETURN(const Int128 tensor_ops, Count(exprs.tensor_ops, op, "tensor_ops"));
  RT_ASSIGN_OR_RETURN(const Int128 fp32_ops, Count(exprs.fp32_ops, op, "fp32_ops"));
  RT_ASSIGN_OR_RETURN(const Int128 sfu_ops, Count(exprs.sfu_ops, op, "sfu_ops"));
  if (tensor_ops > 0) {
    RT_ASSIGN_OR_RETURN(const int64_t dtype, exprs.tensor_dtype->Eval(op.names));
    work.pipe_ops.push_back({"tensor", static_cast<v1::DType>(dtype), tensor_ops});
  }
  if (fp32_ops > 0) work.pipe_ops.push_back({"fp32", v1::FP32, fp32_ops});
  if (sfu_ops > 0) work.pipe_ops.push_back({"sfu", v1::DTYPE_UNSPECIFIED, sfu_ops});
  RT_ASSIGN_OR_RETURN(const std::vector<OpTensorInstance> tensors, Tensors(op));
  for (const OpTensorInstance& tensor : tensors) {
    if (tensor.spec.role() != v1::TensorSpec::OUTPUT) work.bytes_read += tensor.bytes;
    if (tensor.spec.role() != v1::TensorSpec::INPUT) work.bytes_written += tensor.bytes;
    work.footprint_bytes += tensor.bytes;
  }
  if (exprs.bytes_read.has_value()) {
    RT_ASSIGN_OR_RETURN(work.bytes_read, Count(exprs.bytes_read, op, "bytes_read"));
  }
  if (exprs.bytes_written.has_value()) {
    RT_ASSIGN_OR_RETURN(work.bytes_written, Count(exprs.bytes_written, op, "bytes_written"));
  }
  return work;
}

absl::StatusOr<int64_t> OpSchema::AccumulationLength(const Op& op) const {
  if (!parsed_->accumulation_length.has_value()) return 1;
  RT_ASSIGN_OR_RETURN(const int64_t length, parsed_->accumulation_length->Eval(op.names));
  if (length >= 1) return length;
  return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE",
               absl::StrCat(op.text, ": accumulation_length is ", length), {{"field", "accumulation_length"}});
}

}  // namespace rooftune

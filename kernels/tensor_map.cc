#include "kernels/tensor_map.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "costmodel/op.h"

namespace rooftune {
namespace {

using manifest::v1::TensorMapSpec;

// Limits of cuTensorMapEncodeTiled, CUDA 13.0.
constexpr int kMaxRank = 5;
constexpr int64_t kMaxExtent = int64_t{1} << 32;
constexpr int64_t kMaxStride = (int64_t{1} << 40) - 1;
constexpr int64_t kMaxBox = 256;
constexpr int64_t kMaxElementStride = 8;
constexpr int64_t kGranule = 16;
// CUtensorMapSwizzle, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapFloatOOBfill: the largest value.
constexpr int64_t kMaxSwizzle = 6;
constexpr int64_t kMaxInterleave = 2;
constexpr int64_t kMaxL2Promotion = 3;
constexpr int64_t kMaxOobFill = 1;

absl::Status OutOfRange(absl::string_view what, int64_t value) {
  return Error(absl::StatusCode::kOutOfRange, "LAUNCH_GEOMETRY", absl::StrCat(what, " is ", value));
}

// Widest inner extent of a box in bytes under a swizzle; 0 = no limit.
int64_t SwizzleSpan(int swizzle) {
  if (swizzle == 0) return 0;
  return swizzle == 1 ? 32 : swizzle == 2 ? 64 : 128;
}

absl::StatusOr<std::vector<Expression>> ParseList(const TensorMapSpec& spec, const char* field,
                                                  const ManifestScope& scope, const Locator& at) {
  const auto* descriptor = spec.GetDescriptor()->FindFieldByName(field);
  std::vector<Expression> list;
  for (int i = 0; i < spec.GetReflection()->FieldSize(spec, descriptor); ++i) {
    RT_ASSIGN_OR_RETURN(Quantity quantity, scope.Compile(at, spec, field, i));
    if (!quantity.has_value()) return at.Error(spec, field, absl::StrCat(field, " is empty"), i);
    list.push_back(*std::move(quantity));
  }
  return list;
}

// A mode is a number in the plan, with no expression beside it: it must hold for every shape.
absl::StatusOr<Quantity> ParseMode(const TensorMapSpec& spec, const char* field, const manifest::v1::Op& op,
                                   const ManifestScope& scope, const Locator& at) {
  RT_ASSIGN_OR_RETURN(Quantity quantity, scope.Compile(at, spec, field));
  for (const std::string& name : quantity.has_value() ? quantity->names() : std::vector<std::string>()) {
    for (const auto& dim : op.dim()) {
      if (dim.name() == name) return at.Error(spec, field, absl::StrCat(field, " must not depend on dim '", name, "'"));
    }
  }
  return quantity;
}

absl::Status CheckTensor(const TensorMapSpec& spec, const manifest::v1::Op& op, const Locator& at) {
  std::string known;
  for (const auto& tensor : op.tensor()) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", tensor.name());
    if (tensor.name() != spec.tensor()) continue;
    if (!tensor.chain_inputs()) return absl::OkStatus();
    return at.Error(spec, "tensor", absl::StrCat("'", spec.tensor(), "' is a list of tensors"));
  }
  return at.Error(spec, "tensor",
                  absl::StrCat("operator ", op.kind(), " has no tensor '", spec.tensor(), "'; there are ", known));
}

absl::Status CheckRank(const TensorMapSpec& spec, const Locator& at) {
  const int rank = spec.dim_size();
  if (rank < 1 || rank > kMaxRank) {
    return at.Error(spec, "dim", absl::StrCat("a tensor map has 1 to ", kMaxRank, " dims"));
  }
  const auto wrong = [&](const char* field, int size, int wanted) {
    return at.Error(spec, field, absl::StrCat(wanted, " of ", field, " are needed for ", rank, " dims, not ", size));
  };
  if (spec.stride_bytes_size() != rank - 1) return wrong("stride_bytes", spec.stride_bytes_size(), rank - 1);
  if (spec.box_size() != rank) return wrong("box", spec.box_size(), rank);
  if (spec.element_stride_size() != 0 && spec.element_stride_size() != rank) {
    return wrong("element_stride", spec.element_stride_size(), rank);
  }
  return absl::OkStatus();
}

absl::Status CheckDim(const v1::TensorMap& map, int i) {
  const auto within = [](const v1::IntExpr& quantity, int64_t most) {
    return quantity.value() >= 1 && quantity.value() <= most;
  };
  if (!within(map.dim(i), kMaxExtent)) return OutOfRange(absl::StrCat("dim ", i), map.dim(i).value());
  if (!within(map.box(i), kMaxBox)) return OutOfRange(absl::StrCat("box ", i), map.box(i).value());
  if (!within(map.element_stride(i), kMaxElementStride)) {
    return OutOfRange(absl::StrCat("element_stride ", i), map.element_stride(i).value());
  }
  if (i == 0) return absl::OkStatus();
  const v1::IntExpr& stride = map.stride_bytes(i - 1);
  if (!within(stride, kMaxStride) || stride.value() % kGranule != 0) {
    return OutOfRange(absl::StrCat("stride_bytes ", i - 1, ", which must be a multiple of ", kGranule, ","),
                      stride.value());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParsedTensorMap> ParseTensorMap(const TensorMapSpec& spec, const manifest::v1::Op& op,
                                               const ManifestScope& scope, const Locator& at) {
  RT_RETURN_IF_ERROR(CheckTensor(spec, op, at));
  RT_RETURN_IF_ERROR(CheckRank(spec, at));
  ParsedTensorMap map;
  RT_ASSIGN_OR_RETURN(map.dims, ParseList(spec, "dim", scope, at));
  RT_ASSIGN_OR_RETURN(map.strides, ParseList(spec, "stride_bytes", scope, at));
  RT_ASSIGN_OR_RETURN(map.box, ParseList(spec, "box", scope, at));
  RT_ASSIGN_OR_RETURN(map.element_strides, ParseList(spec, "element_stride", scope, at));
  RT_ASSIGN_OR_RETURN(map.swizzle, ParseMode(spec, "swizzle", op, scope, at));
  RT_ASSIGN_OR_RETURN(map.interleave, ParseMode(spec, "interleave", op, scope, at));
  RT_ASSIGN_OR_RETURN(map.l2_promotion, ParseMode(spec, "l2_promotion", op, scope, at));
  RT_ASSIGN_OR_RETURN(map.oob_fill, ParseMode(spec, "oob_fill", op, scope, at));
  return map;
}

absl::Status SetTensorMapModes(int64_t swizzle, int64_t interleave, int64_t l2_promotion, int64_t oob_fill,
                               v1::TensorMap* to) {
  const auto within = [](int64_t value, int64_t most) { return value >= 0 && value <= most; };
  if (!within(swizzle, kMaxSwizzle)) return OutOfRange("swizzle", swizzle);
  if (!within(interleave, kMaxInterleave)) return OutOfRange("interleave", interleave);
  if (!within(l2_promotion, kMaxL2Promotion)) return OutOfRange("l2_promotion", l2_promotion);
  if (!within(oob_fill, kMaxOobFill)) return OutOfRange("oob_fill", oob_fill);
  to->set_swizzle(static_cast<int32_t>(swizzle));
  to->set_interleave(static_cast<int32_t>(interleave));
  to->set_l2_promotion(static_cast<int32_t>(l2_promotion));
  to->set_oob_fill(static_cast<int32_t>(oob_fill));
  return absl::OkStatus();
}

absl::Status CheckTensorMap(const v1::TensorMap& map) {
  for (int i = 0; i < map.dim_size(); ++i) RT_RETURN_IF_ERROR(CheckDim(map, i));
  const int64_t inner = map.box(0).value() * DTypeBytes(map.dtype());
  if (inner % kGranule != 0) {
    return OutOfRange(absl::StrCat("the box's inner extent in bytes, which must be a multiple of ", kGranule, ","),
                      inner);
  }
  const int64_t span = SwizzleSpan(map.swizzle());
  if (map.interleave() == 0 && span > 0 && inner > span) {
    return OutOfRange(
        absl::StrCat("the box's inner extent in bytes, at most ", span, " with swizzle ", map.swizzle(), ","), inner);
  }
  return absl::OkStatus();
}

}  // namespace rooftune

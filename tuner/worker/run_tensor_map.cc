#include "tuner/worker/run_tensor_map.h"

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

constexpr int kMaxRank = 5;

absl::Status Invalid(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_PLAN", message);
}

absl::StatusOr<int> TypeOf(v1::DType dtype) {
  switch (dtype) {
    case v1::FP32:
      return cuda::kTensorMapFloat32;
    case v1::FP16:
      return cuda::kTensorMapFloat16;
    case v1::BF16:
      return cuda::kTensorMapBfloat16;
    case v1::FP64:
      return cuda::kTensorMapFloat64;
    case v1::INT32:
      return cuda::kTensorMapInt32;
    // The hardware moves bytes; only the fill outside of the tensor depends on the type, and zero is zero.
    case v1::FP8_E4M3:
    case v1::FP8_E5M2:
    case v1::INT8:
      return cuda::kTensorMapUint8;
    default:
      return Invalid(absl::StrCat("a tensor map of type ", static_cast<int>(dtype)));
  }
}

using Quantities = google::protobuf::RepeatedPtrField<v1::IntExpr>;

// Values for a C array; a negative one would become huge, one beyond T another.
template <typename T>
absl::StatusOr<std::array<T, kMaxRank>> Values(const Quantities& from) {
  std::array<T, kMaxRank> values = {};
  for (int i = 0; i < from.size(); ++i) {
    const int64_t value = from.Get(i).value();
    if (value < 0 || static_cast<uint64_t>(value) > std::numeric_limits<T>::max()) {
      return Invalid(absl::StrCat("a tensor map with ", value));
    }
    values[static_cast<size_t>(i)] = static_cast<T>(value);
  }
  return values;
}

std::string List(const Quantities& quantities) {
  return absl::StrJoin(quantities, " x ",
                       [](std::string* out, const v1::IntExpr& quantity) { absl::StrAppend(out, quantity.value()); });
}

std::string Describe(const v1::TensorMap& map) {
  return absl::StrCat("tensor map of '", map.tensor(), "' (dims ", List(map.dim()), ", strides ",
                      List(map.stride_bytes()), " bytes, box ", List(map.box()), ", swizzle ", map.swizzle(), ")");
}

}  // namespace

absl::StatusOr<cuda::TensorMap> EncodeTensorMap(const CudaDriver& driver, const v1::TensorMap& map,
                                                cuda::DevicePtr address) {
  if (driver.TensorMapEncodeTiled == nullptr) {
    return Error(absl::StatusCode::kUnimplemented, "TENSOR_MAP",
                 "the driver has no cuTensorMapEncodeTiled; install one of CUDA 12.0 or later");
  }
  const int rank = map.dim_size();
  if (rank < 1 || rank > kMaxRank || map.stride_bytes_size() != rank - 1 || map.box_size() != rank ||
      map.element_stride_size() != rank) {
    return Invalid(absl::StrCat("the tensor map of '", map.tensor(), "' has ", rank, " dims, ", map.stride_bytes_size(),
                                " strides, a box of ", map.box_size(), " and ", map.element_stride_size(),
                                " element strides"));
  }
  RT_ASSIGN_OR_RETURN(const int type, TypeOf(map.dtype()));
  RT_ASSIGN_OR_RETURN(const auto dims, Values<unsigned long long>(map.dim()));
  RT_ASSIGN_OR_RETURN(const auto strides, Values<unsigned long long>(map.stride_bytes()));
  RT_ASSIGN_OR_RETURN(const auto box, Values<unsigned>(map.box()));
  RT_ASSIGN_OR_RETURN(const auto element_strides, Values<unsigned>(map.element_stride()));
  cuda::TensorMap encoded;
  RT_RETURN_IF_ERROR(driver.Check(
      driver.TensorMapEncodeTiled(&encoded, type, static_cast<unsigned>(rank), reinterpret_cast<void*>(address),
                                  dims.data(), strides.data(), box.data(), element_strides.data(), map.interleave(),
                                  map.swizzle(), map.l2_promotion(), map.oob_fill()),
      Describe(map)));
  return encoded;
}

}  // namespace rooftune

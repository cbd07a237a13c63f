#include "absl/strings/ascii.h"
#include "costmodel/op.h"

namespace rooftune {

int64_t DTypeBits(v1::DType dtype) {
  switch (dtype) {
    case v1::INT4:
      return 4;
    case v1::FP8_E4M3:
    case v1::FP8_E5M2:
    case v1::INT8:
      return 8;
    case v1::FP16:
    case v1::BF16:
      return 16;
    case v1::FP32:
    case v1::INT32:
      return 32;
    case v1::FP64:
    case v1::INT64:
      return 64;
    default:
      return 0;
  }
}

int64_t DTypeBytes(v1::DType dtype) { return (DTypeBits(dtype) + 7) / 8; }

std::string DTypeName(v1::DType dtype) {
  if (dtype == v1::DTYPE_UNSPECIFIED || !v1::DType_IsValid(dtype)) return "";
  return absl::AsciiStrToLower(v1::DType_Name(dtype));
}

v1::DType ParseDType(absl::string_view name) {
  for (int code = v1::DType_MIN; code <= v1::DType_MAX; ++code) {
    const v1::DType dtype = static_cast<v1::DType>(code);
    if (!name.empty() && DTypeName(dtype) == name) return dtype;
  }
  return v1::DTYPE_UNSPECIFIED;
}

}  // namespace rooftune

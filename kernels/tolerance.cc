#include "kernels/tolerance.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "costmodel/op.h"

namespace rooftune {
namespace {

// Unit in the last place of 1 and the smallest subnormal.
struct Precision {
  double ulp;
  double smallest;
};

Precision PrecisionOf(v1::DType dtype) {
  switch (dtype) {
    case v1::FP64:
      return {0x1p-52, 0x1p-1074};
    case v1::FP16:
      return {0x1p-10, 0x1p-24};
    case v1::BF16:
      return {0x1p-7, 0x1p-133};
    case v1::FP8_E4M3:
      return {0x1p-3, 0x1p-9};
    case v1::FP8_E5M2:
      return {0x1p-2, 0x1p-16};
    // Rounding a value to the nearest integer moves it by at most a half; an index that is off by one is wrong.
    case v1::INT4:
    case v1::INT8:
    case v1::INT32:
      return {0, 0.5};
    default:
      return {0x1p-23, 0x1p-149};
  }
}

}  // namespace

ErrorBound MakeErrorBound(v1::DType output, int64_t accumulation_length, double scale) {
  const Precision precision = PrecisionOf(output);
  const double length = static_cast<double>(accumulation_length < 1 ? 1 : accumulation_length);
  return {scale * precision.ulp, scale * 0x1p-23 * (8.0 + 4.0 * std::sqrt(length)), scale * precision.smallest};
}

std::string DescribeErrorBound(v1::DType output, int64_t accumulation_length, double scale) {
  const ErrorBound bound = MakeErrorBound(output, accumulation_length, scale);
  const std::string name = DTypeName(output);
  const bool fp8 = output == v1::FP8_E4M3 || output == v1::FP8_E5M2;
  const std::string ulps = bound.relative == 0 ? absl::StrFormat("%g", scale * 0.5)
                           : fp8               ? absl::StrFormat("%g spacings of %s at ref", scale * 0.5, name)
                                               : absl::StrFormat("%g ulp(%s)·|ref|", scale, name);
  return absl::StrFormat("%s + %.1e·Σ|terms|", ulps, bound.accumulate);
}

}  // namespace rooftune

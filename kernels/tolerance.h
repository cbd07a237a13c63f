// How far an output element may be from the reference.
#ifndef ROOFTUNE_KERNELS_TOLERANCE_H_
#define ROOFTUNE_KERNELS_TOLERANCE_H_

#include <cstdint>
#include <string>

#include "rooftune/v1/types.pb.h"

namespace rooftune {

// |out − ref| ≤ scale · (relative · |ref| + accumulate · magnitude + tiny), where
//   relative   = one unit in the last place of the output type (2^-7 bf16, 2^-10 fp16, 2^-23 fp32),
//   accumulate = 2^-23 · (8 + 4·√length): fp32 accumulation of `length` terms; errors grow with √length
//                for random signs, and 8 + 4√length leaves room for tree orders and approximate exp,
//   tiny       = the smallest subnormal of the output type, so that underflow to zero is allowed.
// Integers: half of one in place of relative and tiny. 8-bit floats: half of the spacing of the numbers around ref in
// place of both, so that with a scale which is off by a thousandth many elements are wrong; common/support.cuh.
struct ErrorBound {
  double relative = 0;
  double accumulate = 0;
  double tiny = 0;
};
ErrorBound MakeErrorBound(v1::DType output, int64_t accumulation_length, double scale);

// For people: "1 ulp(bf16)·|ref| + 3.1e-05·Σ|terms|".
std::string DescribeErrorBound(v1::DType output, int64_t accumulation_length, double scale);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_TOLERANCE_H_

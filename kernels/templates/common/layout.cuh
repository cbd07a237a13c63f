// Where the axes of a tensor that is moved are, in the source and in the output.
#pragma once

#include "common/types.cuh"

constexpr int kRtMaxAxes = 8;

// By axis: extent, strides in elements.
struct RtLayout {
  rt_i64 extent[kRtMaxAxes];
  rt_i64 from[kRtMaxAxes];  // in the source
  rt_i64 to[kRtMaxAxes];    // in the output
};

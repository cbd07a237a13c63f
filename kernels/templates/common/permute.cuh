// The axes of a permutation, merged where they stay neighbours: a group is a run of source axes that is a run of the
// output, too, and acts as one axis. Reads RT_PERM (a digit an output axis: its source axis) and RT_RANK.
#pragma once

#include "common/layout.cuh"
#include "common/types.cuh"

struct RtGroups {
  int count;                // of groups
  int of_axis[kRtMaxAxes];  // group of a source axis; groups are numbered in source order
  int source[kRtMaxAxes];   // source group of an output group
};

constexpr RtGroups rt_groups() {
  RtGroups groups = {};
  int digit[kRtMaxAxes] = {};
  int rest = RT_PERM;
  for (int a = RT_RANK - 1; a >= 0; --a) {
    digit[a] = rest % 10;
    rest /= 10;
  }
  bool starts[kRtMaxAxes] = {};
  for (int a = 0; a < RT_RANK; ++a) starts[digit[a]] = a == 0 || digit[a] != digit[a - 1] + 1;
  for (int s = 0; s < RT_RANK; ++s) {
    groups.count += starts[s] ? 1 : 0;
    groups.of_axis[s] = groups.count - 1;
  }
  int next = 0;
  for (int a = 0; a < RT_RANK; ++a) {
    if (starts[digit[a]]) groups.source[next++] = groups.of_axis[digit[a]];
  }
  return groups;
}

constexpr RtGroups kRtGroups = rt_groups();

// By source group.
__device__ __forceinline__ RtLayout rt_layout(const rt_i64 (&extent)[kRtMaxAxes]) {
  RtLayout layout;
#pragma unroll
  for (int g = 0; g < kRtMaxAxes; ++g) layout.extent[g] = 1;
#pragma unroll
  for (int s = 0; s < RT_RANK; ++s) layout.extent[kRtGroups.of_axis[s]] *= extent[s];
  rt_i64 stride = 1;
#pragma unroll
  for (int g = kRtGroups.count - 1; g >= 0; --g) {
    layout.from[g] = stride;
    stride *= layout.extent[g];
  }
  stride = 1;
#pragma unroll
  for (int o = kRtGroups.count - 1; o >= 0; --o) {
    layout.to[kRtGroups.source[o]] = stride;
    stride *= layout.extent[kRtGroups.source[o]];
  }
  return layout;
}

// Where something begins in both tensors.
struct RtOffsets {
  rt_i64 from;
  rt_i64 to;
};

// Coordinates of number `index` in all groups but SKIP_A and SKIP_B (source groups), in output order.
template <int SKIP_A, int SKIP_B>
__device__ __forceinline__ RtOffsets rt_offsets(const RtLayout& layout, rt_u32 index) {
  RtOffsets at = {0, 0};
#pragma unroll
  for (int o = kRtGroups.count - 1; o >= 0; --o) {
    const int g = kRtGroups.source[o];
    if (g == SKIP_A || g == SKIP_B) continue;
    const rt_u32 extent = static_cast<rt_u32>(layout.extent[g]);
    const rt_u32 next = index / extent;
    const rt_i64 coordinate = index - next * extent;
    at.from += coordinate * layout.from[g];
    at.to += coordinate * layout.to[g];
    index = next;
  }
  return at;
}

// Search spaces of published benchmarks, as facts (parameters, values, conditions) rewritten for rooftune.
// Source: AutoTuningAssociation/benchmark_hub (MIT), T1 files convolution_milo, dedispersion_milo and gemm_milo;
// the counts of valid points are those of its recorded exhaustive searches.
#ifndef ROOFTUNE_TESTS_KERNELS_SPACES_H_
#define ROOFTUNE_TESTS_KERNELS_SPACES_H_

#include <string>
#include <vector>

#include "kernels/search_space.h"

namespace rooftune {

inline void AddParam(SearchSpaceSpec& spec, const std::string& name, const std::vector<int64_t>& values,
                     const std::string& when = "") {
  auto& param = spec.params.emplace_back();
  param.set_name(name);
  for (const int64_t value : values) param.add_value(value);
  param.set_when(when);
}

inline void AddLet(SearchSpaceSpec& spec, const std::string& name, const std::string& expr) {
  auto& let = spec.lets.emplace_back();
  let.set_name(name);
  let.set_expr(expr);
}

inline void AddConstraint(SearchSpaceSpec& spec, const std::string& name, const std::string& expr) {
  auto& constraint = spec.constraints.emplace_back();
  constraint.set_name(name);
  constraint.set_expr(expr);
}

inline std::vector<int64_t> Range(int64_t first, int64_t last, int64_t step) {
  std::vector<int64_t> values;
  for (int64_t value = first; value <= last; value += step) values.push_back(value);
  return values;
}

// 10,240 points, 4,362 valid.
inline SearchSpaceSpec ConvolutionSpace() {
  SearchSpaceSpec spec;
  AddParam(spec, "block_size_x", Range(16, 256, 16));
  AddParam(spec, "block_size_y", {1, 2, 4, 8, 16});
  AddParam(spec, "tile_size_x", {1, 2, 3, 4});
  AddParam(spec, "tile_size_y", {1, 2, 3, 4});
  AddParam(spec, "read_only", {0, 1});
  AddParam(spec, "use_padding", {0, 1});
  AddParam(spec, "use_shmem", {0, 1});
  spec.fixed = {{"filter_height", 15}, {"filter_width", 15}};
  AddLet(spec, "tile_w", "block_size_x * tile_size_x + (filter_width - 1)");
  AddLet(spec, "tile_h", "block_size_y * tile_size_y + (filter_height - 1)");
  AddConstraint(spec, "padding", "use_padding == 0 or block_size_x % 32 != 0");
  AddConstraint(spec, "threads", "block_size_x * block_size_y <= 1024");
  AddConstraint(spec, "padding_of_shared", "use_padding == 0 or use_shmem != 0");
  AddConstraint(spec, "shared", "use_shmem == 0 or tile_w * tile_h < 12 * 1024");
  return spec;
}

// 22,272 points, 11,130 valid.
inline SearchSpaceSpec DedispersionSpace() {
  SearchSpaceSpec spec;
  AddParam(spec, "block_size_x", {1, 2, 4, 8, 16, 32});
  AddParam(spec, "block_size_y", Range(32, 256, 8));
  AddParam(spec, "tile_size_x", {1, 2, 3, 4});
  AddParam(spec, "tile_size_y", Range(1, 8, 1));
  AddParam(spec, "tile_stride_x", {0, 1});
  AddParam(spec, "tile_stride_y", {0, 1});
  AddConstraint(spec, "threads", "32 <= block_size_x * block_size_y <= 1024");
  AddConstraint(spec, "stride_x", "tile_size_x > 1 or tile_stride_x == 0");
  AddConstraint(spec, "stride_y", "tile_size_y > 1 or tile_stride_y == 0");
  return spec;
}

// 116,928 valid.
inline SearchSpaceSpec GemmSpace() {
  SearchSpaceSpec spec;
  AddParam(spec, "MWG", {16, 32, 64, 128});
  AddParam(spec, "NWG", {16, 32, 64, 128});
  AddParam(spec, "KWG", {16, 32});
  for (const char* name : {"MDIMC", "NDIMC", "MDIMA", "NDIMB"}) AddParam(spec, name, {8, 16, 32});
  AddParam(spec, "KWI", {2});
  for (const char* name : {"VWM", "VWN"}) AddParam(spec, name, {1, 2, 4, 8});
  for (const char* name : {"STRM", "STRN", "SA", "SB"}) AddParam(spec, name, {0, 1});
  AddConstraint(spec, "k_unroll", "KWG % KWI == 0");
  AddConstraint(spec, "m_vectors", "MWG % (MDIMC * VWM) == 0");
  AddConstraint(spec, "n_vectors", "NWG % (NDIMC * VWN) == 0");
  AddConstraint(spec, "m_loads", "MWG % (MDIMA * VWM) == 0");
  AddConstraint(spec, "n_loads", "NWG % (NDIMB * VWN) == 0");
  AddConstraint(spec, "k_loads_a", "KWG % ((MDIMC * NDIMC)/MDIMA) == 0");
  AddConstraint(spec, "k_loads_b", "KWG % ((MDIMC * NDIMC)/NDIMB) == 0");
  AddConstraint(spec, "registers", "not (MWG == 128 and NWG == 128 and MDIMC == 8 and NDIMC == 8)");
  return spec;
}

// 10^8 points (eight parameters of ten values) of which few are valid; checks bind early, in the middle and late.
inline SearchSpaceSpec HugeSpace() {
  SearchSpaceSpec spec;
  for (const char* name : {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"}) AddParam(spec, name, Range(1, 10, 1));
  AddLet(spec, "low", "p0 + p1 + p2 + p3");
  AddLet(spec, "high", "p4 + p5 + p6 + p7");
  AddConstraint(spec, "pair", "p0 * p1 <= 60");
  AddConstraint(spec, "even", "(p2 + p5) % 2 == 0 or p3 > p4");
  AddConstraint(spec, "last", "p7 % p0 == 0 and p6 < p7");
  AddConstraint(spec, "sums", "low * 2 == high * 2 and p1 * p7 % 7 == 3");
  return spec;
}

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_KERNELS_SPACES_H_

// Tensor maps of manifests and plans: the arguments of cuTensorMapEncodeTiled as data.
#ifndef ROOFTUNE_KERNELS_TENSOR_MAP_H_
#define ROOFTUNE_KERNELS_TENSOR_MAP_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/manifest_scope.h"
#include "rooftune/manifest/v1/manifest.pb.h"
#include "rooftune/v1/launch_plan.pb.h"

namespace rooftune {

// sizeof(CUtensorMap).
inline constexpr int kTensorMapBytes = 128;

// A TensorMapSpec with its expressions parsed.
struct ParsedTensorMap {
  std::vector<Expression> dims;
  std::vector<Expression> strides;
  std::vector<Expression> box;
  // Empty = all 1.
  std::vector<Expression> element_strides;
  Quantity swizzle;
  Quantity interleave;
  Quantity l2_promotion;
  Quantity oob_fill;
};

// INVALID_ARGUMENT with line and column; `at` is the map's place.
absl::StatusOr<ParsedTensorMap> ParseTensorMap(const manifest::v1::TensorMapSpec& spec, const manifest::v1::Op& op,
                                               const ManifestScope& scope, const Locator& at);

// OUT_OF_RANGE naming the mode that CUDA does not have.
absl::Status SetTensorMapModes(int64_t swizzle, int64_t interleave, int64_t l2_promotion, int64_t oob_fill,
                               v1::TensorMap* to);

// OUT_OF_RANGE naming what cuTensorMapEncodeTiled would refuse without saying why: extents, strides, boxes, a box
// wider than its swizzle.
absl::Status CheckTensorMap(const v1::TensorMap& map);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_TENSOR_MAP_H_

// Predicts the time of one configuration from what was compiled: occupancy, waves, bytes in flight,
// pipeline depth. One function a cost class; constants in predictor.cc with their origin.
#ifndef ROOFTUNE_COSTMODEL_PREDICTOR_H_
#define ROOFTUNE_COSTMODEL_PREDICTOR_H_

#include <cstdint>
#include <string>

#include "costmodel/device_profile.h"
#include "costmodel/work.h"
#include "rooftune/manifest/v1/manifest.pb.h"

namespace rooftune {

// A configuration as the predictor sees it: the evaluated CostMapping and launch of a template.
struct MappedConfig {
  manifest::v1::CostClass cost_class = manifest::v1::COST_CLASS_UNSPECIFIED;
  std::string pipe;                         // "tensor", "tensor_wgmma" or "fp32"
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;  // operand type
  int64_t m = 1, n = 1, k = 1, batch = 1;   // TILE_GEMM; m = rows, k = columns for ROW
  int64_t tile_m = 1, tile_n = 1, tile_k = 1;
  int64_t stages = 1;
  int64_t split_k = 1;
  int64_t raster_group = 1;
  int64_t share_a = 1, share_b = 1;  // blocks that share a load by multicast
  int64_t tiles_in_flight = 1;       // 2: a tile is stored while the next is multiplied
  int64_t passes = 1;
  int64_t bytes_in_flight_per_thread = 16;
  int64_t grid_ctas = 1;
  int64_t threads = 1;
  int64_t launches = 1;
  int64_t workspace_bytes = 0;
  int64_t element_bytes = 2;
  int64_t bits_b = 0;  // of an element of b; 0 = as a
};

// `resources` are the compiled ones, or static estimates before compiling (blocks_per_sm is recomputed).
// A configuration that can't be resident gets an infinite time and the reason as a term name.
v1::Prediction PredictTime(const Work& work, const MappedConfig& config, const v1::Resources& resources,
                           const DeviceProfile& profile, const Calibration* calibration);

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_PREDICTOR_H_

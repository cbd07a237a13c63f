// Tensor maps of a plan, encoded by the driver.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_TENSOR_MAP_H_
#define ROOFTUNE_TUNER_WORKER_RUN_TENSOR_MAP_H_

#include "absl/status/statusor.h"
#include "rooftune/v1/launch_plan.pb.h"
#include "tuner/worker/run_driver.h"

namespace rooftune {

// The map over the tensor at `address`. INVALID_ARGUMENT (BAD_PLAN) for a rank, type or number that CUDA has no place
// for, UNIMPLEMENTED (TENSOR_MAP) without a driver that encodes them, and the driver's error with all it was given,
// since it does not say what it dislikes.
absl::StatusOr<cuda::TensorMap> EncodeTensorMap(const CudaDriver& driver, const v1::TensorMap& map,
                                                cuda::DevicePtr address);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_TENSOR_MAP_H_

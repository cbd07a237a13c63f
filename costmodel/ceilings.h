// What a device can do at best and what a good kernel gets of it; shared by bounds and predictor.
#ifndef ROOFTUNE_COSTMODEL_CEILINGS_H_
#define ROOFTUNE_COSTMODEL_CEILINGS_H_

#include "costmodel/device_profile.h"

namespace rooftune {

// Dense peak of a pipe in operations per microsecond at maximum clock; 0 = the profile has no figure.
double PeakOpsPerUs(const DeviceProfile& profile, absl::string_view pipe, v1::DType dtype);

// Rate that a very good kernel reaches on a cool chip, in operations per microsecond: the calibration's, else the
// derated data-sheet peak; 0 = unknown. `*calibrated` is set to true if the calibration was used.
double AttainableOpsPerUs(const DeviceProfile& profile, const Calibration* calibration, absl::string_view pipe,
                          v1::DType dtype, bool* calibrated);

// Device-memory bytes per microsecond for large transfers of this mix; 0 = unknown.
double AttainableBytesPerUs(const DeviceProfile& profile, const Calibration* calibration, double read_fraction);

// L2 bytes per microsecond; 0 = unknown.
double L2BytesPerUs(const DeviceProfile& profile, const Calibration* calibration);

// Microseconds of one launch among many in a graph.
double LaunchUs(const Calibration* calibration);

// Start and drain of a memory-bound kernel beyond bytes ÷ bandwidth, in microseconds: an H200 copies 1 MB to 4 GB
// in 1.5 µs + bytes ÷ 4.2 TB/s within 3 %.
inline constexpr double kStartUs = 1.5;

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_CEILINGS_H_

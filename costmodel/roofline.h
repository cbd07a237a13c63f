// The two bounds of an operator on a device. They are never mixed: nothing can be faster than `floor`;
// `attainable` is what a very good kernel reaches on the card and may be beaten by a little.
#ifndef ROOFTUNE_COSTMODEL_ROOFLINE_H_
#define ROOFTUNE_COSTMODEL_ROOFLINE_H_

#include "costmodel/device_profile.h"
#include "costmodel/work.h"

namespace rooftune {

// floor: max over pipes of ops / dense peak at maximum clock, and (bytes − what can sit in L2) / pin
// bandwidth; 0 where the profile has no figure. attainable: with a calibration, from its curves by
// read/write mix and size and its cool rates; without, from the profile derated by the constants in
// roofline.cc (each with its source).
v1::Bounds ComputeBounds(const Work& work, const DeviceProfile& profile, const Calibration* calibration,
                         v1::L2State l2 = v1::COLD);

// Operations per compulsory byte.
double ArithmeticIntensity(const Work& work);

// Bandwidth (1e9 B/s) of a transfer of `bytes` of which `read_fraction` is read, interpolated over
// log(bytes) and between the mixes that were measured; 0 if the calibration has no curve.
double CalibratedBandwidth(const Calibration& calibration, double bytes, double read_fraction);

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_ROOFLINE_H_

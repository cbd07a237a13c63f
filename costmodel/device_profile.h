// What is known about GPUs: profiles embedded from costmodel/profiles/*.txtpb, and device keys.
#ifndef ROOFTUNE_COSTMODEL_DEVICE_PROFILE_H_
#define ROOFTUNE_COSTMODEL_DEVICE_PROFILE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "expr/expression.h"
#include "rooftune/device/v1/profile.pb.h"
#include "rooftune/worker/v1/worker.pb.h"

namespace rooftune {

using DeviceProfile = device::v1::DeviceProfile;
using Calibration = device::v1::Calibration;

// Known GPU models. Immutable after loading.
class ProfileCatalog {
 public:
  static absl::StatusOr<ProfileCatalog> Builtin();
  // A user's own profiles (*.txtpb). INVALID_ARGUMENT with file, line and column.
  absl::Status AddDir(const std::string& dir);

  // NOT_FOUND (UNKNOWN_DEVICE) with the nearest ids.
  absl::StatusOr<DeviceProfile> ById(absl::string_view id) const;
  // By the driver's exact name; where several share it, the one of nearest memory size. NOT_FOUND if none.
  absl::StatusOr<DeviceProfile> ByName(absl::string_view name, int64_t memory_bytes) const;
  const std::map<std::string, DeviceProfile>& all() const { return profiles_; }

 private:
  std::map<std::string, DeviceProfile> profiles_;
};

// Checks units and limits (positive, known pipes). INVALID_ARGUMENT naming the field.
absl::Status ValidateProfile(const DeviceProfile& profile);

// A profile of a real device: the catalog's peaks where its name is known (else no peaks: only
// bandwidth and limits), with everything the driver reports put over it.
DeviceProfile ProfileOfDevice(const worker::v1::DeviceInfo& info, const ProfileCatalog& catalog);

// "nvidia-h200/132sm/141gb/700w[/mig-…]" — what changes the best answer; no UUID, no VBIOS.
std::string DeviceKey(const worker::v1::DeviceInfo& info);
// "model/<id>".
std::string ModelDeviceKey(const DeviceProfile& profile);

// "sm_90"; "sm_90a" if `arch_specific`.
std::string ArchName(int cc, bool arch_specific);

// Names expressions may use: cc, sm_count, shared_max (per block, opt-in), shared_per_sm, l2_bytes,
// registers_max (of one block: the whole register file), threads_max.
Names DeviceNames(const DeviceProfile& profile);

}  // namespace rooftune

#endif  // ROOFTUNE_COSTMODEL_DEVICE_PROFILE_H_

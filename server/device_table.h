// Names of devices → what is known of them, in memory.
#ifndef ROOFTUNE_SERVER_DEVICE_TABLE_H_
#define ROOFTUNE_SERVER_DEVICE_TABLE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "costmodel/device_profile.h"
#include "rooftune/v1/service.pb.h"

namespace rooftune {

// A device somebody asks about. Immutable.
struct KnownDevice {
  // As the API shows it; `device.profile` and `device.environment` are what lookups and estimates use.
  v1::Device device;
  // A device of this daemon, so that its environment is known.
  bool local = false;
  bool has_profile = false;
  const Calibration* calibration() const { return device.has_calibration() ? &device.calibration() : nullptr; }
};
using DevicePtr = std::shared_ptr<const KnownDevice>;

// Thread-safe.
class DeviceTable {
 public:
  explicit DeviceTable(const ProfileCatalog& catalog);

  // Puts the daemon's devices, in order, in place of the previous ones.
  void Update(const std::vector<v1::Device>& devices);

  // By id, name or device key; empty = the daemon's first device. A well-formed key of no known device is
  // accepted (records of other machines may have been imported) and has neither profile nor environment.
  // NOT_FOUND (UNKNOWN_DEVICE) with what there is; FAILED_PRECONDITION (NO_DEVICE) if there is no first one.
  absl::StatusOr<DevicePtr> Resolve(const std::string& name) const;

  // The daemon's devices, then (if asked) every modelled GPU that is not one of them.
  std::vector<v1::Device> List(bool include_profiles) const;

 private:
  struct State {
    std::vector<DevicePtr> local;
    std::map<std::string, DevicePtr> by_name;
  };
  std::vector<DevicePtr> modelled_;
  absl::Status Unknown(const std::string& name, const State& state) const;

  mutable absl::Mutex mutex_;
  std::shared_ptr<const State> state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rooftune

#endif  // ROOFTUNE_SERVER_DEVICE_TABLE_H_

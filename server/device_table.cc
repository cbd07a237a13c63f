#include "server/device_table.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/suggest.h"
#include "server/rpc_status.h"

namespace rooftune {
namespace {

constexpr size_t kMaxDeviceName = 128;

DevicePtr Modelled(const std::string& id, const DeviceProfile& profile) {
  auto known = std::make_shared<KnownDevice>();
  known->has_profile = true;
  v1::Device& device = known->device;
  device.set_name(absl::StrCat("devices/model-", id));
  device.set_id(absl::StrCat("model:", id));
  device.set_device_key(ModelDeviceKey(profile));
  device.set_kind(v1::Device::MODELLED);
  device.set_state(v1::Device::READY);
  *device.mutable_profile() = profile;
  device.set_arch(ArchName(profile.cc(), false));
  return known;
}

// "nvidia-h200/132sm/…": lower-case words with at least one slash.
bool LooksLikeKey(const std::string& name) {
  if (name.find('/') == std::string::npos || name.rfind("devices/", 0) == 0 || name.size() > kMaxDeviceName)
    return false;
  for (const char c : name) {
    if (!absl::ascii_islower(static_cast<unsigned char>(c)) && !absl::ascii_isdigit(static_cast<unsigned char>(c)) &&
        c != '-' && c != '/' && c != '.' && c != '_') {
      return false;
    }
  }
  return true;
}

void AddNames(const DevicePtr& device, std::map<std::string, DevicePtr>& by_name) {
  // First come, first served: a daemon's own device goes before the modelled GPU of the same key.
  for (const std::string& name : {device->device.id(), device->device.name(), device->device.device_key()}) {
    if (!name.empty()) by_name.emplace(name, device);
  }
}

}  // namespace

DeviceTable::DeviceTable(const ProfileCatalog& catalog) {
  for (const auto& [id, profile] : catalog.all()) modelled_.push_back(Modelled(id, profile));
  Update({});
}

void DeviceTable::Update(const std::vector<v1::Device>& devices) {
  auto state = std::make_shared<State>();
  for (const v1::Device& device : devices) {
    auto known = std::make_shared<KnownDevice>();
    known->device = device;
    known->local = true;
    known->has_profile = device.has_profile();
    state->local.push_back(std::move(known));
  }
  for (const DevicePtr& device : state->local) AddNames(device, state->by_name);
  for (const DevicePtr& device : modelled_) AddNames(device, state->by_name);
  absl::MutexLock lock(&mutex_);
  state_ = std::move(state);
}

absl::StatusOr<DevicePtr> DeviceTable::Resolve(const std::string& name) const {
  std::shared_ptr<const State> state;
  {
    absl::ReaderMutexLock lock(&mutex_);
    state = state_;
  }
  if (name.empty()) {
    if (!state->local.empty()) return state->local.front();
    return Error(absl::StatusCode::kFailedPrecondition, "NO_DEVICE",
                 "this daemon has no device; name one, e.g. device=model:h200-sxm");
  }
  const auto it = state->by_name.find(name);
  if (it != state->by_name.end()) return it->second;
  if (!LooksLikeKey(name)) return Unknown(name, *state);
  auto foreign = std::make_shared<KnownDevice>();
  foreign->device.set_device_key(name);
  foreign->device.set_id(name);
  return foreign;
}

absl::Status DeviceTable::Unknown(const std::string& name, const State& state) const {
  std::vector<std::string> here, ids;
  bool gpu = false;
  for (const DevicePtr& device : state.local) {
    here.push_back(device->device.id());
    gpu |= device->device.kind() == v1::Device::CUDA;
  }
  for (const DevicePtr& device : modelled_) ids.push_back(device->device.id());
  ids.insert(ids.end(), here.begin(), here.end());
  const std::string hint = !gpu && absl::StartsWith(name, "cuda:")
                               ? "; this daemon found no GPU, and `rooftune doctor` on its machine says why"
                               : DidYouMean(name, ids);
  return Error(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
               absl::StrCat("no device \"", CleanText(name, kMaxDeviceName), "\"; this daemon has ",
                            here.empty() ? "none" : absl::StrJoin(here, ", "),
                            ", and `rooftune devices list --all` shows the GPUs that it can model", hint),
               {{"device", CleanText(name, kMaxDeviceName)}});
}

std::vector<v1::Device> DeviceTable::List(bool include_profiles) const {
  std::shared_ptr<const State> state;
  {
    absl::ReaderMutexLock lock(&mutex_);
    state = state_;
  }
  std::vector<v1::Device> devices;
  for (const DevicePtr& device : state->local) devices.push_back(device->device);
  if (!include_profiles) return devices;
  for (const DevicePtr& device : modelled_) {
    if (state->by_name.at(device->device.id()) == device) devices.push_back(device->device);
  }
  return devices;
}

}  // namespace rooftune

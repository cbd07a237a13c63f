#include "server/calibration_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/rpc_status.h"

namespace rooftune {
namespace {

constexpr char kPrefix[] = "operations/calibrate-";
// Operations that are remembered; the oldest finished ones go first.
constexpr size_t kMaxKept = 100;

}  // namespace

bool CalibrationTable::Owns(const std::string& operation) { return operation.rfind(kPrefix, 0) == 0; }

absl::StatusOr<CalibrationTable::Operation> CalibrationTable::Start(const KnownDevice& device) {
  const std::string id = device.device.id();
  if (!device.local || device.device.kind() == v1::Device::MODELLED) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_A_GPU",
                 absl::StrCat(id, " is not a GPU of this daemon: there is nothing to measure"), {{"device", id}});
  }
  std::string name;
  {
    absl::MutexLock lock(&mutex_);
    const auto running = running_.find(id);
    if (running != running_.end()) return operations_[running->second];
    std::string slug = id;
    std::replace_if(
        slug.begin(), slug.end(), [](unsigned char c) { return !std::isalnum(c); }, '-');
    name = absl::StrCat(kPrefix, slug, "-", next_++);
    for (size_t i = 0; i < order_.size() && order_.size() >= kMaxKept; ++i) {
      if (!operations_[order_[i]].done()) continue;
      operations_.erase(order_[i]);
      order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(i--));
    }
    operations_[name].set_name(name);
    order_.push_back(name);
    running_[id] = name;
  }
  const absl::Status posted = context_.calibrations.Post([this, name, id] { Run(name, id); });
  absl::MutexLock lock(&mutex_);
  if (!posted.ok()) {
    operations_.erase(name);
    order_.erase(std::remove(order_.begin(), order_.end(), name), order_.end());
    running_.erase(id);
    return posted;
  }
  return operations_[name];
}

void CalibrationTable::Run(const std::string& operation, const std::string& device_id) {
  const absl::StatusOr<Calibration> result = context_.sweeps->Calibrate(device_id);
  context_.devices.Update(context_.sweeps->Devices());
  Operation done;
  std::vector<std::function<void(const Operation&)>> waiters;
  {
    absl::MutexLock lock(&mutex_);
    Operation& entry = operations_[operation];
    entry.set_done(true);
    if (result.ok())
      entry.mutable_response()->PackFrom(*result);
    else
      *entry.mutable_error() = ToRpcStatus(result.status());
    running_.erase(device_id);
    done = entry;
    waiters.swap(waiters_[operation]);
    waiters_.erase(operation);
  }
  for (const auto& waiter : waiters) waiter(done);
}

absl::StatusOr<CalibrationTable::Operation> CalibrationTable::Get(const std::string& operation) const {
  absl::MutexLock lock(&mutex_);
  const auto it = operations_.find(operation);
  if (it != operations_.end()) return it->second;
  return Error(absl::StatusCode::kNotFound, "UNKNOWN_OPERATION",
               absl::StrCat("no operation ", CleanText(operation, 128),
                            "; calibrations are forgotten by a restart, their results are in GetDevice"));
}

std::vector<CalibrationTable::Operation> CalibrationTable::List() const {
  absl::MutexLock lock(&mutex_);
  std::vector<Operation> operations;
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) operations.push_back(operations_.at(*it));
  return operations;
}

absl::Status CalibrationTable::OnceDone(const std::string& operation, std::function<void(const Operation&)> done) {
  absl::StatusOr<Operation> now = Get(operation);
  if (!now.ok()) return now.status();
  {
    absl::MutexLock lock(&mutex_);
    const auto it = operations_.find(operation);
    if (it != operations_.end() && !it->second.done()) {
      waiters_[operation].push_back(std::move(done));
      return absl::OkStatus();
    }
    if (it != operations_.end()) now = it->second;
  }
  done(*now);
  return absl::OkStatus();
}

}  // namespace rooftune

// A SweepManager without lanes: tests say what becomes of a sweep, and when.
#ifndef ROOFTUNE_TESTS_SERVER_FAKE_SWEEP_MANAGER_H_
#define ROOFTUNE_TESTS_SERVER_FAKE_SWEEP_MANAGER_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "google/protobuf/util/time_util.h"
#include "tuner/store/store.h"
#include "tuner/sweep/sweep_manager.h"

namespace rooftune {

// Thread-safe.
class FakeSweepManager : public SweepManager {
 public:
  FakeSweepManager(Store& store, std::vector<v1::Device> devices) : store_(store), devices_(std::move(devices)) {}

  // As SweepManager::Options has them; set before the first call.
  std::function<void(const v1::Sweep&)> on_change;
  std::function<void(const std::vector<v1::TuningRecord>&, int64_t)> on_publish;

  absl::StatusOr<v1::Sweep> Start(const v1::SweepSpec& spec, const std::string& request_id) override {
    v1::Sweep sweep;
    {
      absl::MutexLock lock(&mutex_);
      ++starts_;
      if (!start_error_.ok()) return start_error_;
      sweep.set_name(absl::StrCat("sweeps/s", next_++));
      *sweep.mutable_spec() = spec;
      sweep.set_state(v1::QUEUED);
      sweep.set_request_id(request_id);
      for (const v1::Device& device : devices_) {
        if (device.id() == spec.device()) sweep.set_device_key(device.device_key());
      }
    }
    return Put(sweep);
  }
  absl::StatusOr<v1::Sweep> Validate(const v1::SweepSpec& spec) override {
    v1::Sweep sweep;
    *sweep.mutable_spec() = spec;
    sweep.mutable_progress()->set_valid_points(42);
    return sweep;
  }
  absl::StatusOr<v1::Sweep> Resume(const std::string& name) override { return Change(name, v1::RUNNING, ""); }
  absl::StatusOr<v1::Sweep> Cancel(const std::string& name) override { return Change(name, v1::CANCELLED, ""); }
  absl::StatusOr<v1::Sweep> Get(const std::string& name) override { return store_.GetSweep(name); }
  std::vector<v1::Device> Devices() override {
    absl::MutexLock lock(&mutex_);
    return devices_;
  }
  absl::StatusOr<device::v1::Calibration> Calibrate(const std::string& device_id) override {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&calibration_may_end_));
    }
    device::v1::Calibration calibration;
    calibration.set_device_key(absl::StrCat("fake/", device_id));
    calibration.set_graph_node_us(1.5);
    return calibration;
  }
  // Every configuration takes SetRaceTime() microseconds.
  void RaceConfigs(const v1::RaceConfigsRequest& request, std::function<bool()> abandoned,
                   std::function<void(absl::StatusOr<v1::RaceConfigsResponse>)> done) override {
    v1::RaceConfigsResponse response;
    double time_us = 0;
    {
      absl::MutexLock lock(&mutex_);
      last_race_ = request;
      if (!start_error_.ok()) return done(start_error_);
      time_us = race_us_;
    }
    if (abandoned()) return done(absl::CancelledError("nobody waits"));
    for (const auto& entrant : request.entrant()) {
      v1::Trial& trial = *response.add_trial();
      trial.set_op(request.op());
      trial.set_template_id(entrant.template_id());
      *trial.mutable_config() = entrant.config();
      trial.set_outcome(v1::OK);
      trial.mutable_measurement()->set_median_us(time_us);
      trial.mutable_environment()->set_driver("580.2");
    }
    done(response);
  }
  void Shutdown() override {}

  // Moves a sweep on and tells everybody.
  absl::StatusOr<v1::Sweep> Change(const std::string& name, v1::SweepState state, const std::string& message) {
    RT_ASSIGN_OR_RETURN(v1::Sweep sweep, store_.GetSweep(name));
    sweep.set_state(state);
    sweep.set_message(message);
    return Put(sweep);
  }
  absl::StatusOr<v1::Sweep> Progress(const std::string& name, int finished) {
    RT_ASSIGN_OR_RETURN(v1::Sweep sweep, store_.GetSweep(name));
    sweep.set_state(v1::RUNNING);
    sweep.mutable_progress()->set_finished(finished);
    return Put(sweep);
  }
  // Publishes records as a lane does.
  absl::Status Publish(const std::vector<v1::TuningRecord>& records) {
    RT_ASSIGN_OR_RETURN(const int64_t generation, store_.PublishRecords(records));
    on_publish(records, generation);
    return absl::OkStatus();
  }
  void FailStarts(const absl::Status& error) {
    absl::MutexLock lock(&mutex_);
    start_error_ = error;
  }
  void SetDeviceState(v1::Device::State state) {
    absl::MutexLock lock(&mutex_);
    for (v1::Device& device : devices_) device.set_state(state);
  }
  void HoldCalibrations(bool hold) {
    absl::MutexLock lock(&mutex_);
    calibration_may_end_ = !hold;
  }
  void SetRaceTime(double time_us) {
    absl::MutexLock lock(&mutex_);
    race_us_ = time_us;
  }
  v1::RaceConfigsRequest last_race() const {
    absl::MutexLock lock(&mutex_);
    return last_race_;
  }
  int starts() const {
    absl::MutexLock lock(&mutex_);
    return starts_;
  }

 private:
  absl::StatusOr<v1::Sweep> Put(v1::Sweep sweep) {
    {
      absl::MutexLock lock(&mutex_);
      *sweep.mutable_update_time() = google::protobuf::util::TimeUtil::SecondsToTimestamp(1'700'000'000 + tick_++);
      if (!sweep.has_create_time()) *sweep.mutable_create_time() = sweep.update_time();
    }
    RT_RETURN_IF_ERROR(store_.PutSweep(sweep));
    if (on_change) on_change(sweep);
    return sweep;
  }

  Store& store_;
  mutable absl::Mutex mutex_;
  std::vector<v1::Device> devices_ ABSL_GUARDED_BY(mutex_);
  absl::Status start_error_ ABSL_GUARDED_BY(mutex_);
  bool calibration_may_end_ ABSL_GUARDED_BY(mutex_) = true;
  int starts_ ABSL_GUARDED_BY(mutex_) = 0;
  double race_us_ ABSL_GUARDED_BY(mutex_) = 20;
  v1::RaceConfigsRequest last_race_ ABSL_GUARDED_BY(mutex_);
  int next_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t tick_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_SERVER_FAKE_SWEEP_MANAGER_H_

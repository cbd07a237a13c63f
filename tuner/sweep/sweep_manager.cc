#include "tuner/sweep/sweep_manager.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tuner/search/policies.h"
#include "tuner/sweep/compile_pool.h"
#include "tuner/sweep/config_race.h"
#include "tuner/sweep/proto_time.h"
#include "tuner/sweep/sweep_run.h"

namespace rooftune {
namespace {

constexpr int kCalibrateTimeoutMs = 120'000;
constexpr int kMaxTrialsLimit = 1'000'000;
constexpr int kMinCompileTimeoutMs = 100, kMinRunTimeoutMs = 1000, kMaxTimeoutMs = 600'000,
              kMinEnergyTimeoutMs = 10'000;
constexpr double kMaxBudgetS = 7 * 24 * 3600;

bool IsTerminal(v1::SweepState state) { return state == v1::DONE || state == v1::FAILED || state == v1::CANCELLED; }

absl::Status BadSpec(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_SPEC", message);
}

absl::Status ShuttingDown() {
  return Error(absl::StatusCode::kUnavailable, "SHUTTING_DOWN", "the daemon is shutting down");
}

// Limits are refused, never silently changed.
absl::Status CheckSpec(const v1::SweepSpec& spec) {
  if (spec.max_trials() < 0 || spec.max_trials() > kMaxTrialsLimit) {
    return BadSpec(absl::StrCat("max_trials must be between 0 (default) and ", kMaxTrialsLimit));
  }
  if (!v1::Objective_IsValid(spec.objective())) return BadSpec("objective is not a known value");
  if (spec.top_predicted() < 0) return BadSpec("top_predicted must not be negative");
  if (!(spec.time_budget_s() >= 0 && spec.time_budget_s() <= kMaxBudgetS)) {
    return BadSpec("time_budget_s must be between 0 (none) and one week");
  }
  const auto in_range = [](int value, int low) { return value == 0 || (value >= low && value <= kMaxTimeoutMs); };
  if (!in_range(spec.compile_timeout_ms(), kMinCompileTimeoutMs)) {
    return BadSpec(absl::StrCat("compile_timeout_ms must be 0 (default) or between ", kMinCompileTimeoutMs, " and ", kMaxTimeoutMs));
  }
  if (!in_range(spec.run_timeout_ms(), kMinRunTimeoutMs)) {
    return BadSpec(absl::StrCat("run_timeout_ms must be 0 (default) or between ", kMinRunTimeoutMs, " and ", kMaxTimeoutMs,
                                ": the driver needs up to 0.6 s to report a fault"));
  }
  if (NeedsEnergy(spec.objective()) && spec.run_timeout_ms() != 0 && spec.run_timeout_ms() < kMinEnergyTimeoutMs) {
    return BadSpec(absl::StrCat("run_timeout_ms must be 0 (default) or at least ", kMinEnergyTimeoutMs,
                                " where energy is measured: that takes seconds"));
  }
  return absl::OkStatus();
}

v1::SweepSpec WithDefaults(v1::SweepSpec spec) {
  if (spec.l2() == v1::L2_STATE_UNSPECIFIED) spec.set_l2(v1::COLD);
  if (spec.clock() == v1::CLOCK_STATE_UNSPECIFIED) spec.set_clock(v1::COOL);
  if (spec.strategy() == v1::STRATEGY_KIND_UNSPECIFIED) spec.set_strategy(v1::MODEL);
  // Zeros flatter a kernel (less power, higher clocks); a seed of zero only means "the default one".
  if (spec.seed() == 0) spec.set_seed(1);
  return spec;
}

class SweepManagerImpl : public SweepManager {
 public:
  SweepManagerImpl(const Deps& deps, std::vector<Backend> backends, Options options)
      : deps_(deps), options_(std::move(options)) {
    for (Backend& backend : backends) {
      auto lane = std::make_unique<Lane>();
      lane->backend = std::move(backend);
      lanes_.push_back(std::move(lane));
    }
  }
  ~SweepManagerImpl() override { Shutdown(); }

  absl::Status Begin();
  absl::StatusOr<v1::Sweep> Start(const v1::SweepSpec& spec, const std::string& request_id) override;
  absl::StatusOr<v1::Sweep> Validate(const v1::SweepSpec& spec) override;
  absl::StatusOr<v1::Sweep> Resume(const std::string& name) override;
  absl::StatusOr<v1::Sweep> Cancel(const std::string& name) override;
  absl::StatusOr<v1::Sweep> Get(const std::string& name) override;
  std::vector<v1::Device> Devices() override;
  absl::StatusOr<Calibration> Calibrate(const std::string& device_id) override;
  void RaceConfigs(const v1::RaceConfigsRequest& request, std::function<bool()> abandoned,
                   std::function<void(absl::StatusOr<v1::RaceConfigsResponse>)> done) override;
  void Shutdown() override;

 private:
  // A sweep that has not ended.
  struct Active {
    v1::Sweep sweep;
    std::atomic<bool> cancelled{false};
    bool running = false;
  };
  // One device and its thread.
  struct Lane {
    Backend backend;
    std::thread thread;
    std::deque<std::function<void()>> queue;
    bool busy = false;
    std::string lost;  // why the last sweep found the device gone
  };

  // A race of given configurations on its way through compile threads and lane. Whatever drops it, its caller is
  // answered.
  struct Race {
    std::unique_ptr<ConfigRace> race;
    std::function<bool()> abandoned;
    std::function<void(absl::StatusOr<v1::RaceConfigsResponse>)> done;
    std::atomic<int> left{0};  // to compile
    ~Race() { Answer(ShuttingDown()); }
    void Answer(absl::StatusOr<v1::RaceConfigsResponse> result) {
      if (const auto answer = std::exchange(done, nullptr)) answer(std::move(result));
    }
  };

  absl::StatusOr<Lane*> FindLane(const std::string& device);
  CompilePool& PoolOf(Compiler* compiler);
  void Enqueue(Lane& lane, const std::shared_ptr<Active>& active) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunLane(Lane& lane);
  void RunSweep(Lane& lane, const std::shared_ptr<Active>& active);
  absl::StatusOr<Calibration> CalibrateOnLane(Lane& lane);
  void RaceOnLane(Lane& lane, const std::shared_ptr<Race>& race);

  const Deps deps_;
  const Options options_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // fixed after construction; queue and flags under mutex_
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Active>> active_ ABSL_GUARDED_BY(mutex_);
  std::map<Compiler*, std::unique_ptr<CompilePool>> pools_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stopping_{false};
};

absl::Status SweepManagerImpl::Begin() {
  std::vector<v1::Sweep> unfinished;
  std::string token;
  do {
    RT_ASSIGN_OR_RETURN(auto page, deps_.store.ListSweeps(std::nullopt, 1000, token));
    for (v1::Sweep& sweep : page.items) {
      if (!IsTerminal(sweep.state())) unfinished.push_back(std::move(sweep));
    }
    token = page.next_token;
  } while (!token.empty());
  std::reverse(unfinished.begin(), unfinished.end());  // oldest first
  for (v1::Sweep& sweep : unfinished) {
    const auto lane = FindLane(sweep.spec().device());
    if (!lane.ok()) {
      LogWarning(sweep.name(), " can't go on here: ", std::string(lane.status().message()));
      continue;
    }
    LogInfo("resuming ", sweep.name(), " (`", sweep.spec().op(), "`)");
    auto active = std::make_shared<Active>();
    active->sweep = std::move(sweep);
    absl::MutexLock lock(&mutex_);
    active_[active->sweep.name()] = active;
    Enqueue(**lane, active);
  }
  for (auto& lane : lanes_) lane->thread = std::thread([this, &lane = *lane] { RunLane(lane); });
  return absl::OkStatus();
}

absl::StatusOr<SweepManagerImpl::Lane*> SweepManagerImpl::FindLane(const std::string& device) {
  std::vector<std::string> ids;
  for (const auto& lane : lanes_) {
    if (device.empty() || lane->backend.id == device || lane->backend.device_key == device) return lane.get();
    ids.push_back(lane->backend.id);
  }
  return Error(absl::StatusCode::kNotFound, "UNKNOWN_DEVICE",
               absl::StrCat("this daemon has no device `", device, "`; it has: ", absl::StrJoin(ids, ", ")));
}

CompilePool& SweepManagerImpl::PoolOf(Compiler* compiler) {
  absl::MutexLock lock(&mutex_);
  auto& pool = pools_[compiler];
  if (!pool) pool = std::make_unique<CompilePool>(compiler->parallelism());
  return *pool;
}

void SweepManagerImpl::Enqueue(Lane& lane, const std::shared_ptr<Active>& active) {
  lane.queue.push_back([this, &lane, active] { RunSweep(lane, active); });
}

absl::StatusOr<v1::Sweep> SweepManagerImpl::Validate(const v1::SweepSpec& spec) {
  RT_RETURN_IF_ERROR(CheckSpec(spec));
  RT_ASSIGN_OR_RETURN(Lane* lane, FindLane(spec.device()));
  const auto calibration = deps_.store.GetCalibration(lane->backend.device_key);
  const std::vector<std::string> ids(spec.template_id().begin(), spec.template_id().end());
  RT_ASSIGN_OR_RETURN(Plan plan, MakePlan(deps_.library, spec.op(), lane->backend.profile,
                                                calibration.ok() ? &*calibration : nullptr, ids));
  if (spec.top_predicted() > 0) KeepBestPredicted(spec.top_predicted(), plan);
  v1::Sweep sweep;
  *sweep.mutable_spec() = WithDefaults(spec);
  sweep.mutable_spec()->set_op(plan.op.text);
  sweep.mutable_spec()->set_device(lane->backend.id);
  sweep.set_device_key(lane->backend.device_key);
  *sweep.mutable_environment() = lane->backend.environment;
  *sweep.mutable_bounds() = plan.bounds;
  auto& progress = *sweep.mutable_progress();
  progress.set_space_points(plan.space_points);
  progress.set_valid_points(plan.valid_points);
  progress.mutable_pruned()->insert(plan.pruned.begin(), plan.pruned.end());
  return sweep;
}

absl::StatusOr<v1::Sweep> SweepManagerImpl::Start(const v1::SweepSpec& spec, const std::string& request_id) {
  RT_ASSIGN_OR_RETURN(v1::Sweep sweep, Validate(spec));
  RT_ASSIGN_OR_RETURN(Lane* lane, FindLane(spec.device()));
  absl::BitGen random;
  sweep.set_name(absl::StrFormat("sweeps/s%010x", absl::Uniform<uint64_t>(random, 0, uint64_t{1} << 40)));
  sweep.set_state(v1::QUEUED);
  sweep.set_request_id(request_id);
  *sweep.mutable_create_time() = ToProto(deps_.clock.Now());
  *sweep.mutable_update_time() = sweep.create_time();

  absl::MutexLock lock(&mutex_);
  if (stopping_) return ShuttingDown();
  if (!request_id.empty()) {
    const auto earlier = deps_.store.FindSweepByRequestId(request_id);
    if (earlier.ok()) {
      if (earlier->spec().SerializeAsString() != sweep.spec().SerializeAsString()) {
        return Error(absl::StatusCode::kInvalidArgument, "REQUEST_ID_REUSED",
                     absl::StrCat("request_id ", request_id, " was used for another sweep (", earlier->name(), ")"));
      }
      return *earlier;
    }
    if (!absl::IsNotFound(earlier.status())) return earlier.status();
  }
  if (static_cast<int>(lane->queue.size()) >= options_.max_queued) {
    return Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                 absl::StrCat(lane->queue.size(), " sweeps are waiting for ", lane->backend.id, "; try again later"));
  }
  RT_RETURN_IF_ERROR(deps_.store.PutSweep(sweep));
  auto active = std::make_shared<Active>();
  active->sweep = sweep;
  active_[sweep.name()] = active;
  Enqueue(*lane, active);
  return sweep;
}

absl::StatusOr<v1::Sweep> SweepManagerImpl::Resume(const std::string& name) {
  RT_ASSIGN_OR_RETURN(v1::Sweep sweep, Get(name));
  if (sweep.state() == v1::DONE) {
    return Error(absl::StatusCode::kFailedPrecondition, "ALREADY_DONE", absl::StrCat(name, " is done; start a new sweep"));
  }
  RT_ASSIGN_OR_RETURN(Lane* lane, FindLane(sweep.spec().device()));
  absl::MutexLock lock(&mutex_);
  if (active_.count(name) != 0) return sweep;  // still going
  sweep.set_state(v1::QUEUED);
  sweep.clear_message();
  sweep.clear_end_time();
  RT_RETURN_IF_ERROR(deps_.store.PutSweep(sweep));
  auto active = std::make_shared<Active>();
  active->sweep = sweep;
  active_[name] = active;
  Enqueue(*lane, active);
  return sweep;
}

absl::StatusOr<v1::Sweep> SweepManagerImpl::Get(const std::string& name) {
  {
    absl::MutexLock lock(&mutex_);
    const auto it = active_.find(name);
    if (it != active_.end()) return it->second->sweep;
  }
  return deps_.store.GetSweep(name);
}

absl::StatusOr<v1::Sweep> SweepManagerImpl::Cancel(const std::string& name) {
  {
    absl::MutexLock lock(&mutex_);
    const auto it = active_.find(name);
    if (it != active_.end()) {
      it->second->cancelled = true;
      if (it->second->running) {
        for (const auto& lane : lanes_) {
          if (lane->backend.id == it->second->sweep.spec().device() && lane->backend.runner) lane->backend.runner->Interrupt();
        }
      }
      const auto gone = [this, &name]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return active_.count(name) == 0; };
      // A queued sweep ends when its turn comes; it will not start.
      if (it->second->running) mutex_.AwaitWithTimeout(absl::Condition(&gone), absl::Seconds(2));
    }
  }
  return Get(name);
}

void SweepManagerImpl::RunLane(Lane& lane) {
  while (true) {
    std::function<void()> task;
    {
      const auto ready = [this, &lane]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !lane.queue.empty(); };
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&ready));
      if (stopping_) return;
      task = std::move(lane.queue.front());
      lane.queue.pop_front();
      lane.busy = true;
    }
    task();
    absl::MutexLock lock(&mutex_);
    lane.busy = false;
  }
}

void SweepManagerImpl::RunSweep(Lane& lane, const std::shared_ptr<Active>& active) {
  v1::Sweep sweep;
  {
    absl::MutexLock lock(&mutex_);
    active->running = true;
    sweep = active->sweep;
  }
  const auto on_change = [this, active](const v1::Sweep& changed) {
    {
      absl::MutexLock lock(&mutex_);
      active->sweep = changed;
    }
    if (options_.on_change) options_.on_change(changed);
  };
  const int ahead = options_.compile_ahead > 0 ? options_.compile_ahead : lane.backend.compiler->parallelism() + 1;
  SweepRun run({deps_.library, deps_.store, deps_.artifacts, deps_.clock, lane.backend, PoolOf(lane.backend.compiler), ahead,
                on_change, options_.on_publish, active->cancelled, stopping_},
               std::move(sweep));
  run.Execute();
  absl::MutexLock lock(&mutex_);
  lane.lost = active->sweep.state() == v1::FAILED && absl::StrContains(active->sweep.message(), "stopped answering")
                  ? active->sweep.message() : "";
  active_.erase(active->sweep.name());
}

std::vector<v1::Device> SweepManagerImpl::Devices() {
  std::vector<v1::Device> devices;
  for (const auto& lane : lanes_) {
    const Backend& backend = lane->backend;
    v1::Device& device = devices.emplace_back();
    device.set_name(absl::StrCat("devices/", absl::StrReplaceAll(backend.id, {{":", "-"}, {"/", "-"}})));
    device.set_id(backend.id);
    device.set_device_key(backend.device_key);
    device.set_kind(backend.kind);
    *device.mutable_profile() = backend.profile;
    *device.mutable_environment() = backend.environment;
    device.set_arch(ArchName(backend.profile.cc(), false));
    device.set_tunable(backend.unavailable.empty());
    const auto calibration = deps_.store.GetCalibration(backend.device_key);
    if (calibration.ok()) *device.mutable_calibration() = *calibration;
    auto& counter = *device.mutable_counter();
    const auto add = [&counter](const std::map<std::string, int64_t>& from) {
      counter.insert(from.begin(), from.end());
    };
    add(backend.compiler->Counters());
    if (backend.runner != nullptr) add(backend.runner->Counters());
    add(deps_.store.Counters());
    add(deps_.artifacts.Counters());
    absl::MutexLock lock(&mutex_);
    const std::string why = !backend.unavailable.empty() ? backend.unavailable : lane->lost;
    device.set_state(!why.empty() ? v1::Device::UNAVAILABLE : lane->busy ? v1::Device::BUSY : v1::Device::READY);
    device.set_message(why.empty() ? backend.sharing : why);
  }
  return devices;
}

absl::StatusOr<Calibration> SweepManagerImpl::CalibrateOnLane(Lane& lane) {
  RT_ASSIGN_OR_RETURN(const auto compiled, lane.backend.compiler->Compile(SupportKernels(lane.backend.profile)));
  if (compiled.outcome() != v1::OK) {
    return Error(absl::StatusCode::kFailedPrecondition, "HARNESS_COMPILE_FAILED", compiled.log());
  }
  worker::v1::CalibrateRequest request;
  request.set_support_cubin(compiled.cubin());
  request.set_timeout_ms(kCalibrateTimeoutMs);
  RT_ASSIGN_OR_RETURN(auto result, lane.backend.runner->Calibrate(request));
  if (result.outcome() != v1::OK) {
    return Error(absl::StatusCode::kFailedPrecondition, "CALIBRATION_FAILED",
                 absl::StrCat(v1::Outcome_Name(result.outcome()), ": ", result.message()));
  }
  Calibration& calibration = *result.mutable_calibration();
  calibration.set_device_key(lane.backend.device_key);
  *calibration.mutable_environment() = lane.backend.environment;
  *calibration.mutable_time() = ToProto(deps_.clock.Now());
  RT_RETURN_IF_ERROR(deps_.store.PutCalibration(calibration));
  return calibration;
}

absl::StatusOr<Calibration> SweepManagerImpl::Calibrate(const std::string& device_id) {
  RT_ASSIGN_OR_RETURN(Lane* lane, FindLane(device_id));
  if (!HasGpu(lane->backend)) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_A_GPU",
                 absl::StrCat(lane->backend.id, " is modelled; only a real GPU has ceilings to measure"));
  }
  // Shared with the lane, which may run the task after this call gave up at shutdown.
  struct Shared {
    absl::Mutex mutex;
    std::optional<absl::StatusOr<Calibration>> result ABSL_GUARDED_BY(mutex);
  };
  auto shared = std::make_shared<Shared>();
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return ShuttingDown();
    lane->queue.push_back([this, lane, shared] {
      auto result = CalibrateOnLane(*lane);
      absl::MutexLock inner(&shared->mutex);
      shared->result = std::move(result);
    });
  }
  const auto done = [&shared]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return shared->result.has_value(); };
  absl::MutexLock lock(&shared->mutex);
  while (!shared->mutex.AwaitWithTimeout(absl::Condition(&done), absl::Milliseconds(200))) {
    if (stopping_) return ShuttingDown();
  }
  return *shared->result;
}

void SweepManagerImpl::RaceConfigs(const v1::RaceConfigsRequest& request, std::function<bool()> abandoned,
                                   std::function<void(absl::StatusOr<v1::RaceConfigsResponse>)> done) {
  auto race = std::make_shared<Race>();
  race->abandoned = std::move(abandoned);
  race->done = std::move(done);
  const auto lane = FindLane(request.device());
  if (!lane.ok()) return race->Answer(lane.status());
  const auto calibration = deps_.store.GetCalibration((*lane)->backend.device_key);
  auto planned = ConfigRace::Create({deps_.library, (*lane)->backend, deps_.clock}, request,
                                    calibration.ok() ? &*calibration : nullptr);
  if (!planned.ok()) return race->Answer(planned.status());
  race->race = *std::move(planned);
  race->left = race->race->size();
  if (stopping_) return;
  CompilePool& pool = PoolOf((*lane)->backend.compiler);
  for (int i = 0; i < race->race->size(); ++i) {
    pool.Submit([this, lane = *lane, race, i] {
      if (!race->abandoned()) race->race->Compile(i);
      if (--race->left == 0) RaceOnLane(*lane, race);
    });
  }
}

void SweepManagerImpl::RaceOnLane(Lane& lane, const std::shared_ptr<Race>& race) {
  bool full = false;
  {
    absl::MutexLock lock(&mutex_);
    full = static_cast<int>(lane.queue.size()) >= options_.max_queued;
    if (!full && !stopping_) {
      lane.queue.push_back([race] {
        race->Answer(race->abandoned() ? absl::CancelledError("nobody waits for it any more") : race->race->Run());
      });
    }
  }
  if (full) {
    race->Answer(Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                       absl::StrCat("too much is waiting for ", lane.backend.id, "; try again later")));
  }
}

void SweepManagerImpl::Shutdown() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;

    for (const auto& lane : lanes_) {
      if (lane->busy && lane->backend.runner) lane->backend.runner->Interrupt();
    }
  }
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable()) lane->thread.join();
  }
  // Outside the lock: what is dropped may answer its caller.
  std::vector<std::deque<std::function<void()>>> dropped;
  std::map<Compiler*, std::unique_ptr<CompilePool>> pools;
  {
    absl::MutexLock lock(&mutex_);
    pools.swap(pools_);
    for (const auto& lane : lanes_) dropped.push_back(std::move(lane->queue));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SweepManager>> SweepManager::Create(const Deps& deps, std::vector<Backend> backends,
                                                                   Options options) {
  if (backends.empty()) return absl::InvalidArgumentError("a sweep manager needs a device");
  auto manager = std::make_unique<SweepManagerImpl>(deps, std::move(backends), std::move(options));
  RT_RETURN_IF_ERROR(manager->Begin());
  return manager;
}

}  // namespace rooftune

#include "tuner/worker/run_monitor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tuner/worker/run_library.h"
#include "tuner/worker/run_nvml.h"

namespace rooftune {
namespace {

constexpr double kUnexplained = 1.5;
// Launching a burst and waking up from the wait: some ten microseconds, and now and then a scheduler's tick.
constexpr double kHostUs = 500;

// How far back a GPU must have been idle: NVML samples utilisation up to once a second.
constexpr absl::Duration kIdleWindow = absl::Seconds(1);

// Field 4 of /proc/PID/stat, behind the name in parentheses (which may hold anything).
int ParentOf(int pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return 0;
  const size_t at = line.rfind(')');
  int parent = 0;
  char state = 0;
  if (at == std::string::npos || std::sscanf(line.c_str() + at + 1, " %c %d", &state, &parent) != 2) return 0;
  return parent;
}

class NvmlMonitor : public GpuMonitor {
 public:
  NvmlMonitor(std::unique_ptr<Nvml> nvml, std::string uuid) : nvml_(std::move(nvml)), uuid_(std::move(uuid)) {}

  GpuReading Read() override {
    const Nvml::Load load = nvml_->ReadLoad(uuid_);
    GpuReading reading;
    reading.power_w = load.power_w;
    reading.temperature_c = load.temperature_c;
    reading.throttle_reasons = load.throttle_reasons;
    if (load.pids_known) reading.foreign_processes = CountForeign(load.pids, getpid(), getppid(), ParentOf);
    return reading;
  }

  int64_t EnergyMj() override { return nvml_->TotalEnergyMj(uuid_); }

  worker::v1::IdleResult Idle() override {
    const auto since_us = static_cast<uint64_t>(absl::ToUnixMicros(absl::Now() - kIdleWindow));
    const int self = getpid(), parent = getppid();
    return JudgeIdle(Read(), nvml_->BusyPids(uuid_, since_us), [self, parent](int pid) {
      return pid != self && pid != parent && (parent <= 1 || ParentOf(pid) != parent);
    });
  }

 private:
  const std::unique_ptr<Nvml> nvml_;
  const std::string uuid_;
};

}  // namespace

std::unique_ptr<GpuMonitor> MakeNvmlMonitor(const std::string& uuid) {
  auto nvml = Nvml::Open();
  if (!nvml.ok()) return nullptr;
  return std::make_unique<NvmlMonitor>(*std::move(nvml), uuid);
}

int CountForeign(const std::vector<int>& pids, int self, int parent, const std::function<int(int pid)>& parent_of) {
  if (pids.empty()) return 0;
  if (std::find(pids.begin(), pids.end(), self) == pids.end()) return -1;
  return static_cast<int>(std::count_if(pids.begin(), pids.end(), [&](int pid) {
    return pid != self && pid != parent && (parent <= 1 || parent_of(pid) != parent);
  }));
}

worker::v1::IdleResult JudgeIdle(const GpuReading& reading, const std::optional<std::vector<int>>& busy,
                                 const std::function<bool(int pid)>& foreign) {
  worker::v1::IdleResult result;
  if (reading.foreign_processes == 0) return result;
  if (reading.foreign_processes < 0 || !busy.has_value()) {
    result.set_busy_processes(-1);
    result.set_message(
        reading.foreign_processes < 0
            ? "NVML does not say which processes use the GPU (or names them as another pid namespace does)"
            : absl::StrCat(reading.foreign_processes,
                           " other processes hold the GPU and NVML does not say whether they compute"));
    return result;
  }
  std::vector<int> others;
  std::copy_if(busy->begin(), busy->end(), std::back_inserter(others), foreign);
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  result.set_busy_processes(static_cast<int32_t>(others.size()));
  if (!others.empty())
    result.set_message(absl::StrCat("process ", absl::StrJoin(others, ", "), " computes on the GPU"));
  return result;
}

bool IsContended(const BurstFacts& facts) {
  if (facts.foreign_processes <= 0) return false;
  const bool wall = facts.wall_us > kUnexplained * facts.device_us + kHostUs;
  const bool device = facts.shortest_span_us > 0 && facts.span_us > kUnexplained * facts.shortest_span_us;
  return wall || device;
}

void AddReading(const GpuReading& reading, v1::Measurement* measurement) {
  measurement->set_power_w(std::max(measurement->power_w(), reading.power_w));
  measurement->set_temperature_c(std::max(measurement->temperature_c(), reading.temperature_c));
  measurement->set_throttle_reasons(measurement->throttle_reasons() | reading.throttle_reasons);
  measurement->set_foreign_processes(std::max(measurement->foreign_processes(), reading.foreign_processes));
}

std::string ThrottleText(uint64_t reasons) {
  // Bits of nvmlClocksEventReasons; 0x1 (idle) and 0x2 (application clocks) slow nothing down that is running.
  constexpr struct {
    uint64_t bit;
    const char* text;
  } kReasons[] = {{0x4, "power cap"},           {0x8, "hardware slowdown"},   {0x10, "sync boost"},
                  {0x20, "thermal (software)"}, {0x40, "thermal (hardware)"}, {0x80, "power brake"}};
  std::vector<std::string> texts;
  for (const auto& reason : kReasons) {
    if ((reasons & reason.bit) != 0) texts.push_back(reason.text);
  }
  return absl::StrJoin(texts, ", ");
}

std::string SharingText(const SharingFacts& facts) {
  constexpr int kProhibited = 2;
  std::vector<std::string> texts;
  if (facts.compute_mode == kProhibited) texts.push_back("compute mode is PROHIBITED: no process may compute on it");
  if (!facts.mig_profile.empty()) {
    texts.push_back(absl::StrCat("MIG slice ", facts.mig_profile, ": other slices share power and clocks"));
  } else if (facts.mig_mode) {
    texts.push_back("MIG is on: other slices share power and clocks");
  }
  if (facts.mps)
    texts.push_back("MPS is running: other clients may compute at the same time, and a fault may hit them");
  if (facts.other_processes > 0) {
    texts.push_back(absl::StrCat(facts.other_processes,
                                 facts.other_processes == 1 ? " process holds" : " processes hold",
                                 " it: bursts that others disturb are thrown away"));
  }
  return absl::StrJoin(texts, "; ");
}

bool HasMpsPipe() {
  std::string dir = EnvironmentOr("CUDA_MPS_PIPE_DIRECTORY");
  if (dir.empty()) dir = "/tmp/nvidia-mps";
  struct stat info = {};
  return stat(absl::StrCat(dir, "/control").c_str(), &info) == 0;
}

}  // namespace rooftune

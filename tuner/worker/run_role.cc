// The run role: one process on one GPU, requests one after the other.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tuner/wire/frame.h"
#include "tuner/worker/roles.h"
#include "tuner/worker/run_lease.h"
#include "tuner/worker/run_library.h"
#include "tuner/worker/run_monitor.h"
#include "tuner/worker/run_session.h"
#include "tuner/worker/sandbox.h"
#include "tuner/worker/version.h"

namespace rooftune {
namespace {

using worker::v1::Frame;

// Exit codes, for the parent's messages.
constexpr int kExitPoisoned = 70;
constexpr int kExitNoDevice = 71;
// A predecessor's lock is dropped when the kernel has torn it down, which takes up to 0.15 s.
constexpr absl::Duration kLeasePatience = absl::Seconds(3);

// Set by the parent for a spare: it makes its context at once and takes the lease with its first request.
constexpr char kStandby[] = "ROOFTUNE_WORKER_STANDBY";

absl::Status SendError(int fd, uint64_t id, const absl::Status& status) {
  Frame frame;
  frame.set_id(id);
  frame.mutable_error()->set_code(static_cast<int>(status.code()));
  frame.mutable_error()->set_message(std::string(status.message()));
  return WriteFrame(fd, frame);
}

absl::Status SendBegin(int fd, uint64_t id, uint64_t what) {
  Frame frame;
  frame.set_id(id);
  frame.mutable_begin()->set_id(what);
  return WriteFrame(fd, frame);
}

absl::Status SendHello(int fd) {
  Frame frame;
  worker::v1::Hello* const hello = frame.mutable_hello();
  hello->set_protocol(kWorkerProtocol);
  hello->set_build(kWorkerVersion);
  hello->set_role("run");
  hello->set_pid(getpid());
  return WriteFrame(fd, frame);
}

// No core files (they would hold gigabytes of mappings), and no life after the parent's.
void LimitProcess() {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  VolunteerForOutOfMemory();
}

// A device with its context, and the lease on it.
struct Gpu {
  std::unique_ptr<CudaDriver> driver;
  std::string lease_path;
  std::optional<GpuLease> lease;
  std::unique_ptr<GpuContext> context;
  std::unique_ptr<GpuMonitor> monitor;  // may be null

  absl::Status TakeLease() {
    if (lease.has_value()) return absl::OkStatus();
    RT_ASSIGN_OR_RETURN(lease, GpuLease::Take(lease_path, absl::Now() + kLeasePatience));
    return absl::OkStatus();
  }
};

absl::Status OpenGpu(int ordinal, bool standby, Gpu* gpu) {
  RT_ASSIGN_OR_RETURN(gpu->driver, CudaDriver::Load());
  RT_ASSIGN_OR_RETURN(const DeviceId id, FindDevice(*gpu->driver, ordinal));
  gpu->lease_path = GpuLease::PathFor(id.uuid);
  if (!standby) RT_RETURN_IF_ERROR(gpu->TakeLease());
  RT_ASSIGN_OR_RETURN(gpu->context, GpuContext::Create(*gpu->driver, id));
  gpu->monitor = MakeNvmlMonitor(id.uuid);
  return absl::OkStatus();
}

Frame Answer(int fd, RunSession& session, GpuMonitor* monitor, const Frame& request) {
  Frame reply;
  reply.set_id(request.id());
  switch (request.body_case()) {
    case Frame::kPrepare:
      *reply.mutable_prepare_result() = session.Prepare(request.prepare());
      break;
    case Frame::kRun:
      *reply.mutable_run_result() = session.Run(request.run());
      break;
    case Frame::kBaseline:
      *reply.mutable_run_result() = session.Baseline(request.baseline());
      break;
    case Frame::kRace:
      *reply.mutable_race_result() = session.Race(request.race(), [&](int entrant) {
        // The parent learns by this whom to blame; if it is gone, so are we soon.
        const absl::Status sent = SendBegin(fd, request.id(), static_cast<uint64_t>(entrant));
        if (!sent.ok()) LogWarning("run role: ", std::string(sent.message()));
      });
      break;
    case Frame::kVendor:
      *reply.mutable_vendor_result() = session.Vendor(request.vendor());
      break;
    case Frame::kCalibrate:
      *reply.mutable_calibrate_result() = session.Calibrate(request.calibrate());
      break;
    case Frame::kIdle:
      if (monitor != nullptr) {
        *reply.mutable_idle_result() = monitor->Idle();
      } else {
        reply.mutable_idle_result()->set_busy_processes(-1);
        reply.mutable_idle_result()->set_message("there is no NVML to ask");
      }
      break;
    case Frame::kProbe:
      *reply.mutable_probe_result() = Probe();
      break;
    default:
      reply.mutable_error()->set_code(static_cast<int>(absl::StatusCode::kUnimplemented));
      reply.mutable_error()->set_message(
          "the run role answers prepare, vendor, run, baseline, race, calibrate, idle and probe");
      break;
  }
  return reply;
}

// OK when the parent has closed the stream.
absl::Status Serve(int fd, Gpu& gpu) {
  RunSession session(*gpu.context, {gpu.monitor.get(), &Clock::Real()});
  while (true) {
    const absl::StatusOr<Frame> request = ReadFrame(fd, absl::InfiniteFuture());
    if (!request.ok()) {
      return request.status().code() == absl::StatusCode::kUnavailable ? absl::OkStatus() : request.status();
    }
    const absl::Status leased = gpu.TakeLease();
    if (!leased.ok()) {
      RT_RETURN_IF_ERROR(SendError(fd, request->id(), leased));
      return leased;
    }
    RT_RETURN_IF_ERROR(SendBegin(fd, request->id(), request->id()));
    RT_RETURN_IF_ERROR(WriteFrame(fd, Answer(fd, session, gpu.monitor.get(), *request)));
    if (session.IsPoisoned()) {
      LogWarning("run role: a fault poisoned this process; it ends so that another takes over");
      // No destructor may run: each would ask the dead context for something.
      _exit(kExitPoisoned);
    }
  }
}

}  // namespace

int ServeRun(int fd, int ordinal) {
  LimitProcess();
  Gpu gpu;
  const bool standby = !EnvironmentOr(kStandby).empty();
  const absl::Status opened = OpenGpu(ordinal, standby, &gpu);
  if (!opened.ok()) {
    LogError("run role: ", std::string(opened.message()));
    const absl::Status unavailable(absl::StatusCode::kUnavailable, opened.message());
    const absl::Status sent = SendError(fd, 0, unavailable);
    if (!sent.ok()) LogError("run role: ", std::string(sent.message()));
    return kExitNoDevice;
  }
  absl::Status status = SendHello(fd);
  if (status.ok()) status = Serve(fd, gpu);
  if (status.ok()) return 0;
  LogError("run role: ", std::string(status.message()));
  return 1;
}

}  // namespace rooftune

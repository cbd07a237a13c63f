#include "tuner/run/worker_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tuner/wire/frame.h"

namespace rooftune {
namespace {

using worker::v1::Frame;
using worker::v1::RunResult;

constexpr int kTries = 3;
// Ids of requests start above any number of an entrant: a Begin of a race names either.
constexpr uint64_t kFirstId = uint64_t{1} << 32;
// A trap takes up to 0.6 s to be reported: a shorter deadline would call it a hang.
constexpr int kLeastTimeoutMs = 1000;
constexpr int kDefaultPrepareMs = 60'000;
constexpr int kDefaultRunMs = 10'000;
constexpr int kDefaultBaselineMs = 30'000;
constexpr int kDefaultRaceMs = 60'000;
constexpr int kDefaultCalibrateMs = 120'000;
constexpr int kIdleMs = 5000;
// A killed worker is gone after about 0.1 s; one that ends by itself has its context torn down first.
constexpr absl::Duration kBurialPatience = absl::Seconds(5);
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);
constexpr size_t kMaxTail = 1024;
constexpr char kStandby[] = "ROOFTUNE_WORKER_STANDBY=1";

int TimeoutOr(int timeout_ms, int fallback_ms) {
  return std::max(timeout_ms > 0 ? timeout_ms : fallback_ms, kLeastTimeoutMs);
}

absl::Status Cancelled() { return Error(absl::StatusCode::kCancelled, "INTERRUPTED", "the run was interrupted"); }

absl::Status RefusedStatus(const Frame& frame) {
  return absl::Status(static_cast<absl::StatusCode>(frame.error().code()),
                      absl::StrCat("run worker: ", frame.error().message()));
}

std::string TimeoutMessage(int timeout_ms) { return absl::StrCat("did not finish within ", timeout_ms, " ms; killed"); }

// Outcome and message of a fate other than an answer.
template <typename Result>
void SetFate(v1::Outcome outcome, const std::string& message, Result* result) {
  result->set_outcome(outcome);
  result->set_message(message);
}

}  // namespace

template <typename Result>
absl::StatusOr<Result> WorkerRunner::ResultOf(const Reply& reply, int timeout_ms,
                                              const Result& (Frame::*answer)() const) {
  Result result;
  switch (reply.fate) {
    case Fate::kAnswered:
      return (reply.frame.*answer)();
    case Fate::kRefused:
      return RefusedStatus(reply.frame);
    case Fate::kTimedOut:
      SetFate(v1::TIMEOUT, TimeoutMessage(timeout_ms), &result);
      break;
    case Fate::kDied:
      SetFate(v1::CRASHED, reply.detail, &result);
      break;
    case Fate::kNotBegun:
      SetFate(v1::DEVICE_LOST, reply.detail, &result);
      break;
  }
  return result;
}

absl::StatusOr<std::unique_ptr<WorkerRunner>> WorkerRunner::Create(Options options) {
  if (options.device < 0) return absl::InvalidArgumentError("a device number is not negative");
  if (options.worker_path.empty()) options.worker_path = ExecutableDir() + "/rooftune-worker";
  std::unique_ptr<WorkerRunner> runner(new WorkerRunner(std::move(options)));
  runner->next_id_ = kFirstId;
  return runner;
}

WorkerRunner::~WorkerRunner() = default;

bool WorkerRunner::interrupted() {
  absl::MutexLock lock(&mutex_);
  return interrupted_;
}

void WorkerRunner::Interrupt() {
  absl::MutexLock lock(&mutex_);
  if (!in_call_) return;
  interrupted_ = true;
  if (worker_ != nullptr) worker_->Kill();
}

absl::StatusOr<std::unique_ptr<Subprocess>> WorkerRunner::Spawn(bool standby) {
  Subprocess::Options options;
  options.argv = {options_.worker_path, "run", "--fd", "3", "--device", absl::StrCat(options_.device)};
  options.env = options_.env;
  if (standby) options.env.push_back(kStandby);
  options.log_prefix = absl::StrCat("run worker cuda:", options_.device, ": ");
  ++starts_;
  return Subprocess::Spawn(options);
}

absl::Status WorkerRunner::AwaitHello(Subprocess& worker) {
  const absl::StatusOr<Frame> frame = ReadFrame(worker.fd(), absl::Now() + options_.start_timeout);
  if (!frame.ok()) return Annotate(frame.status(), "run worker said no Hello");
  if (frame->has_error()) return RefusedStatus(*frame);
  if (!frame->has_hello() || frame->hello().protocol() != kWorkerProtocol || frame->hello().role() != "run") {
    return absl::UnavailableError(absl::StrCat(options_.worker_path, " is not the run worker of this version"));
  }
  return absl::OkStatus();
}

bool WorkerRunner::AwaitEnd(Subprocess& worker, absl::Time deadline, ExitInfo* exit) const {
  return options_.await_end ? options_.await_end(worker, deadline, exit) : worker.Wait(deadline, exit);
}

std::string WorkerRunner::Quarantine() {
  ExitInfo exit;
  if (stuck_ != nullptr && AwaitEnd(*stuck_, absl::InfinitePast(), &exit)) {
    LogInfo("run worker cuda:", options_.device, ": process ", stuck_->pid(),
            " has ended after all; the quarantine is over");
    stuck_.reset();
  }
  if (stuck_ == nullptr) return "";
  return absl::StrCat("the GPU is in quarantine: process ", stuck_->pid(),
                      " hangs in the kernel and does not end after SIGKILL; reset the GPU or restart the machine");
}

absl::Status WorkerRunner::EnsureWorker() {
  ExitInfo exit;
  if (worker_ != nullptr && !worker_->Wait(absl::InfinitePast(), &exit)) return absl::OkStatus();
  if (worker_ != nullptr) LogInfo("run worker cuda:", options_.device, " is gone: ", Bury(false));
  std::unique_ptr<Subprocess> fresh = std::move(spare_);
  if (fresh == nullptr) {
    RT_ASSIGN_OR_RETURN(fresh, Spawn(false));
  }
  {
    absl::MutexLock lock(&mutex_);
    worker_ = std::move(fresh);
  }
  const absl::Status hello = AwaitHello(*worker_);
  if (!hello.ok()) {
    const std::string end = Bury(true);
    return absl::UnavailableError(absl::StrCat(hello.message(), " (", end, ")"));
  }
  ever_started_ = true;
  if (options_.spare) {
    absl::StatusOr<std::unique_ptr<Subprocess>> spare = Spawn(true);
    // Without a spare a fault costs 0.3 s more, no more than that.
    if (spare.ok()) spare_ = *std::move(spare);
  }
  return absl::OkStatus();
}

std::string WorkerRunner::Bury(bool kill) {
  std::unique_ptr<Subprocess> dead;
  {
    absl::MutexLock lock(&mutex_);
    dead = std::move(worker_);
  }
  is_prepared_ = false;
  if (dead == nullptr) return "no worker";
  if (kill) dead->Kill();
  ExitInfo exit;
  ++deaths_;
  if (!AwaitEnd(*dead, absl::Now() + kBurialPatience, &exit)) {
    dead->Kill();
    ++quarantines_;
    stuck_ = std::move(dead);
    LogError("run worker cuda:", options_.device, ": ", Quarantine());
    return "it does not end";
  }
  std::string tail = dead->OutputTail();
  if (tail.size() > kMaxTail) tail.erase(0, tail.size() - kMaxTail);
  return tail.empty() ? exit.ToString() : absl::StrCat(exit.ToString(), "; last output: ", tail);
}

absl::StatusOr<WorkerRunner::Reply> WorkerRunner::Exchange(Frame& request, absl::Duration timeout) {
  request.set_id(next_id_++);
  const absl::Status written = WriteFrame(worker_->fd(), request);
  if (written.code() == absl::StatusCode::kInvalidArgument) return written;
  Reply reply;
  if (!written.ok()) {
    reply.detail = Bury(true);
    return reply;
  }
  reply = AwaitBegin(request.id());
  return reply.fate == Fate::kAnswered ? AwaitResult(request.id(), timeout) : reply;
}

// kAnswered = begun.
WorkerRunner::Reply WorkerRunner::AwaitBegin(uint64_t id) {
  Reply reply;
  const absl::StatusOr<Frame> frame = ReadFrame(worker_->fd(), absl::Now() + options_.begin_timeout);
  if (frame.ok() && frame->has_begin() && frame->id() == id && frame->begin().id() == id) {
    reply.fate = Fate::kAnswered;
    return reply;
  }
  if (!frame.ok()) {
    reply.detail = absl::StrCat(frame.status().message(), "; ");
  } else if (frame->has_error()) {
    reply.detail = absl::StrCat(frame->error().message(), "; ");
  } else {
    reply.detail = "it answered out of turn; ";
  }
  absl::StrAppend(&reply.detail, Bury(true));
  return reply;
}

WorkerRunner::Reply WorkerRunner::AwaitResult(uint64_t id, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  Reply reply;
  while (true) {
    absl::StatusOr<Frame> frame = ReadFrame(worker_->fd(), deadline);
    if (frame.ok() && frame->id() == id) {
      if (frame->has_begin()) {
        reply.entrant = static_cast<int>(frame->begin().id());
        continue;
      }
      reply.fate = frame->has_error() ? Fate::kRefused : Fate::kAnswered;
      reply.frame = *std::move(frame);
      return reply;
    }
    const bool late = frame.status().code() == absl::StatusCode::kDeadlineExceeded;
    const bool ended = frame.status().code() == absl::StatusCode::kUnavailable;
    reply.fate = late ? Fate::kTimedOut : Fate::kDied;
    if (!late && !ended) reply.detail = "the worker sent nonsense; ";
    // One that ended by itself is not killed: its exit code says why.
    absl::StrAppend(&reply.detail, Bury(!ended));
    return reply;
  }
}

absl::Status WorkerRunner::PrepareAgain() {
  Frame frame;
  *frame.mutable_prepare() = *problem_;
  const int timeout_ms = TimeoutOr(problem_->timeout_ms(), kDefaultPrepareMs);
  RT_ASSIGN_OR_RETURN(const Reply reply, Exchange(frame, absl::Milliseconds(timeout_ms)));
  if (reply.fate != Fate::kAnswered) {
    return absl::UnavailableError(
        absl::StrCat("setting the problem up again failed: ",
                     reply.fate == Fate::kRefused ? reply.frame.error().message() : reply.detail));
  }
  const worker::v1::PrepareResult& result = reply.frame.prepare_result();
  if (result.outcome() != v1::OK) {
    return absl::UnavailableError(
        absl::StrCat("setting the problem up again: ", v1::Outcome_Name(result.outcome()), ": ", result.message()));
  }
  is_prepared_ = true;
  return absl::OkStatus();
}

absl::StatusOr<WorkerRunner::Reply> WorkerRunner::CallBegun(Frame& request, absl::Duration timeout,
                                                            bool needs_problem) {
  Reply lost;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (attempt > 0) absl::SleepFor(kRetryPause * attempt);
    if (interrupted()) return Cancelled();
    lost.detail = Quarantine();
    if (!lost.detail.empty()) return lost;
    absl::Status ready = EnsureWorker();
    if (ready.ok() && needs_problem && !is_prepared_) ready = PrepareAgain();
    if (!ready.ok()) {
      lost.detail = std::string(ready.message());
      continue;
    }
    RT_ASSIGN_OR_RETURN(Reply reply, Exchange(request, timeout));
    if (reply.fate != Fate::kNotBegun) return reply;
    lost.detail = reply.detail;
  }
  LogError("run worker cuda:", options_.device, ": given up after ", kTries, " tries: ", lost.detail);
  return lost;
}

absl::StatusOr<WorkerRunner::Reply> WorkerRunner::Call(Frame request, int timeout_ms, bool needs_problem) {
  {
    absl::MutexLock lock(&mutex_);
    in_call_ = true;
    interrupted_ = false;
  }
  absl::StatusOr<Reply> reply = CallBegun(request, absl::Milliseconds(timeout_ms), needs_problem);
  absl::MutexLock lock(&mutex_);
  in_call_ = false;
  // An answer that was already there is as good as any; what the kill made of the request is not.
  const bool answered = reply.ok() && reply->fate == Fate::kAnswered;
  if (interrupted_ && !answered) return Cancelled();
  return reply;
}

absl::StatusOr<worker::v1::PrepareResult> WorkerRunner::Prepare(const worker::v1::PrepareRequest& request) {
  problem_.reset();
  is_prepared_ = false;
  ++prepares_;
  Frame frame;
  *frame.mutable_prepare() = request;
  const int timeout_ms = TimeoutOr(request.timeout_ms(), kDefaultPrepareMs);
  RT_ASSIGN_OR_RETURN(const Reply reply, Call(std::move(frame), timeout_ms, false));
  if (reply.fate == Fate::kNotBegun && !ever_started_) {
    return Error(absl::StatusCode::kUnavailable, "NO_GPU", reply.detail);
  }
  RT_ASSIGN_OR_RETURN(worker::v1::PrepareResult result, ResultOf(reply, timeout_ms, &Frame::prepare_result));
  if (result.outcome() == v1::OK) {
    problem_ = request;
    is_prepared_ = true;
  }
  return result;
}

absl::StatusOr<RunResult> WorkerRunner::CallForResult(Frame request, int timeout_ms) {
  if (!problem_.has_value()) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_PREPARED", "Prepare a problem first");
  }
  RT_ASSIGN_OR_RETURN(const Reply reply, Call(std::move(request), timeout_ms, true));
  return ResultOf(reply, timeout_ms, &Frame::run_result);
}

absl::StatusOr<worker::v1::VendorResult> WorkerRunner::ListVendor(const worker::v1::VendorRequest& request) {
  if (!problem_.has_value()) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_PREPARED", "Prepare a problem first");
  }
  Frame frame;
  *frame.mutable_vendor() = request;
  const int timeout_ms = TimeoutOr(request.timeout_ms(), kDefaultBaselineMs);
  RT_ASSIGN_OR_RETURN(const Reply reply, Call(std::move(frame), timeout_ms, true));
  return ResultOf(reply, timeout_ms, &Frame::vendor_result);
}

absl::StatusOr<RunResult> WorkerRunner::Run(const worker::v1::RunRequest& request) {
  ++runs_;
  Frame frame;
  *frame.mutable_run() = request;
  return CallForResult(std::move(frame), TimeoutOr(request.timeout_ms(), kDefaultRunMs));
}

absl::StatusOr<RunResult> WorkerRunner::RunBaseline(const worker::v1::BaselineRequest& request) {
  Frame frame;
  *frame.mutable_baseline() = request;
  return CallForResult(std::move(frame), TimeoutOr(request.timeout_ms(), kDefaultBaselineMs));
}

bool WorkerRunner::SettleRace(const Reply& reply, int timeout_ms, std::vector<int>* active,
                              worker::v1::RaceResult* race) const {
  const bool answered = reply.fate == Fate::kAnswered;
  const worker::v1::RaceResult& got = reply.frame.race_result();
  if (answered && got.outcome() == v1::OK && got.result_size() == static_cast<int>(active->size())) {
    for (size_t i = 0; i < active->size(); ++i) *race->mutable_result((*active)[i]) = got.result(static_cast<int>(i));
    race->set_outcome(v1::OK);
    return true;
  }
  const bool condemned = reply.entrant >= 0 && reply.entrant < static_cast<int>(active->size());
  if (reply.fate == Fate::kNotBegun || !condemned) {
    SetFate(reply.fate == Fate::kNotBegun ? v1::DEVICE_LOST
            : answered                    ? got.outcome()
            : reply.fate == Fate::kDied   ? v1::CRASHED
                                          : v1::TIMEOUT,
            answered ? got.message() : reply.detail, race);
    return true;
  }
  RunResult* const culprit = race->mutable_result((*active)[static_cast<size_t>(reply.entrant)]);
  if (answered && reply.entrant < got.result_size()) *culprit = got.result(reply.entrant);
  const bool unsaid = culprit->outcome() == v1::NOT_RUN || culprit->outcome() == v1::OK;
  if (reply.fate == Fate::kTimedOut) {
    SetFate(v1::TIMEOUT, TimeoutMessage(timeout_ms), culprit);
  } else if (unsaid) {
    SetFate(v1::CRASHED, answered ? got.message() : reply.detail, culprit);
  }
  active->erase(active->begin() + reply.entrant);
  race->set_outcome(v1::OK);
  return active->empty();
}

absl::StatusOr<worker::v1::RaceResult> WorkerRunner::Race(const worker::v1::RaceRequest& request) {
  if (!problem_.has_value()) {
    return Error(absl::StatusCode::kFailedPrecondition, "NOT_PREPARED", "Prepare a problem first");
  }
  if (request.entrant().empty()) return absl::InvalidArgumentError("a race needs entrants");
  worker::v1::RaceResult race;
  std::vector<int> active;
  for (int i = 0; i < request.entrant_size(); ++i) {
    race.add_result()->set_outcome(v1::NOT_RUN);
    active.push_back(i);
  }
  const int timeout_ms = TimeoutOr(request.timeout_ms(), kDefaultRaceMs);
  // Every round without an end removes one entrant.
  while (true) {
    Frame frame;
    worker::v1::RaceRequest* const part = frame.mutable_race();
    *part = request;
    part->clear_entrant();
    for (int i : active) *part->add_entrant() = request.entrant(i);
    RT_ASSIGN_OR_RETURN(const Reply reply, Call(std::move(frame), timeout_ms, true));
    if (reply.fate == Fate::kRefused) return RefusedStatus(reply.frame);
    if (SettleRace(reply, timeout_ms, &active, &race)) return race;
  }
}

absl::StatusOr<worker::v1::IdleResult> WorkerRunner::Idle() {
  Frame frame;
  frame.mutable_idle();
  RT_ASSIGN_OR_RETURN(const Reply reply, Call(std::move(frame), kIdleMs, false));
  if (reply.fate == Fate::kAnswered) return reply.frame.idle_result();
  if (reply.fate == Fate::kRefused) return RefusedStatus(reply.frame);
  if (reply.fate == Fate::kNotBegun && !ever_started_) {
    return Error(absl::StatusCode::kUnavailable, "NO_GPU", reply.detail);
  }
  return Error(absl::StatusCode::kUnavailable, "DEVICE_LOST",
               absl::StrCat("the device stopped answering (", reply.detail, ")"));
}

std::map<std::string, int64_t> WorkerRunner::Counters() const {
  return {{"runs", runs_},
          {"prepares", prepares_},
          {"worker_starts", starts_},
          {"worker_deaths", deaths_},
          {"quarantines", quarantines_}};
}

absl::StatusOr<worker::v1::CalibrateResult> WorkerRunner::Calibrate(const worker::v1::CalibrateRequest& request) {
  Frame frame;
  *frame.mutable_calibrate() = request;
  const int timeout_ms = TimeoutOr(request.timeout_ms(), kDefaultCalibrateMs);
  RT_ASSIGN_OR_RETURN(const Reply reply, Call(std::move(frame), timeout_ms, false));
  // Calibrating frees the problem's memory.
  is_prepared_ = false;
  if (reply.fate == Fate::kNotBegun && !ever_started_) {
    return Error(absl::StatusCode::kUnavailable, "NO_GPU", reply.detail);
  }
  return ResultOf(reply, timeout_ms, &Frame::calibrate_result);
}

}  // namespace rooftune

#include "tuner/compile/worker_compiler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/file_util.h"
#include "base/status_macros.h"
#include "tuner/compile/default_processes.h"
#include "tuner/compile/log_text.h"
#include "tuner/wire/frame.h"

namespace rooftune {
namespace {

using worker::v1::CompileRequest;
using worker::v1::CompileResult;
using worker::v1::Frame;

// Times a request goes to a fresh process because the one it was given was dead already.
constexpr int kFreshStarts = 3;
// From the end of the socket to the end of the process that held it.
constexpr absl::Duration kDyingPatience = absl::Seconds(2);
constexpr absl::Duration kProbeTimeout = absl::Seconds(30);
constexpr size_t kTailInLogBytes = 2048;
constexpr int kMaxProcesses = 1024;

absl::Status Cancelled() { return absl::CancelledError("the compiler is shut down"); }

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerCompiler>> WorkerCompiler::Create(Options options) {
  if (options.max_processes < 0 || options.max_processes > kMaxProcesses) {
    return absl::InvalidArgumentError(absl::StrCat("compile processes must be 0 to ", kMaxProcesses));
  }
  if (options.recycle_after < 1) return absl::InvalidArgumentError("recycle_after must be positive");
  if (options.max_processes == 0) options.max_processes = DefaultProcesses();
  if (options.worker_path.empty()) options.worker_path = absl::StrCat(ExecutableDir(), "/rooftune-worker");
  return std::unique_ptr<WorkerCompiler>(new WorkerCompiler(std::move(options)));
}

WorkerCompiler::WorkerCompiler(Options options) : options_(std::move(options)) {}

WorkerCompiler::~WorkerCompiler() {
  Shutdown();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* calls) { return *calls == 0; }, &calls_));
}

WorkerCompiler::CallScope::CallScope(WorkerCompiler* compiler) : compiler_(compiler) {
  absl::MutexLock lock(&compiler_->mutex_);
  ++compiler_->calls_;
}

WorkerCompiler::CallScope::~CallScope() {
  absl::MutexLock lock(&compiler_->mutex_);
  --compiler_->calls_;
}

void WorkerCompiler::Shutdown() {
  std::vector<std::unique_ptr<Worker>> idle;
  absl::MutexLock lock(&mutex_);
  shut_down_ = true;
  for (Subprocess* process : busy_) process->Kill();
  live_ -= static_cast<int>(idle_.size());
  idle.swap(idle_);
}

bool WorkerCompiler::IsShutDown() const {
  absl::MutexLock lock(&mutex_);
  return shut_down_;
}

absl::StatusOr<std::string> WorkerCompiler::NvrtcVersion() {
  const CallScope scope(this);
  {
    absl::MutexLock lock(&mutex_);
    if (!nvrtc_version_.empty()) return nvrtc_version_;
  }
  Frame request;
  request.mutable_probe();
  RT_ASSIGN_OR_RETURN(const Frame reply, Serve(request, kProbeTimeout));
  if (reply.probe_result().library().empty()) return absl::UnavailableError("compile worker answers no probe");
  const auto& library = reply.probe_result().library(0);
  if (!library.error().empty()) return Error(absl::StatusCode::kUnavailable, "NO_NVRTC", library.error());
  absl::MutexLock lock(&mutex_);
  nvrtc_version_ = library.version();
  return nvrtc_version_;
}

absl::StatusOr<CompileResult> WorkerCompiler::Compile(const CompileRequest& request) {
  const CallScope scope(this);
  const absl::Duration timeout =
      request.timeout_ms() > 0 ? absl::Milliseconds(request.timeout_ms()) : options_.default_timeout;
  Frame frame;
  *frame.mutable_compile() = request;
  RT_ASSIGN_OR_RETURN(Frame reply, Serve(frame, timeout));
  if (reply.has_compile_result()) return std::move(*reply.mutable_compile_result());
  return absl::InternalError("compile worker answered with another kind of frame");
}

absl::StatusOr<Frame> WorkerCompiler::Serve(const Frame& request, absl::Duration timeout) {
  absl::Status last;
  for (int attempt = 0; attempt < kFreshStarts; ++attempt) {
    RT_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Acquire());
    Exchange exchange = Talk(*worker, request, timeout);
    if (exchange.status.ok()) {
      Release(std::move(worker), true);
      if (!exchange.reply.has_error()) return std::move(exchange.reply);
      const auto& error = exchange.reply.error();
      const auto code = static_cast<absl::StatusCode>(error.code());
      return Error(code, code == absl::StatusCode::kUnavailable ? "NO_NVRTC" : "", error.message());
    }
    const bool silent = exchange.status.code() == absl::StatusCode::kDeadlineExceeded;
    const bool charged = exchange.begun || silent;
    Frame failure;
    if (charged) failure = Failure(exchange, *worker, request, timeout);
    Release(std::move(worker), false);
    if (IsShutDown()) return Cancelled();
    if (charged && request.has_compile()) return failure;
    last = exchange.status;
    if (last.code() == absl::StatusCode::kInvalidArgument) return last;  // larger than a frame may be
  }
  return absl::UnavailableError(absl::StrCat("compile workers die before they begin: ", std::string(last.message())));
}

WorkerCompiler::Exchange WorkerCompiler::Talk(Worker& worker, Frame request, absl::Duration timeout) {
  {
    absl::MutexLock lock(&mutex_);
    request.set_id(next_id_++);
  }
  ++worker.served;
  const int fd = worker.process->fd();
  const absl::Time deadline = absl::Now() + timeout;
  Exchange exchange;
  exchange.status = WriteFrame(fd, request, deadline);
  while (exchange.status.ok()) {
    absl::StatusOr<Frame> reply = ReadFrame(fd, deadline);
    if (!reply.ok()) {
      exchange.status = reply.status();
    } else if (reply->id() != request.id()) {
      exchange.status = absl::DataLossError("compile worker answers another request");
    } else if (reply->has_begin()) {
      exchange.begun = true;
    } else {
      exchange.reply = *std::move(reply);
      return exchange;
    }
  }
  return exchange;
}

Frame WorkerCompiler::Failure(const Exchange& exchange, Worker& worker, const Frame& request, absl::Duration timeout) {
  Frame frame;
  CompileResult* result = frame.mutable_compile_result();
  const std::string& source = request.compile().source().name();
  const bool late = exchange.status.code() == absl::StatusCode::kDeadlineExceeded;
  result->set_compiler_died(true);
  ExitInfo exit;
  const bool closed = exchange.status.code() == absl::StatusCode::kUnavailable;
  const bool gone = closed && worker.process->Wait(absl::Now() + kDyingPatience, &exit);
  if (late) {
    result->set_outcome(v1::COMPILE_TIMEOUT);
    result->set_compile_ms(absl::ToDoubleMilliseconds(timeout));
    result->set_log(absl::StrCat("compiling ", source, " took longer than ", absl::FormatDuration(timeout),
                                 "; the compiler was killed"));
  } else {
    result->set_outcome(v1::COMPILE_FAILED);
    std::string log =
        absl::StrCat("the compiler process ", gone ? exit.ToString() : "broke off", " while compiling ", source);
    if (gone && !exit.exited) {
      absl::StrAppend(&log, "; it may use 2 GiB of memory, and a kernel that needs more ends it");
    }
    if (!closed) absl::StrAppend(&log, " (", std::string(exchange.status.message()), ")");
    const std::string tail = worker.process->OutputTail();
    if (!tail.empty()) absl::StrAppend(&log, "\nits output ended with:\n", CleanLog(tail, kTailInLogBytes));
    result->set_log(CleanLog(log));
  }
  absl::MutexLock lock(&mutex_);
  ++deaths_;
  result->set_nvrtc_version(nvrtc_version_);
  return frame;
}

std::map<std::string, int64_t> WorkerCompiler::Counters() const {
  absl::MutexLock lock(&mutex_);
  return {{"compile_worker_starts", starts_}, {"compile_worker_deaths", deaths_}};
}

bool WorkerCompiler::HasRoom() const { return shut_down_ || !idle_.empty() || live_ < options_.max_processes; }

absl::StatusOr<std::unique_ptr<WorkerCompiler::Worker>> WorkerCompiler::Acquire() {
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &WorkerCompiler::HasRoom));
    if (shut_down_) return Cancelled();
    if (!idle_.empty()) {
      // The one used last: its memory is warm, and the others may stay swapped out.
      std::unique_ptr<Worker> worker = std::move(idle_.back());
      idle_.pop_back();
      busy_.insert(worker->process.get());
      return worker;
    }
    ++live_;
  }
  absl::StatusOr<std::unique_ptr<Worker>> worker = Start();
  if (!worker.ok()) {
    absl::MutexLock lock(&mutex_);
    --live_;
    if (shut_down_) return Cancelled();
  }
  return worker;
}

absl::StatusOr<std::unique_ptr<WorkerCompiler::Worker>> WorkerCompiler::Start() {
  Subprocess::Options spawn;
  spawn.argv = {options_.worker_path, "compile", "--fd", "3"};
  if (!options_.nvrtc_path.empty()) spawn.argv.insert(spawn.argv.end(), {"--nvrtc", options_.nvrtc_path});
  spawn.log_prefix = options_.log_prefix;
  auto worker = std::make_unique<Worker>();
  RT_ASSIGN_OR_RETURN(worker->process, Subprocess::Spawn(spawn));
  Subprocess* const process = worker->process.get();
  {
    absl::MutexLock lock(&mutex_);
    busy_.insert(process);
    ++starts_;
    // Shutdown() may have come before it could see this process.
    if (shut_down_) process->Kill();
  }
  const absl::StatusOr<Frame> hello = ReadFrame(process->fd(), absl::Now() + options_.start_timeout);
  const bool greeted = hello.ok() && hello->hello().role() == "compile";
  if (greeted && hello->hello().protocol() == kWorkerProtocol) return worker;
  {
    absl::MutexLock lock(&mutex_);
    busy_.erase(process);
  }
  if (greeted) {
    return Error(absl::StatusCode::kUnavailable, "WORKER_PROTOCOL",
                 absl::StrCat(options_.worker_path, " speaks protocol ", hello->hello().protocol(), ", this program ",
                              kWorkerProtocol, ": use both from one release"));
  }
  ExitInfo exit;
  const bool closed = hello.status().code() == absl::StatusCode::kUnavailable;
  const bool gone = closed && process->Wait(absl::Now() + kDyingPatience, &exit);
  return absl::UnavailableError(absl::StrCat(options_.worker_path, gone ? " " + exit.ToString() : " does not answer",
                                             " instead of greeting: ", CleanLog(process->OutputTail(), 512)));
}

void WorkerCompiler::Release(std::unique_ptr<Worker> worker, bool healthy) {
  Subprocess* const process = worker->process.get();
  {
    absl::MutexLock lock(&mutex_);
    busy_.erase(process);
    if (healthy && !shut_down_ && worker->served < options_.recycle_after) {
      idle_.push_back(std::move(worker));
      return;
    }
  }
  // Ends the process before its place is given away: never more than max_processes at once.
  worker.reset();
  absl::MutexLock lock(&mutex_);
  --live_;
}

}  // namespace rooftune

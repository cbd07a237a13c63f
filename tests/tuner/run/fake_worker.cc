// Speaks the run role's protocol and misbehaves as the requests say: a run's plan.template_id, a race entrant's
// plan.template_id or a problem's op is what to do. FAKE_START is how to start; FAKE_LOG gets one byte a start.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "tuner/wire/frame.h"

namespace {

using rooftune::worker::v1::Frame;
constexpr int kFd = 3;

std::string Env(const char* name) {
  const char* const value = getenv(name);
  return value != nullptr ? value : "";
}

void Send(const Frame& frame) {
  if (!rooftune::WriteFrame(kFd, frame).ok()) _exit(5);
}

void SendBegin(uint64_t id, uint64_t what) {
  Frame frame;
  frame.set_id(id);
  frame.mutable_begin()->set_id(what);
  Send(frame);
}

// Starts so far, this one included.
int CountStart() {
  const std::string path = Env("FAKE_LOG");
  if (path.empty()) return 1;
  FILE* const file = fopen(path.c_str(), "a");
  if (file == nullptr) _exit(6);
  fputc('x', file);
  fclose(file);
  struct stat info = {};
  stat(path.c_str(), &info);
  return static_cast<int>(info.st_size);
}

// Does what ends or stalls a process; returns if `what` is none of that.
void Misbehave(const std::string& what) {
  if (what == "crash") {
    fputs("last words\n", stderr);
    signal(SIGSEGV, SIG_DFL);  // a sanitizer would report instead of dying
    raise(SIGSEGV);
  }
  if (what == "exit") _exit(9);
  if (what == "hang") pause();
  if (what == "garbage") {
    const char bytes[] = "this is no frame, and its length is absurd";
    if (write(kFd, bytes, sizeof(bytes)) < 0) _exit(7);
    pause();
  }
}

struct State {
  std::string prepared = "nothing";
  bool standby = !Env("ROOFTUNE_WORKER_STANDBY").empty();
  int starts = 1;
  bool ends_after_reply = false;
};

void Run(const std::string& what, State& state, rooftune::worker::v1::RunResult* result) {
  Misbehave(what);
  result->set_outcome(rooftune::v1::OK);
  if (what == "fault") {
    result->set_outcome(rooftune::v1::OUT_OF_BOUNDS);
    result->set_cuda_error(700);
    state.ends_after_reply = true;
  }
  result->set_message(absl::StrCat("pid=", getpid(), " prepared=", state.prepared, " standby=", state.standby));
}

void Race(const Frame& request, State& state, rooftune::worker::v1::RaceResult* race) {
  race->set_outcome(rooftune::v1::OK);
  for (int i = 0; i < request.race().entrant_size(); ++i) {
    SendBegin(request.id(), static_cast<uint64_t>(i));
    Run(request.race().entrant(i).candidate().plan().template_id(), state, race->add_result());
    if (!state.ends_after_reply) continue;
    race->set_outcome(rooftune::v1::CRASHED);
    while (race->result_size() < request.race().entrant_size()) race->add_result()->set_outcome(rooftune::v1::NOT_RUN);
    return;
  }
}

void Serve(const Frame& request, State& state) {
  const std::string what = request.run().plan().template_id();
  if (what == "die-before-begin") _exit(8);
  if (what == "die-before-begin-once" && state.starts == 1) _exit(8);
  SendBegin(request.id(), request.id());
  Frame reply;
  reply.set_id(request.id());
  if (request.has_prepare()) {
    Misbehave(request.prepare().op());
    state.prepared = request.prepare().op();
    reply.mutable_prepare_result()->set_outcome(state.prepared == "too big" ? rooftune::v1::OUT_OF_MEMORY
                                                                            : rooftune::v1::OK);
  } else if (request.has_race()) {
    Race(request, state, reply.mutable_race_result());
  } else if (request.has_idle()) {
    reply.mutable_idle_result()->set_busy_processes(2);
  } else if (request.has_calibrate()) {
    state.prepared = "nothing";
    reply.mutable_calibrate_result()->set_outcome(rooftune::v1::OK);
  } else if (what == "refuse") {
    reply.mutable_error()->set_code(3);
    reply.mutable_error()->set_message("not like this");
  } else {
    Run(what, state, reply.mutable_run_result());
  }
  Send(reply);
  if (state.ends_after_reply) _exit(70);
}

}  // namespace

int main() {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  State state;
  state.starts = CountStart();
  const std::string start = Env("FAKE_START");
  Frame first;
  if (start == "no-device") {
    first.mutable_error()->set_code(14);
    first.mutable_error()->set_message("no CUDA device 0");
    Send(first);
    return 71;
  }
  Misbehave(start);
  first.mutable_hello()->set_protocol(start == "old" ? rooftune::kWorkerProtocol + 1 : rooftune::kWorkerProtocol);
  first.mutable_hello()->set_role("run");
  Send(first);
  while (true) {
    const auto request = rooftune::ReadFrame(kFd, absl::InfiniteFuture());
    if (!request.ok()) return 0;
    Serve(*request, state);
  }
}

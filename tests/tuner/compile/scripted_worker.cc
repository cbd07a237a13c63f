// Stands in for `rooftune-worker compile` in worker_compiler_test. The environment variable SCRIPTED_WORKER spoils
// its start, a compile request's source text says how it is answered.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tuner/wire/frame.h"

namespace {

using rooftune::ReadFrame;
using rooftune::WriteFrame;
using rooftune::worker::v1::Frame;

void Hang() {
  while (true) pause();
}

void Answer(const Frame& request, int served) {
  Frame begin;
  begin.set_id(request.id());
  begin.mutable_begin()->set_id(request.id());
  const std::string& script = request.compile().source().text();
  if (script == "die before begin") _exit(9);
  WriteFrame(3, begin).IgnoreError();
  if (script == "abort") {
    fputs("terminate called: out of memory\n", stderr);
    abort();
  }
  if (script == "exit") _exit(3);
  if (script == "hang") Hang();
  if (script == "garbage") {
    const char bytes[] = "\xff\xff\xff\xff";
    if (write(3, bytes, 4) < 0) _exit(4);
    Hang();
  }
  Frame reply;
  reply.set_id(request.id());
  if (request.has_probe()) {
    auto* library = reply.mutable_probe_result()->add_library();
    if (getenv("SCRIPTED_NO_NVRTC") != nullptr) {
      library->set_error("looked for it in vain");
    } else {
      library->set_version("13.0");
    }
  } else if (script == "error") {
    reply.mutable_error()->set_code(9);
    reply.mutable_error()->set_message("another release");
  } else {
    auto* result = reply.mutable_compile_result();
    result->set_outcome(rooftune::v1::OK);
    // Tells the test which process answered, and how often it had before.
    result->set_log(std::to_string(getpid()) + " " + std::to_string(served));
  }
  WriteFrame(3, reply).IgnoreError();
}

}  // namespace

int main() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const char* start = getenv("SCRIPTED_WORKER");
  const std::string spoiled = start == nullptr ? "" : start;
  if (spoiled == "dies") {
    fputs("can't start today\n", stderr);
    return 5;
  }
  if (spoiled == "silent") Hang();
  Frame hello;
  hello.mutable_hello()->set_protocol(spoiled == "protocol" ? 99 : rooftune::kWorkerProtocol);
  hello.mutable_hello()->set_role("compile");
  if (!WriteFrame(3, hello).ok()) return 1;
  for (int served = 0;; ++served) {
    const auto request = ReadFrame(3, absl::InfiniteFuture());
    if (!request.ok()) return 0;
    Answer(*request, served);
  }
}

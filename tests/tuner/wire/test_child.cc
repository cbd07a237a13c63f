// Helper of subprocess_test: misbehaves as its first argument says.
#include <fcntl.h>
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

int Echo() {
  while (true) {
    auto frame = ReadFrame(3, absl::InfiniteFuture());
    if (!frame.ok()) return frame.status().code() == absl::StatusCode::kUnavailable ? 0 : 4;
    if (!WriteFrame(3, *frame).ok()) return 5;
  }
}

// Tells by frames what it was given: open descriptors above 3, the signal mask, where stdin leads.
int Inspect() {
  std::string report;
  for (int fd = 4; fd < 256; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) report += "open:" + std::to_string(fd) + " ";
  }
  sigset_t mask;
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  if (sigismember(&mask, SIGTERM)) report += "SIGTERM-blocked ";
  struct sigaction action;
  sigaction(SIGPIPE, nullptr, &action);
  if (action.sa_handler == SIG_IGN) report += "SIGPIPE-ignored ";
  char byte;
  if (read(0, &byte, 1) != 0) report += "stdin-not-empty ";
  if (getpgrp() != getpid()) report += "not-group-leader ";
  const char* variable = getenv("WIRE_TEST");
  report += std::string("WIRE_TEST=") + (variable ? variable : "unset");
  rooftune::worker::v1::Frame frame;
  frame.mutable_hello()->set_build(report);
  return WriteFrame(3, frame).ok() ? 0 : 5;
}

// A grandchild in the same group that holds every descriptor and outlives its parent.
int Orphan() {
  const pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  rooftune::worker::v1::Frame frame;
  frame.mutable_hello()->set_pid(pid);
  return WriteFrame(3, frame).ok() ? 0 : 5;
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "echo") return Echo();
  if (mode == "inspect") return Inspect();
  if (mode == "orphan") return Orphan();
  if (mode == "exit") return std::atoi(argv[2]);
  if (mode == "abort") {
    fputs("about to abort\n", stderr);
    abort();
  }
  if (mode == "sleep") {
    signal(SIGTERM, SIG_IGN);
    while (true) pause();
  }
  if (mode == "garbage") {
    const char bytes[] = "\xff\xff\xff\xff not a frame";
    return write(3, bytes, sizeof bytes) > 0 ? 0 : 5;
  }
  if (mode == "flood") {
    for (int i = 0; i < 200000; ++i) printf("line %d of a flood \x01\xfe\n", i);
    return 0;
  }
  return 2;
}

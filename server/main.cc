// rooftuned: see docs/api.md for what it serves and --help for how to start it.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "server/daemon.h"
#include "server/flags.h"

namespace rooftune {
namespace {

constexpr int kUsageError = 2;
// What a compile on demand may hold up once every call has ended; everything learned is on disk by then.
constexpr absl::Duration kStopLimit = absl::Seconds(3);

// Signals are taken by sigwait alone, so every thread must be born with them blocked.
sigset_t BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

void Announce(const std::vector<std::string>& addresses, int ready_fd) {
  std::printf("rooftuned listening on %s\n", absl::StrJoin(addresses, ", ").c_str());
  std::fflush(stdout);
  if (ready_fd < 0) return;
  const std::string text = absl::StrCat(absl::StrJoin(addresses, "\n"), "\n");
  if (write(ready_fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    LogWarning("could not write the addresses to --ready-fd ", ready_fd);
  }
  close(ready_fd);
}

// Ends the process on a second signal, and when draining takes longer than it may.
void GuardDrain(sigset_t signals, absl::Duration limit) {
  std::thread([signals] {
    int signal = 0;
    sigwait(&signals, &signal);
    LogWarning("second signal: exiting at once");
    _exit(128 + signal);
  }).detach();
  std::thread([limit] {
    absl::SleepFor(limit);
    LogWarning("work that nobody waits for did not end in time; exiting without it");
    _exit(0);
  }).detach();
}

int Main(const std::vector<std::string>& args) {
  const absl::StatusOr<DaemonFlags> flags = ParseDaemonFlags(args);
  if (!flags.ok()) {
    LogError(flags.status().message());
    return kUsageError;
  }
  if (flags->help) {
    std::fputs(DaemonUsage().c_str(), stdout);
    return 0;
  }
  if (flags->version) {
    std::printf("%s\n", DaemonVersion().c_str());
    return 0;
  }
  SetLogLevel(flags->log_level);
  const sigset_t signals = BlockSignals();
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(*flags);
  if (!daemon.ok()) {
    LogError("can't start (", ErrorReason(daemon.status()), "): ", daemon.status().message());
    return 1;
  }
  Announce((*daemon)->addresses(), flags->ready_fd);
  int signal = 0;
  sigwait(&signals, &signal);
  LogInfo("got ", signal == SIGINT ? "SIGINT" : "SIGTERM", ", draining; a second signal exits at once");
  // Sweeps stop within their own 2 s, then calls have the drain timeout.
  GuardDrain(signals, flags->drain_timeout + absl::Seconds(5) + kStopLimit);
  (*daemon)->Drain();
  daemon->reset();
  LogInfo("stopped");
  // Skips the destructors of statics: gRPC's own threads may still use them.
  std::fflush(stdout);
  _exit(0);
}

}  // namespace
}  // namespace rooftune

int main(int argc, char** argv) { return rooftune::Main(std::vector<std::string>(argv + 1, argv + argc)); }

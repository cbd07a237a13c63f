// Stands in for rooftuned in tests of `--local`: serves canned answers until SIGTERM. Its life is seen in the folder
// $FAKE_ROOFTUNED_DIR: `pid` and `args` appear when it serves, `ended` when it ends in order.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/client/fake_daemon.h"

int main(int argc, char** argv) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::string address, args;
  int ready = -1;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--listen") address = value;
    if (option == "--ready-fd") ready = std::atoi(value.c_str());
    if (option == "--device" || option == "--data-dir" || option == "--template-dir")
      args += option + " " + value + "\n";
  }
  const char* dir = std::getenv("FAKE_ROOFTUNED_DIR");
  if (dir == nullptr || address.empty() || ready < 0) return 1;
  rooftune::FakeDaemon fake(address);
  rooftune::FillCanned(fake.canned);
  fake.canned.watch.pop_back();
  fake.canned.watch_hangs = true;
  std::ofstream(std::string(dir) + "/args") << args;
  std::ofstream(std::string(dir) + "/pid") << getpid();
  if (write(ready, "ready\n", 6) != 6) return 1;
  close(ready);
  int signal = 0;
  sigwait(&signals, &signal);
  std::ofstream(std::string(dir) + "/ended") << signal;
  return 0;
}

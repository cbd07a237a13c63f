// A process to be killed: `store_writer_child DB SWEEP FIRST` writes trials FIRST, FIRST+1, … of sweeps/SWEEP and
// prints the index of each once the store has acknowledged it. With `hold` for FIRST it only keeps the database open.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/tuner/store/store_test_util.h"
#include "tuner/store/sqlite_store.h"

namespace rooftune {
namespace {

void Say(const std::string& line) {
  if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(3);
}

int Main(const std::string& path, const std::string& sweep, const std::string& first_text) {
  auto store = SqliteStore::Open(path);
  if (!store.ok()) {
    fprintf(stderr, "%s\n", store.status().ToString().c_str());
    return 1;
  }
  if (first_text == "hold") {
    Say("held\n");
    while (true) pause();
  }
  int first = 0;
  if (!absl::SimpleAtoi(first_text, &first) || !(*store)->PutSweep(MakeSweep(sweep, 1, v1::RUNNING)).ok()) return 2;
  // Two writers, so that a kill also falls between the jobs of one transaction.
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = first + t;; i += 2) {
        if (!(*store)->PutTrial(MakeTrial(sweep, i)).ok()) _exit(2);
        Say(absl::StrCat(i, "\n"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

}  // namespace
}  // namespace rooftune

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  return rooftune::Main(argv[1], argv[2], argv[3]);
}

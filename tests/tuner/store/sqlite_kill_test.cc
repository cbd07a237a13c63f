// Processes killed with SIGKILL while they write or hold the database.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "tests/tuner/store/store_test_util.h"
#include "tuner/store/sqlite_store.h"

namespace rooftune {
namespace {

class Child {
 public:
  Child(const std::string& db, const std::string& sweep, const std::string& first) {
    const char* bin = getenv("ROOFTUNE_BIN_DIR");
    const std::string program = std::string(bin == nullptr ? "." : bin) + "/store_writer_child";
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, fds[0]);
    const char* argv[] = {program.c_str(), db.c_str(), sweep.c_str(), first.c_str(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, const_cast<char**>(argv), environ), 0) << program;
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    out_ = fds[0];
  }
  ~Child() { close(out_); }

  // Reads until at least `bytes` came; false at the end.
  bool ReadAtLeast(size_t bytes) {
    char buffer[4096];
    while (text_.size() < bytes) {
      const ssize_t n = read(out_, buffer, sizeof(buffer));
      if (n <= 0) return false;
      text_.append(buffer, static_cast<size_t>(n));
    }
    return true;
  }
  // Whole lines of everything it said before it died.
  std::set<int> KillAndCollect() {
    kill(pid_, SIGKILL);
    ReadAtLeast(SIZE_MAX);
    int status = 0;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself";
    std::set<int> indices;
    std::vector<std::string> lines = absl::StrSplit(text_, '\n');
    lines.pop_back();
    for (const std::string& line : lines) {
      int index = 0;
      if (absl::SimpleAtoi(line, &index)) indices.insert(index);
    }
    return indices;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int out_ = -1;
  std::string text_;
};

TEST(SqliteKillTest, G2_NothingAcknowledgedIsLost) {
  TempDir dir;
  const std::string db = dir / "store.db";
  std::set<int> acknowledged;
  srand(1);
  for (int round = 0; round < 8; ++round) {
    Child child(db, "a", absl::StrCat(round * 1'000'000));
    // Dies at another point each time.
    ASSERT_TRUE(child.ReadAtLeast(static_cast<size_t>(1 + rand() % 1500)));
    acknowledged.merge(child.KillAndCollect());
    auto store = SqliteStore::Open(db);
    ASSERT_TRUE(store.ok()) << store.status();
    std::set<int> stored;
    std::string token;
    do {
      const auto page = (*store)->ListTrials({}, 1000, token);
      ASSERT_TRUE(page.ok()) << page.status();
      for (const v1::Trial& trial : page->items) stored.insert(trial.index());
      token = page->next_token;
    } while (!token.empty());
    for (const int index : acknowledged) ASSERT_EQ(stored.count(index), 1u) << "lost trial " << index;
    EXPECT_EQ((*store)->corrupt_rows(), 0);
  }
  EXPECT_GT(acknowledged.size(), 8u);
}

TEST(SqliteKillTest, F5_LockNamesAnotherProcessAndDiesWithIt) {
  TempDir dir;
  Child child(dir / "store.db", "a", "hold");
  ASSERT_TRUE(child.ReadAtLeast(5));
  const absl::Status status = SqliteStore::Open(dir / "store.db").status();
  EXPECT_EQ(ErrorReason(status), "DATABASE_IN_USE") << status;
  EXPECT_EQ(ErrorMetadata(status)["pid"], absl::StrCat(child.pid()));
  child.KillAndCollect();
  EXPECT_TRUE(SqliteStore::Open(dir / "store.db").ok());
}

}  // namespace
}  // namespace rooftune

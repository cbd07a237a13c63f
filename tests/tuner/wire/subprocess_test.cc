#include "tuner/wire/subprocess.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "tuner/wire/frame.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;
using worker::v1::Frame;

constexpr absl::Duration kPatience = absl::Seconds(10);

std::unique_ptr<Subprocess> Start(std::vector<std::string> arguments) {
  Subprocess::Options options;
  options.argv = {WIRE_TEST_CHILD};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.env = {"WIRE_TEST=yes"};
  options.log_prefix = "test child: ";
  auto process = Subprocess::Spawn(options);
  EXPECT_TRUE(process.ok()) << process.status();
  return process.ok() ? *std::move(process) : nullptr;
}

ExitInfo Ended(Subprocess& process) {
  ExitInfo info;
  EXPECT_TRUE(process.Wait(absl::Now() + kPatience, &info));
  return info;
}

int OpenDescriptors() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// True once the process is gone or a zombie of someone else.
bool GoneSoon(int pid) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (absl::Now() < deadline) {
    if (kill(pid, 0) != 0 && errno == ESRCH) return true;
    std::string stat_path = "/proc/" + std::to_string(pid) + "/stat";
    FILE* stat = fopen(stat_path.c_str(), "r");
    char state = 'Z';
    if (stat != nullptr) {
      if (fscanf(stat, "%*d %*s %c", &state) != 1) state = 'Z';
      fclose(stat);
    }
    if (state == 'Z') return true;
    std::this_thread::yield();
  }
  return false;
}

TEST(SubprocessTest, TalksOnDescriptor3AndEndsAtEndOfStream) {
  const auto process = Start({"echo"});
  Frame frame;
  frame.set_id(42);
  ASSERT_TRUE(WriteFrame(process->fd(), frame).ok());
  const auto back = ReadFrame(process->fd(), absl::Now() + kPatience);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->id(), 42u);
}

TEST(SubprocessTest, ReportsExitCodeAndSignal) {
  const auto seven = Start({"exit", "7"});
  const ExitInfo code = Ended(*seven);
  EXPECT_TRUE(code.exited);
  EXPECT_EQ(code.code, 7);
  EXPECT_EQ(code.ToString(), "exited with code 7");
  const auto aborted = Start({"abort"});
  const ExitInfo signal = Ended(*aborted);
  EXPECT_FALSE(signal.exited);
  EXPECT_EQ(signal.signal, SIGABRT);
  EXPECT_EQ(signal.ToString(), "killed by signal 6 (Aborted)");
  EXPECT_THAT(aborted->OutputTail(), HasSubstr("about to abort"));
  // Asked again, the same answer.
  EXPECT_EQ(Ended(*seven).code, 7);
}

TEST(SubprocessTest, WaitGivesUpAtTheDeadlineAndKillEndsADeafProcess) {
  const auto process = Start({"sleep"});
  EXPECT_FALSE(process->Wait(absl::Now() + absl::Milliseconds(5), nullptr));
  std::thread([&] { process->Kill(); }).join();
  EXPECT_EQ(Ended(*process).signal, SIGKILL);
  process->Kill();  // harmless when it is gone
}

TEST(SubprocessTest, GarbageIsNoFrame) {
  const auto process = Start({"garbage"});
  EXPECT_EQ(ReadFrame(process->fd(), absl::Now() + kPatience).status().code(), absl::StatusCode::kDataLoss);
}

TEST(SubprocessTest, AFloodNeitherBlocksTheChildNorGrowsTheTail) {
  const auto process = Start({"flood"});
  EXPECT_EQ(Ended(*process).code, 0);
  const std::string tail = process->OutputTail();
  EXPECT_LE(tail.size(), 4096u);
  EXPECT_THAT(tail, HasSubstr("line 199999 of a flood ??"));
}

TEST(SubprocessTest, ChildInheritsNothingButTheSocket) {
  const int leaked = fcntl(0, F_DUPFD, 50);  // without CLOEXEC
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto old = signal(SIGPIPE, SIG_IGN);
  const auto process = Start({"inspect"});
  signal(SIGPIPE, old);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(leaked);
  const auto report = ReadFrame(process->fd(), absl::Now() + kPatience);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->hello().build(), "WIRE_TEST=yes");
}

TEST(SubprocessTest, SurvivesTheThreadThatStartedIt) {
  std::unique_ptr<Subprocess> process;
  std::thread([&] { process = Start({"echo"}); }).join();
  Frame frame;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(WriteFrame(process->fd(), frame).ok());
    ASSERT_TRUE(ReadFrame(process->fd(), absl::Now() + kPatience).ok());
  }
  EXPECT_FALSE(process->Wait(absl::Now(), nullptr));
}

TEST(SubprocessTest, G1_TakesItsGrandchildrenAlong) {
  const auto process = Start({"orphan"});
  const auto hello = ReadFrame(process->fd(), absl::Now() + kPatience);
  ASSERT_TRUE(hello.ok()) << hello.status();
  Ended(*process);
  EXPECT_TRUE(GoneSoon(hello->hello().pid()));
}

TEST(SubprocessTest, MissingProgramIsUnavailable) {
  Subprocess::Options options;
  options.argv = {"/nonexistent/rooftune-worker"};
  const auto process = Subprocess::Spawn(options);
  EXPECT_EQ(process.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(process.status().message()), HasSubstr("/nonexistent/rooftune-worker"));
}

TEST(SubprocessTest, D8_LeaksNeitherDescriptorsNorZombies) {
  Start({"exit", "0"});
  const int before = OpenDescriptors();
  for (int i = 0; i < 200; ++i) {
    const auto process = Start({i % 2 == 0 ? "sleep" : "exit", "0"});
    if (i % 4 == 1) Ended(*process);
  }
  Subprocess::Options missing;
  missing.argv = {"/nonexistent/rooftune-worker"};
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Subprocess::Spawn(missing).ok());
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace rooftune

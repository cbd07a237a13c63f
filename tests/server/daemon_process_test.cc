// rooftuned as a process: start, signals, what is left behind. Uses a modelled device; the worker beside it need not
// find NVRTC.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "rooftune/v1/service.grpc.pb.h"
#include "tests/server/test_daemon.h"
#include "tests/support/temp_dir.h"

extern char** environ;

namespace rooftune {
namespace {

using testing::HasSubstr;

// rooftuned in a folder of its own; killed when the test forgets it.
class Process {
 public:
  // `args` beside --device, --listen and --data-dir, which are the folder's.
  explicit Process(const std::string& dir, std::vector<std::string> args = {}) {
    const char* bin = std::getenv("ROOFTUNE_BIN_DIR");
    std::vector<std::string> all = {absl::StrCat(bin == nullptr ? "." : bin, "/rooftuned"),
                                    "--device=model:h200-sxm",
                                    absl::StrCat("--listen=unix:", dir, "/s"),
                                    absl::StrCat("--data-dir=", dir, "/data"),
                                    "--drain-timeout=2",
                                    "--ready-fd=9"};
    all.insert(all.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (std::string& arg : all) argv.push_back(arg.data());
    argv.push_back(nullptr);
    int ready[2], errors[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(errors, O_CLOEXEC), 0);
    // Not fork(): gRPC's fork handlers may wait for threads of an earlier test's channel.
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // In this order: a pipe's own number may be 9.
    posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ready[1], 9);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ready[1]);
    close(errors[1]);
    ready_ = ready[0];
    errors_ = errors[0];
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(ready_);
    close(errors_);
  }

  // The addresses, when it serves; empty if it ended instead.
  std::string AwaitReady() { return ReadAll(ready_); }
  void Signal(int signal) { kill(pid_, signal); }
  // Exit code, or minus the signal.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // What it logged; only after it has ended.
  std::string Log() { return ReadAll(errors_); }

 private:
  static std::string ReadAll(int fd) {
    std::string text;
    char buffer[4096];
    ssize_t n;
    while ((n = read(fd, buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(n));
    return text;
  }
  pid_t pid_ = -1;
  int ready_ = -1;
  int errors_ = -1;
};

class DaemonProcessTest : public testing::Test {
 protected:
  grpc::Status Ping(const std::string& address) {
    auto stub = v1::ConfigService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    SetDeadline(context);
    v1::PingResponse response;
    return stub->Ping(&context, v1::PingRequest(), &response);
  }

  const TempDir temp_;
  const std::string& dir_ = temp_.path();
};

TEST_F(DaemonProcessTest, ServesAndStopsOnSigterm) {
  Process daemon(dir_);
  EXPECT_EQ(daemon.AwaitReady(), absl::StrCat("unix:", dir_, "/s\n"));
  EXPECT_TRUE(Ping(absl::StrCat("unix:", dir_, "/s")).ok());
  EXPECT_EQ(std::filesystem::status(absl::StrCat(dir_, "/s")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat(dir_, "/s")));
}

TEST_F(DaemonProcessTest, PortZeroIsReportedAsBound) {
  Process daemon(dir_, {"--listen=127.0.0.1:0"});
  const std::string ready = daemon.AwaitReady();
  const std::string tcp = ready.substr(ready.find('\n') + 1);
  EXPECT_THAT(tcp, testing::StartsWith("127.0.0.1:"));
  EXPECT_NE(tcp, "127.0.0.1:0\n");
  EXPECT_TRUE(Ping(tcp.substr(0, tcp.size() - 1)).ok());
}

TEST_F(DaemonProcessTest, F11_ASecondOneNamesTheConflictAndTheFirstGoesOn) {
  Process first(dir_);
  ASSERT_FALSE(first.AwaitReady().empty());
  const std::string other = absl::StrCat(dir_, "/other");
  std::filesystem::create_directory(other);
  Process by_address(other, {absl::StrCat("--listen=unix:", dir_, "/s")});
  EXPECT_EQ(by_address.Wait(), 1);
  EXPECT_THAT(by_address.Log(), HasSubstr("ADDRESS_IN_USE"));
  EXPECT_TRUE(Ping(absl::StrCat("unix:", dir_, "/s")).ok());
}

TEST_F(DaemonProcessTest, StartsAgainAfterKill9) {
  {
    Process killed(dir_);
    ASSERT_FALSE(killed.AwaitReady().empty());
    killed.Signal(SIGKILL);
    EXPECT_EQ(killed.Wait(), -SIGKILL);
  }
  EXPECT_TRUE(std::filesystem::exists(absl::StrCat(dir_, "/s"))) << "what it left";
  Process next(dir_);
  ASSERT_FALSE(next.AwaitReady().empty());
  EXPECT_TRUE(Ping(absl::StrCat("unix:", dir_, "/s")).ok());
}

TEST_F(DaemonProcessTest, BadStartsSayWhyWithoutTouchingAnything) {
  Process remote(dir_, {"--listen=0.0.0.0:0"});
  EXPECT_EQ(remote.Wait(), 1);
  EXPECT_THAT(remote.Log(), HasSubstr("REMOTE_NOT_ALLOWED"));
  Process flag(dir_, {"--devise=cuda:0"});
  EXPECT_EQ(flag.Wait(), 2);
  EXPECT_THAT(flag.Log(), HasSubstr("did you mean device?"));
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat(dir_, "/data")));
  Process device(dir_, {"--device=model:h20-sxm"});
  EXPECT_EQ(device.Wait(), 1);
  EXPECT_THAT(device.Log(), HasSubstr("UNKNOWN_DEVICE"));
  Process folder(dir_, {"--template-dir=/no/such/folder"});
  EXPECT_EQ(folder.Wait(), 1);
  EXPECT_THAT(folder.Log(), HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace rooftune

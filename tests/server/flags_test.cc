// Command line, configuration file, addresses.
#include "server/flags.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/listen_address.h"
#include "tests/support/temp_dir.h"

namespace rooftune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Flags, Defaults) {
  const auto flags = ParseDaemonFlags({});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_THAT(flags->device, ElementsAre("auto"));
  ASSERT_EQ(flags->listen.size(), 1u);
  EXPECT_THAT(flags->listen[0], HasSubstr("unix:/"));
  EXPECT_THAT(flags->worker, HasSubstr("/rooftune-worker"));
  EXPECT_FALSE(flags->allow_remote);
  EXPECT_EQ(flags->drain_timeout, absl::Seconds(20));
  EXPECT_EQ(flags->ready_fd, -1);
}

TEST(Flags, BothFormsAndRepetition) {
  const auto flags =
      ParseDaemonFlags({"--listen", "unix:/a", "--listen=127.0.0.1:0", "--device=model:h200-sxm", "--allow-remote",
                        "--drain-timeout", "2.5", "--ready-fd=7", "--log-level=debug"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_THAT(flags->listen, ElementsAre("unix:/a", "127.0.0.1:0"));
  EXPECT_THAT(flags->device, ElementsAre("model:h200-sxm"));
  EXPECT_TRUE(flags->allow_remote);
  EXPECT_EQ(flags->drain_timeout, absl::Milliseconds(2500));
  EXPECT_EQ(flags->ready_fd, 7);
  EXPECT_EQ(flags->log_level, LogLevel::kDebug);
}

TEST(Flags, MistakesAreNamed) {
  const struct {
    std::vector<std::string> args;
    const char* text;
  } cases[] = {
      {{"--lisen", "x"}, "did you mean listen?"},
      {{"--data-dir", "a", "--data-dir", "b"}, "given twice"},
      {{"--data-dir"}, "needs a value"},
      {{"--data-dir="}, "needs a value"},
      {{"serve"}, "takes flags only"},
      {{"--drain-timeout", "-1"}, "seconds"},
      {{"--drain-timeout", "nan"}, "seconds"},
      {{"--drain-timeout", "soon"}, "seconds"},
      {{"--ready-fd", "x"}, "file descriptor"},
      {{"--ready-fd", "-2"}, "file descriptor"},
      {{"--log-level", "loud"}, "debug, info"},
      {{"--allow-remote=maybe"}, "neither true nor false"},
      {{"--config", "/no/such/file"}, "--config"},
  };
  for (const auto& c : cases) {
    const auto flags = ParseDaemonFlags(c.args);
    ASSERT_FALSE(flags.ok()) << c.text;
    EXPECT_THAT(std::string(flags.status().message()), HasSubstr(c.text));
  }
}

TEST(Flags, SizesAndPolicies) {
  const auto flags = ParseDaemonFlags(
      {"--artifact-limit", "2GiB", "--gpu-memory-limit=500MB", "--idle-only", "--idle-patience", "30"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->artifact_limit_bytes, int64_t{2} << 30);
  EXPECT_EQ(flags->policy.memory_cap_bytes, 500'000'000);
  EXPECT_TRUE(flags->policy.idle_only);
  EXPECT_EQ(flags->policy.idle_patience, absl::Seconds(30));
  EXPECT_EQ(ParseDaemonFlags({"--artifact-limit", "1048576"})->artifact_limit_bytes, 1048576);
  // Absurd ones are refused, not rounded.
  for (const char* bad : {"0", "-1GiB", "1KiB", "18446744073709551615", "1e30", "2 GiBs", "GiB", "nan", "inf"}) {
    const auto refused = ParseDaemonFlags({"--artifact-limit", bad});
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(std::string(refused.status().message()).find("artifact-limit"), std::string::npos);
  }
}

TEST(Flags, ConfigFileBelowTheCommandLine) {
  const TempDir dir;
  const std::string path = dir.Write("c",
                                     "# where\nlisten = unix:/from/file\nlisten=127.0.0.1:1 # two\n\n"
                                     "data-dir =  /data here \nallow-remote = true\ndevice = cuda:0\n");
  auto flags = ParseDaemonFlags({"--config", path, "--device", "cuda:1"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_THAT(flags->listen, ElementsAre("unix:/from/file", "127.0.0.1:1"));
  EXPECT_EQ(flags->data_dir, "/data here");
  EXPECT_TRUE(flags->allow_remote);
  EXPECT_THAT(flags->device, ElementsAre("cuda:1"));
  flags = ParseDaemonFlags({"--config", dir.Write("bad", "device = cuda:0\n\nlog_level = info\n")});
  EXPECT_THAT(std::string(flags.status().message()), HasSubstr("bad:3"));
  EXPECT_THAT(std::string(flags.status().message()), HasSubstr("log-level"));
  flags = ParseDaemonFlags({"--config", dir.Write("bad", "just words\n")});
  EXPECT_THAT(std::string(flags.status().message()), HasSubstr("bad:1"));
}

TEST(Flags, UsageNamesEveryFlag) {
  for (const char* name : {"--listen", "--data-dir", "--device", "--template-dir", "--profile-dir", "--config",
                           "--allow-remote", "--drain-timeout", "--worker", "--ready-fd", "--log-level"}) {
    EXPECT_THAT(DaemonUsage(), HasSubstr(name));
  }
}

TEST(ListenAddress, Parses) {
  const auto unix_path = ParseListenAddress("unix:/run/x/rooftune.sock", false);
  ASSERT_TRUE(unix_path.ok());
  EXPECT_EQ(unix_path->Target(), "unix:/run/x/rooftune.sock");
  EXPECT_EQ(ParseListenAddress("unix:///run/x.sock", false)->path, "/run/x.sock");
  EXPECT_EQ(ParseListenAddress("127.0.0.1:7070", false)->Target(), "127.0.0.1:7070");
  EXPECT_EQ(ParseListenAddress("127.8.9.1:0", false)->port, 0);
  EXPECT_EQ(ParseListenAddress("[::1]:7070", false)->Target(), "[::1]:7070");
  EXPECT_EQ(ParseListenAddress("localhost:65535", false)->port, 65535);
  EXPECT_EQ(ParseListenAddress("0.0.0.0:1", true)->host, "0.0.0.0");
}

TEST(ListenAddress, RefusesWhatCannotWork) {
  for (const std::string& text :
       {std::string("7070"), std::string("127.0.0.1:"), std::string("127.0.0.1:99999"), std::string("127.0.0.1:-1"),
        std::string("127.0.0.1:+1"), std::string("127.0.0.1:80x"), std::string(":7070"), std::string("unix:"),
        std::string("::1:7070"), std::string("[::1:7070"), absl::StrCat("unix:/", std::string(107, 'x'))}) {
    const auto address = ParseListenAddress(text, true);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(ErrorReason(address.status()), "BAD_ADDRESS") << text;
  }
  EXPECT_TRUE(ParseListenAddress(absl::StrCat("unix:/", std::string(106, 'x')), true).ok());
}

TEST(ListenAddress, OtherMachinesNeedAnExplicitYes) {
  for (const char* text : {"0.0.0.0:7070", "[::]:7070", "10.0.0.1:7070", "example.org:7070"}) {
    EXPECT_EQ(ErrorReason(ParseListenAddress(text, false).status()), "REMOTE_NOT_ALLOWED") << text;
  }
}

TEST(ListenAddress, SeesATakenPort) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  socklen_t size = sizeof(any);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&any), &size), 0);
  ListenAddress address;
  address.host = "127.0.0.1";
  address.port = ntohs(any.sin_port);
  EXPECT_EQ(ErrorReason(CheckFree(address)), "ADDRESS_IN_USE");
  close(fd);
  address.port = 0;
  EXPECT_TRUE(CheckFree(address).ok());
  address.host = "192.0.2.1";  // reserved for documentation: nobody's
  EXPECT_EQ(ErrorReason(CheckFree(address)), "BAD_ADDRESS");
}

TEST(SocketLock, OneHolderAndOldSocketsGo) {
  const TempDir dir;
  const std::string path = dir / "sub/rooftune.sock";
  {
    auto lock = SocketLock::Acquire(path);
    ASSERT_TRUE(lock.ok()) << lock.status();
    struct stat info;
    ASSERT_EQ(stat((dir / "sub").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    EXPECT_EQ(ErrorReason(SocketLock::Acquire(path).status()), "ADDRESS_IN_USE");
    // What a daemon that was killed leaves.
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_storage storage = {};
    storage.ss_family = AF_UNIX;
    path.copy(reinterpret_cast<char*>(&storage) + sizeof(sa_family_t), path.size());
    ASSERT_EQ(
        bind(fd, reinterpret_cast<sockaddr*>(&storage), static_cast<socklen_t>(sizeof(sa_family_t) + path.size() + 1)),
        0);
    close(fd);
    ASSERT_TRUE(std::filesystem::exists(path));
  }
  auto next = SocketLock::Acquire(path);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SocketLock, KeepsItsHandsOffOtherFilesAndUnsafeFolders) {
  const TempDir dir;
  dir.Write("precious", "data");
  EXPECT_EQ(ErrorReason(SocketLock::Acquire(dir / "precious").status()), "UNSAFE_SOCKET_DIR");
  EXPECT_TRUE(std::filesystem::exists(dir / "precious"));
  std::filesystem::create_directory(dir / "open");
  ASSERT_EQ(chmod((dir / "open").c_str(), 0777), 0);
  EXPECT_EQ(ErrorReason(SocketLock::Acquire(dir / "open/s").status()), "UNSAFE_SOCKET_DIR");
  std::filesystem::create_directory(dir / "real");
  std::filesystem::create_directory_symlink(dir / "real", dir / "link");
  EXPECT_EQ(ErrorReason(SocketLock::Acquire(dir / "link/s").status()), "UNSAFE_SOCKET_DIR");
}

}  // namespace
}  // namespace rooftune

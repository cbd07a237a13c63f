// --local: a private daemon that never outlives its command.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "base/file_util.h"
#include "tests/client/cli_fixture.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CliLocalTest : public CliTest {
 protected:
  CliLocalTest() {
    // A copy of the program, so that the fake is the daemon beside it.
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    std::filesystem::copy_file(Command("")[0], Path("rooftune"));
    std::filesystem::copy_file(self + "/fake_rooftuned", Path("rooftuned"));
  }

  std::string Path(const std::string& name) const { return fake_.dir() + "/" + name; }
  std::vector<std::string> LocalCommand(const std::string& line) const {
    std::vector<std::string> command = Command("--local " + line);
    command[0] = Path("rooftune");
    return command;
  }
  std::map<std::string, std::string> LocalEnvironment() const {
    return {{"FAKE_ROOFTUNED_DIR", fake_.dir()}, {"TMPDIR", fake_.dir()}, {"NO_COLOR", "1"}};
  }
  ProcessResult RunLocal(const std::string& line) const {
    return Process(LocalCommand(line), LocalEnvironment()).Wait();
  }
  // Waits until the file is there with content (another process writes it), at most 20 s.
  bool Appears(const std::string& name) const {
    for (int i = 0; i < 4000; ++i) {
      const auto text = ReadFile(Path(name));
      if (text.ok() && !text->empty()) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }
};

TEST_F(CliLocalTest, ServesOneCommandAndEnds) {
  const ProcessResult result =
      RunLocal("--device model:h200-sxm --data-dir /d --template-dir /t1 --template-dir /t2 devices list");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("cuda:0  CUDA"));
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(*ReadFile(Path("args")),
            "--device model:h200-sxm\n--data-dir /d\n--template-dir /t1\n--template-dir /t2\n");
  EXPECT_EQ(*ReadFile(Path("ended")), "15");
  // --device belongs to the daemon: what it calls its device may differ ("auto").
  EXPECT_EQ(RunLocal("--device auto best gemm m=64").code, 0);
}

TEST_F(CliLocalTest, CtrlCEndsTheDaemonToo) {
  Process process(LocalCommand("--data-dir /d tune gemm m=64"), LocalEnvironment());
  ASSERT_TRUE(Appears("pid"));
  kill(process.pid(), SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.code, 130) << result.err;
  EXPECT_TRUE(Appears("ended"));
}

TEST_F(CliLocalTest, ADaemonWhoseCommandWasKilledEnds) {
  Process process(LocalCommand("tune gemm m=64"), LocalEnvironment());
  ASSERT_TRUE(Appears("pid"));
  kill(process.pid(), SIGKILL);
  process.Wait();
  EXPECT_TRUE(Appears("ended"));
}

TEST_F(CliLocalTest, ADaemonThatGivesUpIsReported) {
  auto environment = LocalEnvironment();
  environment["FAKE_ROOFTUNED_DIR"] = "";
  const ProcessResult result = Process(LocalCommand("devices list"), environment).Wait();
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.err, HasSubstr("the private daemon did not start"));
}

}  // namespace
}  // namespace rooftune

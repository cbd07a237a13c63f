// Runs the built `rooftune` against a fake daemon.
#ifndef ROOFTUNE_TESTS_CLIENT_CLI_FIXTURE_H_
#define ROOFTUNE_TESTS_CLIENT_CLI_FIXTURE_H_

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/process.h"

namespace rooftune {

class CliTest : public ::testing::Test {
 protected:
  CliTest() { FillCanned(fake_.canned); }

  std::vector<std::string> Command(const std::string& line) const {
    const char* bin = std::getenv("ROOFTUNE_BIN_DIR");
    std::vector<std::string> args = {std::string(bin == nullptr ? "build/dev/bin" : bin) + "/rooftune"};
    for (const auto word : absl::StrSplit(line, ' ', absl::SkipEmpty())) args.emplace_back(word);
    return args;
  }
  std::map<std::string, std::string> Environment() const {
    return {{"ROOFTUNE_ADDRESS", fake_.address()}, {"NO_COLOR", "1"}};
  }
  // `line` is split at spaces.
  ProcessResult Run(const std::string& line) const { return Process(Command(line), Environment()).Wait(); }

  // The message that `line` prints with --json, which must be valid JSON of that type and nothing else.
  template <typename Message>
  Message Json(const std::string& line) const {
    const ProcessResult result = Run(line + " --json");
    EXPECT_EQ(result.code, 0) << result.err;
    Message message;
    const auto parsed = google::protobuf::util::JsonStringToMessage(result.out, &message);
    EXPECT_TRUE(parsed.ok()) << parsed.ToString() << "\n" << result.out;
    return message;
  }

  FakeDaemon fake_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_CLIENT_CLI_FIXTURE_H_

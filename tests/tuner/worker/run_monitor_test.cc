// Who disturbs a measurement: the decisions, without a GPU.
#include "tuner/worker/run_monitor.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace rooftune {
namespace {

TEST(CountForeignTest, OursAreTheWorkersOfTheSameDaemon) {
  // Daemon 10 with workers 11 (ourselves) and 12 (its spare); 20 and 21 belong to others.
  const std::map<int, int> parents = {{11, 10}, {12, 10}, {20, 1}, {21, 20}};
  const auto parent_of = [&](int pid) { return parents.count(pid) != 0 ? parents.at(pid) : 0; };
  const struct {
    std::vector<int> pids;
    int foreign;
  } kCases[] = {{{}, 0}, {{11}, 0}, {{11, 12}, 0}, {{11, 12, 20}, 1}, {{20, 11, 21, 99}, 3}, {{20, 21}, -1}};
  for (const auto& c : kCases) EXPECT_EQ(CountForeign(c.pids, 11, 10, parent_of), c.foreign);
  // An orphan's siblings are everybody's.
  EXPECT_EQ(CountForeign({11, 20}, 11, 1, parent_of), 1);
}

TEST(JudgeIdleTest, IdleIsAGpuOnWhichNobodyElseComputes) {
  const auto foreign = [](int pid) { return pid >= 20; };
  const std::optional<std::vector<int>> unknown;
  const struct {
    int holding;
    bool known;
    std::vector<int> busy;
    int expected;
  } kCases[] = {
      {0, false, {}, 0},           // alone: no need to know who is busy
      {0, true, {11}, 0},          // ourselves
      {2, true, {}, 0},            // others hold memory only, as a server without load does
      {2, true, {11, 12}, 0},      // our workers
      {2, true, {11, 20, 20}, 1},  // samples of one process
      {2, true, {20, 21}, 2},     {2, false, {}, -1}, {-1, true, {20}, -1},
  };
  for (const auto& c : kCases) {
    GpuReading reading;
    reading.foreign_processes = c.holding;
    const auto idle = JudgeIdle(reading, c.known ? std::optional(c.busy) : unknown, foreign);
    EXPECT_EQ(idle.busy_processes(), c.expected);
    EXPECT_EQ(idle.message().empty(), c.expected == 0);
  }
}

TEST(IsContendedTest, B3_AnotherProcessAndTimeThatIsNotOurs) {
  struct Case {
    BurstFacts facts;
    bool contended;
  };
  const Case cases[] = {
      // foreign, wall, device, span, shortest span
      {{0, 90'000, 3'000, 1'000, 1'000}, false},   // a slow host alone
      {{-1, 90'000, 3'000, 1'000, 1'000}, false},  // nothing is known
      {{1, 3'200, 3'000, 1'000, 1'000}, false},    // another process, idle
      {{1, 4'900, 3'000, 1'000, 1'000}, false},    // 1.5 times and what the host may take
      {{1, 5'100, 3'000, 1'000, 1'000}, true},
      {{2, 2'150, 16, 4, 4}, true},             // a short burst between the slices of a spinner
      {{1, 480, 16, 4, 4}, false},              // waking up late
      {{1, 5'000, 4'800, 1'600, 1'000}, true},  // the slices lie within our events
      {{1, 4'500, 4'400, 1'450, 1'000}, false},
      {{1, 4'500, 4'400, 1'450, 0}, false},  // the first burst
  };
  for (const Case& c : cases) {
    EXPECT_EQ(IsContended(c.facts), c.contended)
        << c.facts.foreign_processes << " " << c.facts.wall_us << " " << c.facts.span_us;
  }
}

TEST(AddReadingTest, KeepsTheWorst) {
  v1::Measurement m;
  AddReading({300, 40, 0x4, -1}, &m);
  AddReading({250, 60, 0x40, 2}, &m);
  EXPECT_EQ(m.power_w(), 300);
  EXPECT_EQ(m.temperature_c(), 60);
  EXPECT_EQ(m.throttle_reasons(), 0x44u);
  EXPECT_EQ(m.foreign_processes(), 2);
  v1::Measurement unread;
  AddReading({}, &unread);
  EXPECT_EQ(unread.ByteSizeLong(), 0u);
}

TEST(ThrottleTextTest, NamesWhatSlowsDown) {
  EXPECT_EQ(ThrottleText(0), "");
  EXPECT_EQ(ThrottleText(0x1 | 0x2), "") << "idle and application clocks";
  EXPECT_EQ(ThrottleText(0x4), "power cap");
  EXPECT_EQ(ThrottleText(0x4 | 0x40 | 0x80), "power cap, thermal (hardware), power brake");
}

TEST(SharingTextTest, SaysWhoMayDisturb) {
  EXPECT_EQ(SharingText({}), "");
  EXPECT_EQ(SharingText({"", false, 0, false, 0}), "") << "the default compute mode is no news";
  EXPECT_NE(SharingText({"1g.18gb", true, 0, false, 0}).find("MIG slice 1g.18gb"), std::string::npos);
  EXPECT_NE(SharingText({"", true, 0, false, 0}).find("MIG is on"), std::string::npos);
  EXPECT_NE(SharingText({"", false, 2, false, 0}).find("PROHIBITED"), std::string::npos);
  const std::string both = SharingText({"", false, 0, true, 3});
  EXPECT_NE(both.find("MPS"), std::string::npos);
  EXPECT_NE(both.find("3 processes hold it"), std::string::npos);
}

TEST(HasMpsPipeTest, LooksForTheControlPipe) {
  const TempDir dir;
  setenv("CUDA_MPS_PIPE_DIRECTORY", dir.path().c_str(), 1);
  EXPECT_FALSE(HasMpsPipe());
  dir.Write("control", "");
  EXPECT_TRUE(HasMpsPipe());
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
}

}  // namespace
}  // namespace rooftune

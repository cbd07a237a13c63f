#include "tuner/compile/default_processes.h"

#include <gtest/gtest.h>

namespace rooftune {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

TEST(DefaultProcessesTest, G1_BoundedByCoresAndByMemory) {
  EXPECT_EQ(ProcessesFor(16, 64 * 1024 * kMib), 16);
  EXPECT_EQ(ProcessesFor(16, 1000 * kMib), 3);
  EXPECT_EQ(ProcessesFor(16, 10 * kMib), 1);
  EXPECT_EQ(ProcessesFor(16, -5), 1);
  EXPECT_EQ(ProcessesFor(0, 64 * 1024 * kMib), 1);
  EXPECT_GE(DefaultProcesses(), 1);
}

TEST(DefaultProcessesTest, ReadsMemAvailable) {
  EXPECT_EQ(AvailableBytes("MemTotal:  100 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n"), 2 * kMib);
  EXPECT_EQ(AvailableBytes("MemTotal:  100 kB\n"), 0);
}

}  // namespace
}  // namespace rooftune

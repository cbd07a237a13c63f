#include "tuner/store/memory_store.h"

#include <gtest/gtest.h>

#include "tests/tuner/store/store_conformance.h"

namespace rooftune {
namespace {

INSTANTIATE_TEST_SUITE_P(Memory, StoreConformanceTest,
                         ::testing::Values(StoreFactory{
                             "memory", [](const TempDir&) { return std::make_unique<MemoryStore>(); }}));

TEST(MemoryStoreTest, PlantedFailureHitsTheNthWriteOnce) {
  MemoryStore store;
  store.FailWrite(2, absl::UnavailableError("planted"));
  EXPECT_TRUE(store.PutSweep(MakeSweep("a")).ok());
  EXPECT_EQ(store.PutSweep(MakeSweep("b")).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(store.PutSweep(MakeSweep("c")).ok());
  EXPECT_EQ(NamesOf(store.ListSweeps(std::nullopt, 10, "")->items), (std::vector<std::string>{"sweeps/c", "sweeps/a"}));
  EXPECT_EQ(store.writes(), 3);
}

TEST(MemoryStoreTest, FailureMayStayUntilCleared) {
  MemoryStore store;
  store.FailWrite(1, absl::ResourceExhaustedError("disk full"), /*onwards=*/true);
  EXPECT_FALSE(store.PutSweep(MakeSweep("a")).ok());
  EXPECT_FALSE(store.PublishRecords({MakeRecord("a", "k")}).ok());
  EXPECT_TRUE(store.ListSweeps(std::nullopt, 10, "").ok()) << "reads go on";
  store.ClearFailures();
  EXPECT_TRUE(store.PutSweep(MakeSweep("a")).ok());
}

}  // namespace
}  // namespace rooftune

#include "server/config_index.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "kernels/candidate.h"
#include "tuner/store/memory_store.h"

namespace rooftune {
namespace {

constexpr char kDevice[] = "nvidia-h200/132sm/141gb/700w";

class ConfigIndexTest : public testing::Test {
 protected:
  ConfigIndexTest() : ops_(*OpCatalog::Builtin()), index_(ops_) {}

  Op Parse(const std::string& text) {
    const auto op = ops_.Parse(text);
    EXPECT_TRUE(op.ok()) << op.status();
    return *op;
  }
  v1::TuningRecord Record(const std::string& text, v1::EvidenceLevel evidence, int rank = 0,
                          const std::string& device = kDevice) {
    v1::TuningRecord record;
    record.set_op(Parse(text).text);
    record.set_device_key(device);
    record.set_target_key(TargetKey(record.op(), device));
    record.set_name(absl::StrCat("records/r", ++number_));
    record.set_provider(v1::TEMPLATE);
    record.set_template_id("softmax");
    record.set_evidence(evidence);
    record.set_rank(rank);
    record.mutable_plan()->set_op(record.op());
    record.mutable_plan()->set_deterministic(true);
    if (evidence >= v1::VERIFIED) record.mutable_verification()->set_passed(true);
    if (evidence >= v1::MEASURED) record.mutable_measurement()->set_median_us(1);
    return record;
  }
  void PublishNow(const std::vector<v1::TuningRecord>& records, int64_t generation) {
    index_.Publish(records, generation);
    index_.Flush(absl::Now());
  }
  std::string NameOf(const std::string& text, const Acceptance& acceptance = {}) {
    const SnapshotPtr snapshot = index_.snapshot();
    const EntryPtr entry = snapshot->Find(TargetKey(Parse(text).text, kDevice));
    if (entry == nullptr) return "";
    const IndexEntry::Version* version = IndexSnapshot::Pick(*entry, acceptance);
    return version == nullptr ? "" : version->record->name();
  }

  OpCatalog ops_;
  ConfigIndex index_;
  int number_ = 0;
};

constexpr char kOp[] = "softmax rows=1024 cols=1024 dtype=bf16";

TEST_F(ConfigIndexTest, C7_ServesTheLowestRankThatIsAcceptable) {
  auto first = Record(kOp, v1::COMPILED, 0);
  auto second = Record(kOp, v1::MEASURED, 1);
  first.mutable_plan()->set_deterministic(false);
  PublishNow({second, first}, 1);
  EXPECT_EQ(NameOf(kOp), first.name());
  EXPECT_EQ(NameOf(kOp, {v1::MEASURED, false, 0}), second.name());
  EXPECT_EQ(NameOf(kOp, {v1::EVIDENCE_LEVEL_UNSPECIFIED, true, 0}), second.name());
  EXPECT_EQ(NameOf(kOp, {v1::END_TO_END, false, 0}), "");
  v1::EvidenceLevel strongest = v1::EVIDENCE_LEVEL_UNSPECIFIED;
  const auto entry = index_.snapshot()->Find(first.target_key());
  EXPECT_EQ(IndexSnapshot::Pick(*entry, {v1::END_TO_END, false, 0}, &strongest), nullptr);
  EXPECT_EQ(strongest, v1::MEASURED);
}

TEST_F(ConfigIndexTest, AClaimOfDeterminismThatWasRefutedDoesNotCount) {
  auto first = Record(kOp, v1::MEASURED, 0);
  first.mutable_verification()->set_nondeterministic(true);
  const auto second = Record(kOp, v1::MEASURED, 1);
  PublishNow({first, second}, 1);
  EXPECT_EQ(NameOf(kOp), first.name());
  EXPECT_EQ(NameOf(kOp, {v1::EVIDENCE_LEVEL_UNSPECIFIED, true, 0}), second.name());
}

TEST_F(ConfigIndexTest, C6_SkipsARecordWhosePreconditionsDoNotHold) {
  auto first = Record(kOp, v1::MEASURED, 0);
  auto* condition = first.mutable_plan()->add_precondition();
  condition->set_name("impossible");
  condition->set_expr("rows % 7 == 0");
  const auto second = Record(kOp, v1::MEASURED, 1);
  PublishNow({first, second}, 1);
  EXPECT_EQ(NameOf(kOp), second.name());
}

TEST_F(ConfigIndexTest, ReadersOfOneGenerationAgree) {
  const auto old_record = Record(kOp, v1::MEASURED);
  const auto new_record = Record(kOp, v1::MEASURED);
  PublishNow({old_record}, 1);
  PublishNow({Record("softmax rows=8 cols=8 dtype=fp32", v1::MEASURED)}, 2);
  PublishNow({new_record}, 3);
  EXPECT_EQ(NameOf(kOp, {{}, false, 1}), old_record.name());
  EXPECT_EQ(NameOf(kOp, {{}, false, 2}), old_record.name());
  EXPECT_EQ(NameOf(kOp, {{}, false, 3}), new_record.name());
  EXPECT_EQ(NameOf(kOp), new_record.name());
  EXPECT_EQ(NameOf("softmax rows=8 cols=8 dtype=fp32", {{}, false, 1}), "") << "not yet there then";
}

TEST_F(ConfigIndexTest, OldGenerationsGo) {
  const auto first = Record(kOp, v1::MEASURED);
  PublishNow({first}, 1);
  for (int64_t g = 2; g <= 18; ++g) PublishNow({Record(kOp, v1::MEASURED)}, g);
  const SnapshotPtr snapshot = index_.snapshot();
  EXPECT_EQ(snapshot->generation(), 18);
  EXPECT_TRUE(snapshot->CheckGeneration(0).ok());
  EXPECT_TRUE(snapshot->CheckGeneration(2).ok());
  const absl::Status gone = snapshot->CheckGeneration(1);
  EXPECT_EQ(ErrorReason(gone), "GENERATION_GONE");
  EXPECT_EQ(ErrorMetadata(gone)["oldest_generation"], "2");
  EXPECT_EQ(ErrorReason(snapshot->CheckGeneration(19)), "GENERATION_GONE") << "one that never was";
  EXPECT_EQ(ErrorReason(snapshot->CheckGeneration(-1)), "BAD_VALUE");
  EXPECT_LE(snapshot->Find(first.target_key())->versions.size(), 18u) << "what nobody can ask for is dropped";
}

TEST_F(ConfigIndexTest, ASnapshotDoesNotChangeUnderItsReader) {
  PublishNow({Record(kOp, v1::MEASURED)}, 1);
  const SnapshotPtr before = index_.snapshot();
  PublishNow({Record("softmax rows=8 cols=8 dtype=fp32", v1::MEASURED)}, 2);
  EXPECT_EQ(before->size(), 1u);
  EXPECT_EQ(before->generation(), 1);
  EXPECT_EQ(index_.snapshot()->size(), 2u);
}

TEST_F(ConfigIndexTest, PublishesAtMostOnceASecondUnlessFlushed) {
  const absl::Time start = absl::FromUnixSeconds(1'700'000'000);
  index_.Publish({Record(kOp, v1::MEASURED)}, 1);
  EXPECT_EQ(index_.FlushIfDue(start), absl::InfiniteFuture());
  EXPECT_EQ(index_.snapshot()->generation(), 1);
  index_.Publish({Record(kOp, v1::MEASURED)}, 2);
  index_.Publish({Record(kOp, v1::MEASURED)}, 3);
  EXPECT_EQ(index_.FlushIfDue(start + absl::Milliseconds(300)), start + absl::Seconds(1));
  EXPECT_EQ(index_.snapshot()->generation(), 1) << "held back";
  EXPECT_EQ(index_.FlushIfDue(start + absl::Seconds(1)), absl::InfiniteFuture());
  EXPECT_EQ(index_.snapshot()->generation(), 3) << "together";
  index_.Publish({Record(kOp, v1::MEASURED)}, 4);
  index_.Flush(start + absl::Milliseconds(1001));
  EXPECT_EQ(index_.snapshot()->generation(), 4) << "who waited for it need not wait longer";
}

TEST_F(ConfigIndexTest, PublicationsThatArriveOutOfOrderStayInOrder) {
  const auto second = Record(kOp, v1::MEASURED);
  index_.Publish({second}, 2);
  index_.Publish({Record(kOp, v1::MEASURED)}, 1);
  index_.Flush(absl::Now());
  EXPECT_EQ(NameOf(kOp), second.name());
}

TEST_F(ConfigIndexTest, LoadsCurrentAndRecentVersions) {
  MemoryStore store;
  const auto old_record = Record(kOp, v1::MEASURED);
  const auto new_record = Record(kOp, v1::MEASURED);
  ASSERT_TRUE(store.PublishRecords({old_record}).ok());
  ASSERT_TRUE(store.PublishRecords({new_record}).ok());
  ASSERT_TRUE(index_.Load(store).ok());
  EXPECT_EQ(index_.snapshot()->generation(), 2);
  EXPECT_EQ(NameOf(kOp), new_record.name());
  EXPECT_EQ(NameOf(kOp, {{}, false, 1}), old_record.name());
  // A publication that the load has seen already changes nothing.
  PublishNow({new_record}, 2);
  EXPECT_EQ(index_.snapshot()->Find(new_record.target_key())->versions.size(), 2u);
}

TEST_F(ConfigIndexTest, KeepsSamplesOut) {
  auto record = Record(kOp, v1::MEASURED);
  record.mutable_measurement()->add_sample_us(1);
  record.add_baseline()->mutable_measurement()->add_sample_us(2);
  PublishNow({record}, 1);
  const auto entry = index_.snapshot()->Find(record.target_key());
  EXPECT_EQ(entry->versions[0].record->measurement().sample_us_size(), 0);
  EXPECT_EQ(entry->versions[0].record->baseline(0).measurement().sample_us_size(), 0);
  EXPECT_EQ(entry->versions[0].record->measurement().median_us(), 1);
}

TEST_F(ConfigIndexTest, AnOperatorThatNobodyKnowsIsLeftOut) {
  auto record = Record(kOp, v1::MEASURED);
  record.set_op("custom_op a=1");
  PublishNow({record, Record("softmax rows=8 cols=8 dtype=fp32", v1::MEASURED)}, 1);
  EXPECT_EQ(index_.snapshot()->size(), 1u);
  EXPECT_EQ(index_.snapshot()->Find(record.target_key()), nullptr);
}

TEST_F(ConfigIndexTest, NearestIsOfTheSameDeviceAndAttributes) {
  PublishNow({Record("softmax rows=1024 cols=2048 dtype=bf16", v1::MEASURED),
              Record("softmax rows=1024 cols=8192 dtype=bf16", v1::MEASURED),
              Record("softmax rows=1024 cols=1024 dtype=fp32", v1::MEASURED),
              Record("softmax rows=1024 cols=1025 dtype=bf16", v1::MEASURED, 0, "nvidia-b200/148sm/180gb/1000w"),
              Record("softmax rows=1024 cols=1500 dtype=bf16", v1::COMPILED)},
             1);
  const auto near = index_.snapshot()->Nearest(FactsOf(Parse(kOp)), kDevice, {v1::MEASURED, false, 0}, 10);
  ASSERT_EQ(near.size(), 2u);
  EXPECT_EQ(near[0].entry->op, "softmax rows=1024 cols=2048 dtype=bf16");
  EXPECT_NEAR(near[0].distance, 1.0, 1e-9);
  EXPECT_NEAR(near[1].distance, 3.0, 1e-9);
  // For a message everything counts, what differs least first.
  const auto similar = index_.snapshot()->Similar(FactsOf(Parse(kOp)), kDevice, 3);
  ASSERT_EQ(similar.size(), 3u);
  EXPECT_EQ(similar[0]->op, "softmax rows=1024 cols=1500 dtype=bf16");
}

TEST(ConfigIndexCheckTest, C6_WhatBreaksTodaysTemplateIsNotServedAndCounted) {
  const OpCatalog ops = *OpCatalog::Builtin();
  ConfigIndex index(ops, [](const v1::TuningRecord& record, const Op&) {
    return record.config().at("block") > 256 ? std::string("no more than 256 threads") : std::string();
  });
  const std::string op = ops.Parse(kOp)->text;
  std::vector<v1::TuningRecord> records(2);
  for (int rank = 0; rank < 2; ++rank) {
    v1::TuningRecord& record = records[static_cast<size_t>(rank)];
    record.set_name(absl::StrCat("records/", rank));
    record.set_op(op);
    record.set_device_key(kDevice);
    record.set_target_key(TargetKey(op, kDevice));
    record.set_rank(rank);
    record.mutable_plan()->set_op(op);
    record.set_evidence(v1::COMPILED);
    (*record.mutable_config())["block"] = rank == 0 ? 512 : 128;
  }
  index.Publish(records, 1);
  index.Flush(absl::Now());
  const SnapshotPtr snapshot = index.snapshot();
  const EntryPtr entry = snapshot->Find(TargetKey(op, kDevice));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(IndexSnapshot::Pick(*entry, {})->record->name(), "records/1") << "the next one that holds";
  const IndexEntry::Version* withheld = IndexSnapshot::NotServed(*entry);
  ASSERT_NE(withheld, nullptr);
  EXPECT_EQ(withheld->unusable, "no more than 256 threads");
  EXPECT_EQ(snapshot->not_served(), 1);
}

}  // namespace
}  // namespace rooftune

#include "tests/tuner/store/store_conformance.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>

#include <set>
#include <thread>

#include "base/error.h"

namespace rooftune {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformanceTest);

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool Same(const google::protobuf::Message& a, const google::protobuf::Message& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

absl::StatusCode CodeOf(const absl::Status& status) { return status.code(); }

struct Counts {
  absl::Status status;
  int sweeps = 0, trials = 0, records = 0, duplicates = 0;
};
Counts Import(Store& store, const std::vector<v1::ExportLine>& lines) {
  Counts c;
  c.status = store.Import(lines, &c.sweeps, &c.trials, &c.records, &c.duplicates);
  return c;
}

TEST_P(StoreConformanceTest, EmptyStoreHasNothing) {
  EXPECT_EQ(CodeOf(store_->GetSweep("sweeps/a").status()), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(store_->FindSweepByRequestId("r").status()), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(store_->FindSweepByRequestId("").status()), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(store_->GetRecord("records/a").status()), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(store_->GetCalibration(kDevice).status()), absl::StatusCode::kNotFound);
  EXPECT_EQ(*store_->CurrentGeneration(), 0);
  EXPECT_THAT(store_->ListSweeps(std::nullopt, 10, "")->items, IsEmpty());
  EXPECT_THAT(store_->ListTrials({}, 10, "")->items, IsEmpty());
  EXPECT_THAT(store_->ListRecords({}, 10, "")->items, IsEmpty());
}

TEST_P(StoreConformanceTest, SweepIsReplacedByName) {
  v1::Sweep sweep = MakeSweep("a", 5, v1::RUNNING);
  sweep.set_request_id("r1");
  ASSERT_TRUE(store_->PutSweep(sweep).ok());
  sweep.set_state(v1::DONE);
  (*sweep.mutable_progress()->mutable_outcome())["OK"] = 3;
  ASSERT_TRUE(store_->PutSweep(sweep).ok()) << "its own request id is no conflict";
  EXPECT_TRUE(Same(*store_->GetSweep("sweeps/a"), sweep));
  EXPECT_TRUE(Same(*store_->FindSweepByRequestId("r1"), sweep));
  EXPECT_EQ(store_->ListSweeps(std::nullopt, 10, "")->items.size(), 1u);
}

TEST_P(StoreConformanceTest, RequestIdIsUnique) {
  v1::Sweep sweep = MakeSweep("a");
  sweep.set_request_id("r1");
  ASSERT_TRUE(store_->PutSweep(sweep).ok());
  sweep.set_name("sweeps/b");
  const absl::Status status = store_->PutSweep(sweep);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ErrorMetadata(status)["sweep"], "sweeps/a");
  EXPECT_EQ(CodeOf(store_->GetSweep("sweeps/b").status()), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_->PutSweep(MakeSweep("c")).ok());
  EXPECT_TRUE(store_->PutSweep(MakeSweep("d")).ok()) << "no id conflicts with no id";
}

TEST_P(StoreConformanceTest, SweepsAreListedNewestFirstByState) {
  for (const auto& [id, time] : {std::pair{"old", 1}, {"new", 9}, {"mid1", 5}, {"mid2", 5}}) {
    ASSERT_TRUE(store_->PutSweep(MakeSweep(id, time, time == 5 ? v1::RUNNING : v1::DONE)).ok());
  }
  EXPECT_THAT(NamesOf(store_->ListSweeps(std::nullopt, 10, "")->items),
              ElementsAre("sweeps/new", "sweeps/mid2", "sweeps/mid1", "sweeps/old"));
  EXPECT_THAT(NamesOf(store_->ListSweeps(v1::RUNNING, 10, "")->items), ElementsAre("sweeps/mid2", "sweeps/mid1"));
}

TEST_P(StoreConformanceTest, PagesJoinWithoutGapOrRepeat) {
  ASSERT_TRUE(store_->PutSweep(MakeSweep("b")).ok());
  ASSERT_TRUE(store_->PutSweep(MakeSweep("a")).ok());
  std::vector<std::string> expected;
  for (const char* sweep : {"a", "b"}) {
    for (int i = 0; i < 12; ++i) expected.push_back(absl::StrCat("sweeps/", sweep, "/trials/", i));
  }
  // Written backwards: order is by sweep and index, and by number, not by text.
  for (int i = 11; i >= 0; --i) {
    ASSERT_TRUE(store_->PutTrial(MakeTrial("b", i)).ok());
    ASSERT_TRUE(store_->PutTrial(MakeTrial("a", i)).ok());
  }
  for (const int limit : {1, 5, 12, 24, 100}) {
    std::vector<std::string> names;
    std::string token;
    do {
      const auto page = store_->ListTrials({}, limit, token);
      ASSERT_TRUE(page.ok()) << page.status();
      ASSERT_LE(page->items.size(), static_cast<size_t>(limit));
      for (const std::string& name : NamesOf(page->items)) names.push_back(name);
      token = page->next_token;
    } while (!token.empty());
    EXPECT_EQ(names, expected) << "pages of " << limit;
  }
}

TEST_P(StoreConformanceTest, TokensAreBoundToTheirListing) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store_->PutSweep(MakeSweep(absl::StrCat(i), i)).ok());
  const std::string token = store_->ListSweeps(std::nullopt, 1, "")->next_token;
  ASSERT_FALSE(token.empty());
  EXPECT_TRUE(store_->ListSweeps(std::nullopt, 1, token).ok());
  std::string damaged = token;
  damaged[damaged.size() / 2] ^= 1;
  EXPECT_EQ(CodeOf(store_->ListSweeps(std::nullopt, 1, damaged).status()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(store_->ListSweeps(v1::DONE, 1, token).status()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(store_->ListTrials({}, 1, token).status()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(store_->ListRecords({}, 1, "x").status()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(store_->ListTrials({}, 1, "!").status()), "BAD_PAGE_TOKEN");
}

TEST_P(StoreConformanceTest, MeasuredTrialIsNotReplacedByUnmeasured) {
  ASSERT_TRUE(store_->PutSweep(MakeSweep("a")).ok());
  ASSERT_TRUE(store_->PutTrial(MakeTrial("a", 0, v1::COMPILE_TIMEOUT)).ok());
  ASSERT_TRUE(store_->PutTrial(MakeTrial("a", 0, v1::OK, 10)).ok());
  ASSERT_TRUE(store_->PutTrial(MakeTrial("a", 0, v1::NOT_RUN)).ok());
  auto trials = store_->ListTrials({.sweep = "sweeps/a"}, 10, "");
  ASSERT_EQ(trials->items.size(), 1u);
  EXPECT_TRUE(Same(trials->items[0], MakeTrial("a", 0, v1::OK, 10)));
  ASSERT_TRUE(store_->PutTrial(MakeTrial("a", 0, v1::OK, 12)).ok()) << "measured again";
  EXPECT_EQ(store_->ListTrials({}, 10, "")->items[0].measurement().median_us(), 12);
}

TEST_P(StoreConformanceTest, TrialsAreFilteredBySweepAndOutcome) {
  ASSERT_TRUE(store_->PutSweep(MakeSweep("a")).ok());
  ASSERT_TRUE(store_->PutSweep(MakeSweep("aa")).ok());
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(store_->PutTrial(MakeTrial("a", i, i % 2 == 0 ? v1::OK : v1::SPILLS)).ok());
    ASSERT_TRUE(store_->PutTrial(MakeTrial("aa", i, v1::SPILLS)).ok());
  }
  const TrialFilter filter{.sweep = "sweeps/a", .outcome = v1::SPILLS};
  const auto first = store_->ListTrials(filter, 2, "");
  EXPECT_THAT(NamesOf(first->items), ElementsAre("sweeps/a/trials/1", "sweeps/a/trials/3"));
  const auto second = store_->ListTrials(filter, 2, first->next_token);
  EXPECT_THAT(NamesOf(second->items), ElementsAre("sweeps/a/trials/5"));
  EXPECT_EQ(second->next_token, "");
}

TEST_P(StoreConformanceTest, RowsThatDoNotHoldTogetherAreRefused) {
  ASSERT_TRUE(store_->PutSweep(MakeSweep("a")).ok());
  v1::Trial misnamed = MakeTrial("a", 3);
  misnamed.set_index(4);
  EXPECT_EQ(CodeOf(store_->PutTrial(misnamed)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(store_->PutTrial(MakeTrial("nobody", 0))), absl::StatusCode::kNotFound);
  v1::Trial modelled = MakeTrial("a", 0);
  modelled.set_device_key("model/h200-sxm");
  EXPECT_EQ(CodeOf(store_->PutTrial(modelled)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(store_->PutSweep(v1::Sweep())), absl::StatusCode::kInvalidArgument);
  v1::TuningRecord claim = MakeRecord("x", "k");
  claim.clear_measurement();
  EXPECT_THAT(store_->PublishRecords({claim}).status().message(), HasSubstr("without a measurement"));
  EXPECT_EQ(CodeOf(store_->PublishRecords({}).status()), absl::StatusCode::kInvalidArgument);
  v1::Trial huge = MakeTrial("a", 0);
  huge.set_message(std::string(17 << 20, 'x'));
  EXPECT_EQ(ErrorReason(store_->PutTrial(huge)), "ROW_TOO_LARGE");
  EXPECT_THAT(store_->ListTrials({}, 10, "")->items, IsEmpty());
}

TEST_P(StoreConformanceTest, PublishMakesOneGenerationInOrderOfRank) {
  const auto generation = store_->PublishRecords(
      {MakeRecord("b", "k", v1::MEASURED, 11, 7), MakeRecord("a", "k", v1::MEASURED, 10, 2), MakeRecord("z", "other")});
  ASSERT_TRUE(generation.ok()) << generation.status();
  EXPECT_EQ(*generation, 1);
  EXPECT_EQ(*store_->CurrentGeneration(), 1);
  const auto page = store_->ListRecords({.target_key = "k"}, 10, "");
  ASSERT_THAT(NamesOf(page->items), ElementsAre("records/a", "records/b"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(page->items[static_cast<size_t>(i)].rank(), i);
    EXPECT_EQ(page->items[static_cast<size_t>(i)].from_generation(), 1);
    EXPECT_EQ(page->items[static_cast<size_t>(i)].to_generation(), 0);
  }
}

TEST_P(StoreConformanceTest, NewRecordsSupersedeOldOnesOfTheirKeyOnly) {
  ASSERT_TRUE(store_->PublishRecords({MakeRecord("a", "k"), MakeRecord("other", "other")}).ok());
  ASSERT_TRUE(store_->PublishRecords({MakeRecord("b", "k")}).ok());
  EXPECT_EQ(*store_->PublishRecords({MakeRecord("c", "k")}), 3);
  EXPECT_EQ(store_->GetRecord("records/a")->to_generation(), 1);
  EXPECT_EQ(store_->GetRecord("records/b")->to_generation(), 2);
  EXPECT_EQ(store_->GetRecord("records/c")->to_generation(), 0);
  EXPECT_EQ(store_->GetRecord("records/other")->to_generation(), 0);
  EXPECT_THAT(NamesOf(store_->ListRecords({}, 10, "")->items), ElementsAre("records/c", "records/other"));
  EXPECT_THAT(NamesOf(store_->ListRecords({.target_key = "k", .include_superseded = true}, 10, "")->items),
              ElementsAre("records/c", "records/b", "records/a"));
}

TEST_P(StoreConformanceTest, WeakerEvidenceNeverTouchesAMeasuredKey) {
  ASSERT_TRUE(store_->PublishRecords({MakeRecord("estimated", "k", v1::ESTIMATED)}).ok());
  ASSERT_TRUE(store_->PublishRecords({MakeRecord("measured", "k", v1::PROFILED)}).ok());
  for (const auto evidence : {v1::ESTIMATED, v1::COMPILED, v1::VERIFIED}) {
    const auto status =
        store_->PublishRecords({MakeRecord("fresh", "new key", evidence), MakeRecord("weak", "k", evidence)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ErrorReason(status), "WEAKER_EVIDENCE");
  }
  EXPECT_EQ(*store_->CurrentGeneration(), 2);
  EXPECT_EQ(store_->GetRecord("records/measured")->to_generation(), 0);
  EXPECT_EQ(CodeOf(store_->GetRecord("records/fresh").status()), absl::StatusCode::kNotFound) << "all or nothing";
  EXPECT_TRUE(store_->PublishRecords({MakeRecord("again", "k", v1::MEASURED)}).ok());
}

TEST_P(StoreConformanceTest, RecordsNeverChange) {
  ASSERT_TRUE(store_->PublishRecords({MakeRecord("a", "k")}).ok());
  EXPECT_EQ(CodeOf(store_->PublishRecords({MakeRecord("b", "k2"), MakeRecord("a", "k")}).status()),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(CodeOf(store_->PublishRecords({MakeRecord("c", "k"), MakeRecord("c", "k")}).status()),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(CodeOf(store_->GetRecord("records/b").status()), absl::StatusCode::kNotFound);
  EXPECT_EQ(*store_->CurrentGeneration(), 1);
}

TEST_P(StoreConformanceTest, RecordFilters) {
  v1::TuningRecord other = MakeRecord("gemm", "k2", v1::COMPILED);
  other.set_op("gemm m=1 n=1 k=1 dtype=bf16");
  other.set_device_key("model/h200-sxm");
  ASSERT_TRUE(store_->PublishRecords({MakeRecord("soft", "k1"), other}).ok());
  EXPECT_THAT(NamesOf(store_->ListRecords({.op_kind = "gemm"}, 10, "")->items), ElementsAre("records/gemm"));
  EXPECT_THAT(NamesOf(store_->ListRecords({.device_key = kDevice}, 10, "")->items), ElementsAre("records/soft"));
  EXPECT_THAT(NamesOf(store_->ListRecords({.min_evidence = v1::VERIFIED}, 10, "")->items), ElementsAre("records/soft"));
  EXPECT_THAT(store_->ListRecords({.target_key = "k1", .op_kind = "gemm"}, 10, "")->items, IsEmpty());
}

TEST_P(StoreConformanceTest, PagesOfRecordsAreOfOneGeneration) {
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(store_->PublishRecords({MakeRecord(id, absl::StrCat("key ", id))}).ok());
  }
  const auto first = store_->ListRecords({}, 1, "");
  ASSERT_THAT(NamesOf(first->items), ElementsAre("records/c"));
  // Superseding what has not been listed yet must neither hide its key nor show the new record.
  ASSERT_TRUE(store_->PublishRecords({MakeRecord("a2", "key a")}).ok());
  const auto rest = store_->ListRecords({}, 10, first->next_token);
  EXPECT_THAT(NamesOf(rest->items), ElementsAre("records/b", "records/a"));
}

TEST_P(StoreConformanceTest, NewestCalibrationWins) {
  device::v1::Calibration calibration;
  EXPECT_EQ(CodeOf(store_->PutCalibration(calibration)), absl::StatusCode::kInvalidArgument);
  calibration.set_device_key(kDevice);
  for (const int64_t seconds : {20, 30, 10}) {
    calibration.mutable_time()->set_seconds(seconds);
    ASSERT_TRUE(store_->PutCalibration(calibration).ok());
  }
  EXPECT_EQ(store_->GetCalibration(kDevice)->time().seconds(), 30);
}

TEST_P(StoreConformanceTest, ImportIsIdempotent) {
  const std::vector<v1::ExportLine> lines = {RunLine(), Line(MakeSweep("a")), Line(MakeTrial("a", 0)),
                                             Line(MakeTrial("a", 1, v1::SPILLS)), Line(MakeRecord("r", "k"))};
  Counts counts = Import(*store_, lines);
  ASSERT_TRUE(counts.status.ok()) << counts.status;
  EXPECT_THAT(std::vector<int>({counts.sweeps, counts.trials, counts.records, counts.duplicates}),
              ElementsAre(1, 2, 1, 0));
  const int64_t generation = *store_->CurrentGeneration();
  counts = Import(*store_, lines);
  ASSERT_TRUE(counts.status.ok()) << counts.status;
  EXPECT_THAT(std::vector<int>({counts.sweeps, counts.trials, counts.records, counts.duplicates}),
              ElementsAre(0, 0, 0, 4));
  EXPECT_EQ(*store_->CurrentGeneration(), generation);
  EXPECT_THAT(NamesOf(store_->ListRecords({.target_key = "k"}, 10, "")->items), ElementsAre("records/r"));
}

TEST_P(StoreConformanceTest, ImportRefusesWhatDoesNotHoldTogetherAndLeavesNothing) {
  v1::Trial foreign = MakeTrial("a", 0);
  foreign.set_device_key("nvidia-a100/108sm/80gb/400w");
  v1::Sweep modelled = MakeSweep("m");
  modelled.set_device_key("model/h200-sxm");
  v1::Trial impossible = MakeTrial("m", 0);
  impossible.set_device_key("model/h200-sxm");
  v1::ExportLine baseline;
  baseline.mutable_baseline()->set_sweep("sweeps/unknown");
  struct Case {
    const char* what;
    std::vector<v1::ExportLine> lines;
  };
  const Case cases[] = {
      {"nothing", {}},
      {"no run first", {Line(MakeSweep("a")), RunLine()}},
      {"a measurement of a later run without a device",
       {RunLine(), RunLine(""), Line(MakeSweep("a")), Line(MakeTrial("a", 0))}},
      {"an empty line", {RunLine(), v1::ExportLine()}},
      {"a trial before its sweep", {RunLine(), Line(MakeTrial("a", 0)), Line(MakeSweep("a"))}},
      {"a trial of an unknown sweep", {RunLine(), Line(MakeSweep("a")), Line(MakeTrial("b", 0))}},
      {"a baseline of an unknown sweep", {RunLine(), baseline}},
      {"a sweep twice", {RunLine(), Line(MakeSweep("a")), Line(MakeSweep("a"))}},
      {"an unfinished sweep", {RunLine(), Line(MakeSweep("a", 1, v1::RUNNING))}},
      {"a trial of another device", {RunLine(), Line(MakeSweep("a")), Line(foreign)}},
      {"a measurement without a device", {RunLine(""), Line(MakeSweep("a")), Line(MakeTrial("a", 0))}},
      {"a measurement of a model", {RunLine(), Line(modelled), Line(impossible)}},
      {"a measured record without a device", {RunLine(""), Line(MakeSweep("a")), Line(MakeRecord("r", "k"))}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Import(*store_, c.lines).status.code(), absl::StatusCode::kInvalidArgument) << c.what;
    EXPECT_THAT(store_->ListSweeps(std::nullopt, 10, "")->items, IsEmpty()) << c.what;
    EXPECT_THAT(store_->ListRecords({}, 10, "")->items, IsEmpty()) << c.what;
  }
}

TEST_P(StoreConformanceTest, ImportFailingInTheStoreLeavesNothing) {
  ASSERT_TRUE(store_->PutSweep(MakeSweep("b")).ok());
  v1::Sweep conflict = MakeSweep("b");
  conflict.mutable_spec()->set_op("softmax rows=9 cols=9 dtype=fp32");
  const Counts counts = Import(*store_, {RunLine(), Line(MakeSweep("a")), Line(conflict)});
  EXPECT_EQ(ErrorReason(counts.status), "NAME_CONFLICT");
  EXPECT_THAT(NamesOf(store_->ListSweeps(std::nullopt, 10, "")->items), ElementsAre("sweeps/b"));
}

TEST_P(StoreConformanceTest, ImportedRecordsDisplaceOnlyWhatTheyBeat) {
  struct Case {
    const char* key;
    v1::TuningRecord held, imported;
    bool displaces;
  };
  const Case cases[] = {
      {"faster", MakeRecord("h1", "faster", v1::MEASURED, 10), MakeRecord("i1", "faster", v1::MEASURED, 9), true},
      {"noise", MakeRecord("h2", "noise", v1::MEASURED, 10), MakeRecord("i2", "noise", v1::MEASURED, 9.9), false},
      {"slower", MakeRecord("h3", "slower", v1::MEASURED, 10), MakeRecord("i3", "slower", v1::MEASURED, 20), false},
      {"stronger", MakeRecord("h4", "stronger", v1::COMPILED), MakeRecord("i4", "stronger", v1::MEASURED, 99), true},
      {"weaker", MakeRecord("h5", "weaker", v1::MEASURED), MakeRecord("i5", "weaker", v1::VERIFIED), false},
  };
  std::vector<v1::ExportLine> lines = {RunLine(), Line(MakeSweep("s"))};
  for (const Case& c : cases) {
    ASSERT_TRUE(store_->PublishRecords({c.held}).ok());
    lines.push_back(Line(c.imported));
  }
  const Counts counts = Import(*store_, lines);
  ASSERT_TRUE(counts.status.ok()) << counts.status;
  EXPECT_EQ(counts.records, 5);
  for (const Case& c : cases) {
    EXPECT_THAT(NamesOf(store_->ListRecords({.target_key = c.key}, 10, "")->items),
                ElementsAre(c.displaces ? c.imported.name() : c.held.name()))
        << c.key;
    EXPECT_EQ(store_->ListRecords({.target_key = c.key, .include_superseded = true}, 10, "")->items.size(), 2u)
        << "nothing is thrown away";
  }
}

TEST_P(StoreConformanceTest, ANewerEvidenceFormatIsRefusedAsSuch) {
  v1::ExportLine newer = RunLine();
  newer.mutable_run()->set_schema(2);
  // First, and as the run of a second device.
  for (const std::vector<v1::ExportLine>& lines : {std::vector<v1::ExportLine>{newer, Line(MakeSweep("a"))},
                                                   std::vector<v1::ExportLine>{RunLine(), newer, Line(MakeSweep("a"))}}) {
    const Counts counts = Import(*store_, lines);
    EXPECT_EQ(ErrorReason(counts.status), "EVIDENCE_NEWER") << counts.status;
    EXPECT_FALSE(store_->GetSweep("sweeps/a").ok()) << "all or nothing";
  }
}

TEST_P(StoreConformanceTest, ExportAndImportGiveTheSameAnswers) {
  v1::Sweep sweep = MakeSweep("a");
  sweep.set_request_id("mine");
  for (const char* name : {"r0", "r1"}) sweep.add_record(absl::StrCat("records/", name));
  sweep.add_baseline()->set_name("copy");
  *sweep.mutable_baseline(0)->mutable_measurement() = MakeTime(7);
  ASSERT_TRUE(store_->PutSweep(sweep).ok());
  ASSERT_TRUE(store_->PutSweep(MakeSweep("running", 3, v1::RUNNING)).ok());
  ASSERT_TRUE(store_->PutTrial(MakeTrial("a", 0)).ok());
  ASSERT_TRUE(store_->PublishRecords({MakeRecord("old", "k")}).ok());
  ASSERT_TRUE(
      store_->PublishRecords({MakeRecord("r0", "k", v1::MEASURED, 10, 0), MakeRecord("r1", "k", v1::MEASURED, 11, 1)})
          .ok());
  // As an export orders them: the sweep's baselines have lines of their own too.
  v1::ExportLine baseline;
  baseline.mutable_baseline()->set_sweep("sweeps/a");
  *baseline.mutable_baseline()->mutable_baseline() = sweep.baseline(0);
  const std::vector<v1::ExportLine> lines = {RunLine(), Line(*store_->GetSweep("sweeps/a")),
                                             Line(*store_->ListTrials({.sweep = "sweeps/a"}, 10, "")->items.begin()),
                                             baseline, Line(*store_->GetRecord("records/r0")),
                                             Line(*store_->GetRecord("records/r1"))};
  TempDir other_dir;
  const std::unique_ptr<Store> other = GetParam().make(other_dir);
  const Counts counts = Import(*other, lines);
  ASSERT_TRUE(counts.status.ok()) << counts.status;
  EXPECT_THAT(NamesOf(other->ListRecords({.target_key = "k"}, 10, "")->items), ElementsAre("records/r0", "records/r1"));
  sweep.clear_request_id();
  EXPECT_TRUE(Same(*other->GetSweep("sweeps/a"), sweep));
  EXPECT_TRUE(Same(other->ListTrials({}, 10, "")->items.at(0), MakeTrial("a", 0)));
}

TEST_P(StoreConformanceTest, F3_ParallelWritersAndReaders) {
  ASSERT_TRUE(store_->PutSweep(MakeSweep("a")).ok());
  constexpr int kThreads = 6;
  constexpr int kWrites = 40;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kWrites; ++i) {
        const int index = t * kWrites + i;
        EXPECT_TRUE(store_->PutTrial(MakeTrial("a", index)).ok());
        if (i % 10 == 0) {
          EXPECT_TRUE(store_->PublishRecords({MakeRecord(absl::StrCat(index), "k")}).ok());
          EXPECT_EQ(store_->ListRecords({.target_key = "k"}, 10, "")->items.size(), 1u) << "one current record";
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->ListTrials({}, 1000, "")->items.size(), static_cast<size_t>(kThreads * kWrites));
  EXPECT_EQ(*store_->CurrentGeneration(), kThreads * kWrites / 10);
  std::set<int64_t> generations;
  // Named: a range-based for keeps the items of a temporary, not the temporary.
  const auto all = store_->ListRecords({.include_superseded = true}, 1000, "");
  for (const auto& r : all->items) {
    EXPECT_TRUE(generations.insert(r.from_generation()).second) << "a generation twice";
  }
}

TEST_P(StoreConformanceTest, G3_FailedCompilesAreKept) {
  worker::v1::CompileResult failed;
  failed.set_outcome(v1::COMPILE_FAILED);
  failed.set_log("ptxas: too many registers");
  failed.set_nvrtc_version("13.0");
  EXPECT_EQ(ErrorReason(store_->GetCompileFailure("k").status()), "NO_COMPILE_FAILURE");
  ASSERT_TRUE(store_->PutCompileFailure("k", failed).ok());
  failed.set_log("another");
  ASSERT_TRUE(store_->PutCompileFailure("k", failed).ok());
  ASSERT_TRUE(store_->PutCompileFailure("l", failed).ok());
  EXPECT_EQ(store_->GetCompileFailure("k")->log(), "another");
  EXPECT_EQ(store_->GetCompileFailure("m").status().code(), absl::StatusCode::kNotFound);
  failed.set_outcome(v1::OK);
  EXPECT_EQ(ErrorReason(store_->PutCompileFailure("n", failed)), "BAD_ROW");
  failed.set_outcome(v1::COMPILE_FAILED);
  EXPECT_EQ(ErrorReason(store_->PutCompileFailure("", failed)), "BAD_ROW");
}

TEST_P(StoreConformanceTest, G7_SaysWhichBinariesAreServed) {
  const auto record = [](const std::string& name, const std::string& key, const std::string& digest) {
    v1::TuningRecord r = MakeRecord(name, key);
    r.set_artifact_digest(digest);
    return r;
  };
  ASSERT_TRUE(store_->PublishRecords({record("a", "k", "old")}).ok());
  ASSERT_TRUE(store_->PublishRecords({record("b", "k", "new"), record("c", "l", "other")}).ok());
  using Digests = std::set<std::string>;
  EXPECT_EQ(*store_->ServedArtifacts(0), (Digests{"new", "other"}));
  EXPECT_EQ(*store_->ServedArtifacts(5), (Digests{"old", "new", "other"}));
}

}  // namespace
}  // namespace rooftune

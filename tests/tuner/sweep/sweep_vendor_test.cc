// A vendor's library beside the templates, on a fake device.
#include <gmock/gmock.h>

#include "tests/tuner/sweep/sweep_fixture.h"

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kGemm[] = "gemm m=256 n=256 k=256 dtype=fp32";

class SweepVendorTest : public SweepTest {
 protected:
  static v1::SweepSpec Gemm(int max_trials = 4) {
    v1::SweepSpec spec;
    spec.set_op(kGemm);
    spec.set_max_trials(max_trials);
    spec.set_strategy(v1::RANDOM);
    spec.add_template_id("gemm_simt");
    return spec;
  }
  // Every template takes 200 us, the library's algorithms what is said.
  static std::string Script(const std::string& vendor_time_ns, const std::string& more = "") {
    return absl::StrCat("profile: 'h200-sxm' name: 'test' time_ns: '200000' vendor_algorithms: 4 vendor_time_ns: '",
                        vendor_time_ns, "' baseline_us { key: 'cublas' value: 190 } ", more);
  }
  std::vector<v1::TuningRecord> Current() {
    RecordFilter filter;
    filter.target_key = TargetKey(kGemm, "fake/test");
    auto page = store_.ListRecords(filter, 10, "");
    EXPECT_TRUE(page.ok()) << page.status();
    std::sort(page->items.begin(), page->items.end(), [](const auto& a, const auto& b) { return a.rank() < b.rank(); });
    return page->items;
  }
  std::vector<v1::Trial> VendorTrials(const std::string& sweep) {
    std::vector<v1::Trial> trials;
    for (const v1::Trial& trial : Trials(sweep)) {
      if (trial.provider() == v1::CUBLASLT) trials.push_back(trial);
    }
    std::sort(trials.begin(), trials.end(), [](const auto& a, const auto& b) { return a.index() < b.index(); });
    return trials;
  }
  static std::map<std::string, double> Times(const v1::Sweep& sweep) {
    std::map<std::string, double> times;
    for (const v1::Baseline& line : sweep.baseline()) times[line.name()] = line.measurement().median_us();
    return times;
  }
};

TEST_F(SweepVendorTest, TheFasterLibraryIsServedAndTheBestTemplateKept) {
  Start(Script("180000 - 1000 * algo"));
  const v1::Sweep sweep = RunSweep(Gemm());
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_EQ(VendorTrials(sweep.name()).size(), 4u);
  EXPECT_EQ(sweep.progress().finished(), 4);  // of templates
  EXPECT_THAT(sweep.message(), HasSubstr("cuBLASLt is faster than every template"));
  EXPECT_EQ(sweep.progress().best_template(), "cublaslt");
  EXPECT_THAT(Times(sweep), ElementsAre(testing::Pair("cublas", 190), testing::Pair("cublaslt_best", 177),
                                        testing::Pair("cublaslt_first", 180)));
  const auto records = Current();
  ASSERT_GE(records.size(), 2u);
  const v1::TuningRecord& served = records[0];
  EXPECT_EQ(served.provider(), v1::CUBLASLT);
  EXPECT_EQ(served.template_id(), "cublaslt");
  EXPECT_EQ(served.template_revision(), "130100");
  EXPECT_EQ(served.evidence(), v1::MEASURED);
  EXPECT_EQ(served.config().at("algo"), 3);
  EXPECT_EQ(served.plan().cublaslt().algorithm().opaque(), "fake algorithm 3");
  EXPECT_EQ(served.plan().workspace_bytes().value(), 1 << 20);
  EXPECT_TRUE(served.artifact_digest().empty());
  EXPECT_TRUE(served.verification().passed());
  EXPECT_EQ(served.baseline_size(), 3);
  EXPECT_EQ(served.default_us(), 200);
  EXPECT_EQ(records[1].provider(), v1::TEMPLATE);
  EXPECT_EQ(records[1].measurement().median_us(), 200);
  for (size_t i = 1; i < records.size(); ++i) EXPECT_EQ(records[i].provider(), v1::TEMPLATE) << i;
}

TEST_F(SweepVendorTest, ATieGoesToTheTemplate) {
  Start(Script("199900", "noise: 0.01"));
  const v1::Sweep sweep = RunSweep(Gemm());
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_EQ(Current()[0].provider(), v1::TEMPLATE);
  EXPECT_GT(Times(sweep)["cublaslt_best"], 0);
}

TEST_F(SweepVendorTest, OnlyWhatIsRightIsChosen) {
  Start(Script("100000 - 10000 * algo",
               "rule { phase: RUN when: 'vendor == 1 and algo == 3' outcome: WRONG_RESULT message: 'off by one' }"
               "rule { phase: RUN when: 'vendor == 1 and algo == 2' outcome: LAUNCH_FAILED message: 'status 15' }"));
  const v1::Sweep sweep = RunSweep(Gemm());
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_EQ(Current()[0].config().at("algo"), 1);
  const auto trials = VendorTrials(sweep.name());
  ASSERT_EQ(trials.size(), 4u);
  EXPECT_EQ(trials[3].outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(trials[3].message(), "off by one");
  EXPECT_EQ(trials[2].outcome(), v1::LAUNCH_FAILED);
}

TEST_F(SweepVendorTest, ALibraryThatCrashesIsGivenUp) {
  Start(Script("100000", "rule { phase: RUN when: 'vendor == 1' outcome: CRASHED message: 'signal 11' }"));
  const v1::Sweep sweep = RunSweep(Gemm());
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_EQ(VendorTrials(sweep.name()).size(), 3u);
  EXPECT_EQ(Current()[0].provider(), v1::TEMPLATE);
  // Listing them may be what crashes.
  Start(Script("100000", "vendor_outcome: TIMEOUT"));
  const v1::Sweep second = RunSweep(Gemm());
  ASSERT_EQ(second.state(), v1::DONE) << second.message();
  EXPECT_TRUE(VendorTrials(second.name()).empty());
}

TEST_F(SweepVendorTest, TemplatesOnlyOnRequest) {
  Start(Script("100000"));
  v1::SweepSpec spec = Gemm();
  spec.set_no_vendor(true);
  const v1::Sweep sweep = RunSweep(spec);
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_TRUE(VendorTrials(sweep.name()).empty());
  EXPECT_EQ(Current()[0].provider(), v1::TEMPLATE);
}

TEST_F(SweepVendorTest, IncumbentsStayWhileTheyAreNotBeaten) {
  Start(Script("180000"));
  ASSERT_EQ(RunSweep(Gemm()).state(), v1::DONE);
  const auto before = Current();
  ASSERT_EQ(before[0].provider(), v1::CUBLASLT);
  const v1::Sweep again = RunSweep(Gemm());
  ASSERT_EQ(again.state(), v1::DONE) << again.message();
  EXPECT_THAT(again.message(), HasSubstr("no gain"));
  EXPECT_EQ(Current()[0].name(), before[0].name());
  // A sweep of templates only does not drive the library's record out.
  v1::SweepSpec templates = Gemm();
  templates.set_no_vendor(true);
  templates.set_seed(7);
  ASSERT_EQ(RunSweep(templates).state(), v1::DONE);
  EXPECT_EQ(Current()[0].provider(), v1::CUBLASLT);
}

TEST_F(SweepVendorTest, ABetterTemplateIsPublishedBesideTheServedLibrary) {
  // The default configuration has the largest block_m.
  Start(absl::StrCat("profile: 'h200-sxm' name: 'test' time_ns: '151000 + 300 * block_m' vendor_algorithms: 4 ",
                     "vendor_time_ns: '150000'"));
  ASSERT_EQ(RunSweep(Gemm(1)).state(), v1::DONE);
  const auto before = Current();
  ASSERT_EQ(before.size(), 2u);
  const v1::Sweep sweep = RunSweep(Gemm(24));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  const auto after = Current();
  ASSERT_GE(after.size(), 2u);
  EXPECT_EQ(after[0].provider(), v1::CUBLASLT);
  EXPECT_EQ(after[0].plan().cublaslt().algorithm().opaque(), before[0].plan().cublaslt().algorithm().opaque());
  EXPECT_NE(after[0].name(), before[0].name());
  EXPECT_EQ(after[1].provider(), v1::TEMPLATE);
  EXPECT_LT(after[1].measurement().median_us(), before[1].measurement().median_us());
}

TEST_F(SweepVendorTest, OperatorsOfOtherKindsDoNotAskTheLibrary) {
  Start(Script("1000"));
  const v1::Sweep sweep = RunSweep(Spec(4));
  ASSERT_EQ(sweep.state(), v1::DONE) << sweep.message();
  EXPECT_TRUE(VendorTrials(sweep.name()).empty());
}

}  // namespace
}  // namespace rooftune

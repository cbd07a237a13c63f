// RecordService, DeviceService, TemplateService and EstimateService as a client sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/server/test_daemon.h"

namespace rooftune {
namespace {

using testing::HasSubstr;

constexpr char kOp[] = "softmax rows=1024 cols=1024 dtype=bf16";

class RecordServiceTest : public testing::Test {
 protected:
  // A sweep that ended, with trials and a record.
  void AddSweep(TestDaemon& daemon, const std::string& id, const std::string& op, int trials,
                size_t message_bytes = 10) {
    v1::Sweep sweep;
    sweep.set_name(absl::StrCat("sweeps/", id));
    sweep.mutable_spec()->set_op(op);
    sweep.mutable_spec()->set_device(kGpuId);
    sweep.set_device_key(kGpuKey);
    sweep.set_state(v1::DONE);
    sweep.set_evidence(v1::MEASURED);
    sweep.mutable_create_time()->set_seconds(1'700'000'000);
    sweep.mutable_update_time()->set_seconds(1'700'000'000);
    sweep.mutable_end_time()->set_seconds(1'700'000'000);
    v1::Baseline* baseline = sweep.add_baseline();
    baseline->set_name("copy");
    baseline->set_outcome(v1::OK);
    baseline->mutable_measurement()->set_median_us(9);
    auto record = daemon.Record(op, kGpuKey, v1::MEASURED, trials);
    record.set_name(absl::StrCat("records/", id));
    record.set_sweep(sweep.name());
    sweep.add_record(record.name());
    ASSERT_TRUE(daemon.store.PutSweep(sweep).ok());
    for (int i = 0; i < trials; ++i) {
      v1::Trial trial;
      trial.set_name(absl::StrCat(sweep.name(), "/trials/", i));
      trial.set_index(i);
      trial.set_op(op);
      trial.set_device_key(kGpuKey);
      trial.set_template_id("softmax");
      trial.set_outcome(i % 4 == 3 ? v1::WRONG_RESULT : v1::OK);
      trial.set_message(std::string(message_bytes, 'm'));
      trial.set_evidence(i % 4 == 3 ? v1::COMPILED : v1::MEASURED);
      if (trial.outcome() == v1::OK) {
        trial.mutable_verification()->set_passed(true);
        trial.mutable_measurement()->set_median_us(10 + i);
      }
      const absl::Status put = daemon.store.PutTrial(trial);
      ASSERT_TRUE(put.ok()) << put;
    }
    daemon.Publish({record});
  }
  grpc::Status Export(const v1::ExportEvidenceRequest& request, std::vector<v1::ExportLine>* lines) {
    grpc::ClientContext context;
    SetDeadline(context);
    auto reader = records_->ExportEvidence(&context, request);
    v1::ExportLine line;
    while (reader->Read(&line)) lines->push_back(line);
    return reader->Finish();
  }
  static grpc::Status Import(TestDaemon& daemon, const std::vector<v1::ExportLine>& lines,
                             v1::ImportEvidenceResponse* response) {
    const auto stub = daemon.Stub<v1::RecordService>();
    grpc::ClientContext context;
    SetDeadline(context);
    auto writer = stub->ImportEvidence(&context, response);
    for (const auto& line : lines) {
      if (!writer->Write(line)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }

  TestDaemon daemon_;
  std::unique_ptr<v1::RecordService::Stub> records_ = daemon_.Stub<v1::RecordService>();
};

TEST_F(RecordServiceTest, PagesStayBelowTheMessageLimitAndMissNothing) {
  // 8 MiB of trials: an unmodified client reads them all.
  AddSweep(daemon_, "a", kOp, 2000, 4096);
  v1::ListTrialsRequest request;
  request.set_sweep("sweeps/a");
  request.set_page_size(1000);
  std::set<int> seen;
  int pages = 0;
  do {
    v1::ListTrialsResponse response;
    const auto status = Call(*records_, &v1::RecordService::Stub::ListTrials, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    for (const auto& trial : response.trial()) EXPECT_TRUE(seen.insert(trial.index()).second);
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty() && ++pages < 100);
  EXPECT_EQ(seen.size(), 2000u);
}

TEST_F(RecordServiceTest, FiltersTrialsByOutcome) {
  AddSweep(daemon_, "a", kOp, 8);
  v1::ListTrialsRequest request;
  request.set_sweep("sweeps/a");
  request.set_outcome(v1::WRONG_RESULT);
  v1::ListTrialsResponse response;
  ASSERT_TRUE(Call(*records_, &v1::RecordService::Stub::ListTrials, request, &response).ok());
  EXPECT_EQ(response.trial_size(), 2);
  request.set_sweep("sweeps/none");
  EXPECT_EQ(See(Call(*records_, &v1::RecordService::Stub::ListTrials, request, &response)).reason, "SWEEP_NOT_FOUND");
  request.set_sweep("nonsense");
  EXPECT_EQ(See(Call(*records_, &v1::RecordService::Stub::ListTrials, request, &response)).reason, "BAD_NAME");
}

TEST_F(RecordServiceTest, ListsRecordsByKindAndByOperator) {
  for (int i = 1; i <= 40; ++i) {
    daemon_.Publish(
        {daemon_.Record(absl::StrCat("softmax rows=", i, " cols=64 dtype=bf16"), kGpuKey, v1::MEASURED, i)});
  }
  v1::ListRecordsRequest request;
  v1::ListRecordsResponse response;
  request.set_op("softmax");
  request.set_page_size(1000);
  ASSERT_TRUE(Call(*records_, &v1::RecordService::Stub::ListRecords, request, &response).ok());
  EXPECT_EQ(response.record_size(), 40);
  EXPECT_EQ(response.record(0).measurement().sample_us_size(), 1) << "samples are here";
  request.set_op("softmax cols=64 rows=33 dtype=bf16");
  ASSERT_TRUE(Call(*records_, &v1::RecordService::Stub::ListRecords, request, &response).ok());
  ASSERT_EQ(response.record_size(), 1);
  EXPECT_EQ(response.record(0).config().at("block"), 33);
  request.set_op("rmsnorm");
  ASSERT_TRUE(Call(*records_, &v1::RecordService::Stub::ListRecords, request, &response).ok());
  EXPECT_EQ(response.record_size(), 0);
  request.set_op("sofmax");
  EXPECT_EQ(See(Call(*records_, &v1::RecordService::Stub::ListRecords, request, &response)).reason, "UNKNOWN_OP");
}

TEST_F(RecordServiceTest, ExportThenImportIntoAnEmptyDaemonGivesTheSameAnswers) {
  AddSweep(daemon_, "a", kOp, 5);
  AddSweep(daemon_, "b", "softmax rows=8 cols=8 dtype=fp32", 3);
  v1::ExportEvidenceRequest request;
  request.set_suite("rows");
  std::vector<v1::ExportLine> lines;
  const auto exported = Export(request, &lines);
  ASSERT_TRUE(exported.ok()) << exported.error_message();
  ASSERT_EQ(lines.size(), 1u + 2 + 8 + 2 + 2);
  EXPECT_EQ(lines[0].run().suite(), "rows");
  EXPECT_EQ(lines[0].run().device_key(), kGpuKey);
  EXPECT_EQ(lines[0].run().device().id(), "h200-sxm");
  TestDaemon other;
  v1::ImportEvidenceResponse response;
  const auto imported = Import(other, lines, &response);
  ASSERT_TRUE(imported.ok()) << imported.error_message();
  EXPECT_EQ(response.sweeps(), 2);
  EXPECT_EQ(response.trials(), 8);
  EXPECT_EQ(response.records(), 2);
  v1::GetBestConfigRequest ask;
  ask.set_op(kOp);
  v1::GetBestConfigResponse mine, theirs;
  auto here = daemon_.Stub<v1::ConfigService>();
  auto there = other.Stub<v1::ConfigService>();
  ASSERT_TRUE(Call(*here, &v1::ConfigService::Stub::GetBestConfig, ask, &mine).ok());
  const auto status = Call(*there, &v1::ConfigService::Stub::GetBestConfig, ask, &theirs);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(theirs.record().name(), mine.record().name());
  // Twice is once.
  ASSERT_TRUE(Import(other, lines, &response).ok());
  EXPECT_EQ(response.records(), 0);
  EXPECT_GT(response.duplicates(), 0);
}

TEST_F(RecordServiceTest, ExportsOnlyWhatEndedAndSaysSoOtherwise) {
  std::vector<v1::ExportLine> lines;
  EXPECT_EQ(See(Export({}, &lines)).reason, "NOTHING_TO_EXPORT");
  v1::SweepSpec spec;
  spec.set_op(kOp);
  spec.set_device(kGpuId);
  ASSERT_TRUE(daemon_.manager->Start(spec, "").ok());
  EXPECT_EQ(See(Export({}, &lines)).reason, "NOTHING_TO_EXPORT");
  v1::ExportEvidenceRequest request;
  request.add_sweep("sweeps/s1");
  EXPECT_EQ(See(Export(request, &lines)).reason, "SWEEP_RUNNING");
  request.set_sweep(0, "sweeps/none");
  EXPECT_EQ(See(Export(request, &lines)).reason, "SWEEP_NOT_FOUND");
  EXPECT_TRUE(lines.empty());
}

TEST_F(RecordServiceTest, ImportsAreLimitedAndAllOrNothing) {
  AddSweep(daemon_, "a", kOp, 5);
  std::vector<v1::ExportLine> lines;
  ASSERT_TRUE(Export({}, &lines).ok());
  TestDaemon::Options options;
  options.limits.import_lines = 4;
  TestDaemon small(options);
  v1::ImportEvidenceResponse response;
  EXPECT_EQ(See(Import(small, lines, &response)).reason, "IMPORT_TOO_LARGE");
  EXPECT_EQ(See(Import(small, {}, &response)).reason, "EMPTY_IMPORT");
  lines.erase(lines.begin());  // no run
  TestDaemon other;
  const SeenError error = See(Import(other, lines, &response));
  EXPECT_EQ(error.code, grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(error.domain, "rooftune");
  EXPECT_EQ(other.core->context.index.snapshot()->size(), 0u);
}

TEST_F(RecordServiceTest, GetsRecordsByName) {
  AddSweep(daemon_, "a", kOp, 1);
  v1::GetRecordRequest request;
  v1::TuningRecord record;
  request.set_name("records/a");
  ASSERT_TRUE(Call(*records_, &v1::RecordService::Stub::GetRecord, request, &record).ok());
  EXPECT_EQ(record.op(), kOp);
  request.set_name("records/none");
  EXPECT_EQ(See(Call(*records_, &v1::RecordService::Stub::GetRecord, request, &record)).reason, "RECORD_NOT_FOUND");
}

TEST(DeviceService, ListsItsDevicesAndKnownModels) {
  TestDaemon daemon;
  auto stub = daemon.Stub<v1::DeviceService>();
  v1::ListDevicesRequest request;
  v1::ListDevicesResponse own, all;
  ASSERT_TRUE(Call(*stub, &v1::DeviceService::Stub::ListDevices, request, &own).ok());
  ASSERT_EQ(own.device_size(), 2);
  EXPECT_EQ(own.device(0).id(), kGpuId);
  request.set_include_profiles(true);
  ASSERT_TRUE(Call(*stub, &v1::DeviceService::Stub::ListDevices, request, &all).ok());
  // The modelled H200 is one of its own already.
  EXPECT_EQ(all.device_size(), 1 + static_cast<int>(daemon.catalog.all().size()));
  std::set<std::string> ids;
  for (const auto& device : all.device()) EXPECT_TRUE(ids.insert(device.id()).second) << device.id();
  v1::GetDeviceRequest get;
  v1::Device device;
  for (const std::string& name : {std::string("cuda:0"), std::string("devices/cuda-0"), std::string(kGpuKey)}) {
    get.set_name(name);
    ASSERT_TRUE(Call(*stub, &v1::DeviceService::Stub::GetDevice, get, &device).ok()) << name;
    EXPECT_EQ(device.id(), kGpuId);
  }
  for (const std::string& name : {std::string("cuda:1"), std::string("nvidia-b200/148sm"), std::string("devices/x")}) {
    get.set_name(name);
    EXPECT_EQ(See(Call(*stub, &v1::DeviceService::Stub::GetDevice, get, &device)).reason, "UNKNOWN_DEVICE") << name;
  }
}

TEST(TemplateService, ListsShowsAndChecks) {
  TestDaemon daemon;
  auto stub = daemon.Stub<v1::TemplateService>();
  v1::ListTemplatesResponse list;
  ASSERT_TRUE(Call(*stub, &v1::TemplateService::Stub::ListTemplates, v1::ListTemplatesRequest(), &list).ok());
  EXPECT_GE(list.template__size(), 1);
  EXPECT_GE(list.op_size(), 4);
  for (const auto& op : list.op()) {
    EXPECT_TRUE(daemon.library->ops().Parse(op.example()).ok()) << op.kind() << ": " << op.example();
  }
  v1::GetTemplateRequest get;
  get.set_id("softmax");
  v1::TemplateInfo info;
  ASSERT_TRUE(Call(*stub, &v1::TemplateService::Stub::GetTemplate, get, &info).ok());
  EXPECT_THAT(info.manifest(), HasSubstr("id: \"softmax\""));
  EXPECT_EQ(info.error_size(), 0);
  get.set_id("no such");
  EXPECT_EQ(See(Call(*stub, &v1::TemplateService::Stub::GetTemplate, get, &info)).reason, "UNKNOWN_TEMPLATE");

  v1::CheckTemplateRequest check;
  check.set_id("softmax");
  check.add_arch("sm_90");
  check.add_arch("sm_75");
  check.add_arch("banana");
  v1::CheckTemplateResponse checked;
  const auto status = Call(*stub, &v1::TemplateService::Stub::CheckTemplate, check, &checked);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(checked.result_size(), 3);
  EXPECT_EQ(checked.result(0).outcome(), v1::OK) << checked.result(0).message();
  EXPECT_EQ(checked.result(1).outcome(), v1::NOT_RUN);
  EXPECT_EQ(checked.result(2).outcome(), v1::NOT_RUN);
  EXPECT_GT(checked.valid_points(), 0);
  check.set_op("rmsnorm rows=8 cols=8 dtype=bf16");
  EXPECT_EQ(See(Call(*stub, &v1::TemplateService::Stub::CheckTemplate, check, &checked)).reason, "BAD_VALUE");
}

TEST(EstimateService, GivesWorkBoundsAndTheBestConfigurations) {
  TestDaemon daemon;
  auto stub = daemon.Stub<v1::EstimateService>();
  v1::EstimateRequest request;
  request.set_op("softmax rows=4096 cols=4096 dtype=bf16");
  request.set_device("model:h200-sxm");
  request.set_top(5);
  v1::EstimateResponse response;
  const auto status = Call(*stub, &v1::EstimateService::Stub::Estimate, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.evidence(), v1::ESTIMATED);
  EXPECT_EQ(response.work().bytes_read(), "33554432");
  EXPECT_EQ(response.work().bytes_written(), "33554432");
  EXPECT_GT(response.bounds().attainable_us(), 0);
  EXPECT_LE(response.bounds().floor_us(), response.bounds().attainable_us());
  EXPECT_GE(response.memory_bytes(), 2 * 33554432);
  EXPECT_TRUE(response.fits());
  ASSERT_EQ(response.candidate_size(), 5);
  for (int i = 1; i < 5; ++i) {
    EXPECT_LE(response.candidate(i - 1).prediction().time_us(), response.candidate(i).prediction().time_us());
  }
  EXPECT_GE(response.candidate(0).prediction().time_us(), response.bounds().floor_us());
  // Larger than the memory, but still an answer.
  request.set_op("softmax rows=1073741824 cols=1024 dtype=bf16");
  ASSERT_TRUE(Call(*stub, &v1::EstimateService::Stub::Estimate, request, &response).ok());
  EXPECT_FALSE(response.fits());
  request.set_top(101);
  EXPECT_EQ(See(Call(*stub, &v1::EstimateService::Stub::Estimate, request, &response)).reason, "BAD_VALUE");
  request.set_top(1);
  request.set_device("nvidia-b200/148sm/180gb/1000w");
  EXPECT_EQ(See(Call(*stub, &v1::EstimateService::Stub::Estimate, request, &response)).reason, "NO_PROFILE");
}

}  // namespace
}  // namespace rooftune

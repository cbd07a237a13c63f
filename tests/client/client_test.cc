#include "client/client.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "google/rpc/error_details.pb.h"
#include "tests/client/fake_daemon.h"

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    FillCanned(fake_.canned);
    Client::Options options;
    options.address = fake_.address();
    client_ = Client::Create(options);
  }

  FakeDaemon fake_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, ConfigurationsComeAsTheyWereSent) {
  ASSERT_TRUE(client_->Ping().ok());
  v1::GetBestConfigRequest request;
  request.set_op("gemm m=64");
  request.set_miss_policy(v1::ESTIMATE);
  const auto best = client_->GetBestConfig(request, absl::Seconds(5));
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*best, fake_.canned.best));
  EXPECT_EQ(fake_.Request("GetBestConfig"), request.ShortDebugString());

  *fake_.canned.batch.add_item()->mutable_response() = fake_.canned.best;
  v1::BatchGetBestConfigsRequest batch;
  batch.add_op("gemm m=64");
  const auto answers = client_->BatchGetBestConfigs(batch);
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ(answers->item_size(), 1);
  const auto estimate = client_->Estimate(v1::EstimateRequest());
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_EQ(estimate->device_key(), "model/h200-sxm");
}

TEST_F(ClientTest, TakesAnswersBeyondGrpcsDefaultLimit) {
  fake_.canned.batch.add_item()->mutable_error()->set_message(std::string(8 << 20, 'x'));
  const auto answers = client_->BatchGetBestConfigs(v1::BatchGetBestConfigsRequest());
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ(answers->item(0).error().message().size(), size_t{8} << 20);
}

TEST_F(ClientTest, KernelIsPutTogetherAndChecked) {
  v1::GetKernelRequest request;
  request.set_record("records/r1");
  const auto kernel = client_->GetKernel(request);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(kernel->cubin, fake_.canned.binary);
  EXPECT_EQ(kernel->record.name(), "records/r1");

  request.set_offset(10);
  const auto rest = client_->GetKernel(request);
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->cubin, fake_.canned.binary.substr(10));
}

TEST_F(ClientTest, DamagedKernelIsRefused) {
  fake_.canned.binary[3] ^= 1;
  const auto kernel = client_->GetKernel(v1::GetKernelRequest());
  EXPECT_EQ(kernel.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ErrorReason(kernel.status()), "DIGEST_MISMATCH");
}

TEST_F(ClientTest, ErrorsCarryReasonAndFacts) {
  fake_.canned.error =
      Error(absl::StatusCode::kNotFound, "NOT_TUNED", "not tuned yet", {{"command", "rooftune tune x"}});
  const auto best = client_->GetBestConfig(v1::GetBestConfigRequest(), absl::Seconds(5));
  EXPECT_EQ(best.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(best.status().message(), "not tuned yet");
  EXPECT_EQ(ErrorReason(best.status()), "NOT_TUNED");
  EXPECT_THAT(ErrorMetadata(best.status()), ElementsAre(Pair("command", "rooftune tune x")));
  // Streams too.
  EXPECT_EQ(ErrorReason(client_->GetKernel(v1::GetKernelRequest()).status()), "NOT_TUNED");
  EXPECT_EQ(ErrorReason(client_->WatchSweep("sweeps/s1", [](const auto&) { return true; }).status()), "NOT_TUNED");
  EXPECT_EQ(ErrorReason(client_->ImportEvidence({}).status()), "NOT_TUNED");
  EXPECT_EQ(ErrorReason(client_->ExportEvidence({}, [](const auto&) { return absl::OkStatus(); })), "NOT_TUNED");
}

TEST_F(ClientTest, ErrorsWithoutDetailsKeepCodeAndText) {
  fake_.canned.error = absl::UnimplementedError("no such method here");
  fake_.canned.bare_error = true;
  const absl::Status status = client_->Estimate(v1::EstimateRequest()).status();
  EXPECT_EQ(status, absl::UnimplementedError("no such method here"));
}

TEST_F(ClientTest, UnavailableWithAReasonIsTheServersWord) {
  fake_.canned.error = Error(absl::StatusCode::kUnavailable, "DEVICE_LOST", "cuda:0 is lost");
  EXPECT_EQ(ErrorReason(client_->GetDevice("cuda:0").status()), "DEVICE_LOST");
}

TEST_F(ClientTest, NoDaemonSaysWhereAndWhatToDo) {
  Client::Options options;
  options.address = absl::StrCat("unix:", fake_.dir(), "/nobody");
  const absl::Status status = Client::Create(options)->Ping();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrorReason(status), "NO_DAEMON");
  EXPECT_THAT(std::string(status.message()), HasSubstr(options.address));
  EXPECT_THAT(std::string(status.message()), HasSubstr("ROOFTUNE_ADDRESS"));
}

TEST_F(ClientTest, SweepsAreCreatedByName) {
  v1::CreateSweepRequest request;
  v1::Sweep planned;
  auto name = client_->CreateSweep(request, &planned);
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(*name, "sweeps/s1");

  request.set_validate_only(true);
  fake_.canned.created.mutable_response()->PackFrom(fake_.canned.sweep);
  name = client_->CreateSweep(request, &planned);
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(planned.progress().valid_points(), 120);
  fake_.canned.created.mutable_response()->PackFrom(fake_.canned.record);
  EXPECT_EQ(client_->CreateSweep(request, &planned).status().code(), absl::StatusCode::kInternal);

  EXPECT_EQ(client_->GetSweep("sweeps/s1")->state(), v1::DONE);
  EXPECT_EQ(client_->ListSweeps(v1::ListSweepsRequest())->sweep_size(), 1);
  EXPECT_EQ(client_->CancelSweep("sweeps/s1")->name(), "sweeps/s1");
  EXPECT_TRUE(client_->ResumeSweep("sweeps/s1").ok());
  EXPECT_EQ(fake_.Request("ResumeSweep"), "name: \"sweeps/s1\"");
}

TEST_F(ClientTest, WatchSeesEveryChangeAndReturnsTheEnd) {
  std::vector<v1::SweepState> states;
  const auto end = client_->WatchSweep("sweeps/s1", [&](const v1::Sweep& sweep) {
    if (states.empty() || states.back() != sweep.state()) states.push_back(sweep.state());
    return true;
  });
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->state(), v1::DONE);
  if (states.front() == v1::SWEEP_STATE_UNSPECIFIED) states.erase(states.begin());  // a tick came first
  EXPECT_THAT(states, ElementsAre(v1::RUNNING, v1::DONE));
}

TEST_F(ClientTest, WatchCanBeLeftWhileTheDaemonIsSilent) {
  fake_.canned.watch.pop_back();
  fake_.canned.watch_hangs = true;
  const auto end =
      client_->WatchSweep("sweeps/s1", [&](const v1::Sweep&) { return !fake_.watching.HasBeenNotified(); });
  EXPECT_EQ(end.status().code(), absl::StatusCode::kCancelled);
  // The daemon sees it, too, so that nothing is left behind there.
  EXPECT_TRUE(fake_.gone.WaitForNotificationWithTimeout(absl::Seconds(10)));
}

TEST_F(ClientTest, RecordsAndTrials) {
  EXPECT_EQ(client_->ListTrials(v1::ListTrialsRequest())->trial_size(), 1);
  EXPECT_EQ(client_->ListRecords(v1::ListRecordsRequest())->record_size(), 1);
  EXPECT_EQ(client_->GetRecord("records/r1")->name(), "records/r1");
  EXPECT_EQ(fake_.Request("GetRecord"), "name: \"records/r1\"");
}

TEST_F(ClientTest, EvidenceStreamsBothWays) {
  std::vector<v1::ExportLine> lines;
  const auto collect = [&](const v1::ExportLine& line) {
    lines.push_back(line);
    return absl::OkStatus();
  };
  ASSERT_TRUE(client_->ExportEvidence(v1::ExportEvidenceRequest(), collect).ok());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0].has_run());
  EXPECT_TRUE(lines[2].has_record());
  // The caller's own error comes back as it is.
  const absl::Status full = absl::ResourceExhaustedError("full");
  EXPECT_EQ(client_->ExportEvidence(v1::ExportEvidenceRequest(), [&](const auto&) { return full; }), full);

  const auto imported = client_->ImportEvidence(lines);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->trials(), 2);
  EXPECT_EQ(fake_.Calls("ImportEvidence"), 3);
}

TEST_F(ClientTest, DevicesAndCalibration) {
  EXPECT_EQ(client_->ListDevices(true)->device_size(), 1);
  EXPECT_EQ(fake_.Request("ListDevices"), "include_profiles: true");
  EXPECT_EQ(client_->GetDevice("cuda:0")->id(), "cuda:0");
  const auto calibration = client_->CalibrateDevice("cuda:0");
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  EXPECT_DOUBLE_EQ(calibration->wall_s(), 31.5);
  EXPECT_EQ(fake_.Calls("WaitOperation"), 1);

  // An operation that failed keeps its reason.
  google::rpc::ErrorInfo info;
  info.set_reason("GPU_LEASED");
  auto& error = *fake_.canned.calibrated.mutable_error();
  error.set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
  error.set_message("another process has it");
  error.add_details()->PackFrom(info);
  const absl::Status status = client_->CalibrateDevice("cuda:0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(status), "GPU_LEASED");
}

TEST_F(ClientTest, Templates) {
  EXPECT_EQ(client_->ListTemplates()->template__size(), 2);
  EXPECT_EQ(client_->GetTemplate("gemm_mma")->revision(), "abc");
  v1::CheckTemplateRequest request;
  request.set_id("gemm_mma");
  EXPECT_EQ(client_->CheckTemplate(request)->result_size(), 1);
}

TEST(DefaultAddressTest, EnvironmentDecides) {
  setenv("ROOFTUNE_ADDRESS", "localhost:1", 1);
  EXPECT_EQ(DefaultAddress(), "localhost:1");
  setenv("ROOFTUNE_ADDRESS", "", 1);
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(DefaultAddress(), "unix:/run/user/7/rooftune/rooftune.sock");
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_THAT(DefaultAddress(), ::testing::MatchesRegex("unix:/tmp/rooftune-[0-9]+/rooftune.sock"));
}

}  // namespace
}  // namespace rooftune

// SweepService, Operations, health and reflection as a client sees them.
#include <gmock/gmock.h>
#include <google/longrunning/operations_proto.grpc.pb.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/error.h"
#include "tests/server/test_daemon.h"

namespace rooftune {
namespace {

using google::longrunning::Operation;
using google::longrunning::Operations;
using testing::HasSubstr;

constexpr char kOp[] = "softmax rows=1024 cols=1024 dtype=bf16";

class SweepServiceTest : public testing::Test {
 protected:
  explicit SweepServiceTest(TestDaemon::Options options = {}) : daemon_(std::move(options)) {}

  Operation Create(const std::string& op = kOp) {
    v1::CreateSweepRequest request;
    request.mutable_spec()->set_op(op);
    request.set_request_id(op);
    Operation operation;
    const auto status = Call(*sweeps_, &v1::SweepService::Stub::CreateSweep, request, &operation);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return operation;
  }
  grpc::Status Wait(const std::string& name, Operation* operation, int64_t timeout_ms = -1) {
    google::longrunning::WaitOperationRequest request;
    request.set_name(name);
    if (timeout_ms >= 0) request.mutable_timeout()->set_nanos(static_cast<int32_t>(timeout_ms * 1'000'000));
    return Call(*operations_, &Operations::Stub::WaitOperation, request, operation);
  }
  Operation GetOperation(const std::string& name) {
    google::longrunning::GetOperationRequest request;
    request.set_name(name);
    Operation operation;
    EXPECT_TRUE(Call(*operations_, &Operations::Stub::GetOperation, request, &operation).ok());
    return operation;
  }
  // A watch of the first sweep.
  std::unique_ptr<grpc::ClientReader<v1::Sweep>> Watch(grpc::ClientContext& context) {
    v1::WatchSweepRequest request;
    request.set_name("sweeps/s1");
    SetDeadline(context);
    return sweeps_->WatchSweep(&context, request);
  }
  void AwaitWatchers(size_t count) {
    while (daemon_.core->context.hub.watchers() != count) std::this_thread::yield();
  }

  TestDaemon daemon_;
  std::unique_ptr<v1::SweepService::Stub> sweeps_ = daemon_.Stub<v1::SweepService>();
  std::unique_ptr<v1::DeviceService::Stub> devices_ = daemon_.Stub<v1::DeviceService>();
  std::unique_ptr<Operations::Stub> operations_ = daemon_.Stub<Operations>();
};

TEST_F(SweepServiceTest, CreatesAnOperationOfTheCanonicalOperator) {
  const Operation operation = Create("softmax dtype=bf16 cols=1024 rows=1024");
  EXPECT_EQ(operation.name(), "operations/s1");
  EXPECT_FALSE(operation.done());
  EXPECT_TRUE(operation.metadata().Is<v1::SweepProgress>());
  v1::GetSweepRequest request;
  request.set_name("sweeps/s1");
  v1::Sweep sweep;
  ASSERT_TRUE(Call(*sweeps_, &v1::SweepService::Stub::GetSweep, request, &sweep).ok());
  EXPECT_EQ(sweep.spec().op(), kOp);
  EXPECT_EQ(sweep.spec().device(), kGpuId) << "the first device";
  EXPECT_EQ(sweep.request_id(), "softmax dtype=bf16 cols=1024 rows=1024");
}

TEST_F(SweepServiceTest, ValidateOnlyStartsNothing) {
  v1::CreateSweepRequest request;
  request.mutable_spec()->set_op(kOp);
  request.set_validate_only(true);
  Operation operation;
  ASSERT_TRUE(Call(*sweeps_, &v1::SweepService::Stub::CreateSweep, request, &operation).ok());
  EXPECT_TRUE(operation.done());
  v1::Sweep sweep;
  ASSERT_TRUE(operation.response().UnpackTo(&sweep));
  EXPECT_EQ(sweep.progress().valid_points(), 42);
  EXPECT_EQ(daemon_.manager->starts(), 0);
}

TEST_F(SweepServiceTest, OperationsFollowTheSweep) {
  Create();
  ASSERT_TRUE(daemon_.manager->Progress("sweeps/s1", 3).ok());
  v1::SweepProgress progress;
  ASSERT_TRUE(GetOperation("operations/s1").metadata().UnpackTo(&progress));
  EXPECT_EQ(progress.finished(), 3);
  ASSERT_TRUE(daemon_.manager->Change("sweeps/s1", v1::DONE, "").ok());
  v1::Sweep sweep;
  ASSERT_TRUE(GetOperation("operations/s1").response().UnpackTo(&sweep));
  EXPECT_EQ(sweep.state(), v1::DONE);
  ASSERT_TRUE(daemon_.manager->Change("sweeps/s1", v1::FAILED, "device lost").ok());
  const Operation failed = GetOperation("operations/s1");
  EXPECT_TRUE(failed.done());
  EXPECT_THAT(failed.error().message(), HasSubstr("device lost"));
  EXPECT_EQ(failed.error().details_size(), 1);
}

TEST_F(SweepServiceTest, CancelAndResume) {
  Create();
  google::longrunning::CancelOperationRequest cancel;
  cancel.set_name("operations/s1");
  google::protobuf::Empty nothing;
  ASSERT_TRUE(Call(*operations_, &Operations::Stub::CancelOperation, cancel, &nothing).ok());
  const Operation cancelled = GetOperation("operations/s1");
  EXPECT_TRUE(cancelled.done());
  EXPECT_EQ(cancelled.error().code(), grpc::StatusCode::CANCELLED);
  v1::ResumeSweepRequest resume;
  resume.set_name("sweeps/s1");
  Operation resumed;
  ASSERT_TRUE(Call(*sweeps_, &v1::SweepService::Stub::ResumeSweep, resume, &resumed).ok());
  EXPECT_FALSE(resumed.done());
}

TEST_F(SweepServiceTest, ListsSweepsAndOperationsByPage) {
  for (int i = 0; i < 5; ++i) Create(absl::StrCat("softmax rows=", i + 1, " cols=8 dtype=fp32"));
  v1::ListSweepsRequest request;
  request.set_page_size(2);
  std::set<std::string> names;
  int pages = 0;
  do {
    v1::ListSweepsResponse response;
    ASSERT_TRUE(Call(*sweeps_, &v1::SweepService::Stub::ListSweeps, request, &response).ok());
    EXPECT_LE(response.sweep_size(), 2);
    for (const auto& sweep : response.sweep()) names.insert(sweep.name());
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty() && pages < 10);
  EXPECT_EQ(names.size(), 5u);
  google::longrunning::ListOperationsRequest list;
  google::longrunning::ListOperationsResponse operations;
  ASSERT_TRUE(Call(*operations_, &Operations::Stub::ListOperations, list, &operations).ok());
  EXPECT_EQ(operations.operations_size(), 5);
  request.set_page_token("");
  request.set_state(v1::DONE);
  v1::ListSweepsResponse none;
  ASSERT_TRUE(Call(*sweeps_, &v1::SweepService::Stub::ListSweeps, request, &none).ok());
  EXPECT_EQ(none.sweep_size(), 0);
}

TEST_F(SweepServiceTest, WaitReturnsAtTheEndOrAfterItsTimeout) {
  Create();
  Operation operation;
  ASSERT_TRUE(Wait("operations/s1", &operation, 0).ok());
  EXPECT_FALSE(operation.done());
  ASSERT_TRUE(Wait("operations/s1", &operation, 20).ok());
  EXPECT_FALSE(operation.done());
  AwaitWatchers(0);
  std::thread waiter([&] { EXPECT_TRUE(Wait("operations/s1", &operation).ok()); });
  AwaitWatchers(1);
  ASSERT_TRUE(daemon_.manager->Change("sweeps/s1", v1::DONE, "").ok());
  waiter.join();
  EXPECT_TRUE(operation.done());
  ASSERT_TRUE(Wait("operations/s1", &operation).ok()) << "what has ended needs no waiting";
}

TEST_F(SweepServiceTest, ACalibrationIsAnOperation) {
  daemon_.manager->HoldCalibrations(true);
  v1::CalibrateDeviceRequest request;
  request.set_name(kGpuId);
  Operation started, again;
  ASSERT_TRUE(Call(*devices_, &v1::DeviceService::Stub::CalibrateDevice, request, &started).ok());
  ASSERT_TRUE(Call(*devices_, &v1::DeviceService::Stub::CalibrateDevice, request, &again).ok());
  EXPECT_EQ(started.name(), "operations/calibrate-cuda-0-1");
  EXPECT_EQ(again.name(), started.name()) << "one at a time on a device";
  Operation done;
  ASSERT_TRUE(Wait(started.name(), &done, 10).ok());
  EXPECT_FALSE(done.done());
  google::longrunning::CancelOperationRequest cancel;
  cancel.set_name(started.name());
  google::protobuf::Empty nothing;
  EXPECT_EQ(See(Call(*operations_, &Operations::Stub::CancelOperation, cancel, &nothing)).reason, "NOT_CANCELLABLE");
  daemon_.manager->HoldCalibrations(false);
  ASSERT_TRUE(Wait(started.name(), &done).ok());
  device::v1::Calibration calibration;
  ASSERT_TRUE(done.response().UnpackTo(&calibration));
  EXPECT_EQ(calibration.graph_node_us(), 1.5);
  google::longrunning::ListOperationsResponse list;
  ASSERT_TRUE(
      Call(*operations_, &Operations::Stub::ListOperations, google::longrunning::ListOperationsRequest(), &list).ok());
  EXPECT_EQ(list.operations_size(), 1);
  request.set_name(kModelId);
  EXPECT_EQ(See(Call(*devices_, &v1::DeviceService::Stub::CalibrateDevice, request, &started)).reason, "NOT_A_GPU");
}

TEST_F(SweepServiceTest, TriesAConfiguration) {
  v1::TryConfigRequest request;
  request.set_op("softmax dtype=bf16 cols=1024 rows=1024");
  request.set_template_id("softmax");
  (*request.mutable_config())["block"] = 256;
  request.set_clock(v1::SUSTAINED);
  v1::Trial trial;
  ASSERT_TRUE(Call(*sweeps_, &v1::SweepService::Stub::TryConfig, request, &trial).ok());
  EXPECT_EQ(trial.op(), kOp) << "the canonical operator";
  EXPECT_EQ(trial.config().at("block"), 256);
  EXPECT_EQ(trial.measurement().median_us(), 20);
  EXPECT_EQ(daemon_.manager->last_race().device(), kGpuId) << "the first device";
  EXPECT_EQ(daemon_.manager->last_race().clock(), v1::SUSTAINED);
  EXPECT_EQ(daemon_.manager->starts(), 0) << "nothing is stored";
  request.set_device("cuda:7");
  EXPECT_EQ(See(Call(*sweeps_, &v1::SweepService::Stub::TryConfig, request, &trial)).reason, "UNKNOWN_DEVICE");
}

TEST_F(SweepServiceTest, RacesConfigurations) {
  v1::RaceConfigsRequest request;
  request.set_op(kOp);
  for (const int block : {128, 256}) (*request.add_entrant()->mutable_config())["block"] = block;
  v1::RaceConfigsResponse response;
  ASSERT_TRUE(Call(*sweeps_, &v1::SweepService::Stub::RaceConfigs, request, &response).ok());
  ASSERT_EQ(response.trial_size(), 2);
  EXPECT_EQ(response.trial(1).config().at("block"), 256);
}

TEST_F(SweepServiceTest, B11_AReplayComparesAndNamesWhatDiffers) {
  Create();
  v1::Trial stored;
  stored.set_name("sweeps/s1/trials/3");
  stored.set_index(3);
  stored.set_op(kOp);
  stored.set_outcome(v1::OK);
  stored.set_device_key(kGpuKey);
  stored.set_evidence(v1::MEASURED);
  (*stored.mutable_config())["block"] = 64;
  stored.mutable_measurement()->set_median_us(20.1);
  stored.mutable_environment()->set_driver("580.1");
  ASSERT_TRUE(daemon_.store.PutTrial(stored).ok());
  v1::ReplayTrialRequest request;
  request.set_name(stored.name());
  v1::ReplayTrialResponse response;
  ASSERT_TRUE(Call(*sweeps_, &v1::SweepService::Stub::ReplayTrial, request, &response).ok());
  EXPECT_TRUE(response.agrees());
  EXPECT_EQ(response.before().name(), stored.name());
  EXPECT_EQ(response.after().config().at("block"), 64);
  EXPECT_EQ(response.difference().at("driver"), "580.1 → 580.2");
  EXPECT_EQ(response.difference().count("nvrtc"), 0u);
  EXPECT_EQ(response.difference().count("template_revision"), 0u);
  daemon_.manager->SetRaceTime(40);
  ASSERT_TRUE(Call(*sweeps_, &v1::SweepService::Stub::ReplayTrial, request, &response).ok());
  EXPECT_FALSE(response.agrees());
  EXPECT_NEAR(response.ratio(), 40 / 20.1, 1e-9);
  request.set_name("sweeps/s1/trials/4");
  EXPECT_EQ(See(Call(*sweeps_, &v1::SweepService::Stub::ReplayTrial, request, &response)).reason, "TRIAL_NOT_FOUND");
  request.set_name("sweeps/s1");
  EXPECT_EQ(See(Call(*sweeps_, &v1::SweepService::Stub::ReplayTrial, request, &response)).reason, "BAD_NAME");
}

class PacedWatchTest : public SweepServiceTest {
 protected:
  static TestDaemon::Options Paced() {
    TestDaemon::Options options;
    options.watch_pace = {absl::Milliseconds(5), absl::Milliseconds(50)};
    return options;
  }
  PacedWatchTest() : SweepServiceTest(Paced()) {}
};

TEST_F(PacedWatchTest, WatchSendsStatesHeartbeatsAndEnds) {
  Create();
  grpc::ClientContext context;
  auto reader = Watch(context);
  v1::Sweep sweep;
  ASSERT_TRUE(reader->Read(&sweep));
  EXPECT_EQ(sweep.state(), v1::QUEUED);
  ASSERT_TRUE(reader->Read(&sweep));
  EXPECT_EQ(sweep.state(), v1::QUEUED) << "a heartbeat";
  for (int i = 1; i <= 1000; ++i) ASSERT_TRUE(daemon_.manager->Progress("sweeps/s1", i).ok());
  ASSERT_TRUE(daemon_.manager->Change("sweeps/s1", v1::DONE, "").ok());
  int messages = 0, finished = 0;
  while (reader->Read(&sweep)) {
    ++messages;
    EXPECT_GE(sweep.progress().finished(), finished);
    finished = sweep.progress().finished();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(sweep.state(), v1::DONE);
  EXPECT_EQ(finished, 1000);
  EXPECT_LT(messages, 900) << "changes that come too fast are joined";
  AwaitWatchers(0);
}

TEST_F(SweepServiceTest, WatchingWhatHasEndedSendsItOnce) {
  Create();
  ASSERT_TRUE(daemon_.manager->Change("sweeps/s1", v1::DONE, "").ok());
  grpc::ClientContext context;
  auto reader = Watch(context);
  v1::Sweep sweep;
  EXPECT_TRUE(reader->Read(&sweep));
  EXPECT_FALSE(reader->Read(&sweep));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(SweepServiceTest, ManyWatchersDoNotHoldUpLookups) {
  Create();
  v1::WatchSweepRequest request;
  request.set_name("sweeps/s1");
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::Sweep>>> readers;
  v1::Sweep sweep;
  for (int i = 0; i < 64; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    SetDeadline(*contexts.back());
    readers.push_back(sweeps_->WatchSweep(contexts.back().get(), request));
    ASSERT_TRUE(readers.back()->Read(&sweep));
  }
  auto config = daemon_.Stub<v1::ConfigService>();
  for (int i = 0; i < 100; ++i) {
    v1::PingResponse pong;
    ASSERT_TRUE(Call(*config, &v1::ConfigService::Stub::Ping, v1::PingRequest(), &pong).ok());
  }
  // Draining ends them all at once, with a reason.
  daemon_.core->BeginDrain();
  for (auto& reader : readers) {
    while (reader->Read(&sweep)) {
    }
    EXPECT_EQ(See(reader->Finish()).reason, "DRAINING");
  }
  daemon_.server->Shutdown(absl::Seconds(5));
}

TEST_F(SweepServiceTest, AWatcherThatGoesAwayIsForgotten) {
  Create();
  grpc::ClientContext context;
  auto reader = Watch(context);
  v1::Sweep sweep;
  ASSERT_TRUE(reader->Read(&sweep));
  AwaitWatchers(1);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  AwaitWatchers(0);
}

TEST_F(SweepServiceTest, ErrorsCarryTheirReason) {
  Operation operation;
  v1::CreateSweepRequest create;
  create.mutable_spec()->set_op("gemm m=0");
  EXPECT_EQ(See(Call(*sweeps_, &v1::SweepService::Stub::CreateSweep, create, &operation)).domain, "rooftune");
  create.mutable_spec()->set_op(kOp);
  create.set_request_id(std::string(200, 'x'));
  EXPECT_EQ(See(Call(*sweeps_, &v1::SweepService::Stub::CreateSweep, create, &operation)).reason, "BAD_VALUE");
  create.set_request_id("");
  daemon_.manager->FailStarts(Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "64 sweeps wait"));
  EXPECT_EQ(See(Call(*sweeps_, &v1::SweepService::Stub::CreateSweep, create, &operation)).reason, "QUEUE_FULL");
  v1::GetSweepRequest get;
  v1::Sweep sweep;
  for (const std::string& name : {std::string("s1"), std::string("sweeps/"), std::string("sweeps/a/b"),
                                  absl::StrCat("sweeps/", std::string(500, 'x'))}) {
    get.set_name(name);
    EXPECT_EQ(See(Call(*sweeps_, &v1::SweepService::Stub::GetSweep, get, &sweep)).reason, "BAD_NAME") << name;
  }
  get.set_name("sweeps/none");
  EXPECT_EQ(See(Call(*sweeps_, &v1::SweepService::Stub::GetSweep, get, &sweep)).reason, "SWEEP_NOT_FOUND");
  EXPECT_EQ(See(Wait("operations/none", &operation)).reason, "SWEEP_NOT_FOUND");
  EXPECT_EQ(See(Wait("operations/calibrate-x-1", &operation)).reason, "UNKNOWN_OPERATION");
  google::longrunning::DeleteOperationRequest remove;
  google::protobuf::Empty nothing;
  EXPECT_EQ(See(Call(*operations_, &Operations::Stub::DeleteOperation, remove, &nothing)).reason, "NOT_SUPPORTED");
  google::longrunning::ListOperationsRequest list;
  list.set_filter("done=true");
  google::longrunning::ListOperationsResponse listed;
  EXPECT_EQ(See(Call(*operations_, &Operations::Stub::ListOperations, list, &listed)).reason, "FILTER_NOT_SUPPORTED");
  v1::ListSweepsRequest page;
  page.set_page_size(-1);
  v1::ListSweepsResponse pages;
  EXPECT_EQ(See(Call(*sweeps_, &v1::SweepService::Stub::ListSweeps, page, &pages)).reason, "BAD_VALUE");
  page.set_page_size(0);
  page.set_page_token("made up");
  EXPECT_EQ(See(Call(*sweeps_, &v1::SweepService::Stub::ListSweeps, page, &pages)).reason, "BAD_PAGE_TOKEN");
}

// A unary call by name with hand-made bytes: what a client without our protos does.
grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, std::string bytes,
                     std::string* answer) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  SetDeadline(context);
  grpc::CompletionQueue queue;
  grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  response.Dump(&slices);
  for (const auto& part : slices) answer->append(reinterpret_cast<const char*>(part.begin()), part.size());
  return status;
}

// grpc.health.v1: field 1 of the answer is 1 (SERVING) or 2 (NOT_SERVING).
std::string Health(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  std::string request, answer;
  if (!service.empty()) request = absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
  const grpc::Status status = RawCall(channel, "/grpc.health.v1.Health/Check", request, &answer);
  if (!status.ok()) return absl::StrCat("error ", static_cast<int>(status.error_code()));
  if (answer == "\x08\x01") return "SERVING";
  return answer == "\x08\x02" ? "NOT_SERVING" : "?";
}

TEST(Health, FollowsDevicesAndDrain) {
  TestDaemon daemon;
  const auto channel = daemon.Connect();
  EXPECT_EQ(Health(channel, ""), "SERVING");
  EXPECT_EQ(Health(channel, "rooftune.v1.ConfigService"), "SERVING");
  while (Health(channel, "rooftune.v1.SweepService") != "SERVING") std::this_thread::yield();
  EXPECT_EQ(Health(channel, "no.such.Service"), absl::StrCat("error ", 5));
  daemon.server->SetNotServing();
  EXPECT_EQ(Health(channel, ""), "NOT_SERVING");
  EXPECT_EQ(Health(channel, "rooftune.v1.ConfigService"), "NOT_SERVING");
}

TEST(Health, D2_SweepServiceNeedsADevice) {
  TestDaemon daemon;
  daemon.manager->SetDeviceState(v1::Device::UNAVAILABLE);
  EXPECT_FALSE(daemon.core->catalog.AnyDeviceUsable());
  daemon.manager->SetDeviceState(v1::Device::READY);
  EXPECT_TRUE(daemon.core->catalog.AnyDeviceUsable());
}

TEST(Limits, AMessageThatIsTooLargeIsRefusedAndTheServerGoesOn) {
  TestDaemon daemon;
  const auto channel = daemon.Connect();
  std::string answer;
  const grpc::Status status =
      RawCall(channel, "/rooftune.v1.ConfigService/Ping", std::string(5 << 20, '\x00'), &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(RawCall(channel, "/rooftune.v1.ConfigService/Ping", "", &answer).ok());
}

TEST(Limits, AFullQueueIsSaidSo) {
  TestDaemon::Options options;
  options.limits.read_threads = 1;
  options.limits.read_queue = 1;
  TestDaemon daemon(options);
  absl::Notification release, started;
  while (!daemon.core->context.reads
              .Post([&] {
                started.Notify();
                release.WaitForNotification();
              })
              .ok()) {
    std::this_thread::yield();
  }
  started.WaitForNotification();
  while (daemon.core->context.reads.Post([] {}).ok()) {
  }
  auto stub = daemon.Stub<v1::SweepService>();
  v1::ListSweepsResponse response;
  const SeenError error = See(Call(*stub, &v1::SweepService::Stub::ListSweeps, v1::ListSweepsRequest(), &response));
  EXPECT_EQ(error.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(error.reason, "SERVER_BUSY");
  // What needs no thread is still answered.
  auto config = daemon.Stub<v1::ConfigService>();
  v1::PingResponse pong;
  EXPECT_TRUE(Call(*config, &v1::ConfigService::Stub::Ping, v1::PingRequest(), &pong).ok());
  release.Notify();
}

}  // namespace
}  // namespace rooftune

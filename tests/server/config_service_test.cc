// What the best configuration of an operator is, one at a time and many at once, as a client sees it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/server/test_daemon.h"

namespace rooftune {
namespace {

using testing::HasSubstr;

constexpr char kOp[] = "softmax rows=1024 cols=1024 dtype=bf16";

class ConfigServiceTest : public testing::Test {
 protected:
  static v1::GetBestConfigRequest Ask(const std::string& op = kOp, const std::string& device = kGpuId) {
    return BestConfigOf(op, device);
  }
  grpc::Status Get(const v1::GetBestConfigRequest& request, v1::GetBestConfigResponse* response) {
    return Call(*stub_, &v1::ConfigService::Stub::GetBestConfig, request, response);
  }
  // Why it is refused.
  std::string ReasonOf(const v1::GetBestConfigRequest& request) {
    v1::GetBestConfigResponse response;
    return See(Get(request, &response)).reason;
  }
  grpc::Status Get(const v1::BatchGetBestConfigsRequest& request, v1::BatchGetBestConfigsResponse* response) {
    return Call(*stub_, &v1::ConfigService::Stub::BatchGetBestConfigs, request, response);
  }
  // Until so many callers wait for sweeps.
  void AwaitWatchers(size_t count) {
    while (daemon_.core->context.hub.watchers() != count) std::this_thread::yield();
  }

  TestDaemon daemon_;
  std::unique_ptr<v1::ConfigService::Stub> stub_ = daemon_.Stub<v1::ConfigService>();
};

TEST_F(ConfigServiceTest, AnswersARecordExactly) {
  const auto record = daemon_.Record(kOp, kGpuKey, v1::MEASURED, 256);
  daemon_.Publish({record});
  v1::GetBestConfigResponse response;
  // Another spelling of the same operator; the first device is the default.
  const auto status = Get(Ask("softmax cols=1024 rows=1024 dtype=bf16", ""), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.match(), v1::EXACT);
  EXPECT_EQ(response.record().name(), record.name());
  EXPECT_EQ(response.generation(), 1);
  EXPECT_EQ(response.difference_size(), 0);
  EXPECT_GT(response.ttl_s(), 0);
  for (const std::string& device : {std::string(kGpuKey), std::string("devices/cuda-0")}) {
    ASSERT_TRUE(Get(Ask(kOp, device), &response).ok());
    EXPECT_EQ(response.record().name(), record.name());
  }
}

TEST_F(ConfigServiceTest, LabelsAnotherEnvironmentAndAnotherRevision) {
  auto record = daemon_.Record(kOp, kGpuKey, v1::MEASURED, 256);
  record.mutable_environment()->set_nvrtc("12.4");
  daemon_.Publish({record});
  v1::GetBestConfigResponse response;
  ASSERT_TRUE(Get(Ask(), &response).ok());
  EXPECT_EQ(response.match(), v1::ENVIRONMENT_DIFFERS);
  EXPECT_GT(response.difference_size(), 0);
  record = daemon_.Record(kOp, kGpuKey, v1::MEASURED, 257);
  record.set_template_revision("an older one");
  // Of another revision only what today's template still allows is served.
  const auto op = daemon_.library->ops().Parse(kOp);
  ASSERT_TRUE(op.ok()) << op.status();
  const auto config = daemon_.library->Find("softmax")->DefaultConfig(*op, *daemon_.catalog.ById("h200-sxm"));
  ASSERT_TRUE(config.ok()) << config.status();
  record.mutable_config()->clear();
  record.mutable_config()->insert(config->begin(), config->end());
  daemon_.Publish({record});
  ASSERT_TRUE(Get(Ask(), &response).ok());
  EXPECT_EQ(response.match(), v1::ENVIRONMENT_DIFFERS);
}

TEST_F(ConfigServiceTest, AnotherMachinesDeviceIsNeverServedAsExact) {
  const std::string b200 = "nvidia-b200/148sm/180gb/1000w";
  daemon_.Publish({daemon_.Record(kOp, b200, v1::MEASURED, 1)});
  v1::GetBestConfigResponse response;
  ASSERT_TRUE(Get(Ask(kOp, b200), &response).ok());
  EXPECT_EQ(response.match(), v1::ENVIRONMENT_DIFFERS);
  EXPECT_EQ(ReasonOf(Ask(kOp, kGpuId)), "NOT_TUNED") << "nor for this daemon's device";
}

TEST_F(ConfigServiceTest, AMissNamesKeyNeighboursAndCommand) {
  daemon_.Publish({daemon_.Record("softmax rows=1024 cols=4096 dtype=bf16", kGpuKey, v1::MEASURED, 1),
                   daemon_.Record("softmax rows=1024 cols=1024 dtype=fp16", kGpuKey, v1::MEASURED, 1)});
  v1::GetBestConfigResponse response;
  const SeenError error = See(Get(Ask(), &response));
  EXPECT_EQ(error.code, grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(error.domain, "rooftune");
  EXPECT_EQ(error.reason, "NOT_TUNED");
  EXPECT_EQ(error.metadata.at("command"), absl::StrCat("rooftune tune ", kOp, " --device cuda:0"));
  EXPECT_EQ(error.metadata.at("target_key").size(), 32u);
  EXPECT_EQ(error.metadata.at("device_key"), kGpuKey);
  EXPECT_THAT(error.metadata.at("nearest_1"), HasSubstr("cols=4096 (asked 1024)"));
  EXPECT_THAT(error.metadata.at("nearest_2"), HasSubstr("dtype=fp16 (asked bf16)"));
  EXPECT_THAT(error.message, HasSubstr("rooftune tune"));
}

TEST_F(ConfigServiceTest, WeakEvidenceIsRefusedWithTheWayOut) {
  daemon_.Publish({daemon_.Record(kOp, kModelKey, v1::COMPILED, 1)});
  auto request = Ask(kOp, kModelId);
  request.set_min_evidence(v1::MEASURED);
  v1::GetBestConfigResponse response;
  const SeenError error = See(Get(request, &response));
  EXPECT_EQ(error.code, grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(error.reason, "EVIDENCE_TOO_WEAK");
  EXPECT_EQ(error.metadata.at("evidence"), "COMPILED");
  EXPECT_THAT(error.message, HasSubstr("min_evidence=COMPILED"));
  // Tuning a modelled device could never help.
  request.set_miss_policy(v1::WAIT);
  EXPECT_EQ(ReasonOf(request), "EVIDENCE_TOO_WEAK");
  EXPECT_EQ(daemon_.manager->starts(), 0);
}

TEST_F(ConfigServiceTest, BadRequestsSayWhatIsWrong) {
  EXPECT_EQ(ReasonOf(Ask("softmaxx rows=1 cols=1 dtype=bf16")), "UNKNOWN_OP");
  EXPECT_EQ(ReasonOf(Ask("")), "MISSING_OP");
  EXPECT_EQ(ReasonOf(Ask(std::string(5000, 'x'))), "OP_TOO_LONG");
  EXPECT_EQ(ReasonOf(Ask(kOp, "cuda:7")), "UNKNOWN_DEVICE");
  v1::GetBestConfigResponse response;
  EXPECT_EQ(See(Get(Ask(kOp, "model:h200-sxn"), &response)).message,
            "no device \"model:h200-sxn\"; this daemon has cuda:0, model:h200-sxm, and `rooftune devices list --all` shows the "
            "GPUs that it can model; did you mean model:h200-sxm?");
  auto request = Ask();
  request.set_generation(99);
  EXPECT_EQ(ReasonOf(request), "GENERATION_GONE");
  request.set_generation(1);
  request.set_miss_policy(v1::WAIT);
  EXPECT_EQ(ReasonOf(request), "BAD_VALUE");
  request = Ask();
  request.set_miss_policy(static_cast<v1::MissPolicy>(77));
  EXPECT_EQ(ReasonOf(request), "BAD_VALUE");
}

TEST_F(ConfigServiceTest, AnEstimateIsLabelledAndTheSameForAll) {
  auto request = Ask(kOp, kModelId);
  request.set_miss_policy(v1::ESTIMATE);
  std::set<std::string> answers;
  absl::Mutex mutex;
  std::vector<std::thread> ranks;
  for (int i = 0; i < 8; ++i) {
    ranks.emplace_back([&] {
      v1::GetBestConfigResponse response;
      const auto status = Get(request, &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(response.match(), v1::MODEL_CHOICE);
      EXPECT_EQ(response.record().evidence(), v1::ESTIMATED);
      EXPECT_FALSE(response.record().has_measurement());
      EXPECT_TRUE(response.record().artifact_digest().empty());
      EXPECT_GT(response.record().plan().launch_size(), 0);
      EXPECT_GT(response.record().prediction().time_us(), 0);
      absl::MutexLock lock(&mutex);
      answers.insert(response.record().DebugString());  // sorts maps, unlike the wire form
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(answers.size(), 1u);
  // An estimate is not evidence enough for more.
  request.set_min_evidence(v1::COMPILED);
  v1::GetBestConfigResponse response;
  EXPECT_EQ(ReasonOf(request), "EVIDENCE_TOO_WEAK");
}

TEST_F(ConfigServiceTest, NearestShapeOnlyIfAllowedAndWithWhatDiffers) {
  // A configuration that is valid for both shapes: the model's own choice for the neighbour.
  auto request = Ask("softmax rows=1024 cols=2048 dtype=bf16", kModelId);
  request.set_miss_policy(v1::ESTIMATE);
  v1::GetBestConfigResponse response;
  ASSERT_TRUE(Get(request, &response).ok());
  v1::TuningRecord record = daemon_.Record(request.op(), kModelKey, v1::COMPILED, 0);
  *record.mutable_config() = response.record().config();
  daemon_.Publish({record});

  request = Ask("softmax rows=2048 cols=2048 dtype=bf16", kModelId);
  EXPECT_EQ(ReasonOf(request), "NOT_TUNED");
  request.set_allow_nearest(true);
  const auto status = Get(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.match(), v1::NEAREST_SHAPE);
  EXPECT_EQ(response.record().name(), record.name());
  EXPECT_EQ(response.difference().at("rows"), "asked 2048, record 1024");
  EXPECT_EQ(response.difference().count("cols"), 0u);
  EXPECT_EQ(response.difference().at("distance"), "1.000");
  EXPECT_THAT(response.difference().at("predicted_loss"), HasSubstr("%"));
}

TEST_F(ConfigServiceTest, NeverANeighbourWhoseConfigurationIsForbiddenHere) {
  // No valid point of any shape.
  const v1::TuningRecord record =
      daemon_.Record("softmax rows=1024 cols=1024 dtype=bf16", kModelKey, v1::COMPILED, 12345);
  daemon_.Publish({record});
  auto request = Ask("softmax rows=1024 cols=1025 dtype=bf16", kModelId);
  request.set_allow_nearest(true);
  EXPECT_EQ(ReasonOf(request), "NOT_TUNED");
}

TEST_F(ConfigServiceTest, F7_WaitStartsOneSweepForAllAndAnswersWhenItPublished) {
  auto request = Ask();
  request.set_miss_policy(v1::WAIT);
  std::atomic<int> answered{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 20; ++i) {
    callers.emplace_back([&] {
      v1::GetBestConfigResponse response;
      const auto status = Get(request, &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(response.match(), v1::EXACT);
      EXPECT_EQ(response.sweep(), "sweeps/s1");
      ++answered;
    });
  }
  AwaitWatchers(20);
  EXPECT_EQ(daemon_.manager->starts(), 1);
  // Lookups and pings go on while all wait.
  EXPECT_EQ(ReasonOf(Ask()), "NOT_TUNED");
  ASSERT_TRUE(daemon_.manager->Publish({daemon_.Record(kOp, kGpuKey, v1::MEASURED, 5)}).ok());
  ASSERT_TRUE(daemon_.manager->Change("sweeps/s1", v1::DONE, "").ok());
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(answered, 20);
  EXPECT_EQ(daemon_.core->context.hub.watchers(), 0u);
}

TEST_F(ConfigServiceTest, F7_WaitSharesAFailureAndALaterCallTriesAgain) {
  auto request = Ask();
  request.set_miss_policy(v1::WAIT);
  for (const char* name : {"sweeps/s1", "sweeps/s2"}) {
    std::thread caller([&] {
      v1::GetBestConfigResponse response;
      const SeenError error = See(Get(request, &response));
      EXPECT_EQ(error.reason, "SWEEP_FAILED");
      EXPECT_EQ(error.metadata.at("sweep"), name);
      EXPECT_THAT(error.message, HasSubstr("every candidate failed"));
    });
    AwaitWatchers(1);
    ASSERT_TRUE(daemon_.manager->Change(name, v1::FAILED, "every candidate failed").ok());
    caller.join();
  }
  EXPECT_EQ(daemon_.manager->starts(), 2);
}

TEST_F(ConfigServiceTest, AWaiterThatGoesAwayLeavesNothingBehindAndTheSweepGoesOn) {
  auto request = Ask();
  request.set_miss_policy(v1::WAIT);
  v1::GetBestConfigResponse response;
  grpc::ClientContext context;
  SetDeadline(context);
  grpc::Status status;
  std::thread caller([&] { status = stub_->GetBestConfig(&context, request, &response); });
  AwaitWatchers(1);
  context.TryCancel();
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  AwaitWatchers(0);
  EXPECT_EQ(daemon_.manager->Get("sweeps/s1")->state(), v1::QUEUED);
}

TEST_F(ConfigServiceTest, TuneAsyncAnswersWithAnEstimateAndTheSweep) {
  auto request = Ask();
  request.set_miss_policy(v1::TUNE_ASYNC);
  for (int i = 0; i < 3; ++i) {
    v1::GetBestConfigResponse response;
    const auto status = Get(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.match(), v1::MODEL_CHOICE);
    EXPECT_EQ(response.sweep(), "sweeps/s1");
  }
  EXPECT_EQ(daemon_.manager->starts(), 1);
}

// Ranks of one job must launch the same kernel: whoever passes the same generation gets the same record and binary,
// while the key is tuned again and again.
TEST_F(ConfigServiceTest, F6_OneGenerationOneAnswerWhileTheKeyIsTunedAgain) {
  constexpr int kRanks = 8, kPublished = 12;
  std::map<int64_t, std::set<std::string>> answers;  // by generation
  absl::Mutex mutex;
  const auto ask = [&](int64_t generation, v1::GetBestConfigResponse* response) {
    auto request = Ask();
    request.set_generation(generation);
    const auto status = Get(request, response);
    if (!status.ok()) {
      // Only a pinned generation may have left the history meanwhile.
      EXPECT_EQ(See(status).reason, "GENERATION_GONE");
      EXPECT_GT(generation, 0);
      return false;
    }
    EXPECT_TRUE(generation == 0 || response->generation() == generation);
    const absl::MutexLock lock(&mutex);
    answers[response->generation()].insert(
        absl::StrCat(response->record().name(), " ", response->record().artifact_digest()));
    return true;
  };
  daemon_.Publish({daemon_.Record(kOp, kGpuKey, v1::MEASURED, 1)});
  std::atomic<bool> done{false};
  std::vector<std::thread> ranks;
  for (int i = 0; i < kRanks; ++i) {
    ranks.emplace_back([&] {
      do {
        v1::GetBestConfigResponse newest, pinned;
        if (!ask(0, &newest) || !ask(newest.generation(), &pinned)) continue;
        EXPECT_EQ(pinned.record().name(), newest.record().name());
      } while (!done);
    });
  }
  for (int value = 2; value <= kPublished; ++value) {
    daemon_.Publish({daemon_.Record(kOp, kGpuKey, v1::MEASURED, value)});
    v1::GetBestConfigResponse newest;
    EXPECT_TRUE(ask(0, &newest));
    EXPECT_EQ(newest.generation(), value);
  }
  done = true;
  for (std::thread& rank : ranks) rank.join();
  std::set<std::string> distinct;
  for (const auto& [generation, seen] : answers) {
    EXPECT_EQ(seen.size(), 1u) << "generation " << generation;
    distinct.insert(seen.begin(), seen.end());
  }
  EXPECT_EQ(distinct.size(), answers.size()) << "a new winner is only seen under a new generation";
  EXPECT_GE(answers.size(), size_t{kPublished - 1});
}

TEST_F(ConfigServiceTest, BatchKeepsOrderAndGivesEachItsOwnError) {
  daemon_.Publish({daemon_.Record(kOp, kGpuKey, v1::MEASURED, 1)});
  v1::BatchGetBestConfigsRequest request;
  request.add_op("softmax rows=3 cols=3 dtype=bf16");
  request.add_op(kOp);
  request.add_op("nonsense");
  v1::BatchGetBestConfigsResponse response;
  const auto status = Get(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.item_size(), 3);
  EXPECT_EQ(response.item(0).error().reason(), "NOT_TUNED");
  EXPECT_EQ(response.item(0).error().code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(response.item(1).response().match(), v1::EXACT);
  EXPECT_EQ(response.item(2).error().reason(), "UNKNOWN_OP");
  EXPECT_EQ(response.generation(), 1);
}

TEST_F(ConfigServiceTest, BatchHasItsLimits) {
  auto record = daemon_.Record(kOp, kGpuKey, v1::MEASURED, 1);
  // 1000 copies of this record would be 10 MB.
  record.mutable_plan()->mutable_launch()->Add()->set_symbol(std::string(10'000, 's'));
  daemon_.Publish({record});
  v1::BatchGetBestConfigsRequest request;
  for (int i = 0; i < 1000; ++i) request.add_op(kOp);
  v1::BatchGetBestConfigsResponse response;
  const auto status = Get(request, &response);  // gRPC's own limit is 4 MiB
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.item_size(), 1000);
  EXPECT_TRUE(response.item(0).has_response());
  EXPECT_EQ(response.item(999).error().reason(), "RESPONSE_TOO_LARGE");
  request.add_op(kOp);
  EXPECT_EQ(See(Get(request, &response)).reason, "BATCH_TOO_LARGE");
}

TEST_F(ConfigServiceTest, BatchWaitsForAllItsSweeps) {
  v1::BatchGetBestConfigsRequest request;
  request.add_op("softmax rows=16 cols=16 dtype=bf16");
  request.add_op("softmax rows=32 cols=32 dtype=bf16");
  request.set_miss_policy(v1::WAIT);
  v1::BatchGetBestConfigsResponse response;
  std::thread caller([&] {
    const auto status = Get(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  });
  AwaitWatchers(2);
  ASSERT_TRUE(daemon_.manager->Publish({daemon_.Record(request.op(1), kGpuKey, v1::MEASURED, 7)}).ok());
  ASSERT_TRUE(daemon_.manager->Change("sweeps/s2", v1::DONE, "").ok());
  ASSERT_TRUE(daemon_.manager->Change("sweeps/s1", v1::FAILED, "no luck").ok());
  caller.join();
  ASSERT_EQ(response.item_size(), 2);
  EXPECT_EQ(response.item(0).error().reason(), "SWEEP_FAILED");
  EXPECT_EQ(response.item(1).response().record().config().at("block"), 7);
}

TEST_F(ConfigServiceTest, CallersThatCannotUseTheLibraryGetTheBestTemplate) {
  auto served = daemon_.Record(kOp, kGpuKey, v1::MEASURED, 10);
  served.set_provider(v1::CUBLASLT);
  served.mutable_plan()->mutable_cublaslt()->set_library_version(130100);
  const auto kernel = daemon_.Record(kOp, kGpuKey, v1::MEASURED, 12, 1);
  daemon_.Publish({served, kernel});
  v1::GetBestConfigRequest request = Ask();
  v1::GetBestConfigResponse response;
  ASSERT_TRUE(Get(request, &response).ok());
  EXPECT_EQ(response.record().name(), served.name());
  EXPECT_EQ(response.difference().count("provider"), 0u);
  request.set_cublaslt_version(130100);
  ASSERT_TRUE(Get(request, &response).ok());
  EXPECT_EQ(response.record().name(), served.name());
  request.set_cublaslt_version(120805);
  ASSERT_TRUE(Get(request, &response).ok());
  EXPECT_EQ(response.record().name(), kernel.name());
  EXPECT_THAT(response.difference().at("provider"), HasSubstr("a faster record of CUBLASLT 130100"));
  request.clear_cublaslt_version();
  request.add_provider(v1::TEMPLATE);
  ASSERT_TRUE(Get(request, &response).ok());
  EXPECT_EQ(response.record().name(), kernel.name());
  request.set_provider(0, v1::EXTERNAL);
  EXPECT_EQ(ReasonOf(request), "NOT_TUNED");
  request.set_provider(0, static_cast<v1::Provider>(99));
  EXPECT_EQ(ReasonOf(request), "BAD_VALUE");
}

TEST(ConfigService, ReloadsWhatTheStoreHolds) {
  v1::TuningRecord record;
  {
    TestDaemon maker;
    record = maker.Record(kOp, kGpuKey, v1::MEASURED, 9);
  }
  TestDaemon::Options options;
  options.records = {record};
  TestDaemon daemon(options);
  const auto stub = daemon.Stub<v1::ConfigService>();
  v1::GetBestConfigResponse response;
  ASSERT_TRUE(Call(*stub, &v1::ConfigService::Stub::GetBestConfig, BestConfigOf(kOp, ""), &response).ok());
  EXPECT_EQ(response.record().name(), record.name());
}

}  // namespace
}  // namespace rooftune

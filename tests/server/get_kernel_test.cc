// Binaries of records, as a client fetches them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/sha256.h"
#include "tests/server/test_daemon.h"

namespace rooftune {
namespace {

using testing::HasSubstr;

constexpr char kOp[] = "softmax rows=1024 cols=1024 dtype=bf16";

class GetKernelTest : public testing::Test {
 protected:
  struct Fetched {
    grpc::Status status;
    v1::TuningRecord record;
    std::string binary;
    size_t largest_chunk = 0;
  };
  Fetched Fetch(const v1::GetKernelRequest& request) {
    Fetched fetched;
    grpc::ClientContext context;
    SetDeadline(context);
    auto reader = stub_->GetKernel(&context, request);
    v1::GetKernelResponse part;
    bool first = true;
    while (reader->Read(&part)) {
      EXPECT_EQ(part.has_record(), first) << "the record comes first and once";
      first = false;
      if (part.has_record()) fetched.record = part.record();
      fetched.binary += part.chunk();
      fetched.largest_chunk = std::max(fetched.largest_chunk, part.chunk().size());
    }
    fetched.status = reader->Finish();
    return fetched;
  }
  static v1::GetKernelRequest Named(const std::string& record) {
    v1::GetKernelRequest request;
    request.set_record(record);
    return request;
  }

  TestDaemon daemon_;
  std::unique_ptr<v1::ConfigService::Stub> stub_ = daemon_.Stub<v1::ConfigService>();
};

TEST_F(GetKernelTest, FetchesABinaryInChunksFromAnyOffset) {
  std::string cubin(10 * 1024 * 1024 + 17, '\0');
  for (size_t i = 0; i < cubin.size(); ++i) cubin[i] = static_cast<char>(i * 2654435761u >> 13);
  auto record = daemon_.Record(kOp, kGpuKey, v1::MEASURED, 1);
  record.set_artifact_digest(*daemon_.artifacts->Put(cubin));
  record.set_artifact_bytes(static_cast<int64_t>(cubin.size()));
  daemon_.Publish({record});
  v1::GetKernelRequest request;
  request.set_record(record.name());
  const Fetched whole = Fetch(request);
  ASSERT_TRUE(whole.status.ok());
  EXPECT_EQ(whole.record.name(), record.name());
  EXPECT_EQ(Sha256Hex(whole.binary), record.artifact_digest());
  EXPECT_LE(whole.largest_chunk, 256u * 1024);
  request.set_offset(10'000'000);
  const Fetched rest = Fetch(request);
  ASSERT_TRUE(rest.status.ok());
  EXPECT_EQ(rest.binary, cubin.substr(10'000'000));
  for (const int64_t offset : {int64_t{-1}, static_cast<int64_t>(cubin.size()) + 1}) {
    request.set_offset(offset);
    EXPECT_EQ(See(Fetch(request).status).reason, "BAD_OFFSET");
  }
}

TEST_F(GetKernelTest, AKernelIsVerifiedUnlessTheCallerAcceptsLess) {
  auto record = daemon_.Record(kOp, kModelKey, v1::COMPILED, 1);
  record.set_artifact_digest(*daemon_.artifacts->Put("cubin"));
  daemon_.Publish({record});
  v1::GetKernelRequest request;
  *request.mutable_query() = BestConfigOf(kOp, kModelId);
  const SeenError error = See(Fetch(request).status);
  EXPECT_EQ(error.reason, "EVIDENCE_TOO_WEAK");
  EXPECT_THAT(error.message, HasSubstr("min_evidence=COMPILED"));
  request.mutable_query()->set_min_evidence(v1::COMPILED);
  const Fetched fetched = Fetch(request);
  ASSERT_TRUE(fetched.status.ok());
  EXPECT_EQ(fetched.binary, "cubin");
}

TEST_F(GetKernelTest, AnEstimateIsCompiledOnceWhenItsKernelIsAskedFor) {
  v1::GetKernelRequest request;
  *request.mutable_query() = BestConfigOf(kOp, kModelId);
  request.mutable_query()->set_miss_policy(v1::ESTIMATE);
  EXPECT_EQ(See(Fetch(request).status).reason, "EVIDENCE_TOO_WEAK");
  EXPECT_EQ(daemon_.compiler->compiles(), 0);
  request.mutable_query()->set_min_evidence(v1::COMPILED);
  const Fetched first = Fetch(request);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(first.record.evidence(), v1::COMPILED);
  EXPECT_EQ(first.record.artifact_digest(), Sha256Hex(first.binary));
  EXPECT_EQ(first.record.plan().artifact_digest(), first.record.artifact_digest());
  std::vector<std::thread> others;
  for (int i = 0; i < 6; ++i) {
    others.emplace_back([&] {
      const Fetched again = Fetch(Named(first.record.name()));
      EXPECT_TRUE(again.status.ok());
      EXPECT_EQ(again.binary, first.binary);
    });
  }
  for (auto& other : others) other.join();
  EXPECT_EQ(daemon_.compiler->compiles(), 1);
}

TEST_F(GetKernelTest, KernelErrorsSayWhatToDo) {
  const auto reason = [this](const std::string& record) { return See(Fetch(Named(record)).status).reason; };
  EXPECT_EQ(See(Fetch({}).status).reason, "MISSING_FIELD");
  EXPECT_EQ(reason("nonsense"), "BAD_NAME");
  EXPECT_EQ(reason("records/none"), "RECORD_NOT_FOUND");
  auto vendor = daemon_.Record(kOp, kGpuKey, v1::MEASURED, 1);
  vendor.set_provider(v1::CUBLASLT);
  daemon_.Publish({vendor});
  EXPECT_EQ(reason(vendor.name()), "NO_BINARY");
  auto imported = daemon_.Record(kOp, kGpuKey, v1::MEASURED, 2);
  imported.set_artifact_digest(Sha256Hex("never stored"));
  daemon_.Publish({imported});
  EXPECT_EQ(reason(imported.name()), "ARTIFACT_MISSING");
}

TEST_F(GetKernelTest, TheCallOfALibraryIsCompleteWithoutABinary) {
  auto call = daemon_.Record(kOp, kGpuKey, v1::MEASURED, 4);
  call.set_provider(v1::CUBLASLT);
  call.mutable_plan()->mutable_cublaslt()->set_library_version(130100);
  daemon_.Publish({call});
  const Fetched fetched = Fetch(Named(call.name()));
  EXPECT_TRUE(fetched.status.ok()) << fetched.status.error_message();
  EXPECT_EQ(fetched.record.plan().cublaslt().library_version(), 130100);
  EXPECT_TRUE(fetched.binary.empty());
}

TEST(GetKernel, ACompilerThatFailsIsReportedWithItsLog) {
  TestDaemon::Options options;
  options.compiler_script = R"(rule { phase: COMPILE outcome: COMPILE_FAILED message: "error: no such thing" })";
  TestDaemon daemon(options);
  const auto stub = daemon.Stub<v1::ConfigService>();
  v1::GetKernelRequest request;
  *request.mutable_query() = BestConfigOf(kOp, kModelId);
  request.mutable_query()->set_miss_policy(v1::ESTIMATE);
  request.mutable_query()->set_min_evidence(v1::COMPILED);
  grpc::ClientContext context;
  SetDeadline(context);
  auto reader = stub->GetKernel(&context, request);
  v1::GetKernelResponse part;
  EXPECT_FALSE(reader->Read(&part));
  const SeenError error = See(reader->Finish());
  EXPECT_EQ(error.reason, "COMPILE_FAILED");
  EXPECT_THAT(error.message, HasSubstr("no such thing"));
}

}  // namespace
}  // namespace rooftune

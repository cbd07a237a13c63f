#include "tuner/compile/worker_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/error.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;
using worker::v1::CompileRequest;
using worker::v1::CompileResult;

CompileRequest Script(const std::string& text, int timeout_ms = 10'000) {
  CompileRequest request;
  request.mutable_source()->set_name("k.cu");
  request.mutable_source()->set_text(text);
  request.set_timeout_ms(timeout_ms);
  return request;
}

// Sets an environment variable for the processes started in its scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedEnv() { unsetenv(name_); }

 private:
  const char* const name_;
};

WorkerCompiler::Options ScriptedOptions() {
  WorkerCompiler::Options options;
  options.worker_path = SCRIPTED_WORKER;
  options.max_processes = 2;
  return options;
}

std::unique_ptr<WorkerCompiler> Scripted(WorkerCompiler::Options options = ScriptedOptions()) {
  auto compiler = WorkerCompiler::Create(std::move(options));
  EXPECT_TRUE(compiler.ok()) << compiler.status();
  return *std::move(compiler);
}

// Process id and the count of earlier answers.
std::pair<int, int> WhoAnswered(const absl::StatusOr<CompileResult>& result) {
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return {0, 0};
  EXPECT_EQ(result->outcome(), v1::OK) << result->log();
  const std::vector<std::string> parts = absl::StrSplit(result->log(), ' ');
  int pid = 0, served = 0;
  EXPECT_TRUE(parts.size() == 2 && absl::SimpleAtoi(parts[0], &pid) && absl::SimpleAtoi(parts[1], &served));
  return {pid, served};
}

TEST(WorkerCompilerTest, KeepsAProcessBetweenRequests) {
  const auto compiler = Scripted();
  const auto [pid, first] = WhoAnswered(compiler->Compile(Script("ok")));
  const auto [again, second] = WhoAnswered(compiler->Compile(Script("ok")));
  EXPECT_EQ(pid, again);
  EXPECT_EQ(second, first + 1);
}

TEST(WorkerCompilerTest, ReplacesAProcessAfterSoManyCompiles) {
  WorkerCompiler::Options options = ScriptedOptions();
  options.recycle_after = 3;
  const auto compiler = Scripted(options);
  std::vector<int> pids;
  for (int i = 0; i < 4; ++i) pids.push_back(WhoAnswered(compiler->Compile(Script("ok"))).first);
  EXPECT_EQ(pids[0], pids[2]);
  EXPECT_NE(pids[2], pids[3]);
  EXPECT_EQ(kill(pids[0], 0), -1);
}

TEST(WorkerCompilerTest, G1_NeverStartsMoreThanItMay) {
  const auto compiler = Scripted();
  std::vector<std::thread> threads;
  absl::Mutex mutex;
  std::set<int> pids;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      const int pid = WhoAnswered(compiler->Compile(Script("ok"))).first;
      absl::MutexLock lock(&mutex);
      pids.insert(pid);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pids.size(), 2u);
}

TEST(WorkerCompilerTest, G1_ALateRequestIsATimeoutWithinASecondOfItsLimit) {
  const auto compiler = Scripted();
  const absl::Time start = absl::Now();
  const auto result = compiler->Compile(Script("hang", 100));
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(1100));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome(), v1::COMPILE_TIMEOUT);
  EXPECT_THAT(result->log(), HasSubstr("k.cu took longer than 100ms"));
  WhoAnswered(compiler->Compile(Script("ok")));
}

TEST(WorkerCompilerTest, ARequestWithoutALimitGetsTheDefault) {
  WorkerCompiler::Options options = ScriptedOptions();
  options.default_timeout = absl::Milliseconds(50);
  const auto result = Scripted(options)->Compile(Script("hang", 0));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome(), v1::COMPILE_TIMEOUT);
}

TEST(WorkerCompilerTest, WaitingForAFreeProcessDoesNotCountAsCompiling) {
  WorkerCompiler::Options options = ScriptedOptions();
  options.max_processes = 1;
  const auto compiler = Scripted(options);
  WhoAnswered(compiler->Compile(Script("ok")));
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { compiler->Compile(Script("hang", 150)).IgnoreError(); });
  // Waits up to 450 ms for its turn, which is longer than its own limit.
  WhoAnswered(compiler->Compile(Script("ok", 149)));
  for (std::thread& thread : threads) thread.join();
}

TEST(WorkerCompilerTest, D7_ADeathIsChargedToItsRequestWithSignalAndOutput) {
  const auto compiler = Scripted();
  const auto aborted = compiler->Compile(Script("abort"));
  ASSERT_TRUE(aborted.ok()) << aborted.status();
  EXPECT_EQ(aborted->outcome(), v1::COMPILE_FAILED);
  EXPECT_THAT(aborted->log(), HasSubstr("killed by signal 6"));
  EXPECT_THAT(aborted->log(), HasSubstr("2 GiB"));
  EXPECT_THAT(aborted->log(), HasSubstr("terminate called: out of memory"));
  const auto exited = compiler->Compile(Script("exit"));
  ASSERT_TRUE(exited.ok()) << exited.status();
  EXPECT_EQ(exited->outcome(), v1::COMPILE_FAILED);
  EXPECT_THAT(exited->log(), HasSubstr("exited with code 3"));
  const auto garbage = compiler->Compile(Script("garbage"));
  ASSERT_TRUE(garbage.ok()) << garbage.status();
  EXPECT_EQ(garbage->outcome(), v1::COMPILE_FAILED);
  WhoAnswered(compiler->Compile(Script("ok")));
}

TEST(WorkerCompilerTest, AProcessFoundDeadIsReplacedWithoutBlamingTheRequest) {
  const auto compiler = Scripted();
  const int pid = WhoAnswered(compiler->Compile(Script("ok"))).first;
  kill(pid, SIGKILL);
  EXPECT_NE(WhoAnswered(compiler->Compile(Script("ok"))).first, pid);
}

TEST(WorkerCompilerTest, ProcessesThatAlwaysDieBeforeTheyBeginAreAnError) {
  const auto result = Scripted()->Compile(Script("die before begin"));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
}

TEST(WorkerCompilerTest, G1_OneHangingRequestDoesNotHoldUpTheOthers) {
  const auto compiler = Scripted();
  std::thread slow([&] { EXPECT_EQ(compiler->Compile(Script("hang", 300))->outcome(), v1::COMPILE_TIMEOUT); });
  for (int i = 0; i < 10; ++i) WhoAnswered(compiler->Compile(Script("ok")));
  slow.join();
}

TEST(WorkerCompilerTest, ShutdownCancelsWithinTwoSeconds) {
  WorkerCompiler::Options options = ScriptedOptions();
  options.max_processes = 1;
  const auto compiler = Scripted(options);
  WhoAnswered(compiler->Compile(Script("ok")));
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back(
        [&] { EXPECT_EQ(compiler->Compile(Script("hang", 60'000)).status().code(), absl::StatusCode::kCancelled); });
  }
  const absl::Time start = absl::Now();
  compiler->Shutdown();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  EXPECT_EQ(compiler->Compile(Script("ok")).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(compiler->NvrtcVersion().status().code(), absl::StatusCode::kCancelled);
}

TEST(WorkerCompilerTest, E7_NvrtcVersionOrWhereItWasLookedFor) {
  EXPECT_EQ(*Scripted()->NvrtcVersion(), "13.0");
  const ScopedEnv no_nvrtc("SCRIPTED_NO_NVRTC", "1");
  const absl::Status missing = Scripted()->NvrtcVersion().status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrorReason(missing), "NO_NVRTC");
  EXPECT_EQ(missing.message(), "looked for it in vain");
}

TEST(WorkerCompilerTest, AWorkerThatCannotStartIsUnavailableAndSaysWhy) {
  WorkerCompiler::Options options = ScriptedOptions();
  options.worker_path = "/nonexistent/rooftune-worker";
  EXPECT_EQ(Scripted(options)->Compile(Script("ok")).status().code(), absl::StatusCode::kUnavailable);
  {
    const ScopedEnv dies("SCRIPTED_WORKER", "dies");
    const absl::Status status = Scripted()->Compile(Script("ok")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("exited with code 5"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("can't start today"));
  }
  {
    const ScopedEnv silent("SCRIPTED_WORKER", "silent");
    options = ScriptedOptions();
    options.start_timeout = absl::Milliseconds(50);
    EXPECT_EQ(Scripted(options)->Compile(Script("ok")).status().code(), absl::StatusCode::kUnavailable);
  }
  const ScopedEnv protocol("SCRIPTED_WORKER", "protocol");
  EXPECT_EQ(ErrorReason(Scripted()->Compile(Script("ok")).status()), "WORKER_PROTOCOL");
}

TEST(WorkerCompilerTest, AnErrorReplyKeepsItsCodeAndItsProcess) {
  const auto compiler = Scripted();
  const int pid = WhoAnswered(compiler->Compile(Script("ok"))).first;
  EXPECT_EQ(compiler->Compile(Script("error")).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(WhoAnswered(compiler->Compile(Script("ok"))).first, pid);
}

TEST(WorkerCompilerTest, RefusesImpossibleOptions) {
  WorkerCompiler::Options options = ScriptedOptions();
  options.max_processes = -1;
  EXPECT_FALSE(WorkerCompiler::Create(options).ok());
  options = ScriptedOptions();
  options.recycle_after = 0;
  EXPECT_FALSE(WorkerCompiler::Create(options).ok());
}

}  // namespace
}  // namespace rooftune

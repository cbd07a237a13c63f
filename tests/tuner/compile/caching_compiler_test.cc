#include "tuner/compile/caching_compiler.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "kernels/candidate.h"

namespace rooftune {
namespace {

using worker::v1::CompileRequest;
using worker::v1::CompileResult;

// Answers at once, or waits for `gate`.
class ScriptedCompiler : public Compiler {
 public:
  absl::StatusOr<std::string> NvrtcVersion() override { return version; }
  absl::StatusOr<CompileResult> Compile(const CompileRequest& request) override {
    absl::Notification* wait = nullptr;
    {
      absl::MutexLock lock(&mutex);
      ++calls;
      wait = gate;
      if (!status.ok()) return status;
    }
    if (wait != nullptr) wait->WaitForNotification();
    CompileResult result;
    result.set_outcome(outcome);
    result.set_log(request.source().text());
    result.set_cubin(std::string(cubin_bytes, 'c'));
    result.set_compiler_died(died);
    return result;
  }
  int parallelism() const override { return 4; }
  int Calls() {
    absl::MutexLock lock(&mutex);
    return calls;
  }

  absl::StatusOr<std::string> version = "13.0";
  absl::Mutex mutex;
  int calls = 0;
  absl::Notification* gate = nullptr;
  absl::Status status;
  v1::Outcome outcome = v1::OK;
  size_t cubin_bytes = 100;
  bool died = false;
};

CompileRequest Source(const std::string& text, int timeout_ms = 1000) {
  CompileRequest request;
  request.mutable_source()->set_text(text);
  request.set_timeout_ms(timeout_ms);
  return request;
}

class CachingCompilerTest : public ::testing::Test {
 protected:
  explicit CachingCompilerTest(size_t max_bytes = 1 << 20) {
    auto inner = std::make_unique<ScriptedCompiler>();
    inner_ = inner.get();
    CachingCompiler::Options options;
    options.max_bytes = max_bytes;
    cache_ = std::make_unique<CachingCompiler>(
        std::move(inner),
        [](const CompileRequest& request, absl::string_view version) {
          return absl::StrCat(version, "/", request.source().text());
        },
        options);
  }
  std::string Log(const std::string& text, int timeout_ms = 1000) {
    const auto result = cache_->Compile(Source(text, timeout_ms));
    return result.ok() ? result->log() : result.status().ToString();
  }
  ScriptedCompiler* inner_;
  std::unique_ptr<CachingCompiler> cache_;
};

TEST_F(CachingCompilerTest, CompilesOnceAKey) {
  EXPECT_EQ(Log("a"), "a");
  EXPECT_EQ(Log("b"), "b");
  EXPECT_EQ(Log("a"), "a");
  EXPECT_EQ(inner_->Calls(), 2);
  EXPECT_EQ(cache_->statistics().compiles, 2);
  EXPECT_EQ(cache_->statistics().hits, 1);
}

TEST_F(CachingCompilerTest, G3_AnotherNvrtcVersionIsAnotherKey) {
  Log("a");
  inner_->version = std::string("13.1");
  Log("a");
  EXPECT_EQ(inner_->Calls(), 2);
}

TEST_F(CachingCompilerTest, OtherKernelsAskedForAreAnotherResult) {
  CompileRequest request = Source("a");
  request.add_symbol("k");
  EXPECT_TRUE(cache_->Compile(request).ok());
  request.add_symbol("l");
  EXPECT_TRUE(cache_->Compile(request).ok());
  EXPECT_EQ(inner_->Calls(), 2);
}

TEST_F(CachingCompilerTest, TakesTheCompileKeyOfTheKernels) {
  auto inner = std::make_unique<ScriptedCompiler>();
  ScriptedCompiler* const calls = inner.get();
  CachingCompiler cache(std::move(inner), CompileKey);
  CompileRequest request = Source("a");
  for (const char* define : {"X=1", "X=1", "X=2"}) {
    request.clear_define();
    request.add_define(define);
    EXPECT_TRUE(cache.Compile(request).ok());
  }
  EXPECT_EQ(calls->Calls(), 2);
}

TEST_F(CachingCompilerTest, F1_AHundredCallersOfOneKeyShareOneCompile) {
  absl::Notification gate;
  inner_->gate = &gate;
  std::vector<std::thread> threads;
  for (int i = 0; i < 100; ++i) threads.emplace_back([&] { EXPECT_EQ(Log("same"), "same"); });
  // Everyone is inside before the compile may end.
  while (cache_->statistics().joined < 99) std::this_thread::yield();
  gate.Notify();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(inner_->Calls(), 1);
  EXPECT_EQ(cache_->statistics().compiles, 1);
}

TEST(CachingCompilerMemoryTest, G3_RefusalsAreRememberedBeyondTheProcess) {
  std::map<std::string, CompileResult> disk;
  const auto make = [&](ScriptedCompiler** calls) {
    auto inner = std::make_unique<ScriptedCompiler>();
    *calls = inner.get();
    CachingCompiler::Options options;
    options.failures.recall = [&](const std::string& key) -> std::optional<CompileResult> {
      const auto found = disk.find(key);
      return found == disk.end() ? std::nullopt : std::optional<CompileResult>(found->second);
    };
    options.failures.remember = [&](const std::string& key, const CompileResult& result) { disk[key] = result; };
    return std::make_unique<CachingCompiler>(std::move(inner), CompileKey, options);
  };
  ScriptedCompiler* calls = nullptr;
  auto first = make(&calls);
  calls->outcome = v1::COMPILE_FAILED;
  EXPECT_EQ(first->Compile(Source("refused"))->outcome(), v1::COMPILE_FAILED);
  // The machine may be to blame for these; and what compiles is no failure.
  calls->outcome = v1::COMPILE_TIMEOUT;
  EXPECT_TRUE(first->Compile(Source("slow")).ok());
  calls->outcome = v1::COMPILE_FAILED;
  calls->died = true;
  EXPECT_TRUE(first->Compile(Source("killed")).ok());
  calls->outcome = v1::OK;
  EXPECT_TRUE(first->Compile(Source("good")).ok());
  EXPECT_EQ(disk.size(), 1u);
  auto second = make(&calls);
  EXPECT_EQ(second->Compile(Source("refused"))->log(), "refused");
  EXPECT_EQ(calls->Calls(), 0);
  EXPECT_EQ(second->Counters().at("compile_failures_recalled"), 1);
  EXPECT_EQ(second->Counters().at("compiles"), 0);
  EXPECT_TRUE(second->Compile(Source("killed")).ok());
  EXPECT_EQ(calls->Calls(), 1);
  // Another toolchain or source is another key.
  calls->version = "13.1";
  EXPECT_TRUE(second->Compile(Source("refused")).ok());
  EXPECT_TRUE(second->Compile(Source("refused, changed")).ok());
  EXPECT_EQ(calls->Calls(), 3);
}

TEST_F(CachingCompilerTest, DifferentKeysDoNotWaitForEachOther) {
  absl::Notification gate;
  inner_->gate = &gate;
  std::thread slow([&] { Log("slow"); });
  while (inner_->Calls() < 1) std::this_thread::yield();
  {
    absl::MutexLock lock(&inner_->mutex);
    inner_->gate = nullptr;
  }
  EXPECT_EQ(Log("fast"), "fast");
  gate.Notify();
  slow.join();
}

TEST_F(CachingCompilerTest, G3_AFailedSourceIsNotCompiledAgain) {
  inner_->outcome = v1::COMPILE_FAILED;
  Log("bad");
  const auto again = cache_->Compile(Source("bad"));
  EXPECT_EQ(again->outcome(), v1::COMPILE_FAILED);
  EXPECT_EQ(inner_->Calls(), 1);
}

TEST_F(CachingCompilerTest, F7_AnInfrastructureErrorIsSharedButNotKept) {
  inner_->status = absl::UnavailableError("no worker");
  EXPECT_EQ(cache_->Compile(Source("a")).status().code(), absl::StatusCode::kUnavailable);
  inner_->status = absl::OkStatus();
  EXPECT_EQ(Log("a"), "a");
  inner_->version = absl::UnavailableError("no nvrtc");
  EXPECT_EQ(cache_->Compile(Source("a")).status().message(), "no nvrtc");
}

TEST_F(CachingCompilerTest, ATimeoutHoldsForRequestsThatAllowNoMoreTime) {
  inner_->outcome = v1::COMPILE_TIMEOUT;
  Log("slow", 1000);
  Log("slow", 500);
  EXPECT_EQ(inner_->Calls(), 1);
  inner_->outcome = v1::OK;
  EXPECT_EQ(cache_->Compile(Source("slow", 2000))->outcome(), v1::OK);
  EXPECT_EQ(cache_->Compile(Source("slow", 500))->outcome(), v1::OK);
  EXPECT_EQ(inner_->Calls(), 2);
}

TEST_F(CachingCompilerTest, AWaiterWithMoreTimeTriesAgainAfterATimeout) {
  absl::Notification gate;
  inner_->gate = &gate;
  inner_->outcome = v1::COMPILE_TIMEOUT;
  std::thread hasty([&] { Log("slow", 100); });
  while (inner_->Calls() < 1) std::this_thread::yield();
  std::thread patient([&] { Log("slow", 1000); });
  while (cache_->statistics().joined < 1) std::this_thread::yield();
  gate.Notify();
  hasty.join();
  patient.join();
  EXPECT_EQ(inner_->Calls(), 2);
}

class SmallCacheTest : public CachingCompilerTest {
 protected:
  SmallCacheTest() : CachingCompilerTest(30'000) { inner_->cubin_bytes = 9'000; }
};

TEST_F(SmallCacheTest, DropsWhatWasUsedLeastRecently) {
  for (const char* text : {"a", "b", "a", "c", "d"}) Log(text);  // room for three: b goes
  EXPECT_EQ(cache_->statistics().evictions, 1);
  EXPECT_LE(cache_->statistics().bytes, 30'000u);
  const int before = inner_->Calls();
  for (const char* text : {"a", "c", "d"}) Log(text);
  EXPECT_EQ(inner_->Calls(), before);
  Log("b");
  EXPECT_EQ(inner_->Calls(), before + 1);
}

TEST_F(SmallCacheTest, AResultLargerThanTheCacheIsAnsweredAndNotKept) {
  inner_->cubin_bytes = 100'000;
  EXPECT_EQ(Log("huge"), "huge");
  EXPECT_EQ(cache_->statistics().bytes, 0u);
}

}  // namespace
}  // namespace rooftune

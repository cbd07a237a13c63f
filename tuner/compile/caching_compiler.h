// Compiler that compiles nothing twice.
#ifndef ROOFTUNE_TUNER_COMPILE_CACHING_COMPILER_H_
#define ROOFTUNE_TUNER_COMPILE_CACHING_COMPILER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "tuner/compile/compiler.h"

namespace rooftune {

// Results by compile key, also of requests that failed, least recently used out first. Requests of one key that
// come while it is being compiled wait for that one compile. Thread-safe.
//
// Not kept: errors (a Status says nothing about the source). A COMPILE_TIMEOUT holds only for requests that allow
// no more time, since the key does not hold the limit.
class CachingCompiler : public Compiler {
 public:
  // CompileKey() of kernels/candidate.h.
  using KeyFunction =
      std::function<std::string(const worker::v1::CompileRequest& request, absl::string_view nvrtc_version)>;
  // Where sources that the compiler refused are remembered beyond this process; thread-safe. Timeouts and compilers
  // that died are not: the machine may have been to blame.
  struct FailureMemory {
    std::function<std::optional<worker::v1::CompileResult>(const std::string& key)> recall;
    std::function<void(const std::string& key, const worker::v1::CompileResult& result)> remember;
  };
  struct Options {
    // Bound of what is kept, in bytes.
    size_t max_bytes = size_t{256} << 20;
    FailureMemory failures;  // empty functions = none
  };
  struct Statistics {
    int64_t compiles = 0;  // handed to the inner compiler
    int64_t hits = 0;      // answered from what is kept
    int64_t joined = 0;    // waited for another caller's compile
    int64_t recalled = 0;  // failures of an earlier process
    int64_t evictions = 0;
    size_t bytes = 0;
  };

  CachingCompiler(std::unique_ptr<Compiler> inner, KeyFunction key, Options options);
  CachingCompiler(std::unique_ptr<Compiler> inner, KeyFunction key);

  absl::StatusOr<std::string> NvrtcVersion() override { return inner_->NvrtcVersion(); }
  absl::StatusOr<worker::v1::CompileResult> Compile(const worker::v1::CompileRequest& request) override;
  int parallelism() const override { return inner_->parallelism(); }

  Statistics statistics() const;
  // "compiles", "compile_cache_hits" (joined and recalled ones included), "compile_failures_recalled", beside the inner
  // compiler's.
  std::map<std::string, int64_t> Counters() const override;
  Compiler& inner() { return *inner_; }

 private:
  using Result = absl::StatusOr<worker::v1::CompileResult>;
  // A compile in progress; its waiters share it.
  struct Flight {
    explicit Flight(int limit_ms) : limit_ms(limit_ms) {}
    const int limit_ms;  // of the request that is compiled
    absl::Mutex mutex;
    bool done ABSL_GUARDED_BY(mutex) = false;
    Result result ABSL_GUARDED_BY(mutex) = absl::UnknownError("not compiled");
  };
  struct Entry {
    std::string key;
    std::shared_ptr<const worker::v1::CompileResult> result;
    int limit_ms = 0;
    size_t bytes = 0;
  };

  // The kept result that answers a request with this limit, or null.
  std::shared_ptr<const worker::v1::CompileResult> Find(const std::string& key, int limit_ms)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(const std::string& key, int limit_ms, const worker::v1::CompileResult& result);
  void Drop(std::list<Entry>::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // NOT_FOUND unless an earlier process saw the compiler refuse it.
  Result Recall(const std::string& key);
  Result Lead(const std::string& key, const worker::v1::CompileRequest& request, Flight& flight);

  const std::unique_ptr<Compiler> inner_;
  const KeyFunction key_;
  const Options options_;
  mutable absl::Mutex mutex_;
  Statistics counters_ ABSL_GUARDED_BY(mutex_);
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> index_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_COMPILE_CACHING_COMPILER_H_

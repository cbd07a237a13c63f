#include "tuner/compile/caching_compiler.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

using worker::v1::CompileRequest;
using worker::v1::CompileResult;

// A request without a limit gets the compiler's default, which is meant to be generous.
int LimitMs(const CompileRequest& request) {
  return request.timeout_ms() > 0 ? request.timeout_ms() : std::numeric_limits<int>::max();
}

// Whether a result found under `limit_ms` answers a request that allows `wanted_ms`.
bool Answers(const CompileResult& result, int limit_ms, int wanted_ms) {
  return result.outcome() != v1::COMPILE_TIMEOUT || wanted_ms <= limit_ms;
}

}  // namespace

CachingCompiler::CachingCompiler(std::unique_ptr<Compiler> inner, KeyFunction key)
    : CachingCompiler(std::move(inner), std::move(key), Options()) {}

CachingCompiler::CachingCompiler(std::unique_ptr<Compiler> inner, KeyFunction key, Options options)
    : inner_(std::move(inner)), key_(std::move(key)), options_(std::move(options)) {}

absl::StatusOr<CompileResult> CachingCompiler::Compile(const CompileRequest& request) {
  RT_ASSIGN_OR_RETURN(const std::string nvrtc_version, inner_->NvrtcVersion());
  // Which kernels must be there decides the outcome, though not the bytes that the compile key stands for.
  const std::string key = absl::StrCat(key_(request, nvrtc_version), "/", absl::StrJoin(request.symbol(), ","));
  const int limit_ms = LimitMs(request);
  while (true) {
    std::shared_ptr<Flight> flight;
    bool leads = false;
    {
      absl::MutexLock lock(&mutex_);
      if (const auto kept = Find(key, limit_ms)) {
        ++counters_.hits;
        return *kept;
      }
      std::shared_ptr<Flight>& slot = flights_[key];
      leads = slot == nullptr;
      if (leads) slot = std::make_shared<Flight>(limit_ms);
      flight = slot;
      if (!leads) ++counters_.joined;
    }
    if (leads) return Lead(key, request, *flight);
    absl::MutexLock lock(&flight->mutex);
    flight->mutex.Await(absl::Condition(&flight->done));
    if (!flight->result.ok() || Answers(*flight->result, flight->limit_ms, limit_ms)) return flight->result;
    // The other one gave up earlier than we would: try with our own limit.
  }
}

CachingCompiler::Result CachingCompiler::Recall(const std::string& key) {
  std::optional<CompileResult> failure;
  if (options_.failures.recall) failure = options_.failures.recall(key);
  absl::MutexLock lock(&mutex_);
  ++(failure.has_value() ? counters_.recalled : counters_.compiles);
  if (!failure.has_value()) return absl::NotFoundError("not remembered");
  return *std::move(failure);
}

CachingCompiler::Result CachingCompiler::Lead(const std::string& key, const CompileRequest& request, Flight& flight) {
  Result result = Recall(key);
  const bool recalled = result.ok();
  if (!recalled) result = inner_->Compile(request);
  // Kept before the flight ends, so that no caller finds neither.
  if (result.ok()) Keep(key, flight.limit_ms, *result);
  const bool refused = !recalled && result.ok() && result->outcome() == v1::COMPILE_FAILED && !result->compiler_died();
  if (refused && options_.failures.remember) options_.failures.remember(key, *result);
  {
    absl::MutexLock lock(&mutex_);
    flights_.erase(key);
  }
  absl::MutexLock lock(&flight.mutex);
  flight.result = result;
  flight.done = true;
  return result;
}

std::shared_ptr<const CompileResult> CachingCompiler::Find(const std::string& key, int limit_ms) {
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  const auto entry = found->second;
  if (!Answers(*entry->result, entry->limit_ms, limit_ms)) return nullptr;
  entries_.splice(entries_.begin(), entries_, entry);
  return entry->result;
}

void CachingCompiler::Keep(const std::string& key, int limit_ms, const CompileResult& result) {
  Entry entry{key, std::make_shared<const CompileResult>(result), limit_ms, 0};
  entry.bytes = entry.result->SpaceUsedLong() + 2 * key.size() + sizeof(Entry);
  absl::MutexLock lock(&mutex_);
  if (const auto old = index_.find(key); old != index_.end()) Drop(old->second);
  counters_.bytes += entry.bytes;
  entries_.push_front(std::move(entry));
  index_[key] = entries_.begin();
  while (counters_.bytes > options_.max_bytes && !entries_.empty()) {
    Drop(std::prev(entries_.end()));
    ++counters_.evictions;
  }
}

void CachingCompiler::Drop(std::list<Entry>::iterator entry) {
  counters_.bytes -= entry->bytes;
  index_.erase(entry->key);
  entries_.erase(entry);
}

CachingCompiler::Statistics CachingCompiler::statistics() const {
  absl::MutexLock lock(&mutex_);
  return counters_;
}

std::map<std::string, int64_t> CachingCompiler::Counters() const {
  std::map<std::string, int64_t> counters = inner_->Counters();
  const Statistics mine = statistics();
  counters["compiles"] = mine.compiles;
  counters["compile_cache_hits"] = mine.hits + mine.joined + mine.recalled;
  counters["compile_failures_recalled"] = mine.recalled;
  return counters;
}

}  // namespace rooftune

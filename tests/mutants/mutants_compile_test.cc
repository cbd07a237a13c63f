// Every planted fault compiles, and not to what the right kernel compiles to.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/mutants/async_order.h"
#include "tests/mutants/mutants.h"
#include "tuner/compile/worker_compiler.h"

namespace rooftune {
namespace {

std::string EnvOr(const char* name, const std::string& fallback) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

template <typename T>
T Take(absl::StatusOr<T> value) {
  if (!value.ok()) {
    ADD_FAILURE() << value.status();
    std::abort();
  }
  return *std::move(value);
}

using Requests = std::map<std::string, worker::v1::CompileRequest>;
using Results = std::map<std::string, worker::v1::CompileResult>;

Results CompileAll(Compiler& compiler, const Requests& requests) {
  std::vector<const worker::v1::CompileRequest*> list;
  std::vector<worker::v1::CompileResult> results(requests.size());
  for (const auto& [name, request] : requests) list.push_back(&request);
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < compiler.parallelism(); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < list.size(); i = next++) {
        const auto result = compiler.Compile(*list[i]);
        if (result.ok()) results[i] = *result;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Results by_name;
  size_t i = 0;
  for (const auto& [name, request] : requests) by_name[name] = std::move(results[i++]);
  return by_name;
}

TEST(MutantsCompileTest, EveryMutantCompilesToSomethingElse) {
  const std::string source_dir = EnvOr("ROOFTUNE_SOURCE_DIR", ".");
  const MutantSuite suite = Take(LoadMutants(source_dir));
  const auto library = Take(LoadLibraryWithExamples(source_dir));
  const DeviceProfile device = Take(Take(ProfileCatalog::Builtin()).ById("h200-sxm"));
  WorkerCompiler::Options options;
  options.worker_path = absl::StrCat(EnvOr("ROOFTUNE_BIN_DIR", "."), "/rooftune-worker");
  const auto compiler = Take(WorkerCompiler::Create(options));
  Requests requests;
  std::map<std::string, std::string> original;  // its name by the mutant's
  std::map<std::string, v1::LaunchPlan> plans;  // by the mutant's name
  for (const Mutant& mutant : suite.mutants) {
    const Op op = Take(library->ops().Parse(mutant.op));
    const KernelTemplate* const kernel = library->Find(mutant.template_id);
    const Config config = Take(ConfigWith(*kernel, op, device, mutant.config));
    worker::v1::CompileRequest request = Take(kernel->CompileInput(op, config, device));
    request.set_timeout_ms(120'000);
    original[mutant.id] = absl::StrCat(mutant.template_id, " ", op.text, " ", ConfigToString(config));
    requests[original[mutant.id]] = request;
    plans[mutant.id] = Take(kernel->Plan(op, config, device));
    ASSERT_TRUE(Plant(mutant, &request).ok());
    requests[mutant.id] = std::move(request);
  }
  const Results results = CompileAll(*compiler, requests);
  for (const auto& [name, result] : results) EXPECT_EQ(result.outcome(), v1::OK) << name << ": " << result.log();
  for (const auto& [mutant, right] : original) {
    EXPECT_NE(results.at(mutant).digest(), results.at(right).digest()) << mutant << " changes nothing";
    const absl::Status attached = AttachArtifact(results.at(mutant), plans.at(mutant));
    EXPECT_TRUE(attached.ok()) << mutant << ": " << attached;
    EXPECT_EQ(AsyncOrderFaults(results.at(right).cubin()), "") << right;
  }
  for (const Mutant& mutant : suite.mutants) {
    if (!mutant.async_order) continue;
    EXPECT_NE(AsyncOrderFaults(results.at(mutant.id).cubin()), "") << mutant.id;
  }
}

}  // namespace
}  // namespace rooftune

// A sweep manager over a fake device, for tests: real templates, scripted times, nothing runs.
#ifndef ROOFTUNE_TESTS_TUNER_SWEEP_SWEEP_FIXTURE_H_
#define ROOFTUNE_TESTS_TUNER_SWEEP_SWEEP_FIXTURE_H_

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/template_library.h"
#include "tuner/compile/fake_compiler.h"
#include "tuner/run/fake_runner.h"
#include "tuner/store/memory_store.h"
#include "tuner/sweep/sweep_manager.h"

namespace rooftune {

inline constexpr char kOp[] = "elementwise n=1048576 dtype=bf16 chain=relu(add(a,b))";

// A fake runner whose races a test may touch up.
class RaceEditor : public Runner {
 public:
  using Edit = std::function<void(worker::v1::RaceResult&)>;
  RaceEditor(std::unique_ptr<Runner> runner, Edit edit) : runner_(std::move(runner)), edit_(std::move(edit)) {}
  absl::StatusOr<worker::v1::PrepareResult> Prepare(const worker::v1::PrepareRequest& request) override {
    return runner_->Prepare(request);
  }
  absl::StatusOr<worker::v1::VendorResult> ListVendor(const worker::v1::VendorRequest& request) override {
    return runner_->ListVendor(request);
  }
  absl::StatusOr<worker::v1::RunResult> Run(const worker::v1::RunRequest& request) override {
    return runner_->Run(request);
  }
  absl::StatusOr<worker::v1::RunResult> RunBaseline(const worker::v1::BaselineRequest& request) override {
    return runner_->RunBaseline(request);
  }
  absl::StatusOr<worker::v1::RaceResult> Race(const worker::v1::RaceRequest& request) override {
    auto result = runner_->Race(request);
    if (result.ok()) edit_(*result);
    return result;
  }
  absl::StatusOr<worker::v1::CalibrateResult> Calibrate(const worker::v1::CalibrateRequest& request) override {
    return runner_->Calibrate(request);
  }
  absl::StatusOr<worker::v1::IdleResult> Idle() override { return runner_->Idle(); }
  void Interrupt() override { runner_->Interrupt(); }

 private:
  const std::unique_ptr<Runner> runner_;
  const Edit edit_;
};

class SweepTest : public testing::Test {
 protected:
  SweepTest() {
    auto library = TemplateLibrary::Load({});
    EXPECT_TRUE(library.ok()) << library.status();
    library_ = *std::move(library);
    auto profiles = ProfileCatalog::Builtin();
    EXPECT_TRUE(profiles.ok()) << profiles.status();
    profiles_ = *std::move(profiles);
    artifacts_ = ArtifactStore::InMemory();
  }

  // (Re)starts the manager on the same store, as a restarted daemon would.
  void Start(const std::string& script_text, bool modelled = false) {
    manager_.reset();
    device::v1::FakeScript script;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(script_text, &script)) << script_text;
    auto compiler = FakeCompiler::Create(script);
    ASSERT_TRUE(compiler.ok()) << compiler.status();
    compiler_ = *std::move(compiler);
    Backend backend;
    backend.id = modelled ? "model:h200-sxm" : "fake:test";
    backend.device_key = modelled ? "model/h200-sxm" : "fake/test";
    backend.kind = modelled ? v1::Device::MODELLED : v1::Device::FAKE;
    backend.profile = *profiles_.ById("h200-sxm");
    backend.environment.set_driver("580.1");
    backend.environment.set_nvrtc("13.0");
    outer_compiler_ = wrap_compiler ? wrap_compiler(*compiler_) : nullptr;
    backend.compiler = outer_compiler_ ? outer_compiler_.get() : compiler_.get();
    if (!modelled) {
      auto runner = FakeRunner::Create(script);
      ASSERT_TRUE(runner.ok()) << runner.status();
      runner_ = runner->get();
      backend.runner = wrap_runner ? wrap_runner(*std::move(runner)) : *std::move(runner);
      if (edit_race_) backend.runner = std::make_unique<RaceEditor>(std::move(backend.runner), edit_race_);
    }
    std::vector<Backend> backends;
    backends.push_back(std::move(backend));
    SweepManager::Options options;
    options.on_publish = [this](const std::vector<v1::TuningRecord>& records, int64_t) { published_ += static_cast<int>(records.size()); };
    auto manager = SweepManager::Create({*library_, store_, *artifacts_, *clock_}, std::move(backends), options);
    ASSERT_TRUE(manager.ok()) << manager.status();
    manager_ = *std::move(manager);
  }

  static v1::SweepSpec Spec(int max_trials, v1::StrategyKind strategy = v1::RANDOM) {
    v1::SweepSpec spec;
    spec.set_op(kOp);
    spec.set_max_trials(max_trials);
    spec.set_strategy(strategy);
    return spec;
  }

  v1::Sweep Await(const std::string& name, absl::Duration limit = absl::Seconds(30)) {
    const absl::Time end = absl::Now() + limit;
    while (absl::Now() < end) {
      const auto sweep = manager_->Get(name);
      EXPECT_TRUE(sweep.ok()) << sweep.status();
      if (!sweep.ok() || sweep->state() == v1::DONE || sweep->state() == v1::FAILED || sweep->state() == v1::CANCELLED) return *sweep;
      absl::SleepFor(absl::Milliseconds(2));
    }
    ADD_FAILURE() << name << " did not end";
    return {};
  }

  v1::Sweep RunSweep(const v1::SweepSpec& spec) {
    const auto sweep = manager_->Start(spec, "");
    EXPECT_TRUE(sweep.ok()) << sweep.status();
    return sweep.ok() ? Await(sweep->name()) : v1::Sweep();
  }

  std::vector<v1::Trial> Trials(const std::string& sweep) {
    auto page = store_.ListTrials({sweep, v1::OUTCOME_UNSPECIFIED}, 1000, "");
    EXPECT_TRUE(page.ok()) << page.status();
    return page->items;
  }

  // Set before Start() to see or change what passes between sweep and fakes.
  std::function<std::unique_ptr<Compiler>(Compiler& inner)> wrap_compiler;
  std::function<std::unique_ptr<Runner>(std::unique_ptr<Runner> inner)> wrap_runner;

  // Set before Start().
  RaceEditor::Edit edit_race_;
  MemoryStore store_;
  std::unique_ptr<TemplateLibrary> library_;
  ProfileCatalog profiles_;
  std::unique_ptr<ArtifactStore> artifacts_;
  std::unique_ptr<FakeCompiler> compiler_;
  std::unique_ptr<Compiler> outer_compiler_;
  FakeRunner* runner_ = nullptr;
  std::atomic<int> published_{0};
  Clock* clock_ = &Clock::Real();
  std::unique_ptr<SweepManager> manager_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_TUNER_SWEEP_SWEEP_FIXTURE_H_

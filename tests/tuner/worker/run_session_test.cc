// The whole session on a driver that lives on the CPU.
#include "tuner/worker/run_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "tests/tuner/worker/run_fake_cuda.h"
#include "tuner/worker/run_timer.h"

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kElements = 1003;
// 4012 bytes: 4 bytes of padding up to the next 16.
constexpr char kOp[] = "elementwise n=1003 dtype=fp32 chain=add(a,b)";

using Add = std::function<void(const float* a, const float* b, float* y, int64_t n)>;

// A kernel with arguments a, b, y, n.
FakeCuda::Kernel AddKernel(const Add& add) {
  return {4, [add](void** x) {
            add(ArgumentAt<const float*>(x, 0), ArgumentAt<const float*>(x, 1), ArgumentAt<float*>(x, 2),
                ArgumentAt<int64_t>(x, 3));
          }};
}

void Right(const float* a, const float* b, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

class RunSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("ROOFTUNE_LIBCUBLASLT", "/nowhere/libcublasLt.so", 1);
    cuda_.kernels["rt_reference"] = {5, [this](void** x) {
                                       const float* const a = ArgumentAt<const float*>(x, 0);
                                       const float* const b = ArgumentAt<const float*>(x, 1);
                                       for (int64_t i = 0; i < ArgumentAt<int64_t>(x, 4); ++i) {
                                         const double sum = static_cast<double>(a[i]) + static_cast<double>(b[i]);
                                         ArgumentAt<double*>(x, 2)[i] = sum + reference_error_;
                                         ArgumentAt<float*>(x, 3)[i] = std::abs(a[i]) + std::abs(b[i]);
                                       }
                                     }};
    cuda_.kernels["right"] = AddKernel(Right);
    cuda_.duration_us["right"] = 50;
    Open();
  }
  void TearDown() override {
    session_.reset();
    context_.reset();
    EXPECT_EQ(cuda_.allocations, 0);
    unsetenv("ROOFTUNE_LIBCUBLASLT");
  }
  void Open() {
    session_.reset();
    context_.reset();
    driver_ = cuda_.driver();
    auto context = GpuContext::Create(*driver_, DeviceId());
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = *std::move(context);
    session_ = std::make_unique<RunSession>(*context_);
  }

  static worker::v1::PrepareRequest Request() {
    const auto catalog = OpCatalog::Builtin();
    EXPECT_TRUE(catalog.ok()) << catalog.status();
    const auto op = catalog->Parse(kOp);
    EXPECT_TRUE(op.ok()) << op.status();
    worker::v1::PrepareRequest request;
    request.set_op(op->text);
    request.set_seed(7);
    const auto tensors = catalog->Find(op->kind)->Tensors(*op);
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    for (const OpTensorInstance& tensor : *tensors) {
      worker::v1::ProblemTensor* const to = request.add_tensor();
      *to->mutable_spec() = tensor.spec;
      to->set_elements(tensor.elements);
      to->set_bytes(tensor.bytes);
      to->mutable_fill()->set_mean(tensor.fill_mean);
      to->mutable_fill()->set_stddev(tensor.fill_stddev);
      to->mutable_fill()->set_range(tensor.fill_range);
    }
    request.set_support_cubin(FakeCuda::Cubin());
    request.set_reference_cubin(FakeCuda::Cubin());
    worker::v1::ReferencePlan* const plan = request.mutable_reference();
    plan->set_symbol("rt_reference");
    plan->set_name("elementwise/reference.cuh@test");
    plan->set_grid_x(4);
    plan->set_block_x(256);
    plan->add_argument()->set_tensor("a");
    plan->add_argument()->set_tensor("b");
    plan->add_argument()->set_reference_value("y");
    plan->add_argument()->set_reference_magnitude("y");
    plan->add_argument()->set_int64(kElements);
    request.mutable_tolerance()->set_accumulation_length(1);
    request.mutable_tolerance()->set_scale(1);
    request.set_cpu_check_elements(512);
    return request;
  }
  void PrepareOk() {
    const auto result = session_->Prepare(Request());
    ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  }
  worker::v1::RunRequest Candidate(const std::string& symbol, bool measure = false) {
    worker::v1::RunRequest request;
    request.mutable_plan()->set_op(Request().op());
    v1::Launch* const launch = request.mutable_plan()->add_launch();
    launch->set_symbol(symbol);
    launch->mutable_grid_x()->set_value(4);
    launch->mutable_block_x()->set_value(256);
    for (const char* tensor : {"a", "b", "y"}) launch->add_argument()->set_tensor(tensor);
    v1::Argument* const n = launch->add_argument();
    n->mutable_integer()->set_value(kElements);
    n->set_size(8);
    request.set_cubin(FakeCuda::Cubin());
    request.set_digest(Sha256Hex(request.cubin()));
    request.set_verify(true);
    request.set_measure(measure);
    return request;
  }
  worker::v1::RunResult RunAdd(const Add& add) {
    cuda_.kernels["candidate"] = AddKernel(add);
    return session_->Run(Candidate("candidate"));
  }

  FakeCuda cuda_;
  double reference_error_ = 0;
  std::unique_ptr<CudaDriver> driver_;
  std::unique_ptr<GpuContext> context_;
  std::unique_ptr<RunSession> session_;
};

TEST_F(RunSessionTest, PreparesAndChecksTheReference) {
  const auto result = session_->Prepare(Request());
  EXPECT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_GE(result.cpu_checked_elements(), 500);
  EXPECT_EQ(result.cpu_max_error_ratio(), 0);
  EXPECT_EQ(result.buffer_sets(), 64);
  EXPECT_GT(result.allocated_bytes(), 64 * 3 * 4012);
}

TEST_F(RunSessionTest, AReferenceThatIsWrongStopsEverything) {
  reference_error_ = 1e-6;
  const auto result = session_->Prepare(Request());
  EXPECT_EQ(result.outcome(), v1::WRONG_RESULT);
  EXPECT_THAT(result.message(), HasSubstr("reference kernel disagrees with CPU"));
  EXPECT_GT(result.cpu_max_error_ratio(), 1);
  EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::LAUNCH_FAILED);
}

TEST_F(RunSessionTest, WhatDoesNotFitIsOutOfMemory) {
  auto request = Request();
  request.set_memory_cap_bytes(1 << 20);
  EXPECT_EQ(session_->Prepare(request).outcome(), v1::OUT_OF_MEMORY);
  cuda_.free_bytes = 1 << 20;
  EXPECT_EQ(session_->Prepare(Request()).outcome(), v1::OUT_OF_MEMORY);
}

TEST_F(RunSessionTest, VerifiesAndTimesARightKernel) {
  PrepareOk();
  const auto result = session_->Run(Candidate("right", true));
  EXPECT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_TRUE(result.verification().passed());
  EXPECT_EQ(result.verification().elements(), kElements);
  EXPECT_GE(result.verification().cpu_checked_elements(), 500);
  EXPECT_EQ(result.verification().reference(), "elementwise/reference.cuh@test");
  EXPECT_NEAR(result.measurement().median_us(), 50, 1e-3);
  EXPECT_EQ(result.measurement().l2(), v1::COLD);
  EXPECT_EQ(result.measurement().buffer_sets(), 64);
  // 2 ms hold 40 of the 64 sets: they are used in two graphs.
  EXPECT_EQ(result.measurement().launches_per_sample(), 32);
  EXPECT_NEAR(result.measurement().sm_clock_mhz(), 1980, 1);
  // So small a problem stays in the L2 unless it is flushed.
  EXPECT_GE(cuda_.launches["rt_flush_read"], result.measurement().sample_us_size());
}

TEST_F(RunSessionTest, WarmUsesTheSameBuffersAndNoFlush) {
  PrepareOk();
  auto request = Candidate("right", true);
  request.mutable_options()->set_l2(v1::WARM);
  const auto result = session_->Run(request);
  EXPECT_EQ(result.outcome(), v1::OK);
  EXPECT_EQ(result.measurement().buffer_sets(), 1);
  EXPECT_EQ(result.measurement().launches_per_sample(), 40);
  EXPECT_EQ(cuda_.launches["rt_flush_read"], 0);
}

TEST_F(RunSessionTest, FindsWhatIsWrong) {
  for (const bool virtual_memory : {true, false}) {
    SCOPED_TRACE(virtual_memory);
    cuda_.has_virtual_memory = virtual_memory;
    Open();
    PrepareOk();
    auto result = RunAdd([](const float* a, const float* b, float* y, int64_t n) {
      Right(a, b, y, n);
      y[777] += 1;
    });
    EXPECT_EQ(result.outcome(), v1::WRONG_RESULT);
    EXPECT_EQ(result.verification().first_wrong_index(), 777);
    EXPECT_NEAR(result.verification().first_wrong_value() - result.verification().first_wrong_expected(), 1, 1e-5);
    result = RunAdd([](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, n - 2); });
    EXPECT_EQ(result.outcome(), v1::WRONG_RESULT);
    EXPECT_EQ(result.verification().unwritten_elements(), 2);
    result = RunAdd([](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, n), y[n] = 0; });
    EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
    EXPECT_EQ(result.verification().redzone_bytes(), 4);
    result = RunAdd([](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, n), y[-1] = 0; });
    EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
    EXPECT_FALSE(result.verification().passed());
    EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::OK);
  }
}

TEST_F(RunSessionTest, InputsThatCannotBeProtectedAreRestored) {
  cuda_.has_virtual_memory = false;
  Open();
  PrepareOk();
  RunAdd([](const float* a, const float* b, float* y, int64_t n) {
    Right(a, b, y, n);
    const_cast<float*>(a)[5] = 1e9f;
  });
  EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::OK);
}

TEST_F(RunSessionTest, AFaultIsTheCandidatesAndPoisonsTheProcess) {
  PrepareOk();
  EXPECT_FALSE(session_->IsPoisoned());
  const auto result = RunAdd([this](const float*, const float*, float*, int64_t) { cuda_.sticky = 700; });
  EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
  EXPECT_EQ(result.cuda_error(), 700);
  EXPECT_THAT(result.message(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  EXPECT_TRUE(session_->IsPoisoned());
}

TEST_F(RunSessionTest, RefusesWhatCannotRun) {
  EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::LAUNCH_FAILED);  // nothing prepared
  PrepareOk();
  auto request = Candidate("right");
  request.set_digest("0123");
  EXPECT_THAT(session_->Run(request).message(), HasSubstr("announced was '0123'"));
  request = Candidate("right");
  request.mutable_plan()->set_op("softmax rows=1 cols=1 dtype=fp32");
  EXPECT_EQ(session_->Run(request).outcome(), v1::LAUNCH_FAILED);
  EXPECT_EQ(session_->Run(Candidate("missing")).outcome(), v1::LAUNCH_FAILED);
  request = Candidate("right");
  request.set_cubin(std::string(200, 'x'));
  request.set_digest(Sha256Hex(request.cubin()));
  EXPECT_THAT(session_->Run(request).message(), HasSubstr("not a CUDA ELF file"));
  EXPECT_EQ(cuda_.launches["right"], 0);
}

TEST_F(RunSessionTest, WorkspaceIsZeroedBeforeEveryExecution) {
  PrepareOk();
  auto request = Candidate("accumulates", true);
  request.mutable_plan()->mutable_workspace_bytes()->set_value(8);
  request.mutable_plan()->set_workspace_init(v1::LaunchPlan::ZERO);
  request.mutable_plan()->mutable_launch(0)->add_argument()->mutable_workspace_offset()->set_value(0);
  int dirty = 0;
  cuda_.kernels["accumulates"] = {5, [&](void** x) {
                                    Right(ArgumentAt<const float*>(x, 0), ArgumentAt<const float*>(x, 1),
                                          ArgumentAt<float*>(x, 2), kElements);
                                    uint64_t* const counter = ArgumentAt<uint64_t*>(x, 4);
                                    dirty += *counter != 0;
                                    ++*counter;
                                  }};
  EXPECT_EQ(session_->Run(request).outcome(), v1::OK);
  EXPECT_GT(cuda_.launches["accumulates"], 10);
  EXPECT_EQ(dirty, 0);
}

TEST_F(RunSessionTest, TensorMapsAreEncodedOnceForEachSetOfBuffers) {
  PrepareOk();
  FakeCuda::Kernel kernel = {4, [](void** x) {
                               const auto a = ArgumentAt<FakeCuda::EncodedMap>(x, 0);
                               const auto y = ArgumentAt<FakeCuda::EncodedMap>(x, 2);
                               Right(reinterpret_cast<const float*>(a.address), ArgumentAt<const float*>(x, 1),
                                     reinterpret_cast<float*>(y.address), static_cast<int64_t>(a.dims[0]));
                             }};
  kernel.maps = {0, 2};
  cuda_.kernels["mapped"] = kernel;
  cuda_.duration_us["mapped"] = 50;
  auto request = Candidate("mapped", /*measure=*/true);
  for (const int i : {0, 2}) {
    v1::TensorMap* const map = request.mutable_plan()->mutable_launch(0)->mutable_argument(i)->mutable_tensor_map();
    map->set_tensor(i == 0 ? "a" : "y");
    map->set_dtype(v1::FP32);
    map->add_dim()->set_value(kElements);
    map->add_box()->set_value(64);
    map->add_element_stride()->set_value(1);
  }
  const auto result = session_->Run(request);
  EXPECT_EQ(result.outcome(), v1::OK) << result.message();
  // Far fewer than launches: two maps for the check and two a set.
  EXPECT_EQ(cuda_.encoded_maps % 2, 0);
  EXPECT_GE(cuda_.encoded_maps, 4);
  EXPECT_LE(cuda_.encoded_maps, 2 + 2 * 64);
  EXPECT_GT(cuda_.launches["mapped"], cuda_.encoded_maps);
  request.mutable_plan()->mutable_launch(0)->mutable_argument(0)->mutable_tensor_map()->mutable_box(0)->set_value(300);
  const auto refused = session_->Run(request);
  EXPECT_EQ(refused.outcome(), v1::LAUNCH_FAILED);
  EXPECT_THAT(refused.message(), HasSubstr("tensor map of 'a' (dims 1003, strides  bytes, box 300"));
}

TEST_F(RunSessionTest, ThrottledBurstsAreThrownAway) {
  PrepareOk();
  auto request = Candidate("right", true);
  request.mutable_options()->set_min_samples(5);
  // One good burst teaches the clock, the next fell by 20 %.
  cuda_.clocks_mhz = {1980, 1980, 1980, 1600, 1980};
  request.mutable_options()->set_target_absolute_ci_us(1e-9);
  request.mutable_options()->set_burst_ms(0.001);
  const auto result = session_->Run(request);
  EXPECT_EQ(result.outcome(), v1::OK);
  EXPECT_EQ(result.measurement().discarded_samples(), 1);
  EXPECT_EQ(result.measurement().sample_us_size(), 5);
}

// Says what it is told, and lets time pass between the readings around a burst.
class ScriptedMonitor : public GpuMonitor {
 public:
  GpuReading Read() override {
    ++reads;
    if (reads % 2 == 0 && (busy_bursts < 0 || reads / 2 <= busy_bursts)) clock.Advance(absl::Seconds(1));
    return reading;
  }
  int64_t EnergyMj() override {
    if (energy_mj < 0) return -1;
    // 20 ms a look; the counter moves with every other one.
    clock.Advance(absl::Milliseconds(20));
    if (++energy_reads % 2 == 0) energy_mj = total_mj();
    return energy_mj;
  }
  GpuReading reading = {412, 51, 0x4, 1};
  std::function<int64_t()> total_mj;
  int64_t energy_mj = -1;
  int energy_reads = 0;
  FakeClock clock;
  int busy_bursts = 0;  // so many bursts take a second of wall time; negative = all
  int reads = 0;
};

TEST_F(RunSessionTest, B3_ContendedBurstsAreThrownAwayAndCounted) {
  ScriptedMonitor monitor;
  monitor.busy_bursts = 2;
  session_ = std::make_unique<RunSession>(*context_, RunSession::Surroundings{&monitor, &monitor.clock});
  PrepareOk();
  const auto result = session_->Run(Candidate("right", true));
  EXPECT_EQ(result.outcome(), v1::OK) << result.message();
  const auto& m = result.measurement();
  EXPECT_TRUE(m.contended());
  EXPECT_GT(m.contended_samples(), 0);
  EXPECT_EQ(m.discarded_samples(), m.contended_samples());
  EXPECT_EQ(m.foreign_processes(), 1);
  EXPECT_EQ(m.power_w(), 412);
  EXPECT_EQ(m.temperature_c(), 51);
  EXPECT_EQ(m.throttle_reasons(), 4u);
  EXPECT_NEAR(m.median_us(), 50, 1e-3);
}

TEST_F(RunSessionTest, B3_AFullyContendedMeasurementIsNoTime) {
  ScriptedMonitor monitor;
  monitor.busy_bursts = -1;
  session_ = std::make_unique<RunSession>(*context_, RunSession::Surroundings{&monitor, &monitor.clock});
  PrepareOk();
  const auto result = session_->Run(Candidate("right", true));
  EXPECT_EQ(result.outcome(), v1::TOO_NOISY);
  EXPECT_THAT(result.message(), HasSubstr("contended: 1 other processes"));
  EXPECT_EQ(result.measurement().sample_us_size(), 0);
  // A race ends too, and says the same of each.
  worker::v1::RaceRequest request;
  for (int i = 0; i < 2; ++i) *request.add_entrant()->mutable_candidate() = Candidate("right", true);
  const auto race = session_->Race(request, [](int) {});
  EXPECT_EQ(race.result(0).outcome(), v1::TOO_NOISY);
  EXPECT_EQ(race.result(1).outcome(), v1::TOO_NOISY);
  // With nobody else on the GPU a slow host is no reason to doubt.
  monitor.reading.foreign_processes = 0;
  EXPECT_EQ(session_->Run(Candidate("right", true)).outcome(), v1::OK);
}

TEST_F(RunSessionTest, EnergyIsThatOfTheLaunchesInItsWindows) {
  ScriptedMonitor monitor;
  monitor.reading.foreign_processes = 0;
  monitor.energy_mj = 1'000'000;
  // Three millijoules a launch.
  monitor.total_mj = [&] { return 1'000'000 + int64_t{3} * cuda_.launches["right"]; };
  session_ = std::make_unique<RunSession>(*context_, RunSession::Surroundings{&monitor, &monitor.clock});
  PrepareOk();
  auto request = Candidate("right", true);
  EXPECT_EQ(session_->Run(request).measurement().energy_uj(), 0) << "only on request";
  request.mutable_options()->set_energy(true);
  const auto result = session_->Run(request);
  ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_EQ(result.energy_error(), "");
  const auto& m = result.measurement();
  EXPECT_NEAR(m.energy_uj(), 3000, 1e-6);
  EXPECT_NEAR(m.energy_low_uj(), 3000, 1e-6);
  EXPECT_NEAR(m.energy_high_uj(), 3000, 1e-6);
  EXPECT_GT(m.energy_launches(), 1000);
  // In a race each candidate has its own.
  cuda_.kernels["left"] = AddKernel(Right);
  worker::v1::RaceRequest race;
  race.mutable_options()->set_energy(true);
  for (const char* symbol : {"right", "left"}) *race.add_entrant()->mutable_candidate() = Candidate(symbol, true);
  monitor.total_mj = [&] {
    return 1'000'000 + int64_t{3} * cuda_.launches["right"] + int64_t{7} * cuda_.launches["left"];
  };
  const auto raced = session_->Race(race, [](int) {});
  ASSERT_EQ(raced.outcome(), v1::OK) << raced.message();
  EXPECT_NEAR(raced.result(0).measurement().energy_uj(), 3000, 1e-6);
  EXPECT_NEAR(raced.result(1).measurement().energy_uj(), 7000, 1e-6);
}

TEST_F(RunSessionTest, EnergyThatCantBeHadIsSaid) {
  ScriptedMonitor monitor;
  monitor.reading.foreign_processes = 0;
  session_ = std::make_unique<RunSession>(*context_, RunSession::Surroundings{&monitor, &monitor.clock});
  PrepareOk();
  auto request = Candidate("right", true);
  request.mutable_options()->set_energy(true);
  const auto none = session_->Run(request);
  EXPECT_EQ(none.outcome(), v1::OK);
  EXPECT_THAT(none.energy_error(), HasSubstr("NVML does not count it"));
  EXPECT_GT(none.measurement().median_us(), 0);
  monitor.energy_mj = 5;
  monitor.total_mj = [] { return int64_t{5}; };
  EXPECT_THAT(session_->Run(request).energy_error(), HasSubstr("does not move under load"));
  // A candidate that was given up is not loaded for seconds.
  request.mutable_options()->set_abandon_above_us(10);
  const int before = cuda_.launches["right"];
  EXPECT_EQ(session_->Run(request).energy_error(), "");
  EXPECT_LT(cuda_.launches["right"] - before, 2000);
}

// Alone or in a race: what another kernel left of these buffers in the L2 must not serve this one.
TEST_F(RunSessionTest, B1_EveryBurstOnRotatedBuffersBeginsWithAFlush) {
  auto support = SupportModule::Create(*context_, Request().support_cubin());
  ASSERT_TRUE(support.ok()) << support.status();
  auto flush = DeviceBuffer::Create(*context_, 4096);
  auto data = DeviceBuffer::Create(*context_, 4096);
  ASSERT_TRUE(flush.ok() && data.ok());
  TimedWork work;
  work.sets = 2;
  work.rotation = Rotation::kCold;
  work.flush = flush->ptr();
  work.flush_bytes = flush->size();
  work.enqueue = [&](int) { return (*support)->Poison(data->ptr(), 64); };
  cuda_.duration_us["rt_poison"] = 100;
  FakeClock clock;
  double highest_mhz = 0;
  const TimerContext context = {*context_, **support, nullptr, clock, highest_mhz};
  auto timer = KernelTimer::Create(context, work, {});
  ASSERT_TRUE(timer.ok()) << timer.status();
  ASSERT_TRUE((*timer)->WarmUp().ok());
  EXPECT_EQ(cuda_.launches["rt_flush_read"], 0);
  for (int bursts = 1; bursts <= 3; ++bursts) {
    ASSERT_TRUE((*timer)->Burst(1).ok());
    EXPECT_EQ(cuda_.launches["rt_flush_read"], bursts);
  }
}

TEST_F(RunSessionTest, B2_TheFlushIsNotTimed) {
  PrepareOk();
  cuda_.duration_us["rt_flush_read"] = 60;
  cuda_.duration_us["right"] = 5;
  const auto result = session_->Run(Candidate("right", true));
  ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_GT(cuda_.launches["rt_flush_read"], 0);
  EXPECT_NEAR(result.measurement().median_us(), 5, 1e-3);
}

TEST_F(RunSessionTest, B7_ShortKernelsAreTimedManyToAGraph) {
  PrepareOk();
  cuda_.duration_us["right"] = 2;
  auto request = Candidate("right", true);
  request.mutable_options()->set_l2(v1::WARM);
  const auto result = session_->Run(request);
  EXPECT_EQ(result.measurement().timing(), v1::GRAPH);
  EXPECT_EQ(result.measurement().launches_per_sample(), 300);
}

TEST_F(RunSessionTest, B8_InputsAreSeededAndNeverZero) {
  auto request = Request();
  request.mutable_tensor(0)->mutable_fill()->set_mean(0);
  request.mutable_tensor(0)->mutable_fill()->set_stddev(0);
  const auto refused = session_->Prepare(request);
  EXPECT_NE(refused.outcome(), v1::OK);
  EXPECT_THAT(refused.message(), HasSubstr("all zeros"));
  PrepareOk();
  EXPECT_EQ(session_->Run(Candidate("right")).verification().seed(), 7u);
}

TEST_F(RunSessionTest, G5_TheSlowCostLittleOfTheGpu) {
  PrepareOk();
  cuda_.kernels["slow"] = cuda_.kernels["right"];
  cuda_.duration_us["slow"] = 100 * cuda_.duration_us["right"];
  ASSERT_EQ(session_->Run(Candidate("right", true)).outcome(), v1::OK);
  auto request = Candidate("slow", true);
  request.mutable_options()->set_abandon_above_us(150);
  for (int i = 0; i < 9; ++i) {
    const auto result = session_->Run(request);
    ASSERT_EQ(result.outcome(), v1::OK);
    EXPECT_THAT(result.message(), HasSubstr("abandoned"));
    EXPECT_NEAR(result.measurement().median_us(), 5000, 1);
  }
  const double good_us = cuda_.launches["right"] * cuda_.duration_us["right"];
  // One launch each is the verification's.
  const double slow_us = (cuda_.launches["slow"] - 9) * cuda_.duration_us["slow"];
  EXPECT_LE(slow_us, 3 * good_us) << cuda_.launches["slow"] << " and " << cuda_.launches["right"] << " launches";
}

TEST_F(RunSessionTest, C4_InPlaceIsJudgedAfterOneLaunchOnPristineInputs) {
  auto request = Request();
  ASSERT_EQ(request.tensor(2).spec().name(), "y");
  request.mutable_tensor(2)->mutable_spec()->set_role(v1::TensorSpec::INOUT);
  request.mutable_tensor(2)->mutable_fill()->set_mean(1);
  request.mutable_tensor(2)->mutable_fill()->set_stddev(0.5);
  request.mutable_reference()->mutable_argument(1)->set_tensor("y");  // y += a
  request.set_cpu_check_elements(0);
  const auto prepared = session_->Prepare(request);
  ASSERT_EQ(prepared.outcome(), v1::OK) << prepared.message();
  const auto in_place = [](const float* a, const float*, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] += a[i];
  };
  // Twice: what the first left is restored for the second.
  for (int i = 0; i < 2; ++i) {
    const auto result = RunAdd(in_place);
    EXPECT_EQ(result.outcome(), v1::OK) << result.message();
  }
  const auto twice =
      RunAdd([&](const float* a, const float* b, float* y, int64_t n) { in_place(a, b, y, n), in_place(a, b, y, n); });
  EXPECT_EQ(twice.outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(RunAdd(in_place).outcome(), v1::OK);
}

TEST_F(RunSessionTest, C4_InPlaceInputsAreRestoredBeforeEachBurst) {
  auto request = Request();
  request.mutable_tensor(2)->mutable_spec()->set_role(v1::TensorSpec::INOUT);
  request.mutable_tensor(2)->mutable_fill()->set_mean(1);
  request.mutable_tensor(2)->mutable_fill()->set_stddev(0.5);
  request.mutable_reference()->mutable_argument(1)->set_tensor("y");
  request.set_cpu_check_elements(0);
  request.set_l2(v1::WARM);
  ASSERT_EQ(session_->Prepare(request).outcome(), v1::OK);
  // Adds to what it finds.
  float largest = 0, step = 0;
  cuda_.kernels["add"] = AddKernel([&](const float* a, const float*, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] += a[i];
    step = std::abs(a[0]);
    largest = std::max(largest, std::abs(y[0]));
  });
  cuda_.duration_us["add"] = 50;
  auto run = Candidate("add", true);
  run.set_verify(false);
  run.mutable_options()->set_l2(v1::WARM);
  // Bursts of 32 samples, the most there are: the fake's samples take the host no time.
  run.mutable_options()->set_min_samples(200);
  run.mutable_options()->set_max_samples(200);
  run.mutable_options()->set_target_absolute_ci_us(1e-9);
  const auto result = session_->Run(run);
  ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_GT(cuda_.launches["add"], 6000);
  // What one burst adds, with its untimed replay and the warm-up; not what all add.
  EXPECT_LT(largest, 1500 * step + 4);
  EXPECT_GT(step, 0.01);
}

TEST_F(RunSessionTest, C2_WhatTheLastCandidateWroteDoesNotCount) {
  PrepareOk();
  EXPECT_EQ(RunAdd([](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, n / 2); }).outcome(),
            v1::WRONG_RESULT);
  const auto other_half = RunAdd(
      [](const float* a, const float* b, float* y, int64_t n) { Right(a + n / 2, b + n / 2, y + n / 2, n - n / 2); });
  EXPECT_EQ(other_half.outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(other_half.verification().unwritten_elements(), kElements / 2);
}

TEST_F(RunSessionTest, C3_NothingAndRefusedLaunchesNeverPass) {
  PrepareOk();
  const auto nothing = RunAdd([](const float*, const float*, float*, int64_t) {});
  EXPECT_EQ(nothing.outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(nothing.verification().unwritten_elements(), kElements);
  auto request = Candidate("right");
  request.mutable_plan()->mutable_launch(0)->mutable_block_x()->set_value(2048);
  const auto refused = session_->Run(request);
  EXPECT_EQ(refused.outcome(), v1::LAUNCH_FAILED);
  EXPECT_FALSE(refused.verification().passed());
  // Not verified is not passed.
  request = Candidate("right");
  request.set_verify(false);
  EXPECT_FALSE(session_->Run(request).verification().passed());
}

TEST_F(RunSessionTest, C5_OneElementOutsideIsFound) {
  PrepareOk();
  for (const int64_t at : {int64_t{-1}, kElements}) {
    const auto result =
        RunAdd([at](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, n), y[at] = 0; });
    EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS) << at;
  }
}

TEST_F(RunSessionTest, D6_CorruptBinariesAreRefusedAndLeaveNothing) {
  PrepareOk();
  const int64_t alive = cuda_.allocations;
  std::string truncated = FakeCuda::Cubin();
  truncated.resize(truncated.size() / 2);
  for (const std::string& bytes : {std::string(), std::string(4096, '\0'),
                                   std::string("\x7f"
                                               "ELF"),
                                   truncated}) {
    auto request = Candidate("right");
    request.set_cubin(bytes);
    request.set_digest(Sha256Hex(bytes));
    EXPECT_EQ(session_->Run(request).outcome(), v1::LAUNCH_FAILED);
    EXPECT_EQ(cuda_.allocations, alive);
  }
  EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::OK);
}

TEST_F(RunSessionTest, D8_NothingPilesUpOverManyCandidates) {
  // One buffer set: 64 recipes a candidate would take the test's time.
  auto problem = Request();
  problem.set_l2(v1::WARM);
  ASSERT_EQ(session_->Prepare(problem).outcome(), v1::OK);
  cuda_.kernels["wrong"] = AddKernel([](const float*, const float*, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = 0;
  });
  session_->Run(Candidate("right", true));
  const auto alive = [this] {
    return std::vector<int64_t>{cuda_.allocations, static_cast<int64_t>(cuda_.live_modules.size()), cuda_.graphs,
                                cuda_.events};
  };
  const std::vector<int64_t> before = alive();
  const int64_t loads = cuda_.module_loads;
  constexpr int kCandidates = 5000;
  // Made once: the helper parses all operators.
  const auto right = Candidate("right"), timed = Candidate("right", true), wrong = Candidate("wrong"),
             unknown = Candidate("unknown");
  for (int i = 0; i < kCandidates; ++i) {
    // Some are timed, some wrong, some can't be loaded or launched.
    auto request = i % 10 == 3 ? wrong : i % 10 == 4 ? unknown : i % 100 == 0 ? timed : right;
    if (i % 10 == 5) request.set_digest("not this");
    const v1::Outcome outcome = session_->Run(request).outcome();
    ASSERT_EQ(outcome, i % 10 == 3 ? v1::WRONG_RESULT : i % 10 == 4 || i % 10 == 5 ? v1::LAUNCH_FAILED : v1::OK) << i;
  }
  EXPECT_EQ(alive(), before);
  EXPECT_GE(cuda_.module_loads - loads, kCandidates * 9 / 10);
  EXPECT_EQ(cuda_.uses_after_unload, 0);
}

TEST_F(RunSessionTest, E5_TooLargeLeavesNothingAndASmallProblemWorksNext) {
  cuda_.free_bytes = 1 << 20;
  EXPECT_EQ(session_->Prepare(Request()).outcome(), v1::OUT_OF_MEMORY);
  const int64_t alive = cuda_.allocations;  // the verifier's own
  EXPECT_EQ(session_->Prepare(Request()).outcome(), v1::OUT_OF_MEMORY);
  EXPECT_EQ(cuda_.allocations, alive);
  cuda_.free_bytes = int64_t{1} << 40;
  PrepareOk();
  EXPECT_EQ(session_->Run(Candidate("right")).outcome(), v1::OK);
}

TEST_F(RunSessionTest, GivesUpOnTheSlowAndDoubtsTheImpossible) {
  PrepareOk();
  auto request = Candidate("right", true);
  request.mutable_options()->set_abandon_above_us(40);
  const auto slow = session_->Run(request);
  EXPECT_EQ(slow.outcome(), v1::OK);
  EXPECT_LE(slow.measurement().sample_us_size(), 3);
  EXPECT_THAT(slow.message(), HasSubstr("abandoned"));
  request.mutable_options()->set_abandon_above_us(60);
  EXPECT_GE(session_->Run(request).measurement().sample_us_size(), 7);
  request.mutable_options()->set_floor_us(51);
  EXPECT_EQ(session_->Run(request).outcome(), v1::IMPLAUSIBLE);
}

// A launch by itself takes longer than in a graph; of a short kernel it says nothing.
TEST_F(RunSessionTest, ShortKernelsAreGivenUpByTheirGraphsOnly) {
  PrepareOk();
  cuda_.duration_us["right"] = 9;
  auto request = Candidate("right", true);
  request.mutable_options()->set_abandon_above_us(2.5);
  const auto slow = session_->Run(request);
  EXPECT_EQ(slow.outcome(), v1::OK);
  EXPECT_THAT(slow.message(), HasSubstr("abandoned after 3 samples"));
  EXPECT_EQ(slow.measurement().timing(), v1::GRAPH);
}

TEST_F(RunSessionTest, Baselines) {
  PrepareOk();
  cuda_.duration_us["rt_read_write"] = 33;
  worker::v1::BaselineRequest request;
  request.set_name("copy");
  const auto copy = session_->Baseline(request);
  EXPECT_EQ(copy.outcome(), v1::OK) << copy.message();
  EXPECT_NEAR(copy.measurement().median_us(), 33, 1e-3);
  EXPECT_FALSE(copy.has_verification());
  request.set_name("cublaslt_first");
  EXPECT_EQ(session_->Baseline(request).outcome(), v1::NOT_RUN);
  request.set_name("magic");
  const auto unknown = session_->Baseline(request);
  EXPECT_EQ(unknown.outcome(), v1::NOT_RUN);
  EXPECT_THAT(unknown.message(), HasSubstr("unknown baseline 'magic'"));
}

TEST_F(RunSessionTest, RacesTakeTurns) {
  PrepareOk();
  cuda_.kernels["faster"] = cuda_.kernels["right"];
  cuda_.duration_us["faster"] = 20;
  cuda_.kernels["wrong"] = AddKernel([](const float*, const float*, float*, int64_t) {});
  worker::v1::RaceRequest request;
  for (const char* symbol : {"right", "wrong", "faster"})
    *request.add_entrant()->mutable_candidate() = Candidate(symbol);
  request.mutable_options()->set_burst_ms(0.001);
  request.mutable_options()->set_min_samples(2);
  request.set_rounds(3);
  std::vector<int> order;
  const auto race = session_->Race(request, [&](int entrant) { order.push_back(entrant); });
  EXPECT_EQ(race.outcome(), v1::OK);
  ASSERT_EQ(race.result_size(), 3);
  EXPECT_NEAR(race.result(0).measurement().median_us(), 50, 1e-3);
  EXPECT_EQ(race.result(1).outcome(), v1::WRONG_RESULT);
  EXPECT_NEAR(race.result(2).measurement().median_us(), 20, 1e-3);
  // Set up in order, then three rounds that begin one further each time, without the loser.
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 0, 2, 2, 0, 2, 0));
}

TEST_F(RunSessionTest, RacersAreLaunchedTwiceAndMustAgreeWithThemselves) {
  PrepareOk();
  int launch = 0;
  // Right within the bound, but never the same bits twice.
  cuda_.kernels["unsteady"] = AddKernel([&](const float* a, const float* b, float* y, int64_t n) {
    Right(a, b, y, n);
    if (++launch % 2 == 0) y[5] = std::nextafter(y[5], 1e9f);
  });
  // Right once, then half-written.
  int other = 0;
  cuda_.kernels["lucky"] =
      AddKernel([&](const float* a, const float* b, float* y, int64_t n) { Right(a, b, y, ++other == 1 ? n : n / 2); });
  EXPECT_EQ(session_->Run(Candidate("unsteady")).outcome(), v1::OK);
  EXPECT_EQ(launch, 1) << "screening launches once";
  EXPECT_EQ(cuda_.launches["rt_scrub_shared"], 1);
  worker::v1::RaceRequest request;
  for (const char* symbol : {"right", "unsteady", "lucky"})
    *request.add_entrant()->mutable_candidate() = Candidate(symbol);
  request.set_rounds(1);
  const auto race = session_->Race(request, [](int) {});
  ASSERT_EQ(race.result_size(), 3);
  EXPECT_EQ(race.result(0).outcome(), v1::OK) << race.result(0).message();
  EXPECT_FALSE(race.result(0).verification().nondeterministic());
  EXPECT_EQ(race.result(1).outcome(), v1::OK) << race.result(1).message();
  EXPECT_TRUE(race.result(1).verification().passed());
  EXPECT_TRUE(race.result(1).verification().nondeterministic());
  EXPECT_EQ(race.result(1).verification().elements(), kElements);
  EXPECT_EQ(race.result(2).outcome(), v1::WRONG_RESULT);
  EXPECT_THAT(race.result(2).message(), HasSubstr("not at the second"));
  EXPECT_TRUE(race.result(2).verification().nondeterministic());
}

TEST_F(RunSessionTest, AFaultInARaceEndsItForAll) {
  PrepareOk();
  cuda_.kernels["fault"] = AddKernel([this](const float*, const float*, float*, int64_t) { cuda_.sticky = 719; });
  worker::v1::RaceRequest request;
  for (const char* symbol : {"right", "fault", "right"})
    *request.add_entrant()->mutable_candidate() = Candidate(symbol);
  int last = -1;
  const auto race = session_->Race(request, [&](int entrant) { last = entrant; });
  EXPECT_NE(race.outcome(), v1::OK);
  EXPECT_EQ(last, 1);
  EXPECT_EQ(race.result(0).outcome(), v1::NOT_RUN);
  EXPECT_EQ(race.result(1).outcome(), v1::CRASHED);
  EXPECT_EQ(race.result(2).outcome(), v1::NOT_RUN);
}

TEST_F(RunSessionTest, CalibratesWhatIsThere) {
  cuda_.free_bytes = int64_t{1} << 30;
  cuda_.duration_us["rt_copy"] = 100;
  cuda_.duration_us["rt_read_write"] = 33;
  cuda_.duration_us["rt_empty"] = 0.5;
  worker::v1::CalibrateRequest request;
  request.set_support_cubin(FakeCuda::Cubin());
  const auto result = session_->Calibrate(request);
  ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_THAT(result.message(), HasSubstr("no rates of matrix products"));
  ASSERT_EQ(result.calibration().curve_size(), 7);
  EXPECT_EQ(result.calibration().curve(3).mix(), "read_write_2");
  EXPECT_NEAR(result.calibration().curve(3).point(0).gbps(), 65536 / 33.0 * 1e-3, 1e-3);
  const auto& copy = result.calibration().curve(0);
  EXPECT_EQ(copy.mix(), "copy");
  ASSERT_GE(copy.point_size(), 5);
  EXPECT_EQ(copy.point(0).bytes(), 65536);
  EXPECT_NEAR(copy.point(0).gbps(), 0.65536, 1e-3);
  EXPECT_NEAR(result.calibration().graph_node_us(), 0.5, 1e-3);
  EXPECT_EQ(result.calibration().rate_size(), 2);
  EXPECT_NEAR(result.calibration().sm_clock_mhz(), 1980, 1);
}

}  // namespace
}  // namespace rooftune

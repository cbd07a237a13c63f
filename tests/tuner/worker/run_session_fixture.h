// A session of the run worker on a driver that lives on the CPU.
#ifndef ROOFTUNE_TESTS_TUNER_WORKER_RUN_SESSION_FIXTURE_H_
#define ROOFTUNE_TESTS_TUNER_WORKER_RUN_SESSION_FIXTURE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "tests/costmodel/builtins.h"
#include "tests/tuner/worker/run_fake_cuda.h"
#include "tuner/worker/run_session.h"

namespace rooftune {

class FakeSessionTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }
  void TearDown() override {
    session_.reset();
    context_.reset();
    EXPECT_EQ(cuda_.allocations, 0);
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
  // The operator's tensors, a support module, and a reference kernel "rt_reference" that still lacks its arguments.
  static worker::v1::PrepareRequest ProblemOf(const Op& op) {
    worker::v1::PrepareRequest request;
    request.set_op(op.text);
    request.set_seed(7);
    for (const OpTensorInstance& tensor : TensorsOf(op.text)) {
      worker::v1::ProblemTensor& to = *request.add_tensor();
      *to.mutable_spec() = tensor.spec;
      to.set_elements(tensor.elements);
      to.set_bytes(tensor.bytes);
      to.mutable_fill()->set_mean(tensor.fill_mean);
      to.mutable_fill()->set_stddev(tensor.fill_stddev);
      to.mutable_fill()->set_range(tensor.fill_range);
    }
    request.set_support_cubin(FakeCuda::Cubin());
    request.set_reference_cubin(FakeCuda::Cubin());
    worker::v1::ReferencePlan& plan = *request.mutable_reference();
    plan.set_symbol("rt_reference");
    plan.set_name(op.kind + "/reference.cuh@test");
    plan.set_grid_x(4);
    plan.set_block_x(256);
    request.mutable_tolerance()->set_accumulation_length(1);
    request.mutable_tolerance()->set_scale(1);
    return request;
  }

  FakeCuda cuda_;
  std::unique_ptr<CudaDriver> driver_;
  std::unique_ptr<GpuContext> context_;
  std::unique_ptr<RunSession> session_;
};

// y = a + b, with a kernel "right" of 50 us and whatever else a test adds.
class RunSessionTest : public FakeSessionTest {
 protected:
  static constexpr int64_t kElements = 1003;
  // 4012 bytes: 4 bytes of padding up to the next 16.
  static constexpr char kOp[] = "elementwise n=1003 dtype=fp32 chain=add(a,b)";
  using Add = std::function<void(const float* a, const float* b, float* y, int64_t n)>;

  // A kernel with arguments a, b, y, n.
  static FakeCuda::Kernel AddKernel(const Add& add) {
    return {4, [add](void** x) {
              add(ArgumentAt<const float*>(x, 0), ArgumentAt<const float*>(x, 1), ArgumentAt<float*>(x, 2),
                  ArgumentAt<int64_t>(x, 3));
            }};
  }
  static void Right(const float* a, const float* b, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
  }

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
    FakeSessionTest::SetUp();
  }
  void TearDown() override {
    FakeSessionTest::TearDown();
    unsetenv("ROOFTUNE_LIBCUBLASLT");
  }

  static worker::v1::PrepareRequest Request() {
    worker::v1::PrepareRequest request = ProblemOf(MustParse(kOp));
    worker::v1::ReferencePlan& plan = *request.mutable_reference();
    plan.add_argument()->set_tensor("a");
    plan.add_argument()->set_tensor("b");
    plan.add_argument()->set_reference_value("y");
    plan.add_argument()->set_reference_magnitude("y");
    plan.add_argument()->set_int64(kElements);
    request.set_cpu_check_elements(512);
    return request;
  }
  // y += a.
  static worker::v1::PrepareRequest InPlaceRequest() {
    worker::v1::PrepareRequest request = Request();
    EXPECT_EQ(request.tensor(2).spec().name(), "y");
    request.mutable_tensor(2)->mutable_spec()->set_role(v1::TensorSpec::INOUT);
    request.mutable_tensor(2)->mutable_fill()->set_mean(1);
    request.mutable_tensor(2)->mutable_fill()->set_stddev(0.5);
    request.mutable_reference()->mutable_argument(1)->set_tensor("y");
    request.set_cpu_check_elements(0);
    return request;
  }
  void PrepareOk() {
    const auto result = session_->Prepare(Request());
    ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  }
  static worker::v1::RunRequest Candidate(const std::string& symbol, bool measure = false) {
    worker::v1::RunRequest request;
    request.mutable_plan()->set_op(MustParse(kOp).text);
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
  // Of candidates with these symbols.
  static worker::v1::RaceRequest RaceOf(const std::vector<std::string>& symbols) {
    worker::v1::RaceRequest request;
    for (const std::string& symbol : symbols) *request.add_entrant()->mutable_candidate() = Candidate(symbol);
    return request;
  }

  double reference_error_ = 0;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_TUNER_WORKER_RUN_SESSION_FIXTURE_H_

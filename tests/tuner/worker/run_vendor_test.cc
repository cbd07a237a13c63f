// cuBLASLt's algorithms as candidates, on a driver and a library that live on the CPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/tuner/worker/fake_cublaslt.h"
#include "tests/tuner/worker/run_session_fixture.h"
#include "tuner/worker/run_cublaslt.h"

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

class RunVendorTest : public FakeSessionTest {
 protected:
  void SetUp() override {
    setenv("ROOFTUNE_LIBCUBLASLT", ROOFTUNE_FAKE_CUBLASLT, 1);
    setenv("ROOFTUNE_LIBCUBLAS", ROOFTUNE_FAKE_CUBLASLT, 1);
    void* const library = dlopen(ROOFTUNE_FAKE_CUBLASLT, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto use = reinterpret_cast<void (*)(FakeCublasLt*)>(dlsym(library, kFakeCublasLtUse));
    ASSERT_NE(use, nullptr);
    lt_.submit = [this](double us, std::function<void()> work) { cuda_.Submit(us, std::move(work)); };
    lt_.algorithms = {{.id = 5, .workspace_bytes = 4096, .us = 30}, {.id = 9, .us = 20}, {.id = 2, .us = 40}};
    use(&lt_);
    FakeSessionTest::SetUp();
  }
  void TearDown() override {
    FakeSessionTest::TearDown();
    EXPECT_EQ(lt_.alive, 0);
    unsetenv("ROOFTUNE_LIBCUBLASLT");
    unsetenv("ROOFTUNE_LIBCUBLAS");
  }

  // The operator's definition with row-major indices, as a kernel of the fake device.
  static FakeCuda::Kernel Reference(const Op& op, const std::vector<std::string>& tensors) {
    const int arguments = static_cast<int>(tensors.size()) + 1;
    return {arguments, [op, tensors](void** x) {
              const auto find = [&](const std::string& name) -> const float* {
                for (size_t i = 0; i < tensors.size(); ++i) {
                  if (tensors[i] == name) return ArgumentAt<const float*>(x, static_cast<int>(i));
                }
                return nullptr;
              };
              const int64_t m = op.names.at("m"), n = op.names.at("n"), k = op.names.at("k");
              const int64_t batch = op.names.at("batch"), layout = op.names.at("layout"), act = op.names.at("act");
              const float *a = find("a"), *b = find("b"), *c = find("c"), *bias = find("bias");
              double* const value = ArgumentAt<double*>(x, static_cast<int>(tensors.size()) - 1);
              float* const magnitude = ArgumentAt<float*>(x, static_cast<int>(tensors.size()));
              for (int64_t at = 0; at < batch * m * n; ++at) {
                const int64_t s = at / (m * n), i = at / n % m, j = at % n;
                double sum = 0, total = 0;
                for (int64_t l = 0; l < k; ++l) {
                  const double term = static_cast<double>(a[s * m * k + ((layout & 2) != 0 ? l * m + i : i * k + l)]) *
                                      b[s * n * k + ((layout & 1) != 0 ? j * k + l : l * n + j)];
                  sum += term;
                  total += std::abs(term);
                }
                if (c != nullptr) sum += c[at], total += std::abs(c[at]);
                if (bias != nullptr) sum += bias[j], total += std::abs(bias[j]);
                if (act == 1) sum = std::max(sum, 0.0);
                if (act == 2)
                  sum = 0.5 * sum * (1 + std::tanh(0.79788456080286536 * (sum + 0.044715 * sum * sum * sum)));
                value[at] = sum;
                magnitude[at] = static_cast<float>(total);
              }
            }};
  }

  void Prepare(const std::string& text, v1::Outcome expected = v1::OK) {
    const Op op = MustParse(text);
    worker::v1::PrepareRequest request = ProblemOf(op);
    worker::v1::ReferencePlan& plan = *request.mutable_reference();
    std::vector<std::string> names;
    for (const worker::v1::ProblemTensor& tensor : request.tensor()) {
      names.push_back(tensor.spec().name());
      if (names.back() != "d") plan.add_argument()->set_tensor(names.back());
    }
    ASSERT_EQ(names.back(), "d");
    for (const char* scalar : {"alpha", "beta_value"}) {
      if (scalar == std::string("beta_value") && op.names.at("beta") == 0) continue;
      v1::ScalarSpec& spec = *request.add_scalar();
      spec.set_name(scalar);
      spec.set_dtype(v1::FP32);
      spec.set_default_value(1);
    }
    cuda_.kernels["rt_reference"] = Reference(op, names);
    plan.add_argument()->set_reference_value("d");
    plan.add_argument()->set_reference_magnitude("d");
    request.mutable_tolerance()->set_accumulation_length(op.names.at("k"));
    request.set_cpu_check_elements(64);
    const auto result = session_->Prepare(request);
    ASSERT_EQ(result.outcome(), expected) << result.message();
  }
  worker::v1::VendorResult List(int limit = 32, int64_t workspace_bytes = 64 * kMiB) {
    worker::v1::VendorRequest request;
    request.set_max_algorithms(limit);
    request.set_workspace_bytes(workspace_bytes);
    return session_->Vendor(request);
  }
  static worker::v1::RunRequest Request(const v1::LaunchPlan& plan) {
    worker::v1::RunRequest request;
    *request.mutable_plan() = plan;
    request.set_verify(true);
    request.set_measure(true);
    return request;
  }
  static std::vector<int> Ids(const worker::v1::VendorResult& result) {
    std::vector<int> ids;
    for (const v1::LaunchPlan& plan : result.plan()) ids.push_back(plan.cublaslt().algorithm().id());
    return ids;
  }

  FakeCublasLt lt_;
};

TEST_F(RunVendorTest, ListsEveryAlgorithmOnceWithItsRecipe) {
  ASSERT_NO_FATAL_FAILURE(Prepare("gemm m=6 n=4 k=8 dtype=fp32"));
  const auto result = List();
  ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  EXPECT_EQ(result.version(), "cublasLt 130100");
  EXPECT_THAT(Ids(result), ElementsAre(5, 9, 2));
  const v1::LaunchPlan& plan = result.plan(0);
  EXPECT_EQ(plan.op(), "gemm m=6 n=4 k=8 dtype=fp32");
  EXPECT_EQ(plan.workspace_bytes().value(), 4096);
  EXPECT_EQ(plan.launch_size(), 0);
  EXPECT_EQ(plan.config().at("tile"), 23);
  ASSERT_EQ(plan.tensor_size(), 3);
  EXPECT_EQ(plan.tensor(0).alignment(), 256);
  const v1::CublasLtMatmul& lt = plan.cublaslt();
  EXPECT_EQ(lt.library_version(), 130100);
  EXPECT_EQ(lt.algorithm().opaque().size(), 64u);
  EXPECT_EQ(lt.algorithm().tile(), "128x256");
  EXPECT_EQ(lt.algorithm().stages(), "64xAUTO");
  EXPECT_EQ(lt.algorithm().cluster_shape(), "2x1x1");
  EXPECT_EQ(lt.algorithm().heuristic_rank(), 0);
  // Column-major: our B comes first.
  EXPECT_EQ(lt.a().tensor(), "b");
  EXPECT_TRUE(lt.a().transposed());
  EXPECT_EQ(lt.d().rows(), 4);
  EXPECT_EQ(lt.d().columns(), 6);
}

TEST_F(RunVendorTest, AsksAlsoForThoseWithoutWorkspace) {
  ASSERT_NO_FATAL_FAILURE(Prepare("gemm m=6 n=4 k=8 dtype=fp32"));
  lt_.algorithms = {{.id = 1, .workspace_bytes = 64}, {.id = 3, .workspace_bytes = 64}, {.id = 4}};
  EXPECT_THAT(Ids(List(2)), ElementsAre(1, 3));  // the limit is for both answers together
  EXPECT_THAT(Ids(List(3)), ElementsAre(1, 3, 4));
  EXPECT_THAT(Ids(List(3, 0)), ElementsAre(4));
  lt_.algorithms[0].state = 15;  // what the heuristic itself disowns
  EXPECT_THAT(Ids(List(8)), ElementsAre(3, 4));
}

TEST_F(RunVendorTest, EveryLayoutAndEpilogueIsRight) {
  const std::pair<const char*, int> cases[] = {{"layout=nn", 1},       {"", 1},
                                               {"layout=tn", 1},       {"layout=tt", 1},
                                               {"batch=3", 1},         {"layout=tt batch=2 bias=1", 4},
                                               {"act=relu", 2},        {"act=gelu", 32},
                                               {"bias=1 act=relu", 6}, {"bias=1 act=gelu beta=1", 36},
                                               {"beta=1 batch=2", 1}};
  for (const auto& [extra, epilogue] : cases) {
    ASSERT_NO_FATAL_FAILURE(Prepare(absl::StrCat("gemm m=6 n=4 k=8 dtype=fp32 ", extra)));
    const auto listed = List();
    ASSERT_EQ(listed.outcome(), v1::OK) << extra << listed.message();
    const auto result = session_->Run(Request(listed.plan(0)));
    EXPECT_EQ(result.outcome(), v1::OK) << extra << ": " << result.message();
    EXPECT_TRUE(result.verification().passed()) << extra;
    EXPECT_EQ(lt_.epilogues.back(), epilogue) << extra;
    EXPECT_NEAR(result.measurement().median_us(), 30, 1e-3) << extra;
  }
}

TEST_F(RunVendorTest, WhatGoesWrongIsTheAlgorithmsOwn) {
  ASSERT_NO_FATAL_FAILURE(Prepare("gemm m=6 n=4 k=8 dtype=fp32"));
  lt_.algorithms[0].wrong = true;
  lt_.algorithms[1].status = 15;
  const auto listed = List();
  const auto wrong = session_->Run(Request(listed.plan(0)));
  EXPECT_EQ(wrong.outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(wrong.verification().wrong_elements(), 24);
  EXPECT_FALSE(wrong.has_measurement());
  const auto refused = session_->Run(Request(listed.plan(1)));
  EXPECT_EQ(refused.outcome(), v1::LAUNCH_FAILED);
  EXPECT_THAT(refused.message(), HasSubstr("cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED (15)"));
  EXPECT_EQ(session_->Run(Request(listed.plan(2))).outcome(), v1::OK);
}

TEST_F(RunVendorTest, WritesPastTheWorkspaceAreSeen) {
  // Where memory is not mapped page by page, zones of known bytes lie around it.
  cuda_.has_virtual_memory = false;
  Open();
  ASSERT_NO_FATAL_FAILURE(Prepare("gemm m=6 n=4 k=8 dtype=fp32"));
  lt_.algorithms[0].overrun = 16;
  const auto result = session_->Run(Request(List().plan(0)));
  EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS) << result.message();
}

TEST_F(RunVendorTest, AnotherVersionsAlgorithmsAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Prepare("gemm m=6 n=4 k=8 dtype=fp32"));
  v1::LaunchPlan plan = List().plan(0);
  plan.mutable_cublaslt()->set_library_version(120805);
  const auto old = session_->Run(Request(plan));
  EXPECT_EQ(old.outcome(), v1::LAUNCH_FAILED);
  EXPECT_THAT(old.message(), HasSubstr("the algorithm is of cublasLt 120805, here is cublasLt 130100"));
  plan = List().plan(0);
  plan.mutable_cublaslt()->mutable_algorithm()->set_opaque("short");
  EXPECT_THAT(session_->Run(Request(plan)).message(), HasSubstr("64 bytes, not 5"));
  plan = List().plan(0);
  plan.mutable_workspace_bytes()->set_value(16);
  EXPECT_THAT(session_->Run(Request(plan)).message(), HasSubstr("wants a workspace of 4096 bytes, the plan has 16"));
}

TEST_F(RunVendorTest, SaysWhatItIsNotFor) {
  for (const auto& [text, why] : {std::pair("gemm m=6 n=4 k=8 dtype=fp32 act=silu", "no epilogue act=silu"),
                                  std::pair("gemm m=6 n=4 k=8 dtype=fp32", "no algorithm for this product")}) {
    ASSERT_NO_FATAL_FAILURE(Prepare("gemm m=6 n=4 k=8 dtype=fp32"));
    worker::v1::VendorResult result;
    if (std::string(text).find("silu") != std::string::npos) {
      const auto catalog = OpCatalog::Builtin();
      ASSERT_TRUE(catalog.ok());
      const auto op = catalog->Parse(text);
      ASSERT_TRUE(op.ok());
      const auto problem = GemmProblemOf(*op, {{"a", v1::FP32}, {"b", v1::FP32}, {"d", v1::FP32}});
      EXPECT_EQ(problem.status().code(), absl::StatusCode::kUnimplemented);
      EXPECT_THAT(std::string(problem.status().message()), HasSubstr(why));
      continue;
    }
    lt_.algorithms.clear();
    result = List();
    EXPECT_EQ(result.outcome(), v1::NOT_RUN);
    EXPECT_THAT(result.message(), HasSubstr(why));
  }
}

TEST_F(RunVendorTest, ScalesOfRowsHaveAnAddressWhenTheLibraryIsAsked) {
  const auto lt = CublasLt::Load(*context_);
  ASSERT_TRUE(lt.ok()) << lt.status();
  v1::CublasLtMatmul product;
  for (v1::CublasLtMatmul::Matrix* matrix : {product.mutable_a(), product.mutable_b()}) {
    matrix->set_scale("scale");
    matrix->set_scale_mode(3);
  }
  const auto offers = (*lt)->Algorithms(product, 64 * kMiB, 32);
  ASSERT_TRUE(offers.ok()) << offers.status();
  EXPECT_EQ(offers->size(), 3);
}

TEST_F(RunVendorTest, WithoutTheLibraryItIsNotRun) {
  setenv("ROOFTUNE_LIBCUBLASLT", "/nowhere/libcublasLt.so", 1);
  ASSERT_NO_FATAL_FAILURE(Prepare("gemm m=6 n=4 k=8 dtype=fp32"));
  const auto result = List();
  EXPECT_EQ(result.outcome(), v1::NOT_RUN);
  EXPECT_THAT(result.message(), HasSubstr("no cuBLASLt"));
}

TEST_F(RunVendorTest, BaselinesGoThroughTheSameTimer) {
  ASSERT_NO_FATAL_FAILURE(Prepare("gemm m=6 n=4 k=8 batch=2 dtype=fp32 layout=tn"));
  lt_.gemm_us = 25;
  worker::v1::BaselineRequest request;
  request.set_name("cublaslt_first");
  const auto first = session_->Baseline(request);
  EXPECT_EQ(first.outcome(), v1::OK) << first.message();
  EXPECT_NEAR(first.measurement().median_us(), 30, 1e-3);
  EXPECT_TRUE(first.verification().passed());
  request.set_name("cublas");
  const auto cublas = session_->Baseline(request);
  EXPECT_EQ(cublas.outcome(), v1::OK) << cublas.message();
  EXPECT_NEAR(cublas.measurement().median_us(), 25, 1e-3);
  EXPECT_TRUE(cublas.verification().passed());
  EXPECT_EQ(cublas.version(), "cublas 130100");
  ASSERT_NO_FATAL_FAILURE(Prepare("gemm m=6 n=4 k=8 dtype=fp32 bias=1"));
  const auto refused = session_->Baseline(request);
  EXPECT_EQ(refused.outcome(), v1::NOT_RUN);
  EXPECT_THAT(refused.message(), HasSubstr("does the product alone"));
}

TEST_F(RunVendorTest, RacesWithOthers) {
  ASSERT_NO_FATAL_FAILURE(Prepare("gemm m=6 n=4 k=8 dtype=fp32"));
  const auto listed = List();
  worker::v1::RaceRequest race;
  for (const v1::LaunchPlan& plan : listed.plan()) *race.add_entrant()->mutable_candidate() = Request(plan);
  race.add_entrant()->mutable_baseline()->set_name("cublas");
  race.mutable_options()->set_burst_ms(0.001);
  race.mutable_options()->set_min_samples(2);
  race.set_rounds(3);
  const auto result = session_->Race(race, [](int) {});
  ASSERT_EQ(result.outcome(), v1::OK) << result.message();
  ASSERT_EQ(result.result_size(), 4);
  EXPECT_NEAR(result.result(1).measurement().median_us(), 20, 1e-3);
  EXPECT_FALSE(result.result(1).verification().nondeterministic());
}

}  // namespace
}  // namespace rooftune

// Parts of the run role that need no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/tuner/worker/run_fake_cuda.h"
#include "tuner/wire/frame.h"
#include "tuner/worker/roles.h"
#include "tuner/worker/run_gemm.h"
#include "tuner/worker/run_guard.h"
#include "tuner/worker/run_launch.h"
#include "tuner/worker/run_lease.h"
#include "tuner/worker/run_outcome.h"
#include "tuner/worker/run_problem.h"
#include "tuner/worker/run_support.h"
#include "tuner/worker/run_verify.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;

TEST(OutcomeTest, CodesThatPoisonTheProcess) {
  for (int code : {700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 999}) EXPECT_TRUE(IsStickyCudaError(code)) << code;
  for (int code : {0, 1, 2, 98, 200, 209, 304, 400, 500, 600, 701, 720, 900, 912}) {
    EXPECT_FALSE(IsStickyCudaError(code)) << code;
  }
}

TEST(OutcomeTest, SaysWhatBecameOfTheCandidate) {
  EXPECT_EQ(OutcomeOfCudaError(700), v1::OUT_OF_BOUNDS);
  EXPECT_EQ(OutcomeOfCudaError(716), v1::CRASHED);
  EXPECT_EQ(OutcomeOfCudaError(719), v1::CRASHED);
  EXPECT_EQ(OutcomeOfCudaError(702), v1::TIMEOUT);
  EXPECT_EQ(OutcomeOfCudaError(2), v1::OUT_OF_MEMORY);
  EXPECT_EQ(OutcomeOfCudaError(1), v1::LAUNCH_FAILED);
  EXPECT_EQ(OutcomeOfCudaError(912), v1::LAUNCH_FAILED);
  worker::v1::RunResult result;
  SetFailure(CudaStatus(700, "text"), result);
  EXPECT_EQ(result.outcome(), v1::OUT_OF_BOUNDS);
  EXPECT_EQ(result.cuda_error(), 700);
  EXPECT_EQ(result.message(), "text");
  EXPECT_EQ(CudaErrorOf(absl::InternalError("no code")), 0);
  EXPECT_EQ(OutcomeOfStatus(absl::ResourceExhaustedError("")), v1::OUT_OF_MEMORY);
}

TEST(GuardTest, ATensorEndsWhereItsMappingEnds) {
  constexpr int64_t kPage = 2 << 20;
  const GuardLayout exact = LayOutGuarded(kPage, 16, kPage);
  EXPECT_EQ(exact.mapped, kPage);
  EXPECT_EQ(exact.offset, 0);
  EXPECT_EQ(exact.after, 0);
  const GuardLayout odd = LayOutGuarded(1001, 16, kPage);
  EXPECT_EQ(odd.mapped, kPage);
  EXPECT_EQ(odd.offset % 16, 0);
  EXPECT_EQ(odd.after, 7);  // 1001 rounded up to 1008
  EXPECT_EQ(odd.offset + 1001 + odd.after, odd.mapped);
  EXPECT_EQ(LayOutGuarded(kPage + 1, 256, kPage).mapped, 2 * kPage);
}

TEST(GuardTest, WithoutMappingsZonesLieOnBothSides) {
  const GuardLayout layout = LayOutGuarded(100, 256, 0);
  EXPECT_EQ(layout.offset, kRedzoneBytes);
  EXPECT_GE(layout.after, kRedzoneBytes);
}

TEST(SetPlanTest, B1_SetsTogetherAreThreeTimesTheCache) {
  constexpr int64_t kMib = 1 << 20;
  constexpr int64_t kL2 = 60 * kMib;
  constexpr int64_t kPlenty = int64_t{1} << 40;
  struct Case {
    const char* what;
    int64_t set, l2, available;
    int sets;
    bool rotates;
  };
  for (const Case& c : {
           Case{"180 MiB", 32 * kMib, kL2, kPlenty, 6, true},
           Case{"many small ones", kMib, kL2, kPlenty, 180, true},
           Case{"so small that 256 fit into the cache", 8 << 10, kL2, kPlenty, 256, false},
           Case{"one evicts itself, two are as others use them", 200 * kMib, kL2, kPlenty, 2, true},
           Case{"so large that one will do", 2048 * kMib, kL2, kPlenty, 1, true},
           Case{"a small or unknown cache", 32 * kMib, 0, kPlenty, 4, true},
           Case{"memory for two only", 32 * kMib, kL2, 70 * kMib, 2, false},
           Case{"memory for none", 32 * kMib, kL2, 31 * kMib, 0, false},
           Case{"less than no memory", 32 * kMib, kL2, -5, 0, false},
       }) {
    const SetPlan plan = PlanSets(c.set, c.l2, c.available, /*warm=*/false);
    EXPECT_EQ(plan.sets, c.sets) << c.what;
    EXPECT_EQ(plan.cold_by_rotation, c.rotates) << c.what;
  }
  EXPECT_EQ(PlanSets(32 * kMib, kL2, kPlenty, /*warm=*/true).sets, 1);
}

DeviceLimits SomeLimits() {
  DeviceLimits limits;
  limits.threads_per_block = 1024;
  limits.block[0] = limits.block[1] = 1024;
  limits.block[2] = 64;
  limits.grid[0] = 2147483647;
  limits.grid[1] = limits.grid[2] = 65535;
  limits.shared_optin_bytes = 232448;
  limits.clusters = true;
  return limits;
}

v1::Launch LaunchOf(int64_t grid, int64_t block, int64_t shared, bool opt_in, int64_t cluster) {
  v1::Launch launch;
  launch.set_symbol("k");
  launch.mutable_grid_x()->set_value(grid);
  launch.mutable_block_x()->set_value(block);
  launch.mutable_dynamic_shared_bytes()->set_value(shared);
  launch.set_shared_opt_in(opt_in);
  launch.mutable_cluster_x()->set_value(cluster);
  return launch;
}

TEST(LaunchTest, GeometryWithinTheDevicesLimits) {
  const DeviceLimits limits = SomeLimits();
  EXPECT_TRUE(CheckGeometry(LaunchOf(100, 256, 0, false, 0), limits).ok());
  EXPECT_TRUE(CheckGeometry(LaunchOf(100, 256, 232448, true, 4), limits).ok());
  EXPECT_FALSE(CheckGeometry(LaunchOf(100, 2048, 0, false, 0), limits).ok());
  EXPECT_FALSE(CheckGeometry(LaunchOf(-1, 256, 0, false, 0), limits).ok());
  EXPECT_FALSE(CheckGeometry(LaunchOf(int64_t{1} << 31, 256, 0, false, 0), limits).ok());
  EXPECT_FALSE(CheckGeometry(LaunchOf(100, 256, 49153, false, 0), limits).ok());
  EXPECT_FALSE(CheckGeometry(LaunchOf(100, 256, 232449, true, 0), limits).ok());
  EXPECT_FALSE(CheckGeometry(LaunchOf(100, 256, -1, true, 0), limits).ok());
  EXPECT_FALSE(CheckGeometry(LaunchOf(101, 256, 0, false, 2), limits).ok());
  EXPECT_FALSE(CheckGeometry(LaunchOf(160, 256, 0, false, 32), limits).ok());
  v1::Launch deep = LaunchOf(1, 64, 0, false, 0);
  deep.mutable_block_y()->set_value(32);
  EXPECT_FALSE(CheckGeometry(deep, limits).ok());
  deep = LaunchOf(1, 64, 0, false, 0);
  deep.mutable_grid_y()->set_value(65536);
  EXPECT_FALSE(CheckGeometry(deep, limits).ok());
  DeviceLimits old = limits;
  old.clusters = false;
  EXPECT_FALSE(CheckGeometry(LaunchOf(100, 256, 0, false, 2), old).ok());
}

Bindings SomeBindings() {
  Bindings bindings;
  bindings.tensor["x"] = 0x1000;
  bindings.scalar["eps"] = 0.5;
  bindings.workspace = 0x8000;
  bindings.workspace_bytes = 64;
  return bindings;
}

template <typename T>
T ValueAt(ArgumentPack& pack, size_t i) {
  T value;
  std::memcpy(&value, pack.Pointers().at(i), sizeof(value));
  return value;
}

TEST(LaunchTest, BindsArgumentsInOrder) {
  v1::Launch launch;
  launch.add_argument()->set_tensor("x");
  launch.add_argument()->set_scalar("eps");
  v1::Argument* const narrow = launch.add_argument();
  narrow->mutable_integer()->set_value(-2);
  narrow->set_size(4);
  v1::Argument* const wide = launch.add_argument();
  wide->mutable_integer()->set_value(int64_t{1} << 40);
  wide->set_size(8);
  launch.add_argument()->mutable_workspace_offset()->set_value(64);
  FakeCuda cuda;
  auto pack = BindArguments(*cuda.driver(), launch, SomeBindings());
  ASSERT_TRUE(pack.ok()) << pack.status();
  ASSERT_EQ(pack->Pointers().size(), 5u);
  EXPECT_EQ(ValueAt<uint64_t>(*pack, 0), 0x1000u);
  EXPECT_EQ(ValueAt<float>(*pack, 1), 0.5f);
  EXPECT_EQ(ValueAt<int32_t>(*pack, 2), -2);
  EXPECT_EQ(ValueAt<int64_t>(*pack, 3), int64_t{1} << 40);
  EXPECT_EQ(ValueAt<uint64_t>(*pack, 4), 0x8040u);
}

TEST(LaunchTest, RefusesWhatItCannotBind) {
  FakeCuda cuda;
  const auto driver = cuda.driver();
  const auto error = [&](const std::function<void(v1::Argument*)>& set) {
    v1::Launch launch;
    launch.set_symbol("k");
    set(launch.add_argument());
    return BindArguments(*driver, launch, SomeBindings()).status();
  };
  EXPECT_THAT(std::string(error([](v1::Argument* a) { a->set_tensor("y"); }).message()), HasSubstr("no tensor 'y'"));
  EXPECT_FALSE(error([](v1::Argument* a) { a->set_scalar("alpha"); }).ok());
  EXPECT_FALSE(error([](v1::Argument* a) { a->mutable_workspace_offset()->set_value(65); }).ok());
  EXPECT_FALSE(error([](v1::Argument* a) {
                 a->mutable_integer()->set_value(int64_t{1} << 32);
                 a->set_size(4);
               }).ok());
  EXPECT_TRUE(error([](v1::Argument* a) {
                a->mutable_integer()->set_value((int64_t{1} << 32) - 1);
                a->set_size(4);
              }).ok());
  EXPECT_FALSE(error([](v1::Argument*) {}).ok());
}

// What cuBLASLt computes, by its own definition of column-major layouts.
std::vector<double> Product(const LtProduct& p, const std::vector<double>& first, const std::vector<double>& second,
                            int64_t inner) {
  const auto at = [](const std::vector<double>& x, const LtLayout& l, int64_t row, int64_t column) {
    if (l.transposed) std::swap(row, column);
    EXPECT_LT(static_cast<uint64_t>(row), l.rows);
    EXPECT_LT(static_cast<uint64_t>(column), l.columns);
    return x.at(static_cast<size_t>(row + column * l.leading));
  };
  std::vector<double> d(p.result.rows * p.result.columns);
  for (int64_t i = 0; i < static_cast<int64_t>(p.result.rows); ++i) {
    for (int64_t j = 0; j < static_cast<int64_t>(p.result.columns); ++j) {
      double sum = 0;
      for (int64_t k = 0; k < inner; ++k) sum += at(first, p.first, i, k) * at(second, p.second, k, j);
      d[static_cast<size_t>(i + j * p.result.leading)] = sum;
    }
  }
  return d;
}

TEST(CublasLtTest, RowMajorProductsOfEveryLayout) {
  std::mt19937 random(3);
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const int64_t gap : {0, 2}) {  // between the rows
        GemmProblem g;
        g.m = 3;
        g.n = 5;
        g.k = 7;
        g.a_transposed = a_transposed;
        g.b_transposed = b_transposed;
        g.lda = (a_transposed ? g.m : g.k) + gap;
        g.ldb = (b_transposed ? g.k : g.n) + gap;
        std::vector<double> a(static_cast<size_t>((a_transposed ? g.k : g.m) * g.lda));
        std::vector<double> b(static_cast<size_t>((b_transposed ? g.n : g.k) * g.ldb));
        const LtProduct product = ColumnMajor(g);
        EXPECT_EQ(product.second.batch_stride, static_cast<int64_t>(a.size()));
        EXPECT_EQ(product.first.batch_stride, static_cast<int64_t>(b.size()));
        for (double& v : a) v = static_cast<double>(random() % 10);
        for (double& v : b) v = static_cast<double>(random() % 10);
        const std::vector<double> d = Product(product, b, a, g.k);
        for (int64_t i = 0; i < g.m; ++i) {
          for (int64_t j = 0; j < g.n; ++j) {
            double expected = 0;
            for (int64_t k = 0; k < g.k; ++k) {
              expected += a[static_cast<size_t>(a_transposed ? k * g.lda + i : i * g.lda + k)] *
                          b[static_cast<size_t>(b_transposed ? j * g.ldb + k : k * g.ldb + j)];
            }
            EXPECT_EQ(d[static_cast<size_t>(i * g.n + j)], expected) << a_transposed << b_transposed << gap;
          }
        }
      }
    }
  }
}

TEST(GemmTest, ProblemsAreReadFromOperatorsAndTheirTensors) {
  const auto catalog = OpCatalog::Builtin();
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  const auto problem = [&](const std::string& text, v1::DType type, v1::DType out, TensorTypes more = {}) {
    const auto op = catalog->Parse(text);
    EXPECT_TRUE(op.ok()) << op.status();
    more.insert({{"a", type}, {"b", type}, {"d", out}});
    return GemmProblemOf(*op, more);
  };
  const auto plain = problem("gemm m=16 n=32 k=64 dtype=bf16 layout=tn", v1::BF16, v1::FP32);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE(plain->a_transposed);
  EXPECT_FALSE(plain->b_transposed);
  EXPECT_EQ(plain->a, v1::BF16);
  EXPECT_EQ(plain->out, v1::FP32);
  EXPECT_TRUE(plain->IsPlain());
  EXPECT_EQ(plain->lda, 16);
  EXPECT_EQ(plain->ldb, 32);
  EXPECT_EQ(problem("gemm m=16 n=32 k=64 dtype=fp16 lda=80 ldb=72", v1::FP16, v1::FP16)->lda, 80);
  EXPECT_EQ(problem("gemm m=16 n=32 k=64 dtype=fp16 lda=80 ldb=72", v1::FP16, v1::FP16)->ldb, 72);
  EXPECT_EQ(
      problem("gemm m=16 n=32 k=64 dtype=fp16 out=int8", v1::FP16, v1::INT8, {{"scale_d", v1::FP32}}).status().code(),
      absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(problem("gemm m=16 n=32 k=64 dtype=fp16", v1::FP16, v1::FP16)->b_transposed);
  const auto epilogue = problem("gemm m=16 n=32 k=64 dtype=bf16 bias=1 act=gelu beta=1", v1::BF16, v1::BF16,
                                {{"bias", v1::BF16}, {"c", v1::BF16}});
  ASSERT_TRUE(epilogue.ok()) << epilogue.status();
  EXPECT_FALSE(epilogue->IsPlain());
  EXPECT_TRUE(epilogue->has_bias);
  EXPECT_TRUE(epilogue->has_beta);
  EXPECT_EQ(epilogue->act, GemmProblem::Act::kGelu);
  EXPECT_EQ(problem("gemm m=16 n=32 k=64 dtype=bf16 act=silu", v1::BF16, v1::BF16).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(problem("softmax rows=4 cols=8 dtype=fp32", v1::FP32, v1::FP32).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(GemmTest, TypesAreMixedAsCublasLtDoes) {
  GemmProblem problem;
  problem.m = 16;
  problem.n = 32;
  problem.k = 64;
  const auto product = [&](v1::DType a, v1::DType b, v1::DType out) {
    problem.a = a;
    problem.b = b;
    problem.out = out;
    return CublasLtProduct(problem);
  };
  EXPECT_EQ(product(v1::BF16, v1::BF16, v1::FP32)->d().type(), 0);
  EXPECT_EQ(product(v1::INT8, v1::INT8, v1::INT32)->compute_type(), 72);
  EXPECT_EQ(product(v1::INT8, v1::INT8, v1::INT32)->scale_type(), 10);
  EXPECT_FALSE(product(v1::INT8, v1::INT8, v1::BF16).ok());
  EXPECT_FALSE(product(v1::BF16, v1::FP16, v1::FP32).ok());
  EXPECT_FALSE(product(v1::FP8_E4M3, v1::FP8_E4M3, v1::FP8_E4M3).ok());
  problem.scales = {GemmScales::Mode::kTensor, "scale_a", "scale_b"};
  EXPECT_FALSE(product(v1::BF16, v1::BF16, v1::BF16).ok());
  const auto fp8 = product(v1::FP8_E4M3, v1::FP8_E5M2, v1::BF16);
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  // The library's A is our B.
  EXPECT_EQ(fp8->a().type(), 29);
  EXPECT_EQ(fp8->a().scale(), "scale_b");
  EXPECT_EQ(fp8->b().type(), 28);
  EXPECT_EQ(fp8->b().scale(), "scale_a");
  EXPECT_EQ(fp8->b().scale_mode(), 0);
  problem.scales.mode = GemmScales::Mode::kRow;
  EXPECT_EQ(product(v1::FP8_E4M3, v1::FP8_E4M3, v1::BF16)->b().scale_mode(), 3);
  problem.scales.mode = GemmScales::Mode::kBlock128;
  EXPECT_EQ(product(v1::FP8_E4M3, v1::FP8_E4M3, v1::BF16).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(CubinTest, D6_OnlyCudaElfFilesReachTheDriver) {
  std::string elf(128, '\0');
  std::memcpy(elf.data(),
              "\x7f"
              "ELF\x02\x01",
              6);
  elf[18] = static_cast<char>(190);
  elf[40] = 64;  // section table offset
  elf[58] = 64;  // entry size
  elf[60] = 1;
  EXPECT_TRUE(LooksLikeCubin(elf));
  EXPECT_FALSE(LooksLikeCubin(elf.substr(0, 100)));  // the table lies past the end
  EXPECT_FALSE(LooksLikeCubin(std::string(4096, '\0')));
  EXPECT_FALSE(LooksLikeCubin(""));
  std::string host = elf;
  host[18] = 62;  // x86-64
  EXPECT_FALSE(LooksLikeCubin(host));
  std::string wild = elf;
  wild[46] = 1;  // offset of 2^48
  EXPECT_FALSE(LooksLikeCubin(wild));
}

TEST(VerifyTest, DecodesElements) {
  const unsigned char one_bf16[] = {0x80, 0x3f, 0, 0};
  EXPECT_EQ(DecodeElement(one_bf16, v1::BF16), 1.0);
  const unsigned char half[] = {0x00, 0x38, 0, 0};
  EXPECT_EQ(DecodeElement(half, v1::FP16), 0.5);
  const unsigned char smallest[] = {0x01, 0x80, 0, 0};
  EXPECT_EQ(DecodeElement(smallest, v1::FP16), -std::ldexp(1.0, -24));
  const unsigned char infinity[] = {0x00, 0x7c, 0, 0};
  EXPECT_TRUE(std::isinf(DecodeElement(infinity, v1::FP16)));
  const unsigned char poison[] = {0xff, 0xff, 0xff, 0xff};
  for (const v1::DType dtype : {v1::FP32, v1::FP16, v1::BF16}) EXPECT_TRUE(std::isnan(DecodeElement(poison, dtype)));
  EXPECT_TRUE(std::isnan(DecodeElement(poison, v1::FP8_E4M3)));
  EXPECT_EQ(DecodeElement(poison, v1::INT8), -1);
  const unsigned char largest[] = {0x7e};
  EXPECT_EQ(DecodeElement(largest, v1::FP8_E4M3), 448);
  const unsigned char subnormal[] = {0x83};
  EXPECT_EQ(DecodeElement(subnormal, v1::FP8_E4M3), -3 * std::ldexp(1.0, -9));
  const unsigned char one_fp8[] = {0x38};
  EXPECT_EQ(DecodeElement(one_fp8, v1::FP8_E4M3), 1.0);
  const unsigned char one_and_half[] = {0xbe};
  EXPECT_EQ(DecodeElement(one_and_half, v1::FP8_E5M2), -1.5);
  const unsigned char nibble[] = {0x38};
  EXPECT_EQ(DecodeElement(nibble, v1::INT4), -8);
}

TEST(VerifyTest, DamageOutsideWeighsMoreThanWrongElements) {
  v1::Verification verification;
  verification.set_passed(true);
  EXPECT_EQ(OutcomeOfVerification(verification), v1::OK);
  verification.set_passed(false);
  verification.set_wrong_elements(1);
  EXPECT_EQ(OutcomeOfVerification(verification), v1::WRONG_RESULT);
  verification.set_redzone_bytes(1);
  EXPECT_EQ(OutcomeOfVerification(verification), v1::OUT_OF_BOUNDS);
}

TEST(ClockTest, MegahertzFromCyclesAndNanoseconds) {
  const uint64_t words[4] = {1000, 5000, 20800, 15000};
  EXPECT_DOUBLE_EQ(ClockMhz(words), 1980);
  const uint64_t still[4] = {1000, 5000, 2000, 5000};
  EXPECT_EQ(ClockMhz(still), 0);
}

TEST(LeaseTest, B3_OneHolderWhoIsNamed) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/lease_", getpid());
  {
    const auto lease = GpuLease::Take(path, absl::InfinitePast());
    ASSERT_TRUE(lease.ok()) << lease.status();
    const absl::Status second = GpuLease::Take(path, absl::InfinitePast()).status();
    EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(second.message()), HasSubstr(absl::StrCat("process ", getpid())));
    EXPECT_THAT(std::string(second.message()), HasSubstr(path));
  }
  EXPECT_TRUE(GpuLease::Take(path, absl::InfinitePast()).ok());
  std::remove(path.c_str());
  EXPECT_EQ(GpuLease::Take("/nowhere/lease", absl::InfinitePast()).status().code(), absl::StatusCode::kUnavailable);
}

// The driver's library is missing, whatever this machine has.
class NoDriverTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("ROOFTUNE_LIBCUDA", "/nowhere/libcuda.so.1", 1); }
  void TearDown() override { unsetenv("ROOFTUNE_LIBCUDA"); }
};

TEST_F(NoDriverTest, ProbeSaysWhatIsMissing) {
  worker::v1::ProbeResult result;
  ProbeDriver(&result);
  EXPECT_EQ(result.device_size(), 0);
  EXPECT_THAT(result.message(), HasSubstr("no CUDA driver"));
  ASSERT_EQ(result.library_size(), 3);
  EXPECT_EQ(result.library(0).name(), "cuda");
  EXPECT_THAT(result.library(0).error(), HasSubstr("/nowhere/libcuda.so.1"));
}

TEST_F(NoDriverTest, TheRoleSaysSoInsteadOfHello) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  EXPECT_NE(ServeRun(fds[1], 0), 0);
  const auto frame = ReadFrame(fds[0], absl::Now() + absl::Seconds(5));
  ASSERT_TRUE(frame.ok()) << frame.status();
  ASSERT_TRUE(frame->has_error());
  EXPECT_EQ(frame->error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(frame->error().message(), HasSubstr("no CUDA driver"));
  close(fds[0]);
  close(fds[1]);
}

}  // namespace
}  // namespace rooftune

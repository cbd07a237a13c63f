#include "tuner/compile/cubin.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/candidate.h"
#include "tuner/compile/elf_reader.h"
#include "tuner/worker/nvrtc.h"

namespace rooftune {
namespace {

using worker::v1::CompileRequest;
using worker::v1::CompileResult;
using worker::v1::KernelInfo;

constexpr char kTwoKernels[] = R"(
__device__ __noinline__ float helper(float x) { return x * x + 1.f; }
struct Big { long long words[40]; };
extern "C" __global__ void __launch_bounds__(256) first(const float* a, float* b, int n, char c) {
  __shared__ float tile[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x & 63] = helper(a[i]);
  __syncthreads();
  if (i < n) b[i] = tile[(i * 7) & 63] + c;
}
extern "C" __global__ void second(double* d, Big big) {
  extern __shared__ double dynamic[];
  dynamic[threadIdx.x] = big.words[threadIdx.x % 40];
  d[threadIdx.x] = dynamic[threadIdx.x ^ 1];
}
)";

// 255 live values under a launch bound that leaves 64 registers, in the kernel itself or in a function it calls.
constexpr char kSpilling[] = R"(
__device__ __forceinline__ void Work(float* p) {
  float v[200];
#pragma unroll
  for (int i = 0; i < 200; ++i) v[i] = p[i * 32];
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int i = 0; i < 200; ++i) v[i] = v[i] * v[(i * 7 + r + 1) % 200] + v[(i * 13 + 5) % 200];
#pragma unroll
  for (int i = 0; i < 200; ++i) p[i * 32] = v[i];
}
extern "C" __global__ void __launch_bounds__(1024) spilling(float* p) { Work(p + threadIdx.x); }
extern "C" __global__ void plain(float* p) { p[threadIdx.x] = 1; }
)";

const NvrtcLibrary& Nvrtc() {
  static const auto* const library = new absl::StatusOr<NvrtcLibrary>(NvrtcLibrary::Load(""));
  EXPECT_TRUE(library->ok()) << library->status();
  return **library;
}

CompileResult Compiled(const std::string& source, const std::string& arch) {
  CompileRequest request;
  request.mutable_source()->set_name("k.cu");
  request.mutable_source()->set_text(source);
  request.set_arch(arch);
  request.set_option_list_version(kOptionListVersion);
  const auto result = CompileWithNvrtc(Nvrtc(), request);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome(), v1::OK) << result->log();
  return *result;
}

const KernelInfo& Find(const Cubin& cubin, const std::string& symbol) {
  for (const KernelInfo& kernel : cubin.kernel) {
    if (kernel.symbol() == symbol) return kernel;
  }
  ADD_FAILURE() << "no kernel " << symbol;
  static const KernelInfo none;
  return none;
}

std::string Layout(const KernelInfo& kernel) {
  std::string layout;
  for (const auto& p : kernel.parameter()) absl::StrAppend(&layout, p.ordinal(), "@", p.offset(), ":", p.size(), " ");
  return layout;
}

class CubinTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CubinTest, TellsWhatTheAssemblerTold) {
  const CompileResult compiled = Compiled(kTwoKernels, GetParam());
  const auto cubin = ParseCubin(compiled.cubin());
  ASSERT_TRUE(cubin.ok()) << cubin.status();
  EXPECT_EQ(cubin->arch, GetParam());
  ASSERT_EQ(cubin->kernel.size(), 2u);
  const KernelInfo& first = Find(*cubin, "first");
  EXPECT_EQ(first.resources().static_shared_bytes(), 256);
  EXPECT_EQ(first.resources().threads_per_block(), 256);
  EXPECT_GT(first.resources().code_bytes(), 0);
  EXPECT_EQ(Layout(first), "0@0:8 1@8:8 2@16:4 3@20:1 ");
  const KernelInfo& second = Find(*cubin, "second");
  EXPECT_EQ(second.resources().static_shared_bytes(), 0);
  EXPECT_EQ(second.resources().threads_per_block(), 0);
  EXPECT_EQ(Layout(second), "0@0:8 1@8:320 ");
  // The log lists each kernel's registers in its own "Used" line.
  for (const KernelInfo* kernel : {&first, &second}) {
    const size_t at = compiled.log().find(absl::StrCat("entry function '", kernel->symbol(), "'"));
    ASSERT_NE(at, std::string::npos) << compiled.log();
    const size_t used = compiled.log().find("Used ", at);
    EXPECT_EQ(compiled.log().substr(used, 9).find(absl::StrCat("Used ", kernel->resources().registers_per_thread())),
              0u)
        << compiled.log();
  }
}

TEST_P(CubinTest, E3_SpillsComeFromTheLog) {
  const CompileResult compiled = Compiled(kSpilling, GetParam());
  auto cubin = ParseCubin(compiled.cubin());
  ASSERT_TRUE(cubin.ok()) << cubin.status();
  AddPtxasUsage(compiled.log(), &*cubin);
  const v1::Resources& spilling = Find(*cubin, "spilling").resources();
  EXPECT_LE(spilling.registers_per_thread(), 64);
  EXPECT_GT(spilling.spill_store_bytes(), 100);
  EXPECT_GT(spilling.spill_load_bytes(), 100);
  EXPECT_GT(spilling.stack_bytes(), 100);
  EXPECT_EQ(Find(*cubin, "plain").resources().spill_store_bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(Archs, CubinTest, ::testing::Values("sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120"));

TEST(AddPtxasUsageTest, SpillsOfCalledFunctionsAreTheirKernels) {
  Cubin cubin;
  cubin.kernel.resize(2);
  cubin.kernel[0].set_symbol("k");
  cubin.kernel[1].set_symbol("other");
  cubin.called = {{"helper"}, {}};
  AddPtxasUsage(
      "ptxas info    : Function properties for k\n"
      "    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
      "ptxas info    : Function properties for helper\n"
      "ptxas         .     32 bytes stack frame, 100 bytes spill stores, 200 bytes spill loads\n",
      &cubin);
  EXPECT_EQ(cubin.kernel[0].resources().stack_bytes(), 16);
  EXPECT_EQ(cubin.kernel[0].resources().spill_store_bytes(), 104);
  EXPECT_EQ(cubin.kernel[0].resources().spill_load_bytes(), 208);
  EXPECT_EQ(cubin.kernel[1].resources().spill_store_bytes(), 0);
}

TEST(CubinFuzzTest, D6_EveryTruncationIsRefused) {
  const std::string cubin = Compiled(kTwoKernels, "sm_90a").cubin();
  for (size_t size = 0; size < cubin.size(); ++size) {
    // A copy of its own, so that a sanitizer sees a read past the end.
    const std::string cut = cubin.substr(0, size);
    const auto parsed = ParseCubin(cut);
    // Program headers stand at the end and are not read: only a cut in them may pass.
    if (parsed.ok()) {
      EXPECT_GE(size, *ReadInt<uint64_t>(cubin, 40)) << "sections were cut, yet it parsed";
    } else {
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss);
    }
  }
}

TEST(CubinFuzzTest, D6_FlippedBitsNeverCrash) {
  const std::string cubin = Compiled(kTwoKernels, "sm_90a").cubin();
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 8000; ++round) {
    std::string broken = cubin;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
      broken[random() % broken.size()] ^= static_cast<char>(1u << random() % 8);
    }
    const auto parsed = ParseCubin(broken);
    if (!parsed.ok()) {
      ++refused;
      continue;
    }
    for (const KernelInfo& kernel : parsed->kernel) {
      EXPECT_GE(kernel.resources().static_shared_bytes(), 0);
      KernelInfo back;
      EXPECT_TRUE(back.ParseFromString(kernel.SerializeAsString()));
    }
  }
  EXPECT_GT(refused, 400);
}

TEST(CubinFuzzTest, OtherFilesAreRefused) {
  EXPECT_FALSE(ParseCubin("").ok());
  EXPECT_FALSE(ParseCubin(std::string(4096, '\0')).ok());
  EXPECT_FALSE(ParseCubin("// PTX text\n.version 9.0\n").ok());
  std::string host = Compiled(kTwoKernels, "sm_80").cubin();
  host[18] = 62;  // e_machine of x86-64
  EXPECT_FALSE(ParseCubin(host).ok());
}

}  // namespace
}  // namespace rooftune

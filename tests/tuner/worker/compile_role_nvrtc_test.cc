#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/sha256.h"
#include "kernels/candidate.h"
#include "tuner/worker/nvrtc.h"
#include "tuner/worker/roles.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using worker::v1::CompileRequest;
using worker::v1::CompileResult;

CompileRequest Kernel(const std::string& text) {
  CompileRequest request;
  request.mutable_source()->set_name("k.cu");
  request.mutable_source()->set_text(text);
  request.set_arch("sm_90a");
  request.set_option_list_version(kOptionListVersion);
  return request;
}

const NvrtcLibrary& Nvrtc() {
  static const auto* const library = new absl::StatusOr<NvrtcLibrary>(NvrtcLibrary::Load(""));
  EXPECT_TRUE(library->ok()) << library->status();
  return **library;
}

CompileResult Compile(const CompileRequest& request) {
  const auto result = CompileWithNvrtc(Nvrtc(), request);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : CompileResult();
}

TEST(NvrtcTest, CompilesWithHeadersAndDefines) {
  CompileRequest request = Kernel(
      "#include \"common/scale.cuh\"\n"
      "__constant__ int list[] = {RT_LIST};\n"
      "static_assert(sizeof(list) == 3 * sizeof(int) && RT_SIGNED == -4, \"defines\");\n"
      "extern \"C\" __global__ void scale(float* p) { p[threadIdx.x] *= kScale * list[1]; }\n");
  auto* header = request.add_header();
  header->set_name("common/scale.cuh");
  header->set_text("constexpr float kScale = 2.f;\n");
  request.add_define("RT_LIST=1,2,3");
  request.add_define("RT_SIGNED=-4");
  request.add_symbol("scale");
  const CompileResult result = Compile(request);
  ASSERT_EQ(result.outcome(), v1::OK) << result.log();
  EXPECT_EQ(result.digest(), Sha256Hex(result.cubin()));
  EXPECT_EQ(result.nvrtc_version(), Nvrtc().version);
  EXPECT_GT(result.compile_ms(), 0);
  ASSERT_EQ(result.kernel_size(), 1);
  EXPECT_EQ(result.kernel(0).symbol(), "scale");
  EXPECT_GT(result.kernel(0).resources().registers_per_thread(), 0);
  EXPECT_THAT(result.log(), Not(HasSubstr("Compile time")));
}

TEST(NvrtcTest, EqualRequestsGiveEqualResults) {
  const CompileRequest request = Kernel("extern \"C\" __global__ void k(float* p) { p[threadIdx.x] = 1; }");
  CompileResult first = Compile(request), second = Compile(request);
  first.clear_compile_ms();
  second.clear_compile_ms();
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
}

TEST(NvrtcTest, ASourceErrorIsAnOutcomeWithTheCompilersWords) {
  const CompileResult result = Compile(Kernel("extern \"C\" __global__ void k() { undeclared_thing(); }"));
  EXPECT_EQ(result.outcome(), v1::COMPILE_FAILED);
  EXPECT_THAT(result.log(), HasSubstr("k.cu(1): error: identifier \"undeclared_thing\" is undefined"));
  EXPECT_EQ(result.log().find('\0'), std::string::npos);
  EXPECT_TRUE(result.cubin().empty());
}

TEST(NvrtcTest, ALongLogIsCapped) {
  std::string text = "extern \"C\" __global__ void k() {\n";
  for (int i = 0; i < 90; ++i) text += "undeclared_" + std::string(300, 'x') + std::to_string(i) + "();\n";
  const CompileResult result = Compile(Kernel(text + "}\n"));
  EXPECT_EQ(result.outcome(), v1::COMPILE_FAILED);
  EXPECT_LE(result.log().size(), 16u << 10);
  EXPECT_THAT(result.log(), HasSubstr("k.cu(2): error"));
  EXPECT_THAT(result.log(), HasSubstr("bytes left out"));
}

TEST(NvrtcTest, E7_AnUnknownArchitectureNamesItselfTheVersionAndWhatIsKnown) {
  CompileRequest request = Kernel("extern \"C\" __global__ void k() {}");
  request.set_arch("sm_35");
  const CompileResult result = Compile(request);
  EXPECT_EQ(result.outcome(), v1::COMPILE_FAILED);
  EXPECT_THAT(result.log(), HasSubstr("sm_35"));
  EXPECT_THAT(result.log(), HasSubstr("NVRTC " + Nvrtc().version));
  EXPECT_THAT(result.log(), HasSubstr("sm_90"));
  EXPECT_THAT(result.log(), HasSubstr(Nvrtc().path));
}

TEST(NvrtcTest, InstructionsOfAnotherArchitectureAreAnOutcome) {
  CompileRequest request = Kernel("extern \"C\" __global__ void k() { asm volatile(\"wgmma.fence.sync.aligned;\"); }");
  EXPECT_EQ(Compile(request).outcome(), v1::OK);
  request.set_arch("sm_90");
  const CompileResult result = Compile(request);
  EXPECT_EQ(result.outcome(), v1::COMPILE_FAILED);
  EXPECT_THAT(result.log(), HasSubstr("wgmma.fence"));
}

TEST(NvrtcTest, AMissingKernelIsNamedTogetherWithThosePresent) {
  CompileRequest request = Kernel("extern \"C\" __global__ void present() {}");
  request.add_symbol("absent");
  const CompileResult result = Compile(request);
  EXPECT_EQ(result.outcome(), v1::COMPILE_FAILED);
  EXPECT_THAT(result.log(), HasSubstr("'absent' is not in the compiled module, which holds: present"));
}

TEST(NvrtcTest, AnotherOptionListIsRefused) {
  CompileRequest request = Kernel("extern \"C\" __global__ void k() {}");
  request.set_option_list_version(kOptionListVersion + 1);
  const absl::Status status = CompileWithNvrtc(Nvrtc(), request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(status), "OPTION_LIST_VERSION");
}

TEST(NvrtcTest, RefusedSourcesAreOutcomes) {
  const CompileResult result = Compile(Kernel("#include \"/etc/passwd\"\n"));
  EXPECT_EQ(result.outcome(), v1::COMPILE_FAILED);
  EXPECT_THAT(result.log(), HasSubstr("k.cu(1)"));
  EXPECT_THAT(result.log(), Not(HasSubstr("root:")));
}

TEST(NvrtcLibraryTest, AnExplicitPathIsTheOnlyOneTried) {
  const absl::Status status = NvrtcLibrary::Load("/nonexistent/libnvrtc.so").status();
  EXPECT_EQ(ErrorReason(status), "NO_NVRTC");
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/libnvrtc.so"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("libnvrtc.so.13")));
  const auto file = NvrtcLibrary::Load(Nvrtc().path);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string folder = Nvrtc().path.substr(0, Nvrtc().path.rfind('/'));
  const auto in_folder = NvrtcLibrary::Load(folder);
  ASSERT_TRUE(in_folder.ok()) << in_folder.status();
  EXPECT_EQ(in_folder->version, Nvrtc().version);
}

TEST(NvrtcLibraryTest, ALibraryThatIsNoNvrtcIsRefusedWithWhatItLacks) {
  const absl::Status status = NvrtcLibrary::Load("libm.so.6").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("lacks nvrtcVersion"));
}

TEST(NvrtcLibraryTest, TheEnvironmentNamesAPathToo) {
  setenv("ROOFTUNE_NVRTC", "/nonexistent/from-environment.so", 1);
  const worker::v1::Library missing = ProbeNvrtc("");
  unsetenv("ROOFTUNE_NVRTC");
  EXPECT_THAT(missing.error(), HasSubstr("/nonexistent/from-environment.so"));
  EXPECT_TRUE(missing.path().empty());
  const worker::v1::Library found = ProbeNvrtc("");
  EXPECT_EQ(found.name(), "nvrtc");
  EXPECT_EQ(found.version(), Nvrtc().version);
  EXPECT_THAT(found.path(), HasSubstr("libnvrtc.so"));
}

}  // namespace
}  // namespace rooftune

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/candidate.h"
#include "tuner/worker/compile_check.h"
#include "tuner/worker/nvrtc.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;
using worker::v1::CompileRequest;

CompileRequest Good() {
  CompileRequest request;
  request.mutable_source()->set_name("gemm/simt/kernel.cuh");
  request.mutable_source()->set_text("extern \"C\" __global__ void k() {}");
  request.set_arch("sm_90a");
  request.set_option_list_version(kOptionListVersion);
  return request;
}

TEST(CheckCompileRequestTest, Defines) {
  for (const char* good : {"RT_M=1", "RT_CHAIN=1,2,-3", "_A1=-9223372036854775808", "X=007"}) {
    CompileRequest request = Good();
    request.add_define(good);
    EXPECT_TRUE(CheckCompileRequest(request).ok()) << good;
  }
  for (const char* bad : {"RT_M", "RT_M=", "=1", "rt=1", "1A=1", "A=1,", "A=,1", "A=1 2", "A=B", "A=1;", "A(x)=1",
                          "A=--1", "A=0x10", "A=1\n", "A=1 -I/etc", "A=1.5", "A=\"/etc/passwd\""}) {
    CompileRequest request = Good();
    request.add_define(bad);
    EXPECT_EQ(CheckCompileRequest(request).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  CompileRequest longest = Good();
  std::string list = "RT_LIST=1";
  while (list.size() + 2 <= 4096) list += ",1";
  longest.add_define(list);
  EXPECT_TRUE(CheckCompileRequest(longest).ok());
  longest.set_define(0, list + ",1,1,1");
  EXPECT_FALSE(CheckCompileRequest(longest).ok());
}

TEST(CheckCompileRequestTest, Arch) {
  for (const char* bad :
       {"", "sm_", "sm_90b", "compute_90", "sm_90a ", "sm_90 --include-path=/etc", "native", "SM_90"}) {
    CompileRequest request = Good();
    request.set_arch(bad);
    EXPECT_EQ(CheckCompileRequest(request).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(CheckCompileRequestTest, FileNames) {
  for (const char* bad : {"", "/etc/passwd", "../x.cuh", "a/../../x.cuh", "a//b", "./a", "a/", "a\\b", "a b", "a\"b"}) {
    CompileRequest request = Good();
    request.add_header()->set_name(bad);
    EXPECT_EQ(CheckCompileRequest(request).code(), absl::StatusCode::kInvalidArgument) << bad;
    request = Good();
    request.mutable_source()->set_name(bad);
    EXPECT_EQ(CheckCompileRequest(request).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(CheckCompileRequestTest, HeadersAreScannedToo) {
  CompileRequest request = Good();
  auto* header = request.add_header();
  header->set_name("common/a.cuh");
  header->set_text("int x;\n#include \"/etc/passwd\"\n");
  const absl::Status status = CheckCompileRequest(request);
  EXPECT_THAT(std::string(status.message()), HasSubstr("common/a.cuh(2): #include of '/etc/passwd'"));
}

TEST(CheckIncludesTest, AllowsWhatKernelsWrite) {
  for (const char* good : {
           "#include \"common/types.cuh\"\n",
           "  #  include <cuda_fp16.h>  // half\n",
           "#ifdef __has_include\n#if __has_include(<a/b.h>) && defined(__has_include)\n#endif\n#endif\n",
           "// #include \"/etc/passwd\"\n",
           "/* #include \"/etc/passwd\"\n   #include \"../x\" */ int y;\n",
           "const char* s = \"#include \\\"/etc/passwd\\\"\";\n",
           "#define TILE(x) \\\n  do { x; } while (0)\n",
           "int n = 1'000'000; char q = '\"'; char c = '\\'';\n#include \"a.h\"\n",
           "int include = 3; x #include\n",
           "#include \"a.h\"\r\n#include \"b.h\"\r\n",
           "double d = .5'0 + 0xAB'CD'01; /* \" ' */\n",
           "int FOUR; asm(\"mov \" FOUR \"x\");\n",
       }) {
    const absl::Status status = CheckIncludes("k.cu", good);
    EXPECT_TRUE(status.ok()) << good << status;
  }
}

TEST(CheckIncludesTest, RefusesEveryWayToAFile) {
  for (const char* bad : {
           "#include \"/etc/passwd\"\n",
           "#include </etc/passwd>\n",
           "#include \"../secret\"\n",
           "#include \"a/../../secret\"\n",
           "#include_next \"/etc/passwd\"\n",
           "#import \"/etc/passwd\"\n",
           "#embed \"/etc/passwd\"\n",
           "#if __has_include(\"/etc/passwd\")\n",
           "#define HAS __has_include(</etc/passwd>)\n",
           "#define HAS __has_include\n#define P (\"/etc/passwd\")\n#if HAS P\n",
           // by a macro
           "#define F \"/etc/passwd\"\n#include F\n",
           "#if __has_include(F)\n",
           // spelt otherwise
           "%:include \"/etc/passwd\"\n",
           "\?\?=include \"/etc/passwd\"\n",
           "#inc\\\nlude \"/etc/passwd\"\n",
           "#\\\n include \"/etc/passwd\"\n",
           "#/* */include/* */\"/etc/passwd\"\n",
           "/* a\n */ # include \"/etc/passwd\"\n",
           "\v\f#include \"/etc/passwd\"\n",
           // behind what only looks like a comment or a literal
           "const char* s = \"/*\";\n#include \"/etc/passwd\"\n",
           "const char* s = R\"x(\n)x\";\n",
           "auto s = u8R\"(/*)\";\n",
           "auto q = L'\"'; auto s = \"/*\";\n#include \"/etc/passwd\"\n",
           "int n = 1'0; char q = '\"'; auto s = \"/*\";\n#include \"/etc/passwd\"\n",
           "return'\"'; auto s = \"/*\";\n#include \"/etc/passwd\"\n",
           "// comment \\ \n#include \"/etc/passwd\"\n",
           "// comment \r#include \"/etc/passwd\"\n",
       }) {
    EXPECT_EQ(CheckIncludes("k.cu", bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(CheckIncludes("k.cu", absl::string_view("int x;\0#", 8)).ok());
}

TEST(CompileOptionsTest, F8_FixedListThenDefinesAndNoPrecompiledHeaders) {
  CompileRequest request = Good();
  request.add_define("RT_M=128");
  EXPECT_THAT(CompileOptions(request),
              ::testing::ElementsAre("--gpu-architecture=sm_90a", "--std=c++17", "-default-device", "-no-cache",
                                     "-modify-stack-limit=false", "--ptxas-options=-v", "-DRT_M=128"));
}

}  // namespace
}  // namespace rooftune

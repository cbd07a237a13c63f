// The real rooftune-worker with the real NVRTC, behind WorkerCompiler.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "kernels/candidate.h"
#include "tuner/compile/worker_compiler.h"
#include "tuner/wire/frame.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using worker::v1::CompileRequest;
using worker::v1::CompileResult;
using worker::v1::Frame;

CompileRequest Kernel(const std::string& text, int timeout_ms = 60'000) {
  CompileRequest request;
  request.mutable_source()->set_name("k.cu");
  request.mutable_source()->set_text(text);
  request.set_arch("sm_90a");
  request.set_option_list_version(kOptionListVersion);
  request.set_timeout_ms(timeout_ms);
  return request;
}

CompileRequest Good(int number = 0) {
  return Kernel(absl::StrCat("extern \"C\" __global__ void k(float* p) { p[threadIdx.x] = ", number, "; }"));
}

// Compiles for minutes: the unrolled body has a hundred thousand dependent statements in a nest of branches.
CompileRequest Pathological(int timeout_ms) {
  return Kernel(
      "extern \"C\" __global__ void k(float* p, const int* q) {\n"
      "  float v[64];\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 64; ++i) v[i] = p[i];\n"
      "#pragma unroll\n"
      "  for (int r = 0; r < 400; ++r)\n"
      "#pragma unroll\n"
      "    for (int i = 0; i < 64; ++i) { if (q[r * 64 + i]) v[i] = v[(i * 7 + r) % 64] * v[i] + 1.f; }\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 64; ++i) p[i] = v[i];\n"
      "}\n",
      timeout_ms);
}

std::unique_ptr<WorkerCompiler> Compiler(int processes = 2, const std::string& nvrtc_path = "") {
  WorkerCompiler::Options options;
  options.worker_path = ROOFTUNE_WORKER;
  options.max_processes = processes;
  options.nvrtc_path = nvrtc_path;
  auto compiler = WorkerCompiler::Create(options);
  EXPECT_TRUE(compiler.ok()) << compiler.status();
  return *std::move(compiler);
}

CompileResult Result(WorkerCompiler& compiler, const CompileRequest& request) {
  const auto result = compiler.Compile(request);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : CompileResult();
}

TEST(CompileRoleTest, F1_TwoProcessesGiveTheSameBytes) {
  const auto one = Compiler(1), other = Compiler(1);
  const CompileResult first = Result(*one, Good()), second = Result(*other, Good());
  ASSERT_EQ(first.outcome(), v1::OK) << first.log();
  EXPECT_EQ(first.cubin(), second.cubin());
  EXPECT_EQ(first.digest(), second.digest());
  EXPECT_EQ(first.log(), second.log());
  EXPECT_NE(Result(*one, Good(1)).digest(), first.digest());
}

TEST(CompileRoleTest, F10_ParallelFailuresCarryTheirOwnLogs) {
  const auto compiler = Compiler();
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      const bool fails = i % 2 == 1;
      const CompileResult result =
          Result(*compiler,
                 fails ? Kernel(absl::StrCat("extern \"C\" __global__ void k() { marker_", i, "_end(); }")) : Good(i));
      EXPECT_EQ(result.outcome(), fails ? v1::COMPILE_FAILED : v1::OK) << result.log();
      for (int other = 1; other < 16; other += 2) {
        const std::string marker = absl::StrCat("marker_", other, "_end");
        EXPECT_EQ(result.log().find(marker) != std::string::npos, other == i) << i << ": " << result.log();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CompileRoleTest, G1_APathologicalSourceIsATimeoutAndTheOthersGoOn) {
  const auto compiler = Compiler();
  Result(*compiler, Good());
  std::thread slow([&] {
    const absl::Time start = absl::Now();
    const CompileResult result = Result(*compiler, Pathological(500));
    EXPECT_LT(absl::Now() - start, absl::Milliseconds(1500));
    EXPECT_EQ(result.outcome(), v1::COMPILE_TIMEOUT) << result.log();
  });
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(Result(*compiler, Good(i)).outcome(), v1::OK);
  slow.join();
  EXPECT_EQ(Result(*compiler, Good(4)).outcome(), v1::OK);
}

// Numbers of /proc/<pid>/stat behind the name: parent at 1, user time in clock ticks at 11.
std::vector<long> Stat(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::vector<long> numbers;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return numbers;
  std::istringstream rest(text.substr(name_end + 3));  // the letter of the state is left out
  numbers.push_back(0);
  for (long number; rest >> number;) numbers.push_back(number);
  return numbers;
}

// Child processes of this one.
std::vector<std::string> Children() {
  std::vector<std::string> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::vector<long> stat = Stat(name);
    if (stat.size() > 1 && stat[1] == getpid()) pids.push_back(name);
  }
  return pids;
}

TEST(CompileRoleTest, D7_AKilledCompilerCostsOneRequestOnly) {
  const auto compiler = Compiler(1);
  EXPECT_EQ(Result(*compiler, Good()).outcome(), v1::OK);
  const std::vector<std::string> children = Children();
  ASSERT_EQ(children.size(), 1u);
  const long before = Stat(children[0])[11];
  std::thread victim([&] {
    const CompileResult result = Result(*compiler, Pathological(60'000));
    EXPECT_EQ(result.outcome(), v1::COMPILE_FAILED);
    EXPECT_THAT(result.log(), HasSubstr("killed by signal 9"));
    EXPECT_THAT(result.log(), HasSubstr("k.cu"));
  });
  // It is in the middle of the compile once it has used a tenth of a second.
  const absl::Time patience = absl::Now() + absl::Seconds(30);
  while (Stat(children[0])[11] < before + sysconf(_SC_CLK_TCK) / 10 && absl::Now() < patience)
    std::this_thread::yield();
  kill(std::stoi(children[0]), SIGKILL);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Result(*compiler, Good(i)).outcome(), v1::OK);
  victim.join();
}

TEST(CompileRoleTest, ASourceCannotReadFiles) {
  const auto compiler = Compiler(1);
  for (const char* text : {"#include \"/etc/passwd\"\n", "#include \"../../../../../etc/passwd\"\n",
                           "#define F \"/etc/passwd\"\n#include F\n", "#include \"etc/passwd\"\n",
                           "#if __has_include(\"/etc/passwd\")\n#error it is there\n#endif\n"}) {
    const CompileResult result = Result(*compiler, Kernel(text));
    EXPECT_EQ(result.outcome(), v1::COMPILE_FAILED) << text;
    EXPECT_THAT(result.log(), Not(HasSubstr("root:"))) << text;
    EXPECT_THAT(result.log(), Not(HasSubstr("it is there"))) << text;
  }
}

TEST(CompileRoleTest, E7_TellsNvrtcsVersionOrWhereItLooked) {
  EXPECT_THAT(*Compiler(1)->NvrtcVersion(), ::testing::ContainsRegex("^1[0-9]\\.[0-9]+$"));
  const auto without = Compiler(1, "/nonexistent/libnvrtc.so");
  for (const absl::Status& status : {without->NvrtcVersion().status(), without->Compile(Good()).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ErrorReason(status), "NO_NVRTC");
    EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/libnvrtc.so"));
  }
}

TEST(CompileRoleTest, AnotherOptionListIsAnErrorOfTheCall) {
  CompileRequest request = Good();
  request.set_option_list_version(0);
  EXPECT_EQ(Compiler(1)->Compile(request).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CompileRoleTest, MemoryBeyondTheLimitIsAnOutcome) {
  const auto compiler = Compiler(1);
  EXPECT_EQ(Result(*compiler, Good()).outcome(), v1::OK);
  const std::vector<std::string> children = Children();
  ASSERT_EQ(children.size(), 1u);
  // Filling the real 2 GiB takes ten seconds; the same happens sooner at a lower limit.
  const rlimit lower{rlim_t{256} << 20, rlim_t{256} << 20};
  rlimit limit;
  ASSERT_EQ(prlimit(std::stoi(children[0]), RLIMIT_DATA, &lower, &limit), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(limit.rlim_max, rlim_t{2} << 30);
#endif
  const CompileResult result = Result(
      *compiler,
      Kernel("__device__ char a[1000000000] = {1}; extern \"C\" __global__ void k(char* p) { *p = a[threadIdx.x]; }"));
  EXPECT_EQ(result.outcome(), v1::COMPILE_FAILED);
  EXPECT_THAT(result.log(), HasSubstr("2 GiB"));
  EXPECT_THAT(result.log(), HasSubstr("out of memory"));
  EXPECT_EQ(Result(*compiler, Good()).outcome(), v1::OK);
}

TEST(WorkerMainTest, BatchAnswersTheFramesOfAFile) {
  const std::string in = ::testing::TempDir() + "/batch_in", out = ::testing::TempDir() + "/batch_out";
  const int fd = open(in.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
  for (int id = 1; id <= 2; ++id) {
    Frame frame;
    frame.set_id(id);
    *frame.mutable_compile() = Good(id);
    ASSERT_TRUE(WriteFrame(fd, frame).ok());
  }
  close(fd);
  ASSERT_EQ(system(absl::StrCat(ROOFTUNE_WORKER " compile --batch ", in, " >", out, " 2>/dev/null").c_str()), 0);
  const int answers = open(out.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<std::string> seen;
  while (true) {
    const auto frame = ReadFrame(answers, absl::InfiniteFuture());
    if (!frame.ok()) break;
    seen.push_back(frame->has_hello()   ? "hello"
                   : frame->has_begin() ? absl::StrCat("begin ", frame->id())
                   : frame->has_compile_result()
                       ? absl::StrCat("result ", frame->id(), " ", v1::Outcome_Name(frame->compile_result().outcome()))
                       : "?");
  }
  close(answers);
  EXPECT_THAT(seen, ::testing::ElementsAre("hello", "begin 1", "result 1 OK", "begin 2", "result 2 OK"));
}

TEST(WorkerMainTest, UsageErrorsExitWith2) {
  for (const char* arguments : {"", "fly", "run", "run --device x", "compile --fd", "compile --fd 63", "probe extra",
                                "compile --batch /nonexistent/file"}) {
    const int status = system(absl::StrCat(ROOFTUNE_WORKER " ", arguments, " >/dev/null 2>&1").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 2) << arguments;
  }
  for (const char* arguments : {"--version", "--help", "probe", "probe --json"}) {
    EXPECT_EQ(system(absl::StrCat(ROOFTUNE_WORKER " ", arguments, " >/dev/null 2>&1").c_str()), 0) << arguments;
  }
}

}  // namespace
}  // namespace rooftune

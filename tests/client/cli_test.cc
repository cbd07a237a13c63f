// The command line as a user sees it: output, JSON, exit codes, bad input.
#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file_util.h"
#include "tests/client/cli_fixture.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, BestShowsTheRecordAndItsBaseline) {
  const ProcessResult result = Run("best gemm m=64 n=64 k=64 dtype=bf16 --device cuda:0");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("evidence    MEASURED\n"));
  EXPECT_THAT(result.out, HasSubstr("kernel      gemm_mma block_m=128,stages=3\n"));
  EXPECT_THAT(result.out, HasSubstr("time        168.40 µs ±0.3 % (L2 COLD, clock COOL)\n"));
  EXPECT_THAT(result.out, HasSubstr("baseline    cublaslt_first 152.00 µs"));
  EXPECT_THAT(result.out, HasSubstr(": 0.90x (same run, cublasLt 130100)\n"));
  EXPECT_THAT(result.out, HasSubstr("baseline    copy: not for this operator\n"));
  EXPECT_THAT(result.out, HasSubstr("match       EXACT (generation 7)\n"));
  EXPECT_EQ(fake_.Request("GetBestConfig"),
            "op: \"gemm m=64 n=64 k=64 dtype=bf16\" device: \"cuda:0\" miss_policy: ESTIMATE objective: TIME");
}

TEST_F(CliTest, BestSaysThatBitsDiffer) {
  EXPECT_THAT(Run("best gemm m=64").out, Not(HasSubstr("\nbits ")));
  fake_.canned.best.mutable_record()->mutable_verification()->set_nondeterministic(true);
  EXPECT_THAT(Run("best gemm m=64").out, HasSubstr("\nbits        differ from launch to launch"));
}

TEST_F(CliTest, APredictionNeverLooksLikeATime) {
  fake_.canned.best.set_match(v1::MODEL_CHOICE);
  fake_.canned.best.mutable_record()->clear_measurement();
  fake_.canned.best.mutable_record()->set_evidence(v1::ESTIMATED);
  fake_.canned.best.mutable_record()->mutable_prediction()->set_time_us(150);
  const ProcessResult result = Run("best gemm m=64 n=64 k=64 dtype=bf16");
  EXPECT_THAT(result.out, HasSubstr("predicted   150.00 µs"));
  EXPECT_THAT(result.out, HasSubstr("never ran"));
  EXPECT_THAT(result.out, HasSubstr("Not tuned yet. To tune: rooftune tune gemm m=64"));
  EXPECT_THAT(result.out, Not(HasSubstr("x (same run")));
}

TEST_F(CliTest, JsonIsTheProtosWithEnumNames) {
  const ProcessResult raw = Run("best gemm m=64 --json");
  EXPECT_THAT(raw.out, HasSubstr("\"evidence\":\"MEASURED\""));
  EXPECT_THAT(raw.out, HasSubstr("\"match\":\"EXACT\""));
  EXPECT_THAT(raw.out, HasSubstr("\"artifact_digest\":\"" + fake_.canned.record.artifact_digest()));
  EXPECT_EQ(Json<v1::GetBestConfigResponse>("best gemm m=64").record().provider(), v1::TEMPLATE);
  EXPECT_EQ(Json<v1::EstimateResponse>("estimate gemm m=64").evidence(), v1::ESTIMATED);
  EXPECT_EQ(Json<v1::Sweep>("tune gemm m=64").state(), v1::DONE);
  EXPECT_EQ(Json<v1::Sweep>("sweep show s1").state(), v1::DONE);
  EXPECT_EQ(Json<v1::ListSweepsResponse>("sweep list").sweep_size(), 1);
  EXPECT_EQ(Json<v1::ListRecordsResponse>("records list").record_size(), 1);
  EXPECT_EQ(Json<v1::TuningRecord>("records show r1").name(), "records/r1");
  EXPECT_EQ(Json<v1::ListTrialsResponse>("trials s1").trial(0).outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(Json<v1::ListDevicesResponse>("devices list").device(0).kind(), v1::Device::CUDA);
  EXPECT_EQ(Json<v1::Device>("devices show cuda:0").id(), "cuda:0");
  EXPECT_EQ(Json<device::v1::Calibration>("devices calibrate").curve_size(), 1);
  EXPECT_EQ(Json<v1::ListTemplatesResponse>("templates list").op_size(), 1);
  EXPECT_EQ(Json<v1::TemplateInfo>("templates show gemm_mma").revision(), "abc");
  EXPECT_EQ(Json<v1::CheckTemplateResponse>("templates check gemm_mma").valid_points(), 120);
}

TEST_F(CliTest, EstimateShowsWorkAndCandidates) {
  const ProcessResult result = Run("estimate gemm m=64 --top 3");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("work        137.4 GFLOP on the tensor pipe\n"));
  EXPECT_THAT(result.out, HasSubstr("evidence    ESTIMATED: nothing was compiled or run\n"));
  EXPECT_THAT(result.out, HasSubstr("PREDICTED  80 % INTERVAL"));
  EXPECT_THAT(fake_.Request("Estimate"), HasSubstr("top: 3"));
}

TEST_F(CliTest, TablesAreAligned) {
  v1::Sweep& second = *fake_.canned.sweeps.add_sweep();
  second.set_name("sweeps/a-longer-name");
  second.set_state(v1::CONFIRMING);
  const ProcessResult result = Run("sweep list --state done --limit 2");
  const std::vector<std::string> lines = absl::StrSplit(result.out, '\n');
  ASSERT_GE(lines.size(), 3u);
  EXPECT_EQ(lines[0].find("STATE"), lines[1].find("DONE"));
  EXPECT_EQ(lines[0].find("STATE"), lines[2].find("CONFIRMING"));
  EXPECT_EQ(fake_.Request("ListSweeps"), "page_size: 2 state: DONE");

  fake_.canned.trials.set_next_page_token("more");
  const ProcessResult trials = Run("trials s1 --outcome wrong_result");
  EXPECT_THAT(trials.out, HasSubstr("WRONG_RESULT"));
  EXPECT_THAT(trials.out, HasSubstr("element 7 is 3, expected 4"));
  EXPECT_THAT(trials.err, HasSubstr("raise --limit"));
  EXPECT_EQ(fake_.Request("ListTrials"), "sweep: \"sweeps/s1\" outcome: WRONG_RESULT page_size: 50");
  EXPECT_THAT(Run("records list --op softmax --all").out, HasSubstr("records/r1  MEASURED  168.40 µs"));
  EXPECT_EQ(fake_.Request("ListRecords"), "op: \"softmax\" include_superseded: true page_size: 50");
}

TEST_F(CliTest, DevicesAndTemplates) {
  EXPECT_THAT(Run("devices list --all").out, HasSubstr("cuda:0  CUDA  READY  NVIDIA H200  sm_90"));
  EXPECT_EQ(fake_.Request("ListDevices"), "include_profiles: true");
  EXPECT_THAT(Run("devices show cuda:0").out, HasSubstr("copy      268.44 MB  4200"));
  EXPECT_THAT(Run("templates list").out, HasSubstr("BROKEN: /t/mine/template.txtpb:3:1"));
  EXPECT_THAT(Run("templates show gemm_mma").out, HasSubstr("\nid: \"gemm_mma\"\n"));
  EXPECT_THAT(Run("templates check --arch sm_80 --arch sm_90 gemm_mma gemm m=64").out, HasSubstr("sm_80  OK"));
  EXPECT_EQ(fake_.Request("CheckTemplate"), "id: \"gemm_mma\" arch: \"sm_80\" arch: \"sm_90\" op: \"gemm m=64\"");
}

TEST_F(CliTest, CheckFailsIfAnArchitectureDoes) {
  auto& broken = *fake_.canned.check.add_result();
  broken.set_arch("sm_120");
  broken.set_outcome(v1::COMPILE_FAILED);
  broken.set_message("kernel.cuh(3): error");
  const ProcessResult result = Run("templates check gemm_mma");
  EXPECT_EQ(result.code, 6);
  EXPECT_THAT(result.err, HasSubstr("sm_120: kernel.cuh(3): error"));
  fake_.canned.info.add_error("template.txtpb:3:1: no such field");
  EXPECT_EQ(Run("templates check gemm_mma").code, 6);
}

TEST_F(CliTest, FetchWritesBinaryAndRecipe) {
  const std::string out = fake_.dir() + "/deep/kernel";
  const ProcessResult result = Run("fetch gemm m=64 -o " + out);
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string cubin = out + "/" + fake_.canned.record.artifact_digest() + ".cubin";
  EXPECT_THAT(result.out, StartsWith(cubin));
  EXPECT_EQ(*ReadFile(cubin), fake_.canned.binary);
  v1::TuningRecord recipe;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(*ReadFile(out + "/recipe.json"), &recipe).ok());
  EXPECT_EQ(recipe.name(), "records/r1");
  EXPECT_EQ(fake_.Request("GetKernel"), "query { op: \"gemm m=64\" miss_policy: FAIL objective: TIME }");

  // A modelled device can't verify; that is said, not demanded.
  fake_.canned.devices.mutable_device(0)->set_kind(v1::Device::MODELLED);
  EXPECT_THAT(Run("fetch gemm m=64 -o " + out).err, HasSubstr("compiled, never run"));
  EXPECT_EQ(fake_.Request("GetKernel"), "query { op: \"gemm m=64\" min_evidence: COMPILED miss_policy: FAIL objective: TIME }");
  EXPECT_EQ(Run("fetch --record r1 -o " + out).code, 0);
  EXPECT_EQ(fake_.Request("GetKernel"), "record: \"records/r1\"");
  EXPECT_EQ(Run("fetch --record r1 gemm m=64").code, 2);

  fake_.canned.binary += "damage";
  std::filesystem::remove_all(out);
  const ProcessResult damaged = Run("fetch --record r1 -o " + out);
  EXPECT_EQ(damaged.code, 1);
  EXPECT_THAT(damaged.err, HasSubstr("[DIGEST_MISMATCH]"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(CliTest, ExportAndImport) {
  const std::string file = fake_.dir() + "/evidence.jsonl.gz";
  ProcessResult result = Run("export s1 --suite gemm_bf16 -o " + file);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(fake_.Request("ExportEvidence"), "sweep: \"sweeps/s1\" suite: \"gemm_bf16\"");
  result = Run("import " + file);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "imported 1 sweeps, 2 trials, 3 records; 4 lines were there already\n");
  EXPECT_EQ(fake_.Calls("ImportEvidence"), 3);
  // To standard output it is the lines and nothing else.
  v1::ExportLine line;
  const std::string out = Run("export -o -").out;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(out.substr(0, out.find('\n')), &line).ok()) << out;

  std::ofstream(file + ".bad") << "{\"run\": {\"schema\": 1}}\nnonsense\n";
  result = Run("import " + file + ".bad");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr(".bad:2: no evidence line"));
  EXPECT_EQ(Run("import " + file + ".none").code, 3);

  fake_.canned.lines.resize(1);
  result = Run("export -o " + file + ".empty");
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("NOTHING_TO_EXPORT"));
  EXPECT_FALSE(std::filesystem::exists(file + ".empty"));
}

TEST_F(CliTest, FullDiskIsAnError) {
  for (const char* line :
       {"export -o -", "export -o /dev/full", "best gemm m=64", "sweep list --json", "devices list"}) {
    const ProcessResult result = Process(Command(line), Environment(), "/dev/full").Wait();
    EXPECT_EQ(result.code, 1) << line;
    EXPECT_THAT(result.err, HasSubstr("No space left on device")) << line;
  }
}

TEST_F(CliTest, ServerErrorsBecomeExitCodesAndAdvice) {
  const std::pair<absl::StatusCode, int> table[] = {
      {absl::StatusCode::kInvalidArgument, 2},    {absl::StatusCode::kNotFound, 3},
      {absl::StatusCode::kPermissionDenied, 4},   {absl::StatusCode::kUnavailable, 5},
      {absl::StatusCode::kFailedPrecondition, 6}, {absl::StatusCode::kInternal, 1},
  };
  for (const auto& [code, exit] : table) {
    fake_.canned.error = Error(code, "SOME_REASON", "what is wrong", {{"command", "rooftune tune x"}});
    const ProcessResult result = Run("best gemm m=64");
    EXPECT_EQ(result.code, exit) << code;
    EXPECT_EQ(result.err, "rooftune: what is wrong [SOME_REASON]\n  command: rooftune tune x\n");
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(CliTest, NoDaemon) {
  const ProcessResult result =
      Process(Command("best gemm m=64"), {{"ROOFTUNE_ADDRESS", "unix:/nonexistent/socket"}}).Wait();
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.err, HasSubstr("no rooftuned answers at unix:/nonexistent/socket"));
  EXPECT_THAT(result.err, HasSubstr("[NO_DAEMON]"));
  // --address wins over the environment.
  EXPECT_EQ(Run("--address unix:/nonexistent/other best gemm m=64").code, 5);
}

TEST_F(CliTest, WaitingInVainIsPending) {
  fake_.canned.error = absl::DeadlineExceededError("late");
  const ProcessResult result = Run("best gemm m=64 --miss wait --timeout 5");
  EXPECT_EQ(result.code, 8);
  EXPECT_THAT(result.err, HasSubstr("[STILL_TUNING]"));
  EXPECT_EQ(Run("best gemm m=64").code, 5);
}

TEST_F(CliTest, UsageErrors) {
  const char* const lines[] = {
      "",
      "no_such_command",
      "sweep",
      "sweep show",
      "best",
      "tune",
      "estimate",
      "best gemm m=64 --no-such-option",
      "best gemm m=64 --min-evidence verifed",
      "best gemm m=64 --miss maybe",
      "best gemm m=64 --timeout -1",
      "tune gemm m=64 --strategy genetic",
      "tune gemm m=64 --l2 lukewarm",
      "tune gemm m=64 --max-trials many",
      "sweep list --state finished",
      "sweep list --limit 0",
      "trials s1 --outcome bad",
      "export s1",
      "estimate gemm m=64 --top 101",
      "--data-dir /d devices list",
  };
  for (const char* line : lines) {
    const ProcessResult result = Run(line);
    EXPECT_EQ(result.code, 2) << line << "\n" << result.err;
    EXPECT_THAT(result.err, StartsWith("rooftune: ")) << line;
  }
  const std::pair<const char*, const char*> words[] = {
      {"tun gemm m=64", "no command `rooftune tun`; did you mean tune? (see `rooftune --help`) [USAGE]"},
      {"templates chek", "no command `rooftune templates chek`; did you mean check?"},
      {"sweep", "a command is missing: list, show, watch"},
      {"tune gemm m=64 --max-trials many", "--max-trials = many (see `rooftune tune --help`) [USAGE]"},
      {"--address 1.2.3.4 devices list", "address 1.2.3.4: no port; use unix:PATH or HOST:PORT [BAD_ADDRESS]"},
  };
  for (const auto& [line, text] : words) EXPECT_THAT(Run(line).err, HasSubstr(text)) << line;
  EXPECT_THAT(Run("best").err, HasSubstr("which operator? For example: gemm"));
  EXPECT_THAT(Run("tune gemm m=1 --strategy genetic").err, HasSubstr("use one of exhaustive, random, model"));
  EXPECT_EQ(fake_.Calls("GetBestConfig") + fake_.Calls("CreateSweep"), 0) << "nothing was sent";
}

TEST_F(CliTest, HelpAndVersion) {
  for (const char* line : {"--help", "tune --help", "sweep list --help", "--version"})
    EXPECT_EQ(Run(line).code, 0) << line;
  EXPECT_THAT(Run("--help").out, HasSubstr("Exit codes: 0 ok"));
  EXPECT_THAT(Run("--version").out, StartsWith("rooftune 0."));
}

TEST_F(CliTest, DoctorListsWhatIsWrong) {
  fake_.canned.devices.mutable_device(0)->set_state(v1::Device::UNAVAILABLE);
  fake_.canned.devices.mutable_device(0)->set_message("no worker");
  const ProcessResult result = Run("doctor");
  EXPECT_THAT(result.out, HasSubstr("ok    daemon       " + fake_.address()));
  EXPECT_THAT(result.out, HasSubstr("NO    cuda:0       nvidia-h200/132sm/141gb/700w: no worker"));
  EXPECT_THAT(result.out, HasSubstr("NO    template     mine: /t/mine/template.txtpb:3:1"));
  google::protobuf::Struct report;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(Run("doctor --json").out, &report).ok());
  EXPECT_EQ(report.fields().at("finding").list_value().values(0).struct_value().fields().at("what").string_value(),
            "daemon");
  EXPECT_EQ(Run("--address unix:/nonexistent/s doctor").code, 5);
}

TEST_F(CliTest, NewTemplateIsCompleteAndNamed) {
  ProcessResult result = Run("templates new my_op2 --dir " + fake_.dir());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(fake_.Calls("Ping"), 0);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fake_.dir() + "/my_op2")) {
    ++files;
    const std::string text = *ReadFile(entry.path());
    EXPECT_THAT(text, HasSubstr("my_op2")) << entry.path();
    EXPECT_THAT(text, Not(HasSubstr("@NAME@"))) << entry.path();
    EXPECT_THAT(result.out, HasSubstr(entry.path().string() + "\n"));
    struct stat info = {};
    stat(entry.path().c_str(), &info);
    EXPECT_NE(info.st_mode & 0400, 0u);
  }
  EXPECT_EQ(files, 5);

  std::ofstream(fake_.dir() + "/my_op2/kernel.cuh") << "mine";
  result = Run("templates new my_op2 --dir " + fake_.dir());
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("exists; nothing was written"));
  EXPECT_EQ(*ReadFile(fake_.dir() + "/my_op2/kernel.cuh"), "mine");
  for (const char* name : {"Upper", "9lives", "a-b", "../x", "a/b", "_x", "ümlaut"}) {
    EXPECT_EQ(Run(std::string("templates new ") + name + " --dir " + fake_.dir()).code, 2) << name;
  }
  EXPECT_EQ(Run("templates new " + std::string(49, 'a') + " --dir " + fake_.dir()).code, 2);
  EXPECT_EQ(Run("templates new x --dir /dev/null").code, 6);
}

}  // namespace
}  // namespace rooftune

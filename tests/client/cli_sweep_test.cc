// tune and sweep: requests, progress, detaching.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "base/error.h"
#include "tests/client/cli_fixture.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using CliSweepTest = CliTest;

TEST_F(CliSweepTest, TuneSendsItsOptions) {
  const ProcessResult result = Run(
      "--device cuda:1 tune --template gemm_mma --template gemm_simt gemm m=64 n=64 k=64 dtype=bf16 --max-trials 16 --top-predicted 99 "
      "--time-budget 1.5 --strategy random --seed 9 --l2 warm --clock sustained --compile-timeout-ms 100 "
      "--run-timeout-ms 200 --max-spill-bytes -1 --no-baselines --request-id r --detach");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "sweeps/s1\n");
  EXPECT_EQ(fake_.Request("CreateSweep"),
            "spec { op: \"gemm m=64 n=64 k=64 dtype=bf16\" device: \"cuda:1\" template_id: \"gemm_mma\" template_id: "
            "\"gemm_simt\" strategy: RANDOM max_trials: 16 time_budget_s: 1.5 seed: 9 l2: WARM clock: SUSTAINED "
            "compile_timeout_ms: 100 run_timeout_ms: 200 max_spill_bytes: -1 no_baselines: true top_predicted: 99 } request_id: \"r\"");
  EXPECT_EQ(fake_.Calls("WatchSweep"), 0);
}

TEST_F(CliSweepTest, ProgressIsOneLineAStateWhenNobodyWatches) {
  v1::Sweep again = fake_.canned.watch[0];
  again.mutable_progress()->set_finished(4);
  fake_.canned.watch.insert(fake_.canned.watch.begin() + 1, again);
  const ProcessResult result = Run("tune gemm m=64");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err,
            "RUNNING  3/16  best 168.40 µs gemm_mma stages=3  (OK 14, SPILLS 2)\n"
            "DONE  16/16  best 168.40 µs gemm_mma stages=3  (OK 14, SPILLS 2)\n");
  EXPECT_THAT(result.out, HasSubstr("sweep       sweeps/s1  DONE\n"));
  EXPECT_THAT(result.out, HasSubstr("space       1000 points, 120 valid\n"));
  EXPECT_THAT(result.out, HasSubstr("baseline    cublaslt_first 152.00 µs"));
  EXPECT_THAT(result.out, HasSubstr(": best is 0.90x\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("\033")));
}

TEST_F(CliSweepTest, LiveLineOnATerminal) {
  auto environment = Environment();
  environment["NO_COLOR"] = "";
  environment["ROOFTUNE_FORCE_TTY"] = "1";
  const ProcessResult result = Process(Command("tune gemm m=64"), environment).Wait();
  EXPECT_THAT(result.err, HasSubstr("\r\033[KRUNNING  3/16"));
  EXPECT_THAT(result.err, ::testing::EndsWith("\r\033[K")) << "the line is not cleaned up";
}

TEST_F(CliSweepTest, NoRatioWithoutAMeasurement) {
  fake_.canned.watch.back().set_evidence(v1::COMPILED);
  const ProcessResult result = Run("tune gemm m=64");
  EXPECT_THAT(result.out, HasSubstr("(predicted, never ran)"));
  EXPECT_THAT(result.out, Not(HasSubstr("best is")));
}

TEST_F(CliSweepTest, DryRunShowsTheSpace) {
  fake_.canned.created.mutable_response()->PackFrom(fake_.canned.sweep);
  const ProcessResult result = Run("tune gemm m=64 --dry-run");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1000 points, 120 valid\n  880 pruned: shared memory fits\n"));
  EXPECT_THAT(fake_.Request("CreateSweep"), HasSubstr("validate_only: true"));
}

TEST_F(CliSweepTest, HowItEndedDecidesTheExitCode) {
  fake_.canned.watch.back().set_state(v1::FAILED);
  fake_.canned.watch.back().set_message("cuda:0 is lost");
  ProcessResult result = Run("sweep watch s1");
  EXPECT_EQ(result.code, 6);
  EXPECT_THAT(result.err, HasSubstr("rooftune: cuda:0 is lost [SWEEP_FAILED]"));
  fake_.canned.watch.back().set_state(v1::CANCELLED);
  result = Run("sweep watch sweeps/s1");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("rooftune sweep resume sweeps/s1"));
}

TEST_F(CliSweepTest, CtrlCDetachesAtOnce) {
  fake_.canned.watch.pop_back();
  fake_.canned.watch_hangs = true;
  Process process(Command("tune gemm m=64"), Environment());
  ASSERT_TRUE(fake_.watching.WaitForNotificationWithTimeout(absl::Seconds(20)));
  kill(process.pid(), SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("sweeps/s1 goes on; `rooftune sweep watch sweeps/s1` looks again"));
  EXPECT_THAT(result.err, Not(HasSubstr("[")));
  EXPECT_EQ(fake_.Calls("CancelSweep"), 0);
  EXPECT_TRUE(fake_.gone.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

TEST_F(CliSweepTest, CancelAndResume) {
  fake_.canned.sweep.set_state(v1::CANCELLED);
  EXPECT_EQ(Run("sweep cancel s1").out, "sweeps/s1 CANCELLED: 16 trials kept\n");
  EXPECT_EQ(fake_.Request("CancelSweep"), "name: \"sweeps/s1\"");
  EXPECT_EQ(Run("sweep resume s1 --detach").code, 0);
  EXPECT_EQ(fake_.Calls("WatchSweep"), 0);
  EXPECT_EQ(Run("sweep resume s1").code, 0);
  EXPECT_EQ(fake_.Request("WatchSweep"), "name: \"sweeps/s1\"");
}

TEST_F(CliSweepTest, TryShowsOneAndRacesSeveral) {
  ProcessResult result = Run("--device cuda:1 try gemm m=64 n=64 k=64 dtype=bf16 --config gemm_mma:stages=3,block_m=128 "
                             "--clock sustained --l2 warm --seed 4");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(fake_.Request("RaceConfigs"),
            "op: \"gemm m=64 n=64 k=64 dtype=bf16\" device: \"cuda:1\" entrant { template_id: \"gemm_mma\" config { key: "
            "\"block_m\" value: 128 } config { key: \"stages\" value: 3 } } l2: WARM clock: SUSTAINED seed: 4 objective: TIME");
  EXPECT_THAT(result.out, HasSubstr("time        168.40 µs ±0.3 % (3 samples of 12, 0 thrown away)\n"));
  EXPECT_THAT(result.out, HasSubstr("state       L2 COLD, clock COOL at 1980 MHz, 412 W, 51 °C\n"));
  *fake_.canned.raced.add_trial() = fake_.canned.tried;
  fake_.canned.raced.mutable_trial(1)->set_outcome(v1::WRONG_RESULT);
  result = Run("try gemm m=64 --template gemm_mma --config stages=3 --config stages=4");
  EXPECT_EQ(result.code, 6);
  EXPECT_THAT(result.out, HasSubstr("WRONG_RESULT"));
  EXPECT_EQ(Run("try gemm m=64 --config stages=many").code, 2);
  EXPECT_EQ(Run("try").code, 2);
}

TEST_F(CliSweepTest, B11_ReplayTellsByItsExitCode) {
  ProcessResult result = Run("trial replay s1/trials/3");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(fake_.Request("ReplayTrial"), "name: \"sweeps/s1/trials/3\"");
  EXPECT_THAT(result.out, HasSubstr("differs     driver: 580.95 → 590.1\n"));
  EXPECT_THAT(result.out, HasSubstr("agrees      yes\n"));
  fake_.canned.replayed.set_agrees(false);
  fake_.canned.replayed.mutable_after()->mutable_measurement()->set_median_us(200);
  result = Run("trial replay sweeps/s1/trials/3");
  EXPECT_EQ(result.code, 6);
  EXPECT_THAT(result.err, HasSubstr("REPLAY_DIFFERS"));
}

TEST_F(CliSweepTest, LocalWithoutADaemonBesideItSaysSo) {
  // The folder of binaries may or may not hold rooftuned, so the program runs from another place.
  std::vector<std::string> command = Command("--local devices list");
  const std::string copy = fake_.dir() + "/rooftune";
  std::filesystem::copy_file(command[0], copy);
  command[0] = copy;
  const ProcessResult result = Process(command, Environment()).Wait();
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.err, HasSubstr("start " + fake_.dir() + "/rooftuned: No such file or directory"));
}

}  // namespace
}  // namespace rooftune

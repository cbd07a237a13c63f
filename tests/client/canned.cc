// Plausible content of a daemon's answers.
#include <google/protobuf/text_format.h>

#include <cstdlib>

#include "base/sha256.h"
#include "tests/client/fake_daemon.h"

namespace rooftune {
namespace {

template <typename Message>
void Parse(const char* text, Message& message) {
  if (!google::protobuf::TextFormat::ParseFromString(text, &message)) std::abort();
}

constexpr char kRecord[] = R"pb(
  name: "records/r1"
  op: "gemm m=64 n=64 k=64 dtype=bf16"
  device_key: "nvidia-h200/132sm/141gb/700w"
  provider: TEMPLATE
  template_id: "gemm_mma"
  config { key: "stages" value: 3 }
  config { key: "block_m" value: 128 }
  artifact_bytes: 33
  evidence: MEASURED
  measurement {
    median_us: 168.4
    ci_low_us: 168.0
    ci_high_us: 169.0
    sample_us: [ 168, 168.4, 169 ]
    l2: COLD
    clock: COOL
  }
  verification { passed: true elements: 4096 max_error_ratio: 0.25 tolerance: "1 ulp(bf16)" }
  resources { registers_per_thread: 128 }
  bounds { floor_us: 100 attainable_us: 120 bound: COMPUTE }
  baseline {
    name: "cublaslt_first"
    version: "cublasLt 130100"
    outcome: OK
    measurement { median_us: 152.0 }
  }
  baseline { name: "copy" message: "not for this operator" outcome: NOT_RUN }
  environment { driver: "580.95" nvrtc: "13.0" })pb";
constexpr char kSweep[] = R"pb(
  name: "sweeps/s1"
  state: DONE
  device_key: "nvidia-h200/132sm/141gb/700w"
  evidence: MEASURED
  spec { op: "gemm m=64 n=64 k=64 dtype=bf16" device: "cuda:0" }
  progress {
    space_points: 1000
    valid_points: 120
    planned: 16
    finished: 16
    best_us: 168.4
    best_template: "gemm_mma"
    best_config { key: "stages" value: 3 }
    outcome { key: "OK" value: 14 }
    outcome { key: "SPILLS" value: 2 }
    pruned { key: "shared memory fits" value: 880 }
    spent_s { key: "compile" value: 1.5 }
  }
  bounds { floor_us: 100 attainable_us: 120 bound: COMPUTE }
  record: "records/r1"
  baseline {
    name: "cublaslt_first"
    measurement { median_us: 152.0 }
  })pb";
constexpr char kTried[] = R"pb(
  op: "gemm m=64 n=64 k=64 dtype=bf16" device_key: "nvidia-h200/132sm/141gb/700w" template_id: "gemm_mma"
  config { key: "stages" value: 3 } outcome: OK evidence: MEASURED
  measurement { median_us: 168.4 ci_low_us: 168.0 ci_high_us: 169.0 sample_us: [168, 168.4, 169] l2: COLD clock: COOL
                sm_clock_mhz: 1980 power_w: 412 temperature_c: 51 launches_per_sample: 12 }
  verification { passed: true elements: 4096 max_error_ratio: 0.25 } resources { registers_per_thread: 128 })pb";
constexpr char kEstimate[] = R"pb(
  op: "gemm m=64 n=64 k=64 dtype=bf16"
  device_key: "model/h200-sxm"
  evidence: ESTIMATED
  fits: true
  memory_bytes: 24576
  work {
    pipe_ops { pipe: "tensor" dtype: BF16 ops: "137438953472" }
    bytes_read: "16384"
    bytes_written: "8192"
  }
  bounds { floor_us: 100 attainable_us: 120 bound: MEMORY }
  arithmetic_intensity: 21.3
  candidate {
    template_id: "gemm_mma"
    config { key: "stages" value: 3 }
    prediction { time_us: 150 low_us: 120 high_us: 190 basis: BASIS_PREDICTED }
  })pb";
constexpr char kDevice[] = R"pb(
  name: "devices/cuda-0"
  id: "cuda:0"
  device_key: "nvidia-h200/132sm/141gb/700w"
  kind: CUDA
  state: READY
  arch: "sm_90"
  tunable: true
  profile { name: "NVIDIA H200" sm_count: 132 cc: 90 }
  calibration {
    curve {
      mix: "copy"
      point { bytes: 268435456 gbps: 4200 }
    }
    wall_s: 31.5
    device_key: "nvidia-h200/132sm/141gb/700w"
  })pb";
constexpr char kTemplates[] = R"pb(
  template { id: "gemm_mma" op: "gemm" arch: "cc >= 80" origin: "built-in" description: "tensor cores" }
  template { id: "mine" op: "mine" origin: "/t" error: "/t/mine/template.txtpb:3:1: no such field" }
  op { kind: "gemm" usage: "gemm m= n= k= dtype=" example: "gemm m=64 n=64 k=64 dtype=bf16" })pb";

}  // namespace

void FillCanned(Canned& canned) {
  canned.binary =
      "\x7f"
      "ELF not really a cubin, but bytes";
  Parse(kRecord, canned.record);
  canned.record.set_artifact_digest(Sha256Hex(canned.binary));
  *canned.best.mutable_record() = canned.record;
  canned.best.set_match(v1::EXACT);
  canned.best.set_generation(7);
  Parse(kEstimate, canned.estimate);
  Parse(kTried, canned.tried);
  *canned.raced.add_trial() = canned.tried;
  canned.raced.mutable_bounds()->set_floor_us(100);
  *canned.replayed.mutable_before() = canned.tried;
  *canned.replayed.mutable_after() = canned.tried;
  (*canned.replayed.mutable_difference())["driver"] = "580.95 → 590.1";
  canned.replayed.set_agrees(true);
  canned.created.set_name("operations/s1");
  Parse(kSweep, canned.sweep);
  v1::Sweep running = canned.sweep;
  running.set_state(v1::RUNNING);
  running.mutable_progress()->set_finished(3);
  canned.watch = {running, canned.sweep};
  *canned.sweeps.add_sweep() = canned.sweep;
  Parse(R"pb(trial {
               name: "sweeps/s1/trials/0"
               outcome: WRONG_RESULT
               template_id: "gemm_mma"
               message: "element 7 is 3, expected 4\nmore"
               resources { registers_per_thread: 96 }
             })pb",
        canned.trials);
  *canned.records.add_record() = canned.record;
  Parse(R"pb(run { schema: 1 suite: "gemm_bf16" })pb", canned.lines.emplace_back());
  *canned.lines.emplace_back().mutable_sweep() = canned.sweep;
  *canned.lines.emplace_back().mutable_record() = canned.record;
  Parse("sweeps: 1 trials: 2 records: 3 duplicates: 4", canned.imported);
  Parse(kDevice, *canned.devices.add_device());
  canned.calibrating.set_name("operations/calibrate-1");
  canned.calibrated.set_name("operations/calibrate-1");
  canned.calibrated.set_done(true);
  canned.calibrated.mutable_response()->PackFrom(canned.devices.device(0).calibration());
  Parse(kTemplates, canned.templates);
  Parse(R"pb(id: "gemm_mma" op: "gemm" revision: "abc" origin: "built-in" manifest: "id: \"gemm_mma\"\n")pb",
        canned.info);
  Parse(R"pb(space_points: 1000
             valid_points: 120
             result {
               arch: "sm_80"
               outcome: OK
               resources { registers_per_thread: 64 }
             })pb",
        canned.check);
}

}  // namespace rooftune

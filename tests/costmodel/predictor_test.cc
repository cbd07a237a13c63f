#include "costmodel/predictor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "costmodel/roofline.h"
#include "tests/costmodel/builtins.h"

namespace rooftune {
namespace {

struct Gemm {
  int64_t m = 4096, n = 4096, k = 4096;
  int64_t tile_m = 128, tile_n = 128, tile_k = 32, stages = 3, threads = 256, split_k = 1, raster = 8;
  int registers = 128, spill = 0;
  std::string pipe = "tensor";
  int bits_b = 0;
};

v1::Prediction Predict(const Gemm& g, const DeviceProfile& p) {
  MappedConfig c;
  c.cost_class = manifest::v1::TILE_GEMM;
  c.pipe = g.pipe;
  c.dtype = v1::BF16;
  c.m = g.m, c.n = g.n, c.k = g.k;
  c.tile_m = g.tile_m, c.tile_n = g.tile_n, c.tile_k = g.tile_k;
  c.stages = g.stages, c.split_k = g.split_k, c.raster_group = g.raster, c.threads = g.threads;
  c.grid_ctas = ((g.m + g.tile_m - 1) / g.tile_m) * ((g.n + g.tile_n - 1) / g.tile_n) * g.split_k;
  c.launches = g.split_k > 1 ? 2 : 1;
  c.bits_b = g.bits_b;
  v1::Resources r;
  r.set_registers_per_thread(g.registers);
  r.set_threads_per_block(static_cast<int>(g.threads));
  r.set_dynamic_shared_bytes(static_cast<int>((g.tile_m + g.tile_n) * g.tile_k * 2 * g.stages));
  r.set_spill_store_bytes(g.spill);
  const std::string op =
      "gemm dtype=bf16 m=" + std::to_string(g.m) + " n=" + std::to_string(g.n) + " k=" + std::to_string(g.k);
  return PredictTime(WorkOf(op), c, r, p, nullptr);
}

TEST(PredictorTest, LargeGemmLiesWithinReason) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const v1::Prediction p = Predict({}, h200);
  const v1::Bounds bounds = ComputeBounds(WorkOf("gemm m=4096 n=4096 k=4096 dtype=bf16"), h200, nullptr);
  EXPECT_GT(p.time_us(), bounds.attainable_us());
  EXPECT_LT(p.time_us(), 4 * bounds.attainable_us());
  EXPECT_LT(p.low_us(), p.time_us());
  EXPECT_GT(p.high_us(), p.time_us());
  EXPECT_EQ(p.basis(), v1::BASIS_PREDICTED);
  EXPECT_GT(p.term_us().at("full_waves"), 0);
}

TEST(PredictorTest, RanksBigTilesAboveTinyOnesOnBigShapes) {
  for (const char* device : {"h200-sxm", "a100-sxm-80", "l40s", "b200"}) {
    const DeviceProfile p = Profile(device);
    const double big = Predict({}, p).time_us();
    const double tiny = Predict({.tile_m = 16, .tile_n = 16, .threads = 32, .registers = 40}, p).time_us();
    EXPECT_GT(tiny, 1.5 * big) << device;
  }
}

TEST(PredictorTest, PipelinesHideLatency) {
  const DeviceProfile h200 = Profile("h200-sxm");
  EXPECT_GT(Predict({.stages = 1}, h200).time_us(), Predict({.stages = 3}, h200).time_us());
}

TEST(PredictorTest, SplitKHelpsWhereTilesAreFewAndKIsLong) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const Gemm few = {.m = 64, .n = 576, .k = 7168, .tile_m = 64, .tile_n = 64, .threads = 128, .registers = 90};
  Gemm split = few;
  split.split_k = 8;
  EXPECT_LT(Predict(split, h200).time_us(), 0.7 * Predict(few, h200).time_us());
  Gemm many = {};
  many.split_k = 8;
  EXPECT_GT(Predict(many, h200).time_us(), Predict({}, h200).time_us());
}

TEST(PredictorTest, ATailWaveCosts) {
  const DeviceProfile h200 = Profile("h200-sxm");
  // 264 blocks are one full wave at 2 a SM; one more row of tiles is a second wave.
  const Gemm full = {.m = 128 * 12, .n = 128 * 22};
  Gemm over = full;
  over.n += 128;
  const double full_us = Predict(full, h200).time_us(), over_us = Predict(over, h200).time_us();
  EXPECT_EQ(Predict(full, h200).term_us().at("tail_wave"), 0);
  EXPECT_GT(over_us / full_us, 1.2);
}

TEST(PredictorTest, SpillsCost) {
  const DeviceProfile h200 = Profile("h200-sxm");
  EXPECT_GT(Predict({.spill = 500}, h200).time_us(), 2 * Predict({}, h200).time_us());
}

TEST(PredictorTest, WhatDoesNotFitIsInfiniteAndSaysWhy) {
  const v1::Prediction p = Predict({.tile_m = 256, .tile_n = 256, .tile_k = 128, .stages = 3}, Profile("h200-sxm"));
  EXPECT_TRUE(std::isinf(p.time_us()));
  EXPECT_EQ(p.term_us().count("does not fit: more shared memory than a block may have"), 1u);
  EXPECT_TRUE(std::isinf(Predict({.threads = 512, .registers = 255}, Profile("h200-sxm")).time_us()));
}

TEST(PredictorTest, WarpgroupProductsHaveTheFullRate) {
  const DeviceProfile h200 = Profile("h200-sxm");
  Gemm g = {.tile_m = 128, .tile_n = 256, .tile_k = 64, .stages = 4, .threads = 384, .registers = 168};
  g.pipe = "tensor_wgmma";
  // Measured on an H200: 181 µs.
  const double wgmma = Predict(g, h200).time_us();
  EXPECT_NEAR(wgmma, 181, 8);
  // The main loop alone runs at 0.83 to 0.88 of the data sheet's 989 TFLOP/s.
  const double flops_per_us = 2.0 * 128 * 256 * 64 * 132 / Predict(g, h200).term_us().at("step_tensor");
  EXPECT_GT(flops_per_us, 0.83 * 989.4e6);
  EXPECT_LT(flops_per_us, 0.88 * 989.4e6);
  g.pipe = "tensor";
  EXPECT_GT(Predict(g, h200).time_us(), 1.4 * wgmma);
  // Measured: 12.3 µs for 64x64 tiles with 12 stages.
  Gemm few = {.m = 128,
              .n = 4096,
              .k = 4096,
              .tile_m = 64,
              .tile_n = 64,
              .tile_k = 64,
              .stages = 12,
              .threads = 160,
              .registers = 90};
  few.pipe = "tensor_wgmma";
  EXPECT_NEAR(Predict(few, h200).time_us(), 12.3, 1.5);
}

TEST(PredictorTest, FewerBitsOfOneOperandAreLessToBring) {
  const DeviceProfile h200 = Profile("h200-sxm");
  for (const char* pipe : {"tensor", "tensor_wgmma"}) {
    Gemm few = {.m = 16, .n = 28672, .k = 4096, .tile_m = 16, .tile_n = 128, .tile_k = 128, .stages = 4};
    few.pipe = pipe;
    v1::Prediction all = Predict(few, h200);
    few.bits_b = 16;
    EXPECT_EQ(Predict(few, h200).time_us(), all.time_us()) << pipe;
    few.bits_b = 4;
    const v1::Prediction quarter = Predict(few, h200);
    for (const char* term : {"step_dram", "step_l2", "step_shared"}) {
      EXPECT_LT(quarter.term_us().at(term), 0.6 * all.term_us().at(term)) << pipe << " " << term;
    }
    EXPECT_EQ(quarter.term_us().at("step_tensor"), all.term_us().at("step_tensor")) << pipe;
  }
}

// Tiles of 64x64 of gemm_wq_mma with int4 weights took 291 µs for m = 256, n = 28672, k = 4096 (H200, 2026-11), about
// twice of what the products alone take; wgmma overlaps with conversions.
TEST(PredictorTest, ConversionsAreNotHiddenBehindMmaSync) {
  const DeviceProfile h200 = Profile("h200-sxm");
  Gemm tiles = {.m = 256, .n = 28672, .k = 4096, .tile_m = 64, .tile_n = 64, .tile_k = 64, .stages = 4, .threads = 128};
  EXPECT_EQ(Predict(tiles, h200).term_us().at("step_conversion"), 0);
  tiles.bits_b = 4;
  const v1::Prediction converted = Predict(tiles, h200);
  EXPECT_GT(converted.term_us().at("step_conversion"), converted.term_us().at("step_tensor"));
  EXPECT_NEAR(converted.time_us(), 291, 45);
  tiles.pipe = "tensor_wgmma";
  EXPECT_EQ(Predict(tiles, h200).term_us().at("step_conversion"), 0);
}

v1::Prediction PredictRow(const std::string& op, int64_t rows, int64_t cols, int64_t threads, int64_t bytes_in_flight,
                          int64_t passes, const DeviceProfile& p) {
  MappedConfig c;
  c.cost_class = manifest::v1::ROW;
  c.m = rows, c.k = cols, c.threads = threads, c.passes = passes, c.bytes_in_flight_per_thread = bytes_in_flight;
  c.grid_ctas = rows;
  v1::Resources r;
  r.set_registers_per_thread(40);
  return PredictTime(WorkOf(op), c, r, p, nullptr);
}

TEST(PredictorTest, RowKernelsNearTheMeasuredTime) {
  const DeviceProfile h200 = Profile("h200-sxm");
  // Best Triton kernels on an H200: 128.9 µs and 65.3 µs.
  const double softmax = PredictRow("softmax rows=16384 cols=8192 dtype=bf16", 16384, 8192, 512, 32, 1, h200).time_us();
  EXPECT_GT(softmax, 115);
  EXPECT_LT(softmax, 180);
  const double rms = PredictRow("rmsnorm rows=16384 cols=4096 dtype=bf16", 16384, 4096, 256, 32, 1, h200).time_us();
  EXPECT_GT(rms, 58);
  EXPECT_LT(rms, 95);
}

TEST(PredictorTest, RowKernelsNeedBytesInFlightAndPayForPasses) {
  const DeviceProfile h200 = Profile("h200-sxm");
  const std::string op = "softmax rows=16384 cols=8192 dtype=bf16";
  const double wide = PredictRow(op, 16384, 8192, 256, 16, 1, h200).time_us();
  EXPECT_GT(PredictRow(op, 16384, 8192, 256, 2, 1, h200).time_us(), 1.5 * wide);
  EXPECT_GT(PredictRow(op, 16384, 8192, 256, 16, 3, h200).time_us(), wide);
  // Rows too long for L2 are read again from memory.
  const double once = PredictRow("softmax rows=4096 cols=131072 dtype=bf16", 4096, 131072, 1024, 16, 1, h200).time_us();
  const double twice =
      PredictRow("softmax rows=4096 cols=131072 dtype=bf16", 4096, 131072, 1024, 16, 2, h200).time_us();
  EXPECT_GT(twice, 1.3 * once);
}

TEST(PredictorTest, MoreBandwidthIsNeverSlower) {
  DeviceProfile slow = Profile("h200-sxm"), fast = slow;
  fast.mutable_memory_gbps()->set_value(2 * slow.memory_gbps().value());
  for (int64_t m : {1, 64, 512, 4096}) {
    EXPECT_LE(Predict({.m = m}, fast).time_us(), Predict({.m = m}, slow).time_us()) << m;
  }
  const std::string op = "rmsnorm rows=16384 cols=4096 dtype=bf16";
  EXPECT_LT(PredictRow(op, 16384, 4096, 256, 64, 1, fast).time_us(),
            PredictRow(op, 16384, 4096, 256, 64, 1, slow).time_us());
}

TEST(PredictorTest, NeverBelowTheFloor) {
  const DeviceProfile h200 = Profile("h200-sxm");
  MappedConfig c;
  c.cost_class = manifest::v1::STREAM;
  c.threads = 1024;
  c.grid_ctas = 132;
  c.bytes_in_flight_per_thread = 1024;
  const Work work = WorkOf("elementwise n=1000000000 dtype=bf16 chain=a");
  EXPECT_GE(PredictTime(work, c, {}, h200, nullptr).time_us(), ComputeBounds(work, h200, nullptr).floor_us());
  c.cost_class = manifest::v1::COST_CLASS_UNSPECIFIED;
  EXPECT_TRUE(std::isinf(PredictTime(work, c, {}, h200, nullptr).time_us()));
}

}  // namespace
}  // namespace rooftune

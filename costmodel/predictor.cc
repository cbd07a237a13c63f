#include "costmodel/predictor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "costmodel/ceilings.h"
#include "costmodel/occupancy.h"
#include "costmodel/roofline.h"

namespace rooftune {
namespace {

// First use of a cache line, issue to use, in SM cycles at full clock: DRAM 699, L2 287 (H200, 2026-11; published
// 552 and 206 on A100).
constexpr double kDramLatencyCycles = 700;
constexpr double kL2LatencyCycles = 290;
// Two barriers and the loop's own instructions in a K step, in cycles.
constexpr double kStepOverheadCycles = 60;
// mma.sync reaches about this share of the wgmma/tcgen05 rate that the data sheet states for compute capability 9.0
// and 10.x (published microbenchmarks of H100: 0.62–0.66).
constexpr double kMmaSyncShare = 0.65;
// wgmma fed by TMA nearly has the rate of the best library kernels, which is what attainable means: gemm_wgmma reaches
// 0.984 of the best cuBLASLt kernel on m = n = k = 4096 in bf16 (H200, 2026-11).
constexpr double kWgmmaShare = 0.98;
// Tiles that TMA brings come out of L2 faster than what L2BytesPerUs is made from, a loop in which no two SMs read the
// same: 64x80 tiles of m = 512, n = 1280, k = 8192 are 302 MB in 18.5 µs (gemm_wgmma on an H200, 2026-11).
constexpr double kTmaL2Gain = 1.8;
// Its K step: one wait for a barrier of the stage and one for the products before, in cycles (estimated); no barrier
// is block-wide.
constexpr double kWgmmaStepOverheadCycles = 16;
// Blocks that share loads wait for each other before a stage is refilled: what a step loses by it, in cycles. With it
// and kInterference, sharing the larger operand gains 1.5 % and sharing the smaller one loses as much, as measured on
// m = n = k = 4096 with tiles of 128x256 and 256x128 (H200, 2026-11).
constexpr double kSharedLoadOverheadCycles = 4;
// Units that are not the limit still get in its way: the part of their time that a wgmma step takes longer (fitted to
// the same kernels).
constexpr double kInterference = 0.03;
// Where mma.sync takes an operand of fewer bits than the other, warps convert it: instructions for 16x16 elements of
// it, and for these with 8 rows of the other (reading and ordering them, scaling sums of groups). Schedulers of an SM,
// and cycles an instruction costs one: they do not overlap with the products. From gemm_wq_mma with tiles of 64x64 and
// 64x128 (H200, 2026-11).
constexpr double kConversionInstructions = 10;
constexpr double kConversionInstructionsPerRows = 3.5;
constexpr double kSchedulers = 4;
constexpr double kConversionCycles = 2.5;
// Local-memory traffic of spilled registers per K step and thread costs about one L1 access a word; without knowing
// where the spill is, each 64 bytes a thread add the step's time once.
constexpr double kSpillBytesPerStep = 64;
// Registers beside the accumulators where nothing is compiled yet: addresses, fragments, loop state.
constexpr double kOtherRegisters = 60;
// Block-wide reduction of a row: two barriers and a few shuffles, in cycles.
constexpr double kRowReduceCycles = 200;
// Width of the interval around a prediction: the analytic prototype was 16–21 % off on average on H200 GEMMs.
constexpr double kIntervalLow = 0.75;
constexpr double kIntervalHigh = 1.35;

double Positive(int64_t value) { return static_cast<double>(std::max<int64_t>(value, 1)); }
double CeilDiv(double a, double b) { return std::ceil(a / b); }

// What all classes need.
struct Machine {
  double sms = 1;
  double cycles_per_us = 1;
  double blocks_per_sm = 1;
  double dram = 0;  // bytes per µs at the operator's mix
  double l2 = 0;    // bytes per µs
  double dram_latency_us = 0;
  double l2_latency_us = 0;
  double launch_us = 0;
};

struct Terms {
  double total_us = 0;
  google::protobuf::Map<std::string, double> named;
};

Machine MakeMachine(const Work& work, const DeviceProfile& p, const Calibration* calibration, int blocks) {
  Machine m;
  m.sms = Positive(p.sm_count());
  m.cycles_per_us = p.max_clock_mhz() > 0 ? p.max_clock_mhz() : 1500;
  m.blocks_per_sm = blocks;
  const double bytes = static_cast<double>(work.bytes());
  m.dram = AttainableBytesPerUs(p, calibration, bytes > 0 ? static_cast<double>(work.bytes_read) / bytes : 1);
  m.l2 = L2BytesPerUs(p, calibration);
  m.dram_latency_us = kDramLatencyCycles / m.cycles_per_us;
  m.l2_latency_us = kL2LatencyCycles / m.cycles_per_us;
  m.launch_us = LaunchUs(calibration);
  return m;
}

double Over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

// Warpgroup products: operands are read from shared memory by the tensor cores, and one warp loads ahead of them, into
// the next tile too.
bool UsesWgmma(const MappedConfig& c) { return c.pipe == "tensor_wgmma"; }

// Bytes of `rows` of a tile of a and `columns` of one of b in a K step.
double TileBytes(const MappedConfig& c, double rows, double columns) {
  const double a = Positive(c.element_bytes), b = c.bits_b > 0 ? static_cast<double>(c.bits_b) / 8 : a;
  return (rows * a + columns * b) * Positive(c.tile_k);
}

double StepOverheadCycles(const MappedConfig& c) {
  const double sharing = c.share_a * c.share_b > 1 ? kSharedLoadOverheadCycles : 0;
  return (UsesWgmma(c) ? kWgmmaStepOverheadCycles : kStepOverheadCycles) + sharing;
}

// Operations per µs of one SM for the main loop; 0 = unknown.
double LoopRatePerSm(const MappedConfig& c, const DeviceProfile& p, const Calibration* calibration) {
  bool calibrated = false;
  const bool fp32 = c.pipe == "fp32";
  double rate = AttainableOpsPerUs(p, calibration, fp32 ? "fp32" : "tensor", fp32 ? v1::FP32 : c.dtype, &calibrated);
  if (UsesWgmma(c)) {
    rate *= kWgmmaShare;
  } else if (!fp32 && p.cc() >= 90 && p.cc() < 120) {
    rate *= kMmaSyncShare;
  }
  return rate / Positive(p.sm_count());
}

// Shared-memory bytes that one block reads and writes in a K step. Warps cover the tile in near-square parts, each
// reading its rows of A and columns of B; the fill writes both once.
double SharedBytesPerStep(const MappedConfig& c) {
  const double fill = TileBytes(c, static_cast<double>(c.tile_m), static_cast<double>(c.tile_n));
  if (UsesWgmma(c)) {
    // Each block of 64 rows reads them and the other side of the tile. Where m is narrow, n is the side with the rows,
    // and where b has to be converted.
    const bool rows_of_m = c.tile_m >= 64 && (c.bits_b == 0 || c.bits_b == 8 * c.element_bytes);
    const double read = rows_of_m ? CeilDiv(Positive(c.tile_m), 64) * TileBytes(c, 64, static_cast<double>(c.tile_n))
                                  : CeilDiv(Positive(c.tile_n), 64) * TileBytes(c, static_cast<double>(c.tile_m), 64);
    // TMA fills at twice the rate of reads: tiles of 128x128 reach 0.95 of the rate of 128x192 (H200, 2026-11).
    return read + 0.5 * fill;
  }
  const double warps = std::max(1.0, c.threads / 32.0);
  const double side = std::sqrt(Positive(c.tile_m) * Positive(c.tile_n) / warps);
  return warps * TileBytes(c, side, side) + fill;
}

// Cycles of an SM in which warps convert a tile of b and don't multiply.
double ConversionCycles(const MappedConfig& c) {
  if (UsesWgmma(c) || c.bits_b == 0 || c.bits_b == 8 * c.element_bytes) return 0;
  const double blocks = Positive(c.tile_n) * Positive(c.tile_k) / 256;
  return blocks * (kConversionInstructions + kConversionInstructionsPerRows * Positive(c.tile_m) / 8) *
         kConversionCycles / kSchedulers;
}

// Device-memory bytes of one K step of `ctas` resident blocks: the rows and columns of tiles they touch under a
// raster of `raster_group` tile rows.
double UniqueBytesPerStep(const MappedConfig& c, double ctas) {
  const double grid_m = CeilDiv(Positive(c.m), Positive(c.tile_m));
  const double grid_n = CeilDiv(Positive(c.n), Positive(c.tile_n));
  // Blocks of one wave are first those of one K split of one batch element, then of the next.
  const double per_matrix = std::min(ctas, grid_m * grid_n);
  const double matrices = std::max(1.0, ctas / per_matrix);
  const double group = std::min(grid_m, Positive(c.raster_group));
  const double rows = std::min(grid_m, std::max(group, CeilDiv(per_matrix, grid_n)));
  const double columns = std::min(grid_n, CeilDiv(per_matrix, rows));
  return matrices * TileBytes(c, rows * c.tile_m, columns * c.tile_n);
}

// One K step of all resident blocks, by what limits it.
struct Step {
  double tensor = 0, conversion = 0, shared = 0, l2 = 0, dram = 0, latency = 0, us = 0;
};

Step TileStep(const MappedConfig& c, const Machine& m, const DeviceProfile& p, double rate_per_sm, double ctas) {
  const double per_sm = CeilDiv(ctas, m.sms);
  Step s;
  s.tensor = Over(2.0 * c.tile_m * c.tile_n * c.tile_k * per_sm, rate_per_sm);
  s.conversion = ConversionCycles(c) * per_sm / m.cycles_per_us;
  s.shared = Over(SharedBytesPerStep(c) * per_sm, p.shared_bytes_per_clk_sm() * m.cycles_per_us);
  const double loaded = TileBytes(c, c.tile_m / Positive(c.share_a), c.tile_n / Positive(c.share_b));
  s.l2 = Over(ctas * loaded, m.l2 * (UsesWgmma(c) ? kTmaL2Gain : 1));
  s.dram = Over(UniqueBytesPerStep(c, ctas), m.dram);
  const double overhead = StepOverheadCycles(c) / m.cycles_per_us;
  const double busy = std::max(s.tensor + s.conversion, s.shared);
  if (c.stages <= 1) {
    // Load, wait, compute: only the other blocks of the SM hide it.
    s.latency = m.dram_latency_us;
    const double alone = busy / per_sm + s.latency + std::max(s.l2, s.dram);
    s.us = std::max({busy, s.l2, s.dram, alone}) + overhead;
    return s;
  }
  s.latency = m.dram_latency_us / (c.stages - 1);
  s.us = std::max({busy, s.l2, s.dram, s.latency}) + overhead;
  if (UsesWgmma(c)) {
    s.us +=
        kInterference * (s.tensor + s.shared + s.l2 + s.dram + s.latency - std::max({busy, s.l2, s.dram, s.latency}));
  }
  return s;
}

Terms PredictTileGemm(const Work& work, const MappedConfig& c, const v1::Resources& r, const Machine& m,
                      const DeviceProfile& p, const Calibration* calibration) {
  const double split = Positive(c.split_k);
  const double grid_m = CeilDiv(Positive(c.m), Positive(c.tile_m));
  const double grid_n = CeilDiv(Positive(c.n), Positive(c.tile_n));
  const double tiles = grid_m * grid_n * Positive(c.batch) * split;
  const double steps = CeilDiv(CeilDiv(Positive(c.k), Positive(c.tile_k)), split);
  // A persistent kernel has fewer blocks than tiles; each walks over several.
  const double slots = std::min(m.blocks_per_sm * m.sms, Positive(c.grid_ctas) < tiles ? Positive(c.grid_ctas) : tiles);
  const double full = std::floor(tiles / slots);
  const double tail = tiles - full * slots;
  const double rate = LoopRatePerSm(c, p, calibration);
  const double spill = 1.0 + (r.spill_store_bytes() + r.spill_load_bytes()) / kSpillBytesPerStep;
  // Partial sums are fp32; the output's own size is in the work.
  const double tile_out = static_cast<double>(c.tile_m) * c.tile_n * (split > 1 ? 4.0 : Positive(c.element_bytes));
  const double fill = m.dram_latency_us + StepOverheadCycles(c) / m.cycles_per_us;
  const bool loads_ahead = UsesWgmma(c);
  const auto wave = [&](double ctas, Step* step) {
    *step = TileStep(c, m, p, rate, ctas);
    const double loop = steps * step->us * spill + (loads_ahead ? 0 : fill);
    const double store = Over(ctas * tile_out, split > 1 ? m.l2 : m.dram);
    return c.tiles_in_flight > 1 ? std::max(loop, store) : loop + store;
  };
  Terms t;
  Step step, tail_step;
  const double full_us = full > 0 ? full * wave(slots, &step) : 0;
  const double tail_us = tail > 0 ? wave(tail, &tail_step) : 0;
  if (full == 0) step = tail_step;
  const double launches = Positive(c.launches);
  double reduce_us = (launches - 1) * (m.launch_us + m.l2_latency_us);
  if (split > 1) {
    // Partial sums are written by the blocks above and read here; they stay in L2 while they fill half of it.
    const double partial = 4.0 * split * Positive(c.m) * Positive(c.n) * Positive(c.batch);
    const bool in_l2 = partial <= 0.5 * static_cast<double>(p.l2_bytes());
    reduce_us += Over(partial, in_l2 ? m.l2 : m.dram) + m.l2_latency_us;
  }
  const double start_us = kStartUs + (loads_ahead ? fill : 0);
  // However tiles reuse data, every byte crosses the pins once.
  const double least = Over(static_cast<double>(work.bytes()), m.dram);
  t.total_us = start_us + std::max(full_us + tail_us, least) + reduce_us;
  t.named["launch"] = start_us;
  t.named["full_waves"] = full_us;
  t.named["tail_wave"] = tail_us;
  t.named["reduction"] = reduce_us;
  t.named["dram_minimum"] = least;
  t.named["step_tensor"] = step.tensor;
  t.named["step_conversion"] = step.conversion;
  t.named["step_shared"] = step.shared;
  t.named["step_l2"] = step.l2;
  t.named["step_dram"] = step.dram;
  t.named["step_latency"] = step.latency;
  return t;
}

// Kernels that stream their data: rows (reduced by blocks) and plain streams.
Terms PredictStream(const Work& work, const MappedConfig& c, const Machine& m, const DeviceProfile& p,
                    const Calibration* calibration) {
  const double ctas = Positive(c.grid_ctas);
  const double slots = m.blocks_per_sm * m.sms;
  const double resident = std::min(ctas, slots);
  const double in_flight = resident * Positive(c.threads) * Positive(c.bytes_in_flight_per_thread);
  // Little: bandwidth needs latency × bandwidth bytes under way.
  const auto effective = [&](double rate, double latency_us) { return std::min(rate, in_flight / latency_us); };
  const double bytes = static_cast<double>(work.bytes());
  const double dram = effective(m.dram, m.dram_latency_us);
  double memory_us = Over(bytes, dram);
  double reread_us = 0;
  const bool row = c.cost_class == manifest::v1::ROW;
  if (row && c.passes > 1) {
    const double row_bytes = Positive(c.k) * Positive(c.element_bytes);
    const double reread = (c.passes - 1) * Positive(c.m) * row_bytes;
    const bool in_l2 = resident * row_bytes <= 0.5 * static_cast<double>(p.l2_bytes());
    reread_us = in_l2 ? Over(reread, effective(m.l2, m.l2_latency_us)) : Over(reread, dram);
  }
  // The last wave runs with fewer blocks, and no block is faster than its own share of an SM's loads allows.
  const double waves = ctas / slots;
  const double quantised = waves > 1 ? std::ceil(waves) / waves : 1.0;
  double pipes_us = 0;
  bool calibrated = false;
  for (const PipeOps& pipe : work.pipe_ops) {
    const double rate = AttainableOpsPerUs(p, calibration, pipe.pipe, pipe.dtype, &calibrated);
    // Blocks that leave SMs empty leave their pipes empty too.
    pipes_us = std::max(pipes_us, Over(static_cast<double>(pipe.ops), rate * std::min(1.0, resident / m.sms)));
  }
  const double chain_us = std::max(1.0, waves / 4.0) *
                          (m.dram_latency_us + (row ? Positive(c.passes) * kRowReduceCycles / m.cycles_per_us : 0.0)) /
                          m.blocks_per_sm;
  Terms t;
  // Half of the quantisation is hidden: blocks do not start and end in step.
  const double stream_us = (memory_us + reread_us) * (1.0 + 0.5 * (quantised - 1.0));
  t.total_us = kStartUs + std::max(stream_us, pipes_us) + (row ? chain_us : 0) +
               (Positive(c.launches) - 1) * (m.launch_us + m.l2_latency_us);
  t.named["launch"] = kStartUs;
  t.named["dram"] = memory_us;
  t.named["reread"] = reread_us;
  t.named["pipes"] = pipes_us;
  t.named["tail"] = stream_us - memory_us - reread_us;
  t.named["latency"] = row ? chain_us : 0;
  return t;
}

v1::Prediction Infeasible(const std::string& reason) {
  v1::Prediction prediction;
  const double infinite = std::numeric_limits<double>::infinity();
  prediction.set_time_us(infinite);
  prediction.set_low_us(infinite);
  prediction.set_high_us(infinite);
  prediction.set_basis(v1::BASIS_PREDICTED);
  (*prediction.mutable_term_us())[absl::StrCat("does not fit: ", reason)] = infinite;
  return prediction;
}

// Compiled registers, or a guess for a tile kernel that is not compiled yet.
int Registers(const MappedConfig& c, const v1::Resources& r) {
  if (r.registers_per_thread() > 0 || c.cost_class != manifest::v1::TILE_GEMM) return r.registers_per_thread();
  const double accumulators = Positive(c.tile_m) * Positive(c.tile_n) / Positive(c.threads);
  return static_cast<int>(std::min(255.0, accumulators + kOtherRegisters));
}

}  // namespace

v1::Prediction PredictTime(const Work& work, const MappedConfig& config, const v1::Resources& resources,
                           const DeviceProfile& profile, const Calibration* calibration) {
  const int threads =
      resources.threads_per_block() > 0 ? resources.threads_per_block() : static_cast<int>(config.threads);
  const int64_t shared = int64_t{resources.static_shared_bytes()} + resources.dynamic_shared_bytes();
  const Occupancy occupancy = ComputeOccupancy(threads, Registers(config, resources), shared, profile);
  if (occupancy.blocks_per_sm == 0) return Infeasible(occupancy.limiter);
  const Machine machine = MakeMachine(work, profile, calibration, occupancy.blocks_per_sm);
  Terms terms;
  switch (config.cost_class) {
    case manifest::v1::TILE_GEMM:
      terms = PredictTileGemm(work, config, resources, machine, profile, calibration);
      break;
    case manifest::v1::STREAM:
    case manifest::v1::ROW:
      terms = PredictStream(work, config, machine, profile, calibration);
      break;
    default:
      return Infeasible("the template declares no cost class");
  }
  v1::Prediction prediction;
  const double floor = ComputeBounds(work, profile, calibration).floor_us();
  const double time = std::max(terms.total_us, floor);
  prediction.set_time_us(time);
  prediction.set_low_us(std::max(floor, time * kIntervalLow));
  prediction.set_high_us(time * kIntervalHigh);
  prediction.set_basis(v1::BASIS_PREDICTED);
  *prediction.mutable_term_us() = terms.named;
  return prediction;
}

}  // namespace rooftune

#include "tuner/worker/run_calibrate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "tuner/worker/run_nvml.h"
#include "tuner/worker/run_outcome.h"
#include "tuner/worker/run_problem.h"
#include "tuner/worker/run_session.h"

namespace rooftune {
namespace {

constexpr int64_t kSmallest = int64_t{64} << 10;
constexpr int64_t kLargest = int64_t{4} << 30;
constexpr int64_t kSizeStep = 4;
constexpr int64_t kPieceAlignment = 4096;
constexpr int64_t kAlignment = 16;
// Mixes of more writes than reads: an H200 writes alone faster than it copies, and twice as much as it reads slower
// (4.67, 4.27 and 4.03 TB/s).
constexpr int kWritesPerRead[] = {2, 4, 8};
constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;
// The pool takes at most this share of what is free.
constexpr double kShareOfFree = 0.6;
constexpr int kEmptyKernels = 1000;
constexpr uint64_t kSeed = 1;

worker::v1::MeasureOptions Options(v1::ClockState clock) {
  worker::v1::MeasureOptions options;
  options.set_clock(clock);
  options.set_min_samples(5);
  options.set_max_samples(20);
  options.set_burst_ms(10);
  options.set_rest_ms(clock == v1::COOL ? 25 : 0);
  // Only the relative target: short kernels are what the small sizes are about.
  options.set_target_absolute_ci_us(0.01);
  return options;
}

device::v1::RateCeiling* AddRate(const std::string& pipe, v1::DType dtype, v1::ClockState clock, double ops, double us,
                                 const std::string& method, device::v1::Calibration* calibration) {
  device::v1::RateCeiling* const rate = calibration->add_rate();
  rate->set_pipe(pipe);
  rate->set_dtype(dtype);
  rate->set_clock(clock);
  rate->set_tera_ops(ops / us * 1e-6);  // operations a microsecond are 1e-6 tera-operations a second
  rate->set_method(method);
  return rate;
}

// Bytes a microsecond are 1e6 bytes a second.
double GigabytesPerSecond(int64_t bytes, double us) { return static_cast<double>(bytes) / us * 1e-3; }

}  // namespace

void Calibrator::Note(const std::string& text) {
  if (!notes_.empty()) notes_ += "; ";
  notes_ += text;
}

bool Calibrator::Late(const std::string& what) {
  if (absl::Now() < deadline_) return false;
  Note(absl::StrCat("no time left for ", what));
  return true;
}

absl::Status Calibrator::Run(device::v1::Calibration* calibration) {
  const absl::Time start = absl::Now();
  const GpuContext& gpu = context_.gpu;
  RT_ASSIGN_OR_RETURN(const int64_t free, gpu.FreeBytes());
  // Largest size, plus what is read to flush the L2.
  const int64_t wanted = kLargest + ColdBytes(gpu.limits().l2_bytes);
  const int64_t fits =
      static_cast<int64_t>(static_cast<double>(free) * kShareOfFree) / kPieceAlignment * kPieceAlignment;
  RT_ASSIGN_OR_RETURN(pool_, DeviceBuffer::Create(gpu, std::min(wanted, fits)));
  RT_RETURN_IF_ERROR(context_.support.Write(pool_.ptr(), pool_.size()));
  RT_RETURN_IF_ERROR(gpu.Synchronize("filling the pool"));
  for (const char* mix : {"copy", "read", "write"}) RT_RETURN_IF_ERROR(Curve(mix, calibration->add_curve()));
  for (const int writes : kWritesPerRead) {
    RT_RETURN_IF_ERROR(Curve(absl::StrCat("read_write_", writes), calibration->add_curve(), writes));
  }
  RT_RETURN_IF_ERROR(L2Curve(calibration->add_curve()));
  RT_RETURN_IF_ERROR(Launches(calibration));
  RT_RETURN_IF_ERROR(Pipes(calibration));
  RT_RETURN_IF_ERROR(Products(calibration));
  calibration->set_sm_clock_mhz(cool_clock_mhz_);
  calibration->set_wall_s(absl::ToDoubleSeconds(absl::Now() - start));
  const absl::Time now = absl::Now();
  calibration->mutable_time()->set_seconds(absl::ToUnixSeconds(now));
  const auto nvml = Nvml::Open();
  if (nvml.ok()) calibration->mutable_environment()->set_driver((*nvml)->DriverVersion());
  return absl::OkStatus();
}

TimedWork Calibrator::Rotating(int64_t bytes, const std::function<absl::Status(cuda::DevicePtr)>& enqueue) const {
  const int64_t cold = ColdBytes(context_.gpu.limits().l2_bytes);
  const int64_t piece = (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  const SetPlan plan = PlanSets(piece, context_.gpu.limits().l2_bytes, pool_.size() - cold, /*warm=*/false);
  TimedWork work;
  work.sets = std::max(plan.sets, 1);
  work.rotation = plan.cold_by_rotation ? Rotation::kCold : Rotation::kFlushed;
  work.flush = pool_.ptr() + static_cast<cuda::DevicePtr>(pool_.size() - cold);
  work.flush_bytes = cold;
  const cuda::DevicePtr base = pool_.ptr();
  work.enqueue = [base, piece, enqueue](int set) { return enqueue(base + static_cast<cuda::DevicePtr>(piece * set)); };
  return work;
}

absl::StatusOr<double> Calibrator::Time(TimedWork work, v1::ClockState clock, double* sm_clock_mhz) {
  RT_ASSIGN_OR_RETURN(const std::unique_ptr<KernelTimer> timer,
                      KernelTimer::Create(context_, std::move(work), Options(clock)));
  RT_RETURN_IF_ERROR(timer->WarmUp());
  RT_RETURN_IF_ERROR(timer->Measure(absl::Now() + absl::Seconds(1)));
  v1::Measurement measurement;
  const Verdict verdict = timer->Finish(&measurement);
  if (measurement.median_us() <= 0) return absl::InternalError(verdict.message);
  if (sm_clock_mhz != nullptr) *sm_clock_mhz = timer->sm_clock_mhz();
  return measurement.median_us();
}

absl::Status Calibrator::Curve(const std::string& mix, device::v1::BandwidthCurve* curve, int writes) {
  curve->set_mix(mix);
  SupportModule& support = context_.support;
  const int64_t cold = ColdBytes(context_.gpu.limits().l2_bytes);
  for (int64_t bytes = kSmallest; bytes <= kLargest && bytes <= pool_.size() - cold; bytes *= kSizeStep) {
    if (Late(absl::StrCat(mix, " of ", bytes, " bytes"))) break;
    // Of `writes` writes for each read, less than 16 · writes bytes are left over.
    const int64_t read = bytes / (1 + writes) / kAlignment * kAlignment;
    const TimedWork work = Rotating(bytes, [&support, mix, bytes, read, writes](cuda::DevicePtr at) {
      if (mix == "read") return support.Read(at, bytes);
      if (mix == "write") return support.Write(at, bytes);
      if (writes > 0) {
        return support.Widen(at, at + static_cast<cuda::DevicePtr>(read), read * writes, writes);
      }
      return support.Copy(at, at + static_cast<cuda::DevicePtr>(bytes / 2), bytes / 2);
    });
    RT_ASSIGN_OR_RETURN(const double us, Time(work, v1::COOL, &cool_clock_mhz_));
    device::v1::BandwidthPoint* const point = curve->add_point();
    point->set_bytes(bytes);
    point->set_gbps(GigabytesPerSecond(bytes, us));
  }
  return absl::OkStatus();
}

absl::Status Calibrator::L2Curve(device::v1::BandwidthCurve* curve) {
  curve->set_mix("l2_read");
  constexpr int64_t kSmallestSet = int64_t{4} << 20;
  constexpr int64_t kTraffic = int64_t{1} << 30;
  const int64_t l2 = context_.gpu.limits().l2_bytes;
  SupportModule& support = context_.support;
  // Here a point's size is the working set that is read again and again.
  for (int64_t bytes = std::min(kSmallestSet, l2 / 2); bytes > 0 && bytes <= l2 * 2 / 3; bytes *= 2) {
    if (bytes > pool_.size() || Late("the L2")) break;
    const int repeats = static_cast<int>(std::clamp<int64_t>(kTraffic / bytes, 8, 1024));
    TimedWork work;
    const cuda::DevicePtr at = pool_.ptr();
    work.enqueue = [&support, at, bytes, repeats](int) { return support.L2Read(at, bytes, repeats); };
    RT_ASSIGN_OR_RETURN(const double us, Time(work, v1::COOL, nullptr));
    device::v1::BandwidthPoint* const point = curve->add_point();
    point->set_bytes(bytes);
    point->set_gbps(GigabytesPerSecond(bytes * repeats, us));
  }
  return absl::OkStatus();
}

absl::Status Calibrator::Launches(device::v1::Calibration* calibration) {
  const GpuContext& gpu = context_.gpu;
  SupportModule& support = context_.support;
  RT_ASSIGN_OR_RETURN(const std::unique_ptr<GpuGraph> graph, GpuGraph::Capture(gpu, [&] {
                        for (int i = 0; i < kEmptyKernels; ++i) RT_RETURN_IF_ERROR(support.Empty());
                        return absl::OkStatus();
                      }));
  RT_ASSIGN_OR_RETURN(const GpuEvent start, GpuEvent::Create(gpu));
  RT_ASSIGN_OR_RETURN(const GpuEvent end, GpuEvent::Create(gpu));
  RT_ASSIGN_OR_RETURN(const DeviceBuffer clock_words, DeviceBuffer::Create(gpu, 32));
  std::vector<double> node_us;
  std::vector<double> kernel_us;
  constexpr int kSamples = 31;
  for (int i = 0; i < kSamples; ++i) {
    RT_RETURN_IF_ERROR(graph->Launch());  // keeps the device busy while the host submits the timed one
    RT_RETURN_IF_ERROR(start.Record());
    RT_RETURN_IF_ERROR(graph->Launch());
    RT_RETURN_IF_ERROR(end.Record());
    RT_RETURN_IF_ERROR(gpu.Synchronize("empty kernels"));
    RT_ASSIGN_OR_RETURN(const double graph_us, end.SinceUs(start));
    node_us.push_back(graph_us / kEmptyKernels);
    RT_RETURN_IF_ERROR(support.Clock(clock_words.ptr()));
    RT_RETURN_IF_ERROR(start.Record());
    RT_RETURN_IF_ERROR(support.Empty());
    RT_RETURN_IF_ERROR(end.Record());
    RT_RETURN_IF_ERROR(gpu.Synchronize("an empty kernel"));
    RT_ASSIGN_OR_RETURN(const double us, end.SinceUs(start));
    kernel_us.push_back(us);
  }
  calibration->set_graph_node_us(Median(node_us));
  calibration->set_event_kernel_us(Median(kernel_us));
  return absl::OkStatus();
}

absl::Status Calibrator::Pipes(device::v1::Calibration* calibration) {
  constexpr int kIterations = 1000;
  SupportModule& support = context_.support;
  const double threads = static_cast<double>(support.rate_threads());
  TimedWork ffma;
  ffma.enqueue = [&support](int) { return support.Ffma(kIterations); };
  RT_ASSIGN_OR_RETURN(const double ffma_us, Time(ffma, v1::COOL, nullptr));
  AddRate("fp32", v1::FP32, v1::COOL, threads * kIterations * SupportModule::kFlopsPerFfmaIteration, ffma_us,
          "ffma loop", calibration);
  TimedWork ex2;
  ex2.enqueue = [&support](int) { return support.Ex2(kIterations); };
  RT_ASSIGN_OR_RETURN(const double ex2_us, Time(ex2, v1::COOL, nullptr));
  AddRate("sfu", v1::FP32, v1::COOL, threads * kIterations * SupportModule::kOpsPerEx2Iteration, ex2_us, "ex2 loop",
          calibration);
  return absl::OkStatus();
}

absl::Status Calibrator::Products(device::v1::Calibration* calibration) {
  if (cublaslt_ == nullptr) return absl::OkStatus();
  for (const v1::DType dtype : {v1::BF16, v1::FP16, v1::FP32}) {
    for (const int64_t size : {int64_t{4096}, int64_t{8192}}) {
      if (Late(absl::StrCat(v1::DType_Name(dtype), " products"))) return absl::OkStatus();
      const absl::Status status = Product(dtype, size, calibration);
      if (status.ok()) continue;
      if (IsStickyCudaError(CudaErrorOf(status))) return status;
      Note(absl::StrCat("no ", v1::DType_Name(dtype), " rate at ", size, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status Calibrator::Product(v1::DType dtype, int64_t size, device::v1::Calibration* calibration) {
  const int64_t matrix = size * size * DTypeBytes(dtype);
  if (3 * matrix > pool_.size()) return absl::ResourceExhaustedError("not enough device memory");
  GemmProblem gemm;
  gemm.m = gemm.n = gemm.k = size;
  gemm.b_transposed = true;
  gemm.a = gemm.b = gemm.out = dtype;
  RT_ASSIGN_OR_RETURN(const v1::CublasLtMatmul product, CublasLtProduct(gemm));
  RT_ASSIGN_OR_RETURN(const std::vector<CublasLt::Offer> offers, cublaslt_->Algorithms(product, kWorkspaceBytes, 1));
  const int64_t workspace_bytes = offers[0].workspace_bytes;
  RT_ASSIGN_OR_RETURN(const auto matmul, cublaslt_->Make(offers[0].matmul, workspace_bytes));
  RT_ASSIGN_OR_RETURN(const DeviceBuffer workspace, DeviceBuffer::Create(context_.gpu, workspace_bytes));
  const cuda::DevicePtr a = pool_.ptr();
  const cuda::DevicePtr b = a + static_cast<cuda::DevicePtr>(matrix);
  const cuda::DevicePtr d = b + static_cast<cuda::DevicePtr>(matrix);
  // Random data: zeros would draw less power and reach a clock that real data does not.
  RT_RETURN_IF_ERROR(context_.support.Fill(a, size * size, dtype, kSeed, 0, 0.0f, 1.0f));
  RT_RETURN_IF_ERROR(context_.support.Fill(b, size * size, dtype, kSeed, 1, 0.0f, 1.0f));
  const double ops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  const std::string pipe = dtype == v1::FP32 ? "fp32" : "tensor";
  for (const v1::ClockState clock : {v1::COOL, v1::SUSTAINED}) {
    TimedWork work;
    work.nodes = 2;
    work.enqueue = [&](int) {
      return matmul->Enqueue({{{"a", a}, {"b", b}, {"d", d}}, {}, workspace.ptr(), workspace_bytes});
    };
    RT_ASSIGN_OR_RETURN(const double us, Time(work, clock, nullptr));
    AddRate(pipe, dtype, clock, ops, us, absl::StrCat("cublasLt ", size, "^3"), calibration);
  }
  return absl::OkStatus();
}

worker::v1::CalibrateResult RunSession::Calibrate(const worker::v1::CalibrateRequest& request) {
  // The daemon allows a minute; what is not done by then is left out and said.
  constexpr absl::Duration kBudget = absl::Seconds(50);
  worker::v1::CalibrateResult result;
  // Memory of an earlier problem is in the way of the largest sizes.
  problem_.reset();
  const absl::StatusOr<std::unique_ptr<SupportModule>> support =
      SupportModule::Create(context_, request.support_cubin());
  if (!support.ok()) {
    result.set_outcome(OutcomeOfStatus(support.status()));
    result.set_message(std::string(support.status().message()));
    return result;
  }
  std::string notes;
  if (cublaslt_ == nullptr) {
    absl::StatusOr<std::unique_ptr<CublasLt>> loaded = CublasLt::Load(context_);
    if (loaded.ok()) {
      cublaslt_ = *std::move(loaded);
    } else {
      notes = absl::StrCat("no rates of matrix products: ", loaded.status().message());
    }
  }
  Calibrator calibrator({context_, **support, surroundings_.monitor, *surroundings_.clock, highest_clock_mhz_}, cublaslt_.get(), absl::Now() + kBudget);
  const absl::Status status = calibrator.Run(result.mutable_calibration());
  result.set_outcome(OutcomeOfStatus(status));
  if (!status.ok()) {
    result.set_message(std::string(status.message()));
  } else {
    result.set_message(
        absl::StrCat(notes, notes.empty() || calibrator.notes().empty() ? "" : "; ", calibrator.notes()));
  }
  return result;
}

}  // namespace rooftune

// The harness' own kernels (kernels/templates/common/support.cuh) with the launches that are recommended there.
// Every method only enqueues on the context's stream.
#ifndef ROOFTUNE_TUNER_WORKER_RUN_SUPPORT_H_
#define ROOFTUNE_TUNER_WORKER_RUN_SUPPORT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/tolerance.h"
#include "rooftune/v1/types.pb.h"
#include "tuner/worker/run_device.h"
#include "tuner/worker/run_launch.h"

namespace rooftune {

// As rt_compare leaves it on the device.
struct CompareResult {
  uint64_t wrong = 0;
  uint64_t unwritten = 0;
  uint64_t first_wrong_index = ~uint64_t{0};
  uint64_t nonfinite = 0;
  double max_ratio = 0;
  double max_abs = 0;
};
static_assert(sizeof(CompareResult) == 48);

// How a tensor of indices is filled; kernels/generate.h.
struct IndexFill {
  int64_t range = 0;
  bool distinct = false;
  int64_t skip = 0;
  // Sizes of groups that add up to `total`, or where they begin; 0 = indices.
  int64_t total = 0;
  bool offsets = false;
};

class SupportModule {
 public:
  // FAILED_PRECONDITION naming a kernel that the cubin lacks.
  static absl::StatusOr<std::unique_ptr<SupportModule>> Create(const GpuContext& context, const std::string& cubin);

  // A range or total above 0 makes an INT32 (a range also an INT64) tensor one of indices.
  absl::Status Fill(cuda::DevicePtr out, int64_t elements, v1::DType dtype, uint64_t seed, uint32_t tensor, float mean,
                    float stddev, const IndexFill& indices = {});
  absl::Status Poison(cuda::DevicePtr out, int64_t bytes);
  absl::Status ResetResult(cuda::DevicePtr result);
  absl::Status Compare(cuda::DevicePtr out, cuda::DevicePtr reference, cuda::DevicePtr magnitude, int64_t elements,
                       v1::DType dtype, const ErrorBound& bound, cuda::DevicePtr result);
  // Adds the bytes that are not 0xFF to the 64-bit counter `damaged`.
  absl::Status CheckBytes(cuda::DevicePtr from, int64_t bytes, cuda::DevicePtr damaged);
  // The poison pattern into the shared memory of all SMs.
  absl::Status ScrubShared();
  // Adds a checksum of all bytes and their places to the 64-bit `sum`. `from` is aligned to 4 bytes.
  absl::Status Checksum(cuda::DevicePtr from, int64_t bytes, cuda::DevicePtr sum);
  absl::Status FlushRead(cuda::DevicePtr from, int64_t bytes);
  absl::Status Copy(cuda::DevicePtr from, cuda::DevicePtr to, int64_t bytes);
  absl::Status Read(cuda::DevicePtr from, int64_t bytes);
  absl::Status Write(cuda::DevicePtr to, int64_t bytes);
  absl::Status ReadWrite(cuda::DevicePtr from, int64_t read_bytes, cuda::DevicePtr to, int64_t write_bytes);
  // write_bytes / writes bytes are read; `writes` is 2, 4 or 8.
  absl::Status Widen(cuda::DevicePtr from, cuda::DevicePtr to, int64_t write_bytes, int writes);
  absl::Status L2Read(cuda::DevicePtr from, int64_t bytes, int repeats);
  absl::Status Empty();
  // Four 64-bit words at `out`: see ClockMhz.
  absl::Status Clock(cuda::DevicePtr out);
  // `iterations` of 128 fused multiply-adds and of 64 ex2 a thread; see kRateThreads.
  absl::Status Ffma(int iterations);
  absl::Status Ex2(int iterations);

  // Threads that Ffma and Ex2 launch.
  int64_t rate_threads() const { return int64_t{context_.limits().sm_count} * kRateBlocksPerSm * kRateBlock; }
  static constexpr int kFlopsPerFfmaIteration = 256;
  static constexpr int kOpsPerEx2Iteration = 64;

 private:
  static constexpr int kRateBlocksPerSm = 4;
  static constexpr int kRateBlock = 512;

  explicit SupportModule(const GpuContext& context) : context_(context) {}
  absl::Status Launch(const char* symbol, int64_t grid, int block, ArgumentPack arguments);
  int64_t ElementGrid(int64_t elements) const;

  const GpuContext& context_;
  std::unique_ptr<LoadedModule> module_;
  std::map<std::string, cuda::Function> functions_;
  // Where kernels would put what keeps their loads alive.
  DeviceBuffer sink_;
};

// SM clock from what Clock() wrote {cycles, ns, cycles, ns}; 0 if the times make no sense.
double ClockMhz(const uint64_t words[4]);

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_WORKER_RUN_SUPPORT_H_

// What the programs of this folder share: templates, a compiler behind rooftune-worker, and complete requests for the
// run role, with or without a planted fault.
#ifndef ROOFTUNE_TESTS_GPU_KERNEL_LAB_H_
#define ROOFTUNE_TESTS_GPU_KERNEL_LAB_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/mutants/mutants.h"
#include "tuner/compile/worker_compiler.h"

namespace rooftune {

// Thread-safe once made.
class KernelLab {
 public:
  struct Options {
    // Root of the repository; empty = environment ROOFTUNE_SOURCE_DIR, else the working folder.
    std::string source_dir;
    // Modelled device to compile for; empty = GPU 0 of this machine.
    std::string profile;
    // Every lane of a warp arrives at a barrier where else one does for it (common/tma.cuh): for racecheck.
    bool every_lane_arrives = false;
  };
  // UNAVAILABLE without a GPU where one is asked for.
  static absl::StatusOr<std::unique_ptr<KernelLab>> Create(Options options);
  // rooftune-worker in ROOFTUNE_BIN_DIR, else beside the running program.
  static std::string WorkerPath();

  const TemplateLibrary& library() const { return *library_; }
  const MutantSuite& suite() const { return suite_; }
  const DeviceProfile& device() const { return device_; }

  // Compiled and complete; one buffer set. FAILED_PRECONDITION with the log if something does not compile. `mean` is
  // added to that of the input x; the CPU, which knows nothing of it, then checks no elements of the reference.
  absl::StatusOr<worker::v1::PrepareRequest> PrepareOf(const std::string& op, double mean = 0);
  // To be verified, not timed. `mutant` may be null.
  absl::StatusOr<worker::v1::RunRequest> RunOf(const KernelTemplate& kernel, const Op& op, const Config& config,
                                               const Mutant* mutant);
  // Calls all, as many at a time as the compiler can serve.
  void InParallel(const std::vector<std::function<void()>>& work);

 private:
  KernelLab() = default;
  absl::StatusOr<worker::v1::CompileResult> Compile(const worker::v1::CompileRequest& request);

  std::unique_ptr<TemplateLibrary> library_;
  MutantSuite suite_;
  DeviceProfile device_;
  std::unique_ptr<WorkerCompiler> compiler_;
  std::string support_cubin_;
  bool every_lane_arrives_ = false;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_GPU_KERNEL_LAB_H_

// A CUDA driver on the CPU for tests of the run role: memory is the host's, time is virtual, and a kernel is a
// function that is known by its symbol. One at a time in a process.
#ifndef ROOFTUNE_TESTS_TUNER_WORKER_RUN_FAKE_CUDA_H_
#define ROOFTUNE_TESTS_TUNER_WORKER_RUN_FAKE_CUDA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tuner/worker/run_driver.h"

namespace rooftune {

class FakeCuda {
 public:
  struct Kernel {
    int arguments = 0;
    // As kernelParams points at them.
    std::function<void(void** arguments)> run;
  };

  FakeCuda();
  ~FakeCuda();
  std::unique_ptr<CudaDriver> driver() const;

  // Microseconds that a launch takes; 1 where nothing is said.
  std::map<std::string, double> duration_us;
  // Kernels beside the support kernels, which are there from the start.
  std::map<std::string, Kernel> kernels;
  // SM clocks that rt_clock sees, one after the other; the last stays.
  std::vector<double> clocks_mhz = {1980};
  // Returned by every call from now on, as after a fault.
  int sticky = 0;
  bool has_virtual_memory = true;
  int64_t free_bytes = int64_t{1} << 40;
  // Launches by symbol.
  std::map<std::string, int> launches;
  int64_t allocations = 0;  // alive

  // What the fake accepts as a module.
  static std::string Cubin();
};

template <typename T>
T ArgumentAt(void** arguments, int i) {
  return *static_cast<T*>(arguments[i]);
}

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_TUNER_WORKER_RUN_FAKE_CUDA_H_

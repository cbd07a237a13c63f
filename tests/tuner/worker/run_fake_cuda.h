// A CUDA driver on the CPU for tests of the run role: memory is the host's, time is virtual, and a kernel is a
// function that is known by its symbol. One at a time in a process.
#ifndef ROOFTUNE_TESTS_TUNER_WORKER_RUN_FAKE_CUDA_H_
#define ROOFTUNE_TESTS_TUNER_WORKER_RUN_FAKE_CUDA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
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
    // Which arguments are tensor maps, of 128 bytes.
    std::set<int> maps = {};
  };
  // What the fake puts in a tensor map in place of the hardware's encoding.
  struct EncodedMap {
    uint64_t address = 0;
    int32_t type = 0, rank = 0;
    uint64_t dims[5] = {}, strides[4] = {};
    uint8_t box[5] = {}, element_strides[5] = {};
    uint8_t interleave = 0, swizzle = 0, l2_promotion = 0, oob_fill = 0;
  };
  static_assert(sizeof(EncodedMap) <= sizeof(cuda::TensorMap));

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
  bool has_tensor_maps = true;
  // Tensor maps that were encoded.
  int encoded_maps = 0;
  int64_t free_bytes = int64_t{1} << 40;
  // Launches by symbol, and the ids of the attributes of the last one.
  std::map<std::string, int> launches;
  std::map<std::string, std::vector<int>> attributes;
  int64_t allocations = 0;  // alive
  int64_t graphs = 0, events = 0;  // alive
  int64_t module_loads = 0;
  std::set<cuda::Module> live_modules;
  // Functions that were looked up in a module that is gone, and modules unloaded twice.
  int uses_after_unload = 0;

  // Puts work of a library on the stream: it takes `us`, now or when a graph that is being captured is launched.
  void Submit(double us, std::function<void()> work);

  // What the fake accepts as a module.
  static std::string Cubin();
};

template <typename T>
T ArgumentAt(void** arguments, int i) {
  return *static_cast<T*>(arguments[i]);
}

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_TUNER_WORKER_RUN_FAKE_CUDA_H_

// What the fake of cuBLASLt and cuBLAS (a shared object that the worker's own loader opens) does, set by the test.
#ifndef ROOFTUNE_TESTS_TUNER_WORKER_FAKE_CUBLASLT_H_
#define ROOFTUNE_TESTS_TUNER_WORKER_FAKE_CUBLASLT_H_

#include <cstddef>
#include <functional>
#include <vector>

namespace rooftune {

struct FakeCublasLt {
  struct Algorithm {
    int id = 0;
    size_t workspace_bytes = 0;
    double us = 10;
    // Of the heuristic's answer and of cublasLtMatmul; 0 = success.
    int state = 0;
    int status = 0;
    bool wrong = false;
    // Writes this many bytes past the workspace.
    size_t overrun = 0;
  };
  size_t version = 130100;
  // In the heuristic's order; those that fit the allowed workspace are offered.
  std::vector<Algorithm> algorithms;
  // Time of cublasGemmEx.
  double gemm_us = 10;
  // Puts work on the fake device's stream.
  std::function<void(double us, std::function<void()> work)> submit;
  // Epilogues that products were asked for, by cublasLtEpilogue_t.
  std::vector<int> epilogues;
  int alive = 0;  // objects not destroyed
};

}  // namespace rooftune

// Exported by the shared object.
inline constexpr char kFakeCublasLtUse[] = "FakeCublasLtUse";
extern "C" void FakeCublasLtUse(rooftune::FakeCublasLt* fake);

#endif  // ROOFTUNE_TESTS_TUNER_WORKER_FAKE_CUBLASLT_H_

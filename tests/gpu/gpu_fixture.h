// What the GPU tests share: this machine's device, a compiler and a runner behind the real rooftune-worker.
#ifndef ROOFTUNE_TESTS_GPU_GPU_FIXTURE_H_
#define ROOFTUNE_TESTS_GPU_GPU_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/template_library.h"
#include "tuner/compile/worker_compiler.h"
#include "tuner/run/worker_runner.h"

namespace rooftune {

// Made once a program; the runner is new in every test.
struct GpuLab {
  worker::v1::DeviceInfo info;
  DeviceProfile profile;
  std::unique_ptr<TemplateLibrary> library;
  std::unique_ptr<WorkerCompiler> compiler;
  std::string support_cubin;
};

class GpuTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  void SetUp() override;

  static std::string WorkerPath();
  static std::unique_ptr<WorkerRunner> MakeRunner(bool spare = false);
  static worker::v1::CompileResult Compile(const worker::v1::CompileRequest& request);
  // A kernel written in the test, for the device's architecture.
  static worker::v1::CompileResult CompileText(const std::string& text, const std::string& arch = "");
  static Op Parse(const std::string& op);
  // Compiled and complete.
  static worker::v1::PrepareRequest PrepareRequestOf(const std::string& op);
  void Prepare(const std::string& op);

  // The prepared operator by a template's default configuration.
  worker::v1::RunRequest DefaultOf(const KernelTemplate& kernel, const std::string& op);
  // The prepared elementwise operator by a kernel `k(a, b, y, n)` with this body.
  worker::v1::RunRequest Custom(const std::string& body, bool measure = false);
  worker::v1::RunResult Run(const worker::v1::RunRequest& request);
  worker::v1::RunResult Baseline(const std::string& name);
  // A fast way of measuring.
  static worker::v1::MeasureOptions QuickOptions();

  static GpuLab* lab_;
  std::unique_ptr<WorkerRunner> runner_;
  std::string op_;
  int64_t elements_ = 0;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_GPU_GPU_FIXTURE_H_

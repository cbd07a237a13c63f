// A compiler that compiles nothing: deterministic bytes, scripted failures. For `fake:` devices and tests.
#ifndef ROOFTUNE_TUNER_COMPILE_FAKE_COMPILER_H_
#define ROOFTUNE_TUNER_COMPILE_FAKE_COMPILER_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "expr/expression.h"
#include "rooftune/device/v1/fake.pb.h"
#include "tuner/compile/compiler.h"

namespace rooftune {

// Thread-safe. Its "cubin" is text that names architecture, symbols and defines; equal requests give equal
// bytes.
class FakeCompiler : public Compiler {
 public:
  // INVALID_ARGUMENT for a rule whose expression does not parse. Delays are slept on `clock` (borrowed).
  static absl::StatusOr<std::unique_ptr<FakeCompiler>> Create(const device::v1::FakeScript& script,
                                                              Clock& clock = Clock::Real());

  absl::StatusOr<std::string> NvrtcVersion() override { return std::string("fake 1.0"); }
  absl::StatusOr<worker::v1::CompileResult> Compile(const worker::v1::CompileRequest& request) override;
  int parallelism() const override { return 4; }

  // Requests so far.
  int compiles() const { return compiles_; }

 private:
  struct Rule {
    device::v1::FakeRule rule;
    std::optional<Expression> when;
  };
  FakeCompiler(int registers, int padded_bytes, std::vector<Rule> rules, Clock& clock)
      : registers_(registers),
        padded_bytes_(static_cast<size_t>(padded_bytes)),
        rules_(std::move(rules)),
        clock_(clock) {}

  const int registers_;
  const size_t padded_bytes_;
  const std::vector<Rule> rules_;
  Clock& clock_;
  std::atomic<int> compiles_{0};
};

}  // namespace rooftune

#endif  // ROOFTUNE_TUNER_COMPILE_FAKE_COMPILER_H_

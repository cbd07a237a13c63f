#include "tuner/compile/fake_compiler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

// Defines that are single integers; lists have no meaning as a number.
Names DefineNames(const worker::v1::CompileRequest& request) {
  Names names;
  for (const std::string& define : request.define()) {
    const std::vector<std::string> parts = absl::StrSplit(define, absl::MaxSplits('=', 1));
    int64_t value = 0;
    if (parts.size() == 2 && absl::SimpleAtoi(parts[1], &value)) names[parts[0]] = value;
  }
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FakeCompiler>> FakeCompiler::Create(const device::v1::FakeScript& script, Clock& clock) {
  std::vector<Rule> rules;
  for (const auto& rule : script.rule()) {
    if (rule.phase() != device::v1::FakeRule::COMPILE) continue;
    Rule parsed{rule, std::nullopt};
    if (!rule.when().empty()) {
      RT_ASSIGN_OR_RETURN(parsed.when, Expression::Parse(rule.when()));
    }
    rules.push_back(std::move(parsed));
  }
  const int registers = script.registers() > 0 ? script.registers() : 32;
  return std::unique_ptr<FakeCompiler>(
      new FakeCompiler(registers, std::max(0, script.cubin_bytes()), std::move(rules), clock));
}

absl::StatusOr<worker::v1::CompileResult> FakeCompiler::Compile(const worker::v1::CompileRequest& request) {
  ++compiles_;
  worker::v1::CompileResult result;
  result.set_nvrtc_version("fake 1.0");
  result.set_compile_ms(1);
  const Names names = DefineNames(request);
  for (const Rule& rule : rules_) {
    if (rule.when) {
      // A rule about a define that this source does not have is about other sources.
      const auto holds = rule.when->Eval(names);
      if (!holds.ok() || *holds == 0) continue;
    }
    if (rule.rule.delay_s() > 0) {
      result.set_compile_ms(1 + rule.rule.delay_s() * 1e3);
      const double limit_s = request.timeout_ms() > 0 ? request.timeout_ms() / 1e3 : rule.rule.delay_s();
      clock_.Sleep(absl::Seconds(std::min(rule.rule.delay_s(), limit_s)));
      if (rule.rule.delay_s() > limit_s) {
        result.set_outcome(v1::COMPILE_TIMEOUT);
        result.set_log(absl::StrCat("not compiled after ", request.timeout_ms(), " ms"));
        return result;
      }
    }
    if (rule.rule.outcome() == v1::OUTCOME_UNSPECIFIED) continue;
    result.set_outcome(rule.rule.outcome());
    result.set_log(rule.rule.message());
    return result;
  }
  result.set_outcome(v1::OK);
  result.set_cubin(absl::StrCat("FAKE ", request.arch(), "\n", request.source().name(), "\n",
                                absl::StrJoin(request.define(), "\n"), "\n", Sha256Hex(request.source().text())));
  if (result.cubin().size() < padded_bytes_) result.mutable_cubin()->resize(padded_bytes_, '.');
  result.set_digest(Sha256Hex(result.cubin()));
  result.set_parameters_unknown(true);
  for (const std::string& symbol : request.symbol()) {
    auto& kernel = *result.add_kernel();
    kernel.set_symbol(symbol);
    kernel.mutable_resources()->set_registers_per_thread(registers_);
    kernel.mutable_resources()->set_code_bytes(1024);
  }
  return result;
}

}  // namespace rooftune

// The planted faults fit today's sources: every text is found where it is said to be, every configuration is valid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/mutants/mutants.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;

std::string SourceDir() {
  const char* const dir = std::getenv("ROOFTUNE_SOURCE_DIR");
  return dir != nullptr ? dir : ".";
}

template <typename T>
T Take(absl::StatusOr<T> value) {
  if (!value.ok()) {
    ADD_FAILURE() << value.status();
    std::abort();
  }
  return *std::move(value);
}

class MutantsTest : public ::testing::Test {
 protected:
  const MutantSuite suite_ = Take(LoadMutants(SourceDir()));
  const std::unique_ptr<TemplateLibrary> library_ = Take(LoadLibraryWithExamples(SourceDir()));
  const DeviceProfile device_ = Take(Take(ProfileCatalog::Builtin()).ById("h200-sxm"));
};

TEST_F(MutantsTest, ThereAreEnoughOfAllTemplatesAndKinds) {
  std::map<std::string, int> of_template, of_kind;
  int sure = 0;
  for (const Mutant& mutant : suite_.mutants) {
    if (mutant.racecheck) continue;
    ++sure;
    ++of_template[mutant.template_id];
    ++of_kind[mutant.kind];
  }
  EXPECT_GE(sure, 60);
  for (const char* id : {"elementwise",    "softmax",        "rmsnorm",         "layernorm",    "glu",
                         "glu_quant",      "rope",           "quantize_flat",   "quantize_row", "quantize_block",
                         "dequantize",     "gemm_mma",       "gemm_simt",       "gemm_wgmma",   "swiglu",
                         "gemm_stream",    "gemm_wq_stream", "gemm_wq_mma",     "gemm_wq_wgmma", "moe_wgmma", "moe_mma",
                         "softmax_stream", "softmax_grid",   "rmsnorm_stream",  "layernorm_stream",
                         "cross_entropy_stream"}) {
    EXPECT_GE(of_template[id], 8) << id;
  }
  for (const char* kind : {"off_by_one_tail", "out_of_bounds", "half_written", "stale_output", "no_op", "hang", "race",
                           "wrong_accumulate", "wrong_index", "wrong_formula", "overflow_to_nan", "writes_input"}) {
    EXPECT_GE(of_kind[kind], 2) << kind;
  }
  int correct = 0;
  for (const CorrectCase& one : suite_.correct) correct += one.configs;
  EXPECT_GE(correct, 60);
}

TEST_F(MutantsTest, EveryFaultCanBePlanted) {
  for (const Mutant& mutant : suite_.mutants) {
    SCOPED_TRACE(mutant.id);
    const auto op = library_->ops().Parse(mutant.op);
    ASSERT_TRUE(op.ok()) << op.status();
    EXPECT_EQ(op->text, mutant.op) << "not canonical";
    const KernelTemplate* const kernel = library_->Find(mutant.template_id);
    ASSERT_NE(kernel, nullptr);
    ASSERT_TRUE(kernel->Supports(*op, device_));
    const auto config = ConfigWith(*kernel, *op, device_, mutant.config);
    EXPECT_TRUE(config.ok()) << config.status();
    if (!config.ok()) continue;
    auto request = kernel->CompileInput(*op, *config, device_);
    ASSERT_TRUE(request.ok()) << request.status();
    const std::string before = request->SerializeAsString();
    const absl::Status planted = Plant(mutant, &*request);
    EXPECT_TRUE(planted.ok()) << planted;
    if (!planted.ok()) continue;
    EXPECT_NE(request->SerializeAsString(), before);
  }
}

TEST_F(MutantsTest, TheUnchangedOnesHaveConfigurations) {
  int configs = 0;
  for (const CorrectCase& one : suite_.correct) {
    SCOPED_TRACE(one.op);
    const auto op = library_->ops().Parse(one.op);
    ASSERT_TRUE(op.ok()) << op.status();
    const auto kernels = library_->For(*op, device_);
    ASSERT_FALSE(kernels.empty());
    for (const KernelTemplate* kernel : kernels) {
      const auto spread = SpreadConfigs(*kernel, *op, device_, one.configs);
      ASSERT_TRUE(spread.ok()) << spread.status();
      configs += static_cast<int>(spread->size());
    }
  }
  EXPECT_GE(configs, 60);
}

TEST_F(MutantsTest, ATextThatIsNotThereOrNotAloneIsRefused) {
  Mutant mutant;
  mutant.id = "m";
  mutant.file = "kernel.cuh";
  mutant.find = "twice";
  mutant.replace = "x";
  worker::v1::CompileRequest request;
  request.mutable_source()->set_text("twice, twice");
  EXPECT_EQ(Plant(mutant, &request).code(), absl::StatusCode::kFailedPrecondition);
  mutant.occurrence = 2;
  EXPECT_TRUE(Plant(mutant, &request).ok());
  EXPECT_EQ(request.source().text(), "twice, x");
  EXPECT_EQ(Plant(mutant, &request).code(), absl::StatusCode::kNotFound);
  mutant.file = "common/none.cuh";
  EXPECT_EQ(Plant(mutant, &request).code(), absl::StatusCode::kNotFound);
}

TEST_F(MutantsTest, BadEntriesAreNamed) {
  EXPECT_THAT(std::string(ParseMutants("{\"mutant\": [{\"id\": \"m\"}]}").status().message()), HasSubstr("mutant 'm'"));
  EXPECT_THAT(std::string(ParseMutants("{\"mutant\": [{\"id\": \"m\", \"fnid\": \"\"}]}").status().message()),
              HasSubstr("unknown field fnid"));
  EXPECT_THAT(std::string(ParseMutants("[").status().message()), HasSubstr("no JSON"));
}

}  // namespace
}  // namespace rooftune

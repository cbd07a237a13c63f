// What the worker gets to set up a problem.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kernels/template_library.h"
#include "tests/costmodel/builtins.h"
#include "tests/support/temp_dir.h"

namespace rooftune {
namespace {

DeviceProfile Hopper() { return Profile("h200-sxm"); }

TEST(PrepareTest, HoldsTheProblem) {
  const auto library = TemplateLibrary::Load({});
  ASSERT_TRUE(library.ok()) << library.status();
  const auto op = (*library)->ops().Parse("gemm m=64 n=32 k=128 dtype=bf16 bias=1 out=fp32");
  ASSERT_TRUE(op.ok()) << op.status();
  const auto request = MakePrepare(**library, *op, Hopper(), 42);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->op(), op->text);
  EXPECT_EQ(request->seed(), 42u);
  ASSERT_EQ(request->tensor_size(), 4);  // a, b, bias, d
  EXPECT_EQ(request->tensor(0).elements(), 64 * 128);
  EXPECT_EQ(request->tensor(0).bytes(), 64 * 128 * 2);
  EXPECT_EQ(request->tensor(0).fill().stddev(), 1);
  EXPECT_EQ(request->tensor(3).spec().role(), v1::TensorSpec::OUTPUT);
  EXPECT_EQ(request->tensor(3).bytes(), 64 * 32 * 4);
  EXPECT_FALSE(request->tensor(3).has_fill());
  ASSERT_EQ(request->scalar_size(), 1);
  EXPECT_EQ(request->scalar(0).name(), "alpha");
  EXPECT_EQ(request->tolerance().accumulation_length(), 128);
  EXPECT_EQ(request->tolerance().scale(), 1);
  EXPECT_EQ(request->cpu_check_elements(), 4096);
  EXPECT_EQ(request->reference().grid_x(), 8);
  EXPECT_EQ(request->workspace_bytes(), 0);
  EXPECT_TRUE(request->reference_cubin().empty());
}

TEST(PrepareTest, SaysHowIndicesAreFilledAndWhatACopyMoves) {
  const auto library = TemplateLibrary::Load({});
  ASSERT_TRUE(library.ok()) << library.status();
  const auto op =
      (*library)->ops().Parse("rope tokens=20 heads_q=4 heads_kv=2 head_dim=6 blocks=100 dtype=bf16 kv_cache=1");
  ASSERT_TRUE(op.ok()) << op.status();
  const auto request = MakePrepare(**library, *op, Hopper(), 42);
  ASSERT_TRUE(request.ok()) << request.status();
  bool found = false;
  for (const auto& tensor : request->tensor()) {
    if (tensor.spec().name() != "slots") continue;
    found = true;
    EXPECT_EQ(tensor.fill().range(), 1600);
    EXPECT_TRUE(tensor.fill().distinct());
    EXPECT_EQ(tensor.fill().skip(), 64);
  }
  EXPECT_TRUE(found);
  // q, k, v, cosines and sines, slots; q, k and a row of both caches for each token, not the caches.
  EXPECT_EQ(request->bytes_read(), 20 * (2 * 6 * (4 + 2 + 2) + 2 * 4 * 3 + 8));
  EXPECT_EQ(request->bytes_written(), 20 * 2 * 6 * (4 + 2 + 2 + 2));
}

TEST(PrepareTest, ADeclaredOperatorHasNoCpuReference) {
  const TempDir temp;
  const std::filesystem::path dir = temp.path();
  std::filesystem::create_directories(dir / "copy");
  std::ofstream(dir / "copy/op.txtpb") << R"manifest(kind: "copy"
dim { name: "n" }
tensor { name: "x" role: "input" dtype: "FP32" dim: "n" fill_mean: 3 fill_stddev: 0.5 }
tensor { name: "y" role: "output" dtype: "FP32" dim: "n" }
reference { symbol: "rt_reference" grid_x: "n" arg { reference_value: "y" } arg { reference_magnitude: "y" } }
)manifest";
  std::ofstream(dir / "copy/reference.cuh") << "// reference\n";
  const auto library = TemplateLibrary::Load({dir.string()});
  ASSERT_TRUE(library.ok()) << library.status();
  for (const auto& broken : (*library)->broken()) ADD_FAILURE() << broken.error;
  const auto request = MakePrepare(**library, *(*library)->ops().Parse("copy n=10"), Hopper(), 0);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->cpu_check_elements(), 0);
  EXPECT_EQ(request->tolerance().accumulation_length(), 1);
  EXPECT_EQ(request->tensor(0).fill().mean(), 3);
  EXPECT_EQ(request->tensor(0).fill().stddev(), 0.5);
}

TEST(PrepareTest, AnUnknownOperatorIsRefused) {
  const auto library = TemplateLibrary::Load({});
  Op op;
  op.kind = "fft";
  EXPECT_EQ(MakePrepare(**library, op, Hopper(), 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace rooftune

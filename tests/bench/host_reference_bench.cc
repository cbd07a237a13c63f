// The CPU's check of a reference, as a sweep does it once before its first candidate.
#include <benchmark/benchmark.h>

#include "kernels/host_reference.h"

namespace rooftune {
namespace {

void Check(benchmark::State& state, const char* text) {
  const auto catalog = OpCatalog::Builtin();
  const auto op = catalog->Parse(text);
  const OpSchema& schema = *catalog->Find(op->kind);
  const auto host = MakeHostReference(schema, *op, 1, {});
  const auto tensors = schema.Tensors(*op);
  int64_t elements = 0;
  for (auto _ : state) {
    for (const OpTensorInstance& tensor : *tensors) {
      if (tensor.spec.role() == v1::TensorSpec::INPUT) continue;
      std::vector<int64_t> dims;
      for (const v1::IntExpr& dim : tensor.spec.dim()) dims.push_back(dim.value());
      const int count = (*host)->CheckCount(tensor.spec.name(), HostCheckElements(op->kind, 1));
      const auto values = (*host)->Evaluate(tensor.spec.name(), CheckIndices(dims, count, 1));
      if (!values.ok()) return state.SkipWithError(values.status().ToString().c_str());
      elements += static_cast<int64_t>(values->size());
    }
  }
  state.counters["elements"] = benchmark::Counter(static_cast<double>(elements), benchmark::Counter::kAvgIterations);
}
BENCHMARK_CAPTURE(Check, Softmax, "softmax rows=16384 cols=8192 dtype=bf16")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Check, RmsNorm, "rmsnorm rows=16384 cols=8192 dtype=bf16")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Check, RmsNormInt8, "rmsnorm rows=16384 cols=8192 dtype=bf16 pre=silu quant=int8")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Check, LayerNormFp8, "layernorm rows=16384 cols=8192 dtype=bf16 bias=1 quant=fp8_e4m3")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Check, GluInt8, "glu rows=16384 cols=14336 dtype=bf16 quant=int8")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rooftune

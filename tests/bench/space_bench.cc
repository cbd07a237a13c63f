// Enumeration of search spaces and evaluation of their expressions.
#include <benchmark/benchmark.h>

#include "tests/kernels/spaces.h"

namespace rooftune {
namespace {

void Enumerate(benchmark::State& state, SearchSpaceSpec (*make)()) {
  const SearchSpaceSpec spec = make();
  for (auto _ : state) {
    const auto space = SearchSpace::Create(spec);
    if (!space.ok()) {
      state.SkipWithError(std::string(space.status().message()).c_str());
      break;
    }
    state.counters["points"] = static_cast<double>(space->total_points());
    state.counters["valid"] = static_cast<double>(space->size());
  }
}
BENCHMARK_CAPTURE(Enumerate, Convolution, ConvolutionSpace)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Enumerate, Gemm, GemmSpace)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Enumerate, Huge, HugeSpace)->Unit(benchmark::kMillisecond);

void EvaluateBound(benchmark::State& state, const char* text) {
  const auto expression = BoundExpression::Bind(*Expression::Parse(text), {"a", "b", "c"});
  int64_t values[] = {128, 64, 3};
  for (auto _ : state) {
    int64_t result = 0;
    benchmark::DoNotOptimize(expression->Eval(values, &result));
    benchmark::DoNotOptimize(result);
    values[2] ^= 1;
  }
}
BENCHMARK_CAPTURE(EvaluateBound, Product, "a * b <= 1024");
BENCHMARK_CAPTURE(EvaluateBound, SharedBytes, "(a + b) * 64 * 2 * c <= 232448 and (c > 1 or a % 32 == 0)");
// Leaves the integers on the way.
BENCHMARK_CAPTURE(EvaluateBound, Fraction, "a % (b / c) == 0");

void IndexOf(benchmark::State& state) {
  const auto space = SearchSpace::Create(GemmSpace());
  const Config config = space->At(space->size() / 3);
  for (auto _ : state) benchmark::DoNotOptimize(space->IndexOf(config));
}
BENCHMARK(IndexOf);

}  // namespace
}  // namespace rooftune

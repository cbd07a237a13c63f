#include "kernels/host_reference.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "costmodel/chain.h"
#include "kernels/host_reference_internal.h"
#include "kernels/philox.h"

namespace rooftune {
namespace {

using host_reference_internal::Problem;

// Rows that a check touches: row operators compute a whole row for one element, and a GEMM needs one row of A for
// each; 32 rows of 128 elements make a check of 4096.
constexpr int64_t kCheckRows = 32;
// Output elements recomputed where that is cheap: enough for all corners and tails.
constexpr int kCheckElements = 4096;
// The same where a single scale is the maximum of up to a row or 16384 elements, or where every row meets columns of
// its own.
constexpr int kCheckFewer = 1024;
// Inputs generated (about 20 ns each) where every output element is a reduction of its own, and the longest of those
// that is still checked.
constexpr int64_t kCheckedTerms = int64_t{1} << 22;
constexpr int64_t kLongestCheckedSum = int64_t{1} << 26;

absl::StatusOr<Problem> MakeProblem(const OpSchema& schema, const Op& op, uint64_t seed,
                                    const std::map<std::string, double>& scalars) {
  Problem problem;
  problem.op = op;
  problem.seed = seed;
  RT_ASSIGN_OR_RETURN(problem.tensors, schema.Tensors(op));
  for (const v1::ScalarSpec& scalar : schema.Scalars(op)) {
    const auto given = scalars.find(scalar.name());
    const double value = given == scalars.end() ? scalar.default_value() : given->second;
    // Kernels receive it as a float.
    problem.scalars[scalar.name()] = static_cast<double>(static_cast<float>(value));
  }
  return problem;
}

// Adds the first, the last, those beside them and the middle of `extent`, then seeded ones, until there are `count`.
std::vector<int64_t> Spread(int64_t extent, int64_t count, uint64_t seed, uint32_t stream) {
  std::set<int64_t> picked;
  if (count >= extent) {
    for (int64_t i = 0; i < extent; ++i) picked.insert(picked.end(), i);
    return {picked.begin(), picked.end()};
  }
  for (const int64_t i : {int64_t{0}, extent - 1, extent - 2, int64_t{1}, extent / 2}) {
    if (static_cast<int64_t>(picked.size()) < count) picked.insert(i);
  }
  // As extent > count, every draw has a chance; the limit only bounds bad luck.
  for (uint32_t draw = 0; static_cast<int64_t>(picked.size()) < count && draw < 64 * count; ++draw) {
    const auto words =
        Philox4x32({draw, stream, 0, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const uint64_t random = (uint64_t{words[0]} << 32 | words[1]);
    picked.insert(static_cast<int64_t>(random % static_cast<uint64_t>(extent)));
  }
  return {picked.begin(), picked.end()};
}

// Rows (all dimensions but the last, flattened): every corner of the leading dimensions first.
std::vector<int64_t> CheckRows(const std::vector<int64_t>& leading, int64_t count, uint64_t seed) {
  int64_t rows = 1;
  for (const int64_t d : leading) rows *= d;
  std::vector<int64_t> corners = {0};
  for (const int64_t d : leading) {
    std::vector<int64_t> next;
    for (const int64_t corner : corners) {
      next.push_back(corner * d);
      if (d > 1) next.push_back(corner * d + d - 1);
    }
    corners = std::move(next);
    if (static_cast<int64_t>(corners.size()) * 2 > count) break;
  }
  // Broken off above for many dimensions: the very last row always counts.
  std::set<int64_t> picked = {rows - 1};
  for (const int64_t corner : corners) {
    if (static_cast<int64_t>(picked.size()) < count && corner < rows) picked.insert(corner);
  }
  for (const int64_t row : Spread(rows, count, seed, 1)) {
    if (static_cast<int64_t>(picked.size()) < count) picked.insert(row);
  }
  return {picked.begin(), picked.end()};
}

}  // namespace

namespace host_reference_internal {

double Problem::Input(int tensor, int64_t index) const {
  const OpTensorInstance& t = tensors[tensor];
  if (t.fill_total > 0) {
    const uint32_t number = static_cast<uint32_t>(tensor);
    const int64_t groups = t.elements - (t.fill_offsets ? 1 : 0);
    const int64_t begin = GenerateGroupStart(seed, number, index, groups, t.fill_total);
    if (t.fill_offsets) return static_cast<double>(begin);
    return static_cast<double>(GenerateGroupStart(seed, number, index + 1, groups, t.fill_total) - begin);
  }
  if (t.fill_range > 0) {
    const uint32_t number = static_cast<uint32_t>(tensor);
    const uint64_t place = static_cast<uint64_t>(index);
    if (GenerateSkip(seed, number, place, t.fill_skip)) return -1;
    return static_cast<double>(t.fill_distinct ? GenerateDistinctIndex(seed, number, place, t.fill_range)
                                               : GenerateIndex(seed, number, place, t.fill_range));
  }
  return GenerateElement(seed, static_cast<uint32_t>(tensor), static_cast<uint64_t>(index),
                         static_cast<float>(t.fill_mean), static_cast<float>(t.fill_stddev), t.spec.dtype());
}

int Problem::Find(absl::string_view name) const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].spec.name() == name) return static_cast<int>(i);
  }
  return -1;
}

absl::Status Problem::CheckOutput(const std::string& tensor, const std::vector<int64_t>& indices) const {
  const int position = Find(tensor);
  if (position < 0 || tensors[position].spec.role() == v1::TensorSpec::INPUT) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", absl::StrCat(op.text, " has no output ", tensor),
                 {{"field", tensor}});
  }
  for (const int64_t index : indices) {
    if (index < 0 || index >= tensors[position].elements) {
      return Error(absl::StatusCode::kInvalidArgument, "BAD_VALUE", absl::StrCat(tensor, " has no element ", index),
                   {{"field", tensor}});
    }
  }
  return absl::OkStatus();
}

Activation::Activation(const Problem& p, const std::string& attribute) {
  const std::string symbols = absl::AsciiStrToUpper(attribute);
  const int64_t kind = p.Name(attribute);
  if (kind == p.Name(symbols + "_RELU")) op_ = ChainOp::kRelu;
  if (kind == p.Name(symbols + "_GELU")) op_ = ChainOp::kGelu;
  if (kind == p.Name(symbols + "_SILU")) op_ = ChainOp::kSilu;
}

double Activation::operator()(double value) const {
  if (!op_.has_value()) return value;
  const ChainValue operands[3] = {{value, 0}, {}, {}};
  return ApplyChainOp(*op_, operands).value;
}

}  // namespace host_reference_internal

bool HasHostReference(const std::string& kind) {
  return kind == "gemm" || kind == "gemm_wq" || kind == "softmax" || kind == "rmsnorm" || kind == "layernorm" ||
         kind == "glu" || kind == "elementwise" || kind == "cross_entropy" || kind == "rope" || kind == "permute" ||
         kind == "reduce" || kind == "contiguous" || kind == "quantize" || kind == "dequantize" || kind == "moe_gemm";
}

int HostCheckElements(const std::string& kind, int64_t accumulation_length) {
  if (!HasHostReference(kind)) return 0;
  if (kind == "quantize" || kind == "moe_gemm") return kCheckFewer;
  const bool reduces = kind == "cross_entropy" || kind == "reduce";
  if (!reduces) return kCheckElements;
  if (accumulation_length > kLongestCheckedSum) return 0;
  return static_cast<int>(std::clamp<int64_t>(kCheckedTerms / accumulation_length, 16, kCheckElements));
}

absl::StatusOr<std::unique_ptr<HostReference>> MakeHostReference(const OpSchema& schema, const Op& op, uint64_t seed,
                                                                 const std::map<std::string, double>& scalars) {
  // A folder may declare a kind of the same name that means something else.
  if (HasHostReference(op.kind) && schema.origin() == "built-in") {
    RT_ASSIGN_OR_RETURN(Problem problem, MakeProblem(schema, op, seed, scalars));
    if (op.kind == "gemm") return host_reference_internal::MakeGemm(std::move(problem));
    if (op.kind == "gemm_wq") return host_reference_internal::MakeGemmWq(std::move(problem));
    if (op.kind == "moe_gemm") return host_reference_internal::MakeMoeGemm(std::move(problem));
    if (op.kind == "softmax") return host_reference_internal::MakeSoftmax(std::move(problem));
    if (op.kind == "rmsnorm") return host_reference_internal::MakeNorm(std::move(problem), /*center=*/false);
    if (op.kind == "layernorm") return host_reference_internal::MakeNorm(std::move(problem), /*center=*/true);
    if (op.kind == "glu") return host_reference_internal::MakeGlu(std::move(problem));
    if (op.kind == "cross_entropy") return host_reference_internal::MakeCrossEntropy(std::move(problem));
    if (op.kind == "rope") return host_reference_internal::MakeRope(std::move(problem));
    if (op.kind == "contiguous") return host_reference_internal::MakeContiguous(std::move(problem));
    if (op.kind == "permute") return host_reference_internal::MakePermute(std::move(problem));
    if (op.kind == "reduce") return host_reference_internal::MakeReduce(std::move(problem));
    if (op.kind == "quantize") return host_reference_internal::MakeQuantize(std::move(problem));
    if (op.kind == "dequantize") return host_reference_internal::MakeDequantize(std::move(problem));
    return host_reference_internal::MakeElementwise(std::move(problem));
  }
  return Error(absl::StatusCode::kNotFound, "NO_REFERENCE",
               absl::StrCat("operator ", op.kind, " of ", schema.origin(), " has no reference on the CPU"));
}

std::vector<int64_t> CheckIndices(const std::vector<int64_t>& dims, int count, uint64_t seed) {
  if (dims.empty() || count <= 0) return {};
  const std::vector<int64_t> leading(dims.begin(), dims.end() - 1);
  const int64_t columns = dims.back();
  int64_t rows = 1;
  for (const int64_t d : leading) rows *= d;
  if (rows <= 0 || columns <= 0) return {};
  // As many rows as leave room for a row's first and last element; more where rows are short.
  int64_t row_count = std::min<int64_t>({rows, kCheckRows, std::max(1, count / 2)});
  const int64_t column_count = std::max<int64_t>(1, std::min<int64_t>(columns, count / row_count));
  row_count = std::min<int64_t>(rows, count / column_count);
  std::vector<int64_t> indices;
  const std::vector<int64_t> picked_columns = Spread(columns, column_count, seed, 0);
  for (const int64_t row : CheckRows(leading, row_count, seed)) {
    for (const int64_t column : picked_columns) indices.push_back(row * columns + column);
  }
  return indices;
}

}  // namespace rooftune

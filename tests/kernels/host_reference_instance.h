// A small instance of an operator with all of its data, for tests of the CPU's references.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/generate.h"
#include "kernels/host_reference.h"
#include "tests/costmodel/builtins.h"

namespace rooftune {

inline constexpr uint64_t kSeed = 42;

// All tensors of a small instance, generated whole.
struct Instance {
  Op op;
  std::map<std::string, std::vector<double>> data;
  std::map<std::string, int64_t> elements;
  std::unique_ptr<HostReference> reference;

  std::vector<ReferenceValue> All(const std::string& tensor) const {
    std::vector<int64_t> indices(elements.at(tensor));
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
    const auto values = reference->Evaluate(tensor, indices);
    EXPECT_TRUE(values.ok()) << values.status();
    return *values;
  }
};

inline Instance Make(const std::string& text, const std::map<std::string, double>& scalars = {}) {
  Instance in;
  in.op = *Catalog().Parse(text);
  const OpSchema* schema = Catalog().Find(in.op.kind);
  const auto tensors = schema->Tensors(in.op);
  for (size_t t = 0; t < tensors->size(); ++t) {
    const OpTensorInstance& tensor = (*tensors)[t];
    const uint32_t number = static_cast<uint32_t>(t);
    std::vector<double>& data = in.data[tensor.spec.name()];
    in.elements[tensor.spec.name()] = tensor.elements;
    for (int64_t i = 0; i < tensor.elements; ++i) {
      const uint64_t at = static_cast<uint64_t>(i);
      if (tensor.fill_total > 0) {
        const int64_t groups = tensor.elements - (tensor.fill_offsets ? 1 : 0);
        const auto start = [&](int64_t g) { return GenerateGroupStart(kSeed, number, g, groups, tensor.fill_total); };
        data.push_back(static_cast<double>(tensor.fill_offsets ? start(i) : start(i + 1) - start(i)));
      } else if (tensor.fill_range > 0) {
        const int64_t place = GenerateSkip(kSeed, number, at, tensor.fill_skip) ? -1
                              : tensor.fill_distinct ? GenerateDistinctIndex(kSeed, number, at, tensor.fill_range)
                                                     : GenerateIndex(kSeed, number, at, tensor.fill_range);
        data.push_back(static_cast<double>(place));
      } else {
        data.push_back(GenerateElement(kSeed, number, at, static_cast<float>(tensor.fill_mean),
                                       static_cast<float>(tensor.fill_stddev), tensor.spec.dtype()));
      }
    }
  }
  auto reference = MakeHostReference(*schema, in.op, kSeed, scalars);
  EXPECT_TRUE(reference.ok()) << reference.status();
  in.reference = *std::move(reference);
  return in;
}

}  // namespace rooftune

// Work, validity and CPU reference of gemm_wq.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/generate.h"
#include "kernels/host_reference.h"

namespace rooftune {
namespace {

constexpr uint64_t kSeed = 42;

const OpCatalog& Catalog() {
  static const OpCatalog* const catalog = new OpCatalog(*OpCatalog::Builtin());
  return *catalog;
}

Work WorkOf(const std::string& text) { return *Catalog().Find("gemm_wq")->ComputeWork(*Catalog().Parse(text)); }

int64_t OpsOn(const Work& work, const std::string& pipe) {
  int64_t ops = 0;
  for (const PipeOps& one : work.pipe_ops) {
    if (one.pipe == pipe) ops += static_cast<int64_t>(one.ops);
  }
  return ops;
}

// All tensors of a small instance, generated whole.
struct Instance {
  Op op;
  std::map<std::string, std::vector<double>> data;
};

Instance Make(const std::string& text) {
  Instance in;
  in.op = *Catalog().Parse(text);
  const auto tensors = Catalog().Find("gemm_wq")->Tensors(in.op);
  for (size_t t = 0; t < tensors->size(); ++t) {
    const OpTensorInstance& tensor = (*tensors)[t];
    for (int64_t i = 0; i < tensor.elements; ++i) {
      in.data[tensor.spec.name()].push_back(
          GenerateElement(kSeed, static_cast<uint32_t>(t), i, static_cast<float>(tensor.fill_mean),
                          static_cast<float>(tensor.fill_stddev), tensor.spec.dtype()));
    }
  }
  return in;
}

std::vector<ReferenceValue> All(const Instance& in) {
  std::vector<int64_t> indices;
  for (size_t i = 0; i < in.data.at("y").size(); ++i) indices.push_back(static_cast<int64_t>(i));
  const auto reference = MakeHostReference(*Catalog().Find("gemm_wq"), in.op, kSeed, {});
  EXPECT_TRUE(reference.ok()) << reference.status();
  const auto values = (*reference)->Evaluate("y", indices);
  EXPECT_TRUE(values.ok()) << values.status();
  return *values;
}

// Products, zero points and scales counted one by one.
TEST(GemmWqTest, WorkOfQuantisedWeights) {
  int64_t fp32 = 0, sfu = 0, read = 0, written = 0;
  int64_t products = 0;
  for (int n = 0; n < 5; ++n) {
    for (int k = 0; k < 64; ++k) {
      fp32 += 1;  // zero point
      products += 3 * 2;
    }
    read += 64 / 2 + 2 * (2 + 1) + 2;  // codes, a scale and zero point a group, bias
    fp32 += 3 * (2 * 2 + 1 + 4);       // of each row of x: two groups, bias, silu
    sfu += 3;
    written += 3 * 2;
  }
  read += 3 * 64 * 2;
  const Work work = WorkOf("gemm_wq m=3 n=5 k=64 dtype=bf16 group=32 zero=1 bias=1 act=silu");
  EXPECT_EQ(OpsOn(work, "tensor"), products);
  EXPECT_EQ(OpsOn(work, "fp32"), fp32);
  EXPECT_EQ(OpsOn(work, "sfu"), sfu);
  EXPECT_EQ(work.bytes_read, read);
  EXPECT_EQ(work.bytes_written, written);
  // One group, or one scale a row: no sum of scaled sums.
  EXPECT_EQ(OpsOn(WorkOf("gemm_wq m=3 n=5 k=128 dtype=fp16"), "fp32"), 15);
  EXPECT_EQ(OpsOn(WorkOf("gemm_wq m=3 n=5 k=256 dtype=fp16 group=0"), "fp32"), 15);
  EXPECT_EQ(WorkOf("gemm_wq m=3 n=5 k=64 dtype=fp16 weight=int8 group=0").bytes_read, 2 * 3 * 64 + 5 * 64 + 5 * 2);
}

TEST(GemmWqTest, QuantisedWeightsComeInWholeGroups) {
  EXPECT_EQ(Catalog().Parse("gemm_wq zero=0 group=128 weight=int4 k=128 n=2 m=1 dtype=bf16")->text,
            "gemm_wq m=1 n=2 k=128 dtype=bf16");
  for (const char* text : {"gemm_wq m=1 n=1 k=64 dtype=bf16", "gemm_wq m=1 n=1 k=80 dtype=bf16 group=0",
                           "gemm_wq m=1 n=1 k=128 dtype=bf16 group=16", "gemm_wq m=1 n=1 k=128 dtype=fp32",
                           "gemm_wq m=1 n=1 k=128 dtype=bf16 weight=int2"}) {
    EXPECT_FALSE(Catalog().Parse(text).ok()) << text;
  }
}

TEST(GemmWqTest, QuantisedWeightsByTheirDefinition) {
  const int m = 3, n = 4, k = 96;
  for (const std::string attributes :
       {"weight=int4 group=32 zero=1", "weight=int4 group=0", "weight=int8 group=32 zero=1", "weight=int8 group=32",
        "weight=int8 group=0 zero=1"}) {
    const Instance in = Make("gemm_wq m=3 n=4 k=96 dtype=bf16 bias=1 act=relu " + attributes);
    const bool int4 = attributes.find("int4") != std::string::npos,
               zeros = attributes.find("zero=1") != std::string::npos;
    const int groups = attributes.find("group=0") != std::string::npos ? 1 : 3;
    const auto y = All(in);
    std::set<int> codes;
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        double sum = in.data.at("bias")[j], size = std::fabs(sum);
        for (int l = 0; l < k; ++l) {
          const int stored = static_cast<int>(in.data.at("w")[(j * k + l) / (int4 ? 2 : 1)]);
          // The low four bits are the even element; adding 256 makes the byte positive.
          const int code = !int4 ? stored : l % 2 == 0 ? (stored + 256) % 16 : (stored + 256) / 16 % 16;
          codes.insert(code);
          const int group = j * groups + l * groups / k;
          const double zero = zeros ? in.data.at("zeros")[group] : int4 ? 8 : 0;
          const double term = in.data.at("x")[i * k + l] * in.data.at("scales")[group] * (code - zero);
          sum += term;
          size += std::fabs(term);
        }
        EXPECT_NEAR(y[i * n + j].value, std::max(sum, 0.0), 1e-12) << attributes;
        EXPECT_NEAR(y[i * n + j].magnitude, size, 1e-12) << attributes;
      }
    }
    // The generated bytes reach every code of 4 bits, and both signs of 8.
    if (int4) {
      EXPECT_EQ(codes.size(), 16u);
    } else {
      EXPECT_TRUE(*codes.begin() < -80 && *codes.rbegin() > 80) << *codes.begin() << " " << *codes.rbegin();
    }
  }
}

}  // namespace
}  // namespace rooftune

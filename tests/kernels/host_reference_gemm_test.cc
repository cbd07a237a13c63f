#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/kernels/host_reference_instance.h"

namespace rooftune {
namespace {

TEST(HostReferenceTest, GemmByItsDefinitionInEveryLayout) {
  const int batch = 2, m = 3, n = 4, k = 5;
  for (const std::string layout : {"nn", "nt", "tn", "tt"}) {
    const Instance in = Make("gemm m=3 n=4 k=5 batch=2 dtype=bf16 beta=1 bias=1 act=silu out=fp32 layout=" + layout,
                             {{"alpha", 0.5}, {"beta_value", -2}});
    const auto values = in.All("d");
    for (int b = 0; b < batch; ++b) {
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          double sum = 0, magnitude = 0;
          for (int l = 0; l < k; ++l) {
            const double a = in.data.at("a")[b * m * k + (layout[0] == 'n' ? i * k + l : l * m + i)];
            const double w = in.data.at("b")[b * n * k + (layout[1] == 'n' ? l * n + j : j * k + l)];
            sum += a * w;
            magnitude += std::fabs(a * w);
          }
          const size_t index = (b * m + i) * n + j;
          const double x = 0.5 * sum - 2 * in.data.at("c")[index] + in.data.at("bias")[j];
          const double size =
              0.5 * magnitude + 2 * std::fabs(in.data.at("c")[index]) + std::fabs(in.data.at("bias")[j]);
          EXPECT_NEAR(values[index].value, x / (1 + std::exp(-x)), 1e-12) << layout;
          EXPECT_NEAR(values[index].magnitude, size, 1e-12) << layout;
        }
      }
    }
  }
}

TEST(HostReferenceTest, GemmWithSpaceBetweenRows) {
  const int m = 3, n = 4, k = 5, lda = 7, ldb = 6;
  for (const std::string layout : {"nn", "nt", "tn", "tt"}) {
    const Instance in = Make("gemm m=3 n=4 k=5 batch=2 dtype=bf16 lda=7 ldb=6 layout=" + layout, {{"alpha", 1}});
    const auto values = in.All("d");
    const bool a_turned = layout[0] == 't', b_turned = layout[1] == 't';
    for (int b = 0; b < 2; ++b) {
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          double sum = 0;
          for (int l = 0; l < k; ++l) {
            const int x = (b * (a_turned ? k : m) + (a_turned ? l : i)) * lda + (a_turned ? i : l);
            const int y = (b * (b_turned ? n : k) + (b_turned ? j : l)) * ldb + (b_turned ? l : j);
            sum += in.data.at("a")[x] * in.data.at("b")[y];
          }
          EXPECT_NEAR(values[(b * m + i) * n + j].value, sum, 1e-12) << layout;
        }
      }
    }
  }
}

TEST(HostReferenceTest, GemmWithResultsOfEightBits) {
  const struct {
    const char* out;
    double lowest, highest;
  } types[] = {{"fp8_e4m3", -448, 448}, {"fp8_e5m2", -57344, 57344}, {"int8", -128, 127}};
  for (const auto& type : types) {
    // A small and a large alpha: nothing is clamped, and nearly everything.
    for (const double alpha : {0x1p-7, 0x1p24}) {
      const std::string text = absl::StrCat("gemm m=3 n=8 k=16 dtype=bf16 bias=1 act=silu out=", type.out);
      const Instance in = Make(text, {{"alpha", alpha}});
      const auto values = in.All("d");
      const double scale = in.data.at("scale_d")[0];
      int clamped = 0;
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 8; ++j) {
          double sum = 0, magnitude = 0;
          for (int l = 0; l < 16; ++l) {
            sum += in.data.at("a")[i * 16 + l] * in.data.at("b")[j * 16 + l];
            magnitude += std::fabs(in.data.at("a")[i * 16 + l] * in.data.at("b")[j * 16 + l]);
          }
          const double bias = in.data.at("bias")[j], x = alpha * sum + bias;
          const double exact = scale * x / (1 + std::exp(-x)), size = scale * (alpha * magnitude + std::fabs(bias));
          const ReferenceValue& got = values[i * 8 + j];
          EXPECT_NEAR(got.value, std::min(std::max(exact, type.lowest), type.highest), 1e-12) << text;
          EXPECT_NEAR(got.magnitude, size, 1e-12 * size) << text;
          clamped += got.value != exact && (got.value == type.lowest || got.value == type.highest);
        }
      }
      EXPECT_EQ(clamped > 0, alpha > 1) << text;
    }
  }
}

TEST(HostReferenceTest, GemmOfEightBitsWithScales) {
  const int m = 3, n = 8, k = 16;
  for (const std::string dtype : {"fp8_e4m3", "fp8_e5m2", "int8"}) {
    for (const std::string scale : {"none", "tensor", "row"}) {
      const Instance in =
          Make("gemm m=3 n=8 k=16 out=fp32 bias=1 dtype=" + dtype + " scale=" + scale, {{"alpha", 0.5}});
      const auto values = in.All("d");
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          double sum = 0, magnitude = 0;
          for (int l = 0; l < k; ++l) {
            sum += in.data.at("a")[i * k + l] * in.data.at("b")[j * k + l];
            magnitude += std::fabs(in.data.at("a")[i * k + l] * in.data.at("b")[j * k + l]);
          }
          double factor = 0.5;
          if (scale == "tensor") factor *= in.data.at("scale_a")[0] * in.data.at("scale_b")[0];
          if (scale == "row") factor *= in.data.at("scale_a")[i] * in.data.at("scale_b")[j];
          const double bias = in.data.at("bias")[j];
          EXPECT_NEAR(values[i * n + j].value, factor * sum + bias, 1e-12) << dtype << scale;
          EXPECT_NEAR(values[i * n + j].magnitude, factor * magnitude + std::fabs(bias), 1e-12) << dtype << scale;
        }
      }
    }
  }
}

TEST(HostReferenceTest, GemmWithScalesOfBlocks) {
  const Instance in = Make("gemm m=2 n=136 k=272 out=fp32 dtype=fp8_e4m3 scale=block128");
  const auto values = in.All("d");
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 136; ++j) {
      double sum = 0;
      for (int l = 0; l < 272; ++l) {
        sum += in.data.at("a")[i * 272 + l] * in.data.at("scale_a")[i * 3 + l / 128] * in.data.at("b")[j * 272 + l] *
               in.data.at("scale_b")[j / 128 * 3 + l / 128];
      }
      EXPECT_NEAR(values[i * 136 + j].value, sum, 1e-11);
    }
  }
}

TEST(HostReferenceTest, GemmActivationsAndDefaults) {
  const auto plain = Make("gemm m=4 n=4 k=3 dtype=fp32").All("d");
  const auto relu = Make("gemm m=4 n=4 k=3 dtype=fp32 act=relu").All("d");
  const auto gelu = Make("gemm m=4 n=4 k=3 dtype=fp32 act=gelu").All("d");
  for (size_t i = 0; i < plain.size(); ++i) {
    const double x = plain[i].value;
    EXPECT_DOUBLE_EQ(relu[i].value, std::max(x, 0.0));
    EXPECT_NEAR(gelu[i].value, 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))), 1e-14);
  }
}

TEST(HostReferenceTest, LongKIsAccumulatedOverChunks) {
  const Instance in = Make("gemm m=2 n=2 k=5001 dtype=bf16");
  const auto values = in.All("d");
  double sum = 0;
  for (int l = 0; l < 5001; ++l) sum += in.data.at("a")[5001 + l] * in.data.at("b")[l];
  EXPECT_NEAR(values[2].value, sum, 1e-9);
}

}  // namespace
}  // namespace rooftune

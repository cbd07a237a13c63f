#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "kernels/tolerance.h"
#include "tests/kernels/host_reference_instance.h"

namespace rooftune {
namespace {

TEST(HostReferenceTest, RmsnormByItsDefinition) {
  for (const bool residual : {false, true}) {
    const Instance in =
        Make(std::string("rmsnorm rows=2 cols=9 dtype=bf16") + (residual ? " residual=1" : ""), {{"eps", 0.01}});
    const auto y = in.All("y");
    for (int r = 0; r < 2; ++r) {
      double squares = 0;
      std::vector<double> s(9);
      for (int j = 0; j < 9; ++j) {
        s[j] = in.data.at("x")[r * 9 + j];
        if (residual) {
          s[j] =
              RoundToDType(static_cast<float>(s[j]) + static_cast<float>(in.data.at("residual")[r * 9 + j]), v1::BF16);
        }
        squares += s[j] * s[j];
      }
      for (int j = 0; j < 9; ++j) {
        const double expected = s[j] / std::sqrt(squares / 9 + static_cast<double>(0.01f)) * in.data.at("weight")[j];
        EXPECT_NEAR(y[r * 9 + j].value, expected, 1e-13);
        if (residual) {
          EXPECT_EQ(in.All("residual_out")[r * 9 + j].value, s[j]);
        }
      }
    }
  }
}

TEST(HostReferenceTest, LayernormByItsDefinition) {
  for (const bool full : {false, true}) {
    const Instance in =
        Make(std::string("layernorm rows=2 cols=9 dtype=fp16") + (full ? " residual=1 bias=1 act=relu" : ""),
             {{"eps", 0.01}});
    const auto y = in.All("y");
    int clipped = 0;
    for (int r = 0; r < 2; ++r) {
      std::vector<double> s(9);
      double sum = 0, sum_of_squares = 0;
      for (int j = 0; j < 9; ++j) {
        s[j] = in.data.at("x")[r * 9 + j];
        if (full) {
          s[j] =
              RoundToDType(static_cast<float>(s[j]) + static_cast<float>(in.data.at("residual")[r * 9 + j]), v1::FP16);
          EXPECT_EQ(in.All("residual_out")[r * 9 + j].value, s[j]);
        }
        sum += s[j];
        sum_of_squares += s[j] * s[j];
      }
      const double variance = sum_of_squares / 9 - sum / 9 * (sum / 9);
      for (int j = 0; j < 9; ++j) {
        double expected = (s[j] - sum / 9) / std::sqrt(variance + static_cast<double>(0.01f)) * in.data.at("weight")[j];
        if (full) expected = std::max(0.0, expected + in.data.at("bias")[j]);
        clipped += expected == 0;
        EXPECT_NEAR(y[r * 9 + j].value, expected, 1e-12);
        EXPECT_GE(y[r * 9 + j].magnitude, std::fabs(expected));
      }
    }
    EXPECT_EQ(clipped > 0, full);
  }
}

// A common offset of a row moves no element of the result, so that errors scale with what is left of it without: a
// bound that grew with the mean would let a variance pass that is a difference of two large numbers.
TEST(HostReferenceTest, LayernormErrorsScaleWithDifferencesFromTheMean) {
  const int rows = 2, cols = 9;
  const Instance in = Make("layernorm rows=2 cols=9 dtype=fp32 bias=1", {{"eps", 0.01}});
  const auto y = in.All("y");
  for (int r = 0; r < rows; ++r) {
    const auto x = [&](int j) { return in.data.at("x")[r * cols + j]; };
    double mean = 0, squares = 0, absolute = 0;
    for (int j = 0; j < cols; ++j) mean += x(j) / cols;
    for (int j = 0; j < cols; ++j) squares += (x(j) - mean) * (x(j) - mean);
    for (int j = 0; j < cols; ++j) absolute += std::fabs(x(j) - mean) / cols;
    const double factor = 1 / std::sqrt(squares / cols + static_cast<double>(0.01f));
    const double accumulate = MakeErrorBound(v1::FP32, cols, 1).accumulate;
    for (int j = 0; j < cols; ++j) {
      const double weight = std::fabs(in.data.at("weight")[j]) * factor;
      const double differences = (std::fabs(x(j) - mean) + absolute) * weight + std::fabs(in.data.at("bias")[j]);
      // The mean itself is known to 8 units in the last place, however many elements there are.
      EXPECT_NEAR(y[r * cols + j].magnitude * accumulate, differences * accumulate + 0x1p-20 * std::fabs(mean) * weight,
                  1e-15);
    }
  }
}

TEST(HostReferenceTest, NormsAreActivated) {
  for (const std::string kind : {"rmsnorm", "layernorm"}) {
    const auto plain = Make(kind + " rows=3 cols=11 dtype=bf16").All("y");
    const auto relu = Make(kind + " rows=3 cols=11 dtype=bf16 act=relu").All("y");
    const auto gelu = Make(kind + " rows=3 cols=11 dtype=bf16 act=gelu").All("y");
    const auto silu = Make(kind + " rows=3 cols=11 dtype=bf16 act=silu").All("y");
    for (size_t i = 0; i < plain.size(); ++i) {
      const double y = plain[i].value;
      EXPECT_EQ(relu[i].value, std::max(y, 0.0));
      EXPECT_NEAR(gelu[i].value, y / (1 + std::exp(-1.5957691216057308 * (y + 0.044715 * y * y * y))), 1e-13);
      EXPECT_NEAR(silu[i].value, y / (1 + std::exp(-y)), 1e-13);
      for (const auto* activated : {&relu, &gelu, &silu}) EXPECT_EQ((*activated)[i].magnitude, plain[i].magnitude);
    }
  }
}

TEST(HostReferenceTest, NormsOfActivatedElements) {
  const std::map<std::string, std::function<double(double)>> activations = {
      {"relu", [](double v) { return std::max(v, 0.0); }},
      {"gelu", [](double v) { return v / (1 + std::exp(-1.5957691216057308 * (v + 0.044715 * v * v * v))); }},
      {"silu", [](double v) { return v / (1 + std::exp(-v)); }}};
  const int rows = 3, cols = 11;
  for (const auto& [pre, activate] : activations) {
    for (const bool residual : {false, true}) {
      for (const bool center : {false, true}) {
        const Instance in = Make(std::string(center ? "layernorm" : "rmsnorm") +
                                     " rows=3 cols=11 dtype=bf16 pre=" + pre + (residual ? " residual=1" : ""),
                                 {{"eps", 0.0}});
        SCOPED_TRACE(pre + (residual ? " residual" : "") + (center ? " layernorm" : " rmsnorm"));
        const auto y = in.All("y");
        for (int r = 0; r < rows; ++r) {
          std::vector<double> s(cols);
          double mean = 0, squares = 0;
          for (int j = 0; j < cols; ++j) {
            s[j] = in.data.at("x")[r * cols + j];
            if (residual) {
              const float sum = static_cast<float>(s[j]) + static_cast<float>(in.data.at("residual")[r * cols + j]);
              s[j] = RoundToDType(sum, v1::BF16);
            }
            // Not rounded again.
            s[j] = activate(s[j]);
            if (residual) {
              EXPECT_NEAR(in.All("residual_out")[r * cols + j].value, s[j], 1e-13);
            }
            mean += center ? s[j] / cols : 0;
          }
          for (const double v : s) squares += (v - mean) * (v - mean);
          for (int j = 0; j < cols; ++j) {
            const double expected = (s[j] - mean) / std::sqrt(squares / cols) * in.data.at("weight")[j];
            EXPECT_NEAR(y[r * cols + j].value, expected, 1e-12);
          }
        }
      }
    }
  }
}

TEST(HostReferenceTest, QuantisedNormsScaleTheirRows) {
  for (const std::string kind : {"rmsnorm", "layernorm"}) {
    for (const bool fp8 : {false, true}) {
      const double limit = fp8 ? 448 : 127;
      const Instance plain = Make(kind + " rows=3 cols=11 dtype=bf16");
      const Instance in = Make(kind + " rows=3 cols=11 dtype=bf16 quant=" + (fp8 ? "fp8_e4m3" : "int8"));
      const auto y = plain.All("y"), q = in.All("y"), scale = in.All("scale");
      ASSERT_EQ(scale.size(), 3u);
      for (int r = 0; r < 3; ++r) {
        double largest = 0, largest_quantised = 0;
        for (int j = 0; j < 11; ++j) largest = std::max(largest, std::fabs(y[r * 11 + j].value));
        EXPECT_NEAR(scale[r].value, largest / limit, 1e-15);
        EXPECT_GE(scale[r].magnitude, scale[r].value * (1 - 1e-12));
        for (int j = 0; j < 11; ++j) {
          EXPECT_NEAR(q[r * 11 + j].value * scale[r].value, y[r * 11 + j].value, 1e-13);
          EXPECT_GE(q[r * 11 + j].magnitude, std::fabs(q[r * 11 + j].value) * (1 - 1e-12));
          largest_quantised = std::max(largest_quantised, std::fabs(q[r * 11 + j].value));
        }
        EXPECT_NEAR(largest_quantised, limit, 1e-10);
      }
    }
  }
}

}  // namespace
}  // namespace rooftune

#include "kernels/host_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "kernels/generate.h"
#include "tests/kernels/host_reference_instance.h"

namespace rooftune {
namespace {

TEST(HostReferenceTest, SoftmaxByItsDefinition) {
  const Instance in = Make("softmax rows=3 cols=17 dtype=bf16");
  const auto values = in.All("y");
  for (int r = 0; r < 3; ++r) {
    const double* x = &in.data.at("x")[r * 17];
    double sum = 0, total = 0;
    for (int j = 0; j < 17; ++j) sum += std::exp(x[j]);
    for (int j = 0; j < 17; ++j) {
      EXPECT_NEAR(values[r * 17 + j].value, std::exp(x[j]) / sum, 1e-14);
      EXPECT_EQ(values[r * 17 + j].magnitude, values[r * 17 + j].value);
      total += values[r * 17 + j].value;
    }
    EXPECT_NEAR(total, 1, 1e-12);
  }
}

TEST(HostReferenceTest, SoftmaxVariantsByTheirDefinition) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const int rows = 3, cols = 5;
  for (const bool log : {false, true}) {
    for (const bool causal : {false, true}) {
      for (const bool scaled : {false, true}) {
        for (const bool mask : {false, true}) {
          const std::string text = std::string("softmax rows=3 cols=5 dtype=bf16") + (log ? " log=1" : "") +
                                   (causal ? " causal=1" : "") + (scaled ? " scaled=1" : "") + (mask ? " mask=1" : "");
          SCOPED_TRACE(text);
          // Negative: the largest t is then that of the smallest x.
          const Instance in = Make(text, {{"scale", -0.5}});
          const auto values = in.All("y");
          for (int r = 0; r < rows; ++r) {
            const int attended = causal ? r + 1 + cols - rows : cols;
            std::vector<double> e(cols, 0.0);
            double sum = 0;
            for (int j = 0; j < attended; ++j) {
              const double x = in.data.at("x")[r * cols + j];
              e[j] = std::exp((scaled ? -0.5 * x : x) + (mask ? in.data.at("mask")[r * cols + j] : 0.0));
              sum += e[j];
            }
            for (int j = 0; j < cols; ++j) {
              const ReferenceValue& got = values[r * cols + j];
              if (j >= attended) {
                EXPECT_EQ(got.value, log ? -kInfinity : 0.0);
                EXPECT_EQ(got.magnitude, 0);
                continue;
              }
              EXPECT_NEAR(got.value, log ? std::log(e[j] / sum) : e[j] / sum, 1e-13);
              EXPECT_GE(got.magnitude, std::fabs(got.value) * (1 - 1e-12));
            }
          }
        }
      }
    }
  }
}

TEST(HostReferenceTest, GluByItsDefinition) {
  for (const bool packed : {false, true}) {
    for (const bool silu : {false, true}) {
      const Instance in =
          Make(std::string("glu rows=3 cols=4 dtype=bf16") + (packed ? "" : " packed=0") + (silu ? "" : " act=gelu"));
      const auto y = in.All("y");
      for (int r = 0; r < 3; ++r) {
        for (int j = 0; j < 4; ++j) {
          const double g = packed ? in.data.at("x")[r * 8 + j] : in.data.at("gate")[r * 4 + j];
          const double u = packed ? in.data.at("x")[r * 8 + 4 + j] : in.data.at("up")[r * 4 + j];
          const double act = silu ? g / (1 + std::exp(-g))
                                  : 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
          EXPECT_NEAR(y[r * 4 + j].value, act * u, 1e-13);
          EXPECT_GE(y[r * 4 + j].magnitude, std::fabs(act * u) * (1 - 1e-12));
        }
      }
    }
  }
}

TEST(HostReferenceTest, ElementwiseByItsDefinition) {
  const Instance in = Make("elementwise n=33 dtype=fp16 chain=fma(a,relu(b),c)");
  const auto y = in.All("y");
  for (int i = 0; i < 33; ++i) {
    EXPECT_DOUBLE_EQ(y[i].value, in.data.at("a")[i] * std::max(in.data.at("b")[i], 0.0) + in.data.at("c")[i]);
    EXPECT_GE(y[i].magnitude, std::fabs(y[i].value));
  }
  // Chains that need positive inputs get them.
  for (const ReferenceValue& v : Make("elementwise n=5000 dtype=bf16 chain=add(log(a),rsqrt(b))").All("y")) {
    ASSERT_TRUE(std::isfinite(v.value) && std::isfinite(v.magnitude));
  }
}

TEST(HostReferenceTest, CrossEntropyByItsDefinition) {
  const Instance in = Make("cross_entropy rows=4 vocab=11 dtype=bf16 grad=1", {{"grad_scale", 0.25}});
  const auto loss = in.All("loss");
  const auto gradient = in.All("dlogits");
  for (int r = 0; r < 4; ++r) {
    const double* x = &in.data.at("dlogits")[r * 11];
    const int target = static_cast<int>(in.data.at("targets")[r]);
    ASSERT_TRUE(target >= 0 && target < 11);
    double sum = 0, total = 0;
    for (int j = 0; j < 11; ++j) sum += std::exp(x[j]);
    EXPECT_NEAR(loss[r].value, std::log(sum) - x[target], 1e-13);
    EXPECT_GE(loss[r].magnitude, std::fabs(loss[r].value));
    for (int j = 0; j < 11; ++j) {
      EXPECT_NEAR(gradient[r * 11 + j].value, 0.25 * (std::exp(x[j]) / sum - (j == target)), 1e-14);
      EXPECT_GE(gradient[r * 11 + j].magnitude, std::fabs(gradient[r * 11 + j].value));
      total += gradient[r * 11 + j].value;
    }
    EXPECT_NEAR(total, 0, 1e-12);
  }
  // Without the gradient the logits have another name and the same numbers.
  const auto plain = Make("cross_entropy rows=4 vocab=11 dtype=bf16").All("loss");
  for (int r = 0; r < 4; ++r) EXPECT_EQ(plain[r].value, loss[r].value);
}

// The scale that an element of rows × cols has, and where it lies, by going through all parts.
struct Quantised {
  std::vector<double> scale;        // one an element
  std::vector<size_t> scale_index;  // one an element
  std::vector<double> scales;       // as they lie
};
Quantised QuantiseByHand(const std::vector<double>& x, int rows, int cols, int group_rows, int group, bool column,
                         bool pow2, double limit) {
  Quantised q;
  q.scale.resize(x.size());
  q.scale_index.resize(x.size());
  const int groups = (cols + group - 1) / group, parts = (rows + group_rows - 1) / group_rows,
            padded = (rows + 3) / 4 * 4;
  q.scales.assign(column ? groups * padded : groups * parts, 0);
  for (int p = 0; p < parts; ++p) {
    for (int g = 0; g < groups; ++g) {
      double largest = static_cast<double>(1e-10f);
      const auto each = [&](auto&& use) {
        for (int r = p * group_rows; r < std::min(rows, (p + 1) * group_rows); ++r) {
          for (int j = g * group; j < std::min(cols, (g + 1) * group); ++j) use(r * cols + j);
        }
      };
      each([&](int i) { largest = std::max(largest, std::fabs(x[i])); });
      const double scale = pow2 ? std::exp2(std::ceil(std::log2(largest / limit))) : largest / limit;
      const size_t at = column ? g * padded + p : p * groups + g;
      q.scales[at] = scale;
      each([&](int i) {
        q.scale[i] = scale;
        q.scale_index[i] = at;
      });
    }
  }
  return q;
}

TEST(HostReferenceTest, QuantizeByItsDefinition) {
  struct Case {
    const char* granularity;
    int group_rows, group;
  };
  const int rows = 130, cols = 192;
  for (const Case& one : {Case{"token", 1, cols}, {"block128", 128, 128}, {"group32", 1, 32}, {"group64", 1, 64}}) {
    for (const char* type : {"fp8_e4m3", "fp8_e5m2", "int8", "int4"}) {
      const std::string qtype = type;
      const double limit = qtype == "fp8_e4m3" ? 448 : qtype == "fp8_e5m2" ? 57344 : qtype == "int8" ? 127 : 7;
      const bool pow2 = qtype != "int8", column = one.group < 128;
      SCOPED_TRACE(std::string(one.granularity) + " " + type);
      const Instance in =
          Make("quantize rows=130 cols=192 dtype=bf16 qtype=" + qtype + " granularity=" + one.granularity +
                   (column ? " scale_layout=col" : "") + (pow2 ? " scale_pow2=1" : ""),
               {{"amax_floor", 1e-10}});
      const auto& x = in.data.at("x");
      const Quantised expected = QuantiseByHand(x, rows, cols, one.group_rows, one.group, column, pow2, limit);
      const auto scales = in.All("scales"), q = in.All("q");
      ASSERT_EQ(scales.size(), expected.scales.size());
      for (size_t i = 0; i < scales.size(); ++i) EXPECT_DOUBLE_EQ(scales[i].value, expected.scales[i]) << i;
      double largest = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(q[i].value, x[i] / expected.scale[i], limit * 1e-12) << i;
        largest = std::max(largest, std::fabs(q[i].value));
      }
      EXPECT_LE(largest, limit * (1 + 1e-12));
      EXPECT_GT(largest, limit * 0.49);
    }
  }
}

TEST(HostReferenceTest, GivenScalesClamp) {
  for (const char* type : {"fp8_e4m3", "int8", "int4"}) {
    const Instance in = Make(std::string("quantize rows=64 cols=64 dtype=fp32 granularity=tensor qtype=") + type);
    const double limit = type[0] == 'f' ? 448 : type[3] == '8' ? 127 : 7, lowest = type[0] == 'f' ? -limit : -limit - 1;
    const double scale = in.data.at("scale")[0];
    const auto q = in.All("q");
    int low = 0, high = 0;
    for (size_t i = 0; i < q.size(); ++i) {
      const double exact = in.data.at("x")[i] / scale;
      EXPECT_DOUBLE_EQ(q[i].value, std::min(std::max(exact, lowest), limit));
      EXPECT_DOUBLE_EQ(q[i].magnitude, std::fabs(exact));
      low += exact < lowest;
      high += exact > limit;
    }
    EXPECT_GT(low, 0) << type;
    EXPECT_GT(high, 0) << type;
  }
}

TEST(HostReferenceTest, FloorsKeepScalesOfZerosAway) {
  const auto q = Make("quantize rows=3 cols=4 dtype=fp32 qtype=int8", {{"amax_floor", 127}}).All("scales");
  for (const ReferenceValue& scale : q) EXPECT_EQ(scale.value, 1) << "no element reaches the floor";
}

TEST(HostReferenceTest, DequantizeIsTheInverse) {
  const int rows = 130, cols = 192;
  for (const char* granularity : {"tensor", "token", "block128", "group32"}) {
    for (const bool column : {false, true}) {
      const std::string name = granularity;
      if (column && name != "group32") continue;
      const Instance in = Make("dequantize rows=130 cols=192 dtype=bf16 qtype=int4 granularity=" + name +
                               (column ? " scale_layout=col" : ""));
      const int group_rows = name == "tensor" ? rows : name == "block128" ? 128 : 1;
      const int group = name == "group32" ? 32 : name == "block128" ? 128 : cols;
      const Quantised places =
          QuantiseByHand(std::vector<double>(rows * cols, 1.0), rows, cols, group_rows, group, column, false, 7);
      const auto y = in.All("y");
      int extremes = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        const double q = in.data.at("q")[i];
        ASSERT_TRUE(q >= -8 && q <= 7 && q == std::nearbyint(q));
        extremes += q == -8 || q == 7;
        ASSERT_DOUBLE_EQ(y[i].value, q * in.data.at("scales")[places.scale_index[i]]) << name << " " << i;
      }
      EXPECT_GT(extremes, 0);
    }
  }
}

TEST(HostReferenceTest, QuantisedGluScalesItsRows) {
  for (const bool fp8 : {false, true}) {
    const double limit = fp8 ? 448 : 127;
    const auto y = Make("glu rows=3 cols=11 dtype=bf16").All("y");
    const Instance in = Make(std::string("glu rows=3 cols=11 dtype=bf16 quant=") + (fp8 ? "fp8_e4m3" : "int8"));
    const auto q = in.All("y"), scale = in.All("scale");
    ASSERT_EQ(scale.size(), 3u);
    for (int r = 0; r < 3; ++r) {
      double largest = 0;
      for (int j = 0; j < 11; ++j) largest = std::max(largest, std::fabs(y[r * 11 + j].value));
      EXPECT_NEAR(scale[r].value, largest / limit, 1e-15);
      for (int j = 0; j < 11; ++j) {
        EXPECT_NEAR(q[r * 11 + j].value * scale[r].value, y[r * 11 + j].value, 1e-13);
        EXPECT_GE(q[r * 11 + j].magnitude, std::fabs(q[r * 11 + j].value) * (1 - 1e-12));
      }
    }
  }
}

TEST(HostReferenceTest, RopeWritesItsCache) {
  const std::string shape = "rope tokens=150 heads_q=2 heads_kv=2 head_dim=4 blocks=12 dtype=fp16 kv_cache=1";
  for (const bool inplace : {false, true}) {
    const Instance in = Make(shape + (inplace ? " inplace=1" : ""));
    const auto k = in.All(inplace ? "k_inout" : "k_out"), k_cache = in.All("k_cache"), v_cache = in.All("v_cache");
    std::vector<int> token_of(12 * 16, -1);
    int skipped = 0;
    for (int t = 0; t < 150; ++t) {
      const int slot = static_cast<int>(in.data.at("slots")[t]);
      skipped += slot < 0;
      if (slot < 0) continue;
      ASSERT_LT(slot, 12 * 16);
      ASSERT_EQ(token_of[slot], -1) << "a slot of two tokens";
      token_of[slot] = t;
    }
    EXPECT_GT(skipped, 0);
    for (int i = 0; i < 12 * 16 * 8; ++i) {
      const int token = token_of[i / 8];
      EXPECT_EQ(k_cache[i].value, token < 0 ? in.data.at("k_cache")[i] : k[token * 8 + i % 8].value);
      EXPECT_EQ(v_cache[i].value, token < 0 ? in.data.at("v_cache")[i] : in.data.at("v")[token * 8 + i % 8]);
    }
  }
}

TEST(HostReferenceTest, RopeByItsDefinition) {
  for (const bool interleaved : {false, true}) {
    const Instance in = Make(std::string("rope tokens=3 heads_q=4 heads_kv=2 head_dim=6 dtype=fp16") +
                             (interleaved ? " style=interleaved" : ""));
    for (const bool q : {true, false}) {
      const auto out = in.All(q ? "q_out" : "k_out");
      const auto& x = in.data.at(q ? "q" : "k");
      const int heads = q ? 4 : 2;
      for (int t = 0; t < 3; ++t) {
        for (int h = 0; h < heads; ++h) {
          for (int i = 0; i < 3; ++i) {
            const int head = (t * heads + h) * 6, a = head + (interleaved ? 2 * i : i);
            const int b = head + (interleaved ? 2 * i + 1 : i + 3);
            const double c = in.data.at("cos")[t * 3 + i], s = in.data.at("sin")[t * 3 + i];
            EXPECT_DOUBLE_EQ(out[a].value, x[a] * c - x[b] * s);
            EXPECT_DOUBLE_EQ(out[b].value, x[b] * c + x[a] * s);
            EXPECT_DOUBLE_EQ(out[a].magnitude, std::fabs(x[a] * c) + std::fabs(x[b] * s));
          }
        }
      }
    }
  }
}

TEST(HostReferenceTest, ChainsReadInputsThatLackAxes) {
  const Instance in = Make("elementwise n=3 d1=4 d2=5 dtype=fp32 chain=add(a,fma(b:1,c:02,d:scalar:bf16))");
  const auto y = in.All("y");
  const auto& a = in.data.at("a");
  const auto& b = in.data.at("b");
  const auto& c = in.data.at("c");
  ASSERT_EQ(b.size(), 4u);
  ASSERT_EQ(c.size(), 15u);
  ASSERT_EQ(in.data.at("d").size(), 1u);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) {
      for (int k = 0; k < 5; ++k) {
        const int at = (i * 4 + j) * 5 + k;
        EXPECT_DOUBLE_EQ(y[at].value, a[at] + (b[j] * c[i * 5 + k] + in.data.at("d")[0]));
      }
    }
  }
}

TEST(HostReferenceTest, PatchesOfAVideo) {
  // (C, T, H, W) = (2, 2, 6, 4) in patches of 1 by 3 by 2.
  const Instance in = Make("permute d0=1 d1=2 d2=2 d3=1 d4=2 d5=3 d6=2 d7=2 dtype=fp32 perm=2461357");
  const auto y = in.All("y");
  int at = 0;
  for (int t = 0; t < 2; ++t) {
    for (int h = 0; h < 6; h += 3) {
      for (int w = 0; w < 4; w += 2) {
        for (int c = 0; c < 2; ++c) {
          for (int i = 0; i < 6; ++i, ++at) {
            EXPECT_EQ(y[at].value, in.data.at("x")[((c * 2 + t) * 6 + h + i / 2) * 4 + w + i % 2]);
          }
        }
      }
    }
  }
}

TEST(HostReferenceTest, ViewsByTheirStrides) {
  const Instance in = Make("contiguous d0=3 d1=2 d2=4 dtype=bf16 s0=20 s2=3");
  const auto y = in.All("y");
  ASSERT_EQ(in.data.at("x").size(), 50u);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 2; ++j) {
      for (int k = 0; k < 4; ++k) EXPECT_EQ(y[(i * 2 + j) * 4 + k].value, in.data.at("x")[i * 20 + k * 3]);
    }
  }
}

TEST(HostReferenceTest, PermuteByItsDefinition) {
  const Instance in = Make("permute d0=2 d1=3 d2=4 d3=5 dtype=bf16 perm=2031");
  const auto y = in.All("y");
  // y is [4, 2, 5, 3].
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 2; ++b) {
      for (int c = 0; c < 5; ++c) {
        for (int d = 0; d < 3; ++d) {
          EXPECT_EQ(y[((a * 2 + b) * 5 + c) * 3 + d].value, in.data.at("x")[((b * 3 + d) * 4 + a) * 5 + c]);
        }
      }
    }
  }
  const Instance transpose = Make("permute d0=7 d1=3 dtype=fp32 perm=10");
  EXPECT_EQ(transpose.All("y")[1].value, transpose.data.at("x")[3]);
  // 021: a 0 in front is left out.
  const Instance swap = Make("permute d0=2 d1=3 d2=4 dtype=fp32 perm=21");
  EXPECT_EQ(swap.op.text, "permute d0=2 d1=3 d2=4 dtype=fp32 perm=21");
  EXPECT_EQ(swap.All("y")[12 + 1].value, swap.data.at("x")[12 + 4]);
}

TEST(HostReferenceTest, ReduceByItsDefinition) {
  const int rows = 5, cols = 7;
  for (const std::string axis : {"row", "col", "full"}) {
    const std::string op = "reduce rows=5 cols=7 dtype=bf16 axis=" + axis;
    const Instance in = Make(op);
    const int outputs = axis == "row" ? rows : axis == "col" ? cols : 1;
    std::vector<std::vector<double>> terms(outputs);
    for (int i = 0; i < rows * cols; ++i) {
      terms[axis == "row" ? i / cols : axis == "col" ? i % cols : 0].push_back(in.data.at("x")[i]);
    }
    const auto sum = in.All("y"), max = Make(op + " kind=max").All("y"), mean = Make(op + " kind=mean").All("y");
    const auto first = Make(op + " kind=argmax").All("index");
    const auto variance = Make(op + " kind=var").All("variance");
    ASSERT_EQ(static_cast<int>(sum.size()), outputs);
    for (int o = 0; o < outputs; ++o) {
      const auto largest = std::max_element(terms[o].begin(), terms[o].end());
      double total = 0, spread = 0;
      for (const double x : terms[o]) total += x;
      for (const double x : terms[o]) spread += std::pow(x - total / terms[o].size(), 2);
      EXPECT_NEAR(sum[o].value, total, 1e-13);
      EXPECT_NEAR(mean[o].value, total / terms[o].size(), 1e-13);
      EXPECT_EQ(max[o].value, *largest);
      EXPECT_EQ(first[o].value, largest - terms[o].begin());
      EXPECT_NEAR(variance[o].value, spread / terms[o].size(), 1e-13);
      EXPECT_GE(sum[o].magnitude, std::fabs(sum[o].value));
    }
  }
}

TEST(HostReferenceTest, ScalesOfRowsAreCheckedOnFewerRows) {
  // Each takes the whole row: 4096 of them took ten seconds where rows are long.
  for (const char* text :
       {"rmsnorm rows=16384 cols=8192 dtype=bf16 quant=int8", "glu rows=16384 cols=8192 dtype=bf16 quant=fp8_e4m3",
        "layernorm rows=16384 cols=8192 dtype=bf16 quant=int8"}) {
    const auto catalog = OpCatalog::Builtin();
    ASSERT_TRUE(catalog.ok());
    const auto op = catalog->Parse(text);
    ASSERT_TRUE(op.ok()) << op.status();
    const auto host = MakeHostReference(*catalog->Find(op->kind), *op, 1, {});
    ASSERT_TRUE(host.ok()) << host.status();
    EXPECT_EQ((*host)->CheckCount("y", 4096), 4096) << text;
    EXPECT_EQ((*host)->CheckCount("scale", 4096), 128) << text;
    EXPECT_EQ((*host)->CheckCount("scale", 1), 1) << text;
  }
}

TEST(HostReferenceTest, ReductionsAreCheckedOnFewerElements) {
  EXPECT_EQ(HostCheckElements("softmax", 131072), 4096);
  EXPECT_EQ(HostCheckElements("cross_entropy", 128), 4096);
  EXPECT_EQ(HostCheckElements("quantize", 1), 1024);
  EXPECT_EQ(HostCheckElements("cross_entropy", 128256), 32);
  EXPECT_EQ(HostCheckElements("reduce", int64_t{1} << 30), 0);
  EXPECT_EQ(HostCheckElements("attention", 1), 0);
}

TEST(HostReferenceTest, OrderOfIndicesDoesNotMatter) {
  const Instance in = Make("softmax rows=4 cols=8 dtype=fp32");
  const auto all = in.All("y");
  const auto some = in.reference->Evaluate("y", {31, 0, 17, 1, 31});
  ASSERT_TRUE(some.ok());
  EXPECT_EQ((*some)[0].value, all[31].value);
  EXPECT_EQ((*some)[1].value, all[0].value);
  EXPECT_EQ((*some)[2].value, all[17].value);
  EXPECT_EQ((*some)[4].value, all[31].value);
}

TEST(HostReferenceTest, RefusesWhatItDoesNotKnow) {
  const Instance in = Make("softmax rows=4 cols=8 dtype=fp32");
  EXPECT_FALSE(in.reference->Evaluate("x", {0}).ok());
  EXPECT_FALSE(in.reference->Evaluate("z", {0}).ok());
  EXPECT_FALSE(in.reference->Evaluate("y", {32}).ok());
  EXPECT_FALSE(in.reference->Evaluate("y", {-1}).ok());
  EXPECT_FALSE(HasHostReference("attention"));
  // The same kind declared elsewhere may mean something else.
  manifest::v1::Op proto = Catalog().Find("softmax")->proto();
  const auto own = OpSchema::Create(proto, "folder");
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(ErrorReason(MakeHostReference(**own, in.op, 1, {}).status()), "NO_REFERENCE");
}

TEST(HostReferenceTest, LargeProblemsAreCheckedQuickly) {
  // Time is not asserted: the test's own limit is. 4096 elements of a 4096³ product, and 4 rows of 131072.
  const Op gemm = *Catalog().Parse("gemm m=4096 n=4096 k=4096 dtype=bf16");
  const auto reference = MakeHostReference(*Catalog().Find("gemm"), gemm, 1, {});
  const std::vector<int64_t> indices = CheckIndices({1, 4096, 4096}, 4096, 1);
  EXPECT_EQ(indices.size(), 4096u);
  const auto values = (*reference)->Evaluate("d", indices);
  ASSERT_TRUE(values.ok());
  for (const ReferenceValue& v : *values) ASSERT_LE(std::fabs(v.value), v.magnitude);
  const Op softmax = *Catalog().Parse("softmax rows=4096 cols=131072 dtype=bf16");
  ASSERT_TRUE((*MakeHostReference(*Catalog().Find("softmax"), softmax, 1, {}))
                  ->Evaluate("y", CheckIndices({4096, 131072}, 8, 1))
                  .ok());
}

TEST(CheckIndicesTest, CornersTailsAndSpread) {
  const std::vector<int64_t> dims = {3, 1000, 777};
  const std::vector<int64_t> indices = CheckIndices(dims, 4096, 7);
  EXPECT_GE(indices.size(), 4000u);
  EXPECT_LE(indices.size(), 4096u);
  EXPECT_TRUE(std::is_sorted(indices.begin(), indices.end()));
  const std::set<int64_t> set(indices.begin(), indices.end());
  EXPECT_EQ(set.size(), indices.size());
  for (int64_t b : {0, 2}) {
    for (int64_t i : {0, 999}) {
      for (int64_t j : {0, 1, 775, 776})
        EXPECT_EQ(set.count((b * 1000 + i) * 777 + j), 1u) << b << " " << i << " " << j;
    }
  }
  std::set<int64_t> rows;
  for (int64_t i : indices) rows.insert(i / 777);
  EXPECT_LE(rows.size(), 32u);
  EXPECT_NE(indices, CheckIndices(dims, 4096, 8));
  EXPECT_EQ(indices, CheckIndices(dims, 4096, 7));
}

TEST(CheckIndicesTest, SmallAndOddShapes) {
  EXPECT_EQ(CheckIndices({2, 3}, 100, 1), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(CheckIndices({7}, 3, 1).size(), 3u);
  EXPECT_EQ(CheckIndices({100000}, 4096, 1).size(), 4096u);
  EXPECT_EQ(CheckIndices({100000, 1}, 4096, 1).size(), 4096u);
  EXPECT_GE(CheckIndices({100000, 3}, 4096, 1).size(), 4000u);
  EXPECT_EQ(CheckIndices({5, 5}, 1, 1).size(), 1u);
  EXPECT_TRUE(CheckIndices({}, 10, 1).empty());
  EXPECT_TRUE(CheckIndices({4}, 0, 1).empty());
  // No overflow in a tensor of 2^60 elements.
  for (const int64_t i : CheckIndices({int64_t{1} << 30, int64_t{1} << 30}, 4096, 1)) EXPECT_GE(i, 0);
}

}  // namespace
}  // namespace rooftune

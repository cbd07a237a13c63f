// Work of operators against loops that count it.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/costmodel/builtins.h"

namespace rooftune {
namespace {

// Loops of the definition with every operation counted.
struct Counter {
  int64_t fma = 0, fp32 = 0, sfu = 0, read = 0, written = 0;
};

TEST(OpWorkTest, GemmWorkEqualsCountedLoops) {
  for (int batch = 1; batch <= 2; ++batch) {
    Counter c;
    const int m = 3, n = 5, k = 7;
    for (int b = 0; b < batch; ++b) {
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          for (int l = 0; l < k; ++l) c.fma += 1;
          c.fp32 += 2;  // beta · c added
          c.fp32 += 1;  // bias
          c.fp32 += 1;  // relu
          c.read += 2;
          c.written += 2;
        }
        for (int l = 0; l < k; ++l) c.read += 2;
      }
      for (int j = 0; j < n; ++j) {
        for (int l = 0; l < k; ++l) c.read += 2;
      }
    }
    for (int j = 0; j < n; ++j) c.read += 2;
    const Work work = WorkOf("gemm m=3 n=5 k=7 dtype=fp16 beta=1 bias=1 act=relu batch=" + std::to_string(batch));
    EXPECT_EQ(OpsOn(work, "tensor"), 2 * c.fma);
    EXPECT_EQ(OpsOn(work, "fp32"), c.fp32);
    EXPECT_EQ(work.bytes_read, c.read);
    EXPECT_EQ(work.bytes_written, c.written);
    EXPECT_EQ(work.footprint_bytes, c.read + c.written);
  }
  const Work fp32 = WorkOf("gemm m=3 n=5 k=7 dtype=fp32");
  EXPECT_EQ(OpsOn(fp32, "tensor"), 0);
  EXPECT_EQ(OpsOn(fp32, "fp32"), 2 * 3 * 5 * 7);
  const Work gelu = WorkOf("gemm m=3 n=5 k=7 dtype=bf16 act=gelu");
  EXPECT_EQ(OpsOn(gelu, "sfu"), 15);
  EXPECT_EQ(OpsOn(gelu, "fp32"), 7 * 15);
}

TEST(OpWorkTest, LossRotationAndReductionWorkEqualsCountedLoops) {
  Counter loss, turn;
  for (int r = 0; r < 3; ++r) {
    for (int j = 0; j < 5; ++j) {
      if (j > 0) loss.fp32 += 2;  // maximum, sum
      loss.fp32 += 2 + 1;         // exponent, scaling of the gradient
      loss.sfu += 1;
      loss.read += 2;
      loss.written += 2;
    }
    loss.fp32 += 3 + 1;  // loss, target of the gradient
    loss.sfu += 1;       // logarithm
    loss.read += 4;
    loss.written += 4;
  }
  const Work cross_entropy = WorkOf("cross_entropy rows=3 vocab=5 dtype=bf16 grad=1");
  EXPECT_EQ(OpsOn(cross_entropy, "fp32"), loss.fp32);
  EXPECT_EQ(OpsOn(cross_entropy, "sfu"), loss.sfu);
  EXPECT_EQ(cross_entropy.bytes_read, loss.read);
  EXPECT_EQ(cross_entropy.bytes_written, loss.written);
  EXPECT_EQ(WorkOf("cross_entropy rows=3 vocab=5 dtype=bf16").bytes_written, 3 * 4);

  for (int t = 0; t < 2; ++t) {
    for (int pair = 0; pair < (4 + 1) * 3; ++pair) {
      turn.fp32 += 2 * (1 + 2);  // a product and a fused multiply-add for each of the two
      turn.read += 4;
      turn.written += 4;
    }
    turn.read += 3 * 2 * 4;  // cosines and sines
  }
  const Work rope = WorkOf("rope tokens=2 heads_q=4 heads_kv=1 head_dim=6 dtype=bf16");
  EXPECT_EQ(OpsOn(rope, "fp32"), turn.fp32);
  EXPECT_EQ(rope.bytes_read, turn.read);
  EXPECT_EQ(rope.bytes_written, turn.written);

  EXPECT_EQ(OpsOn(WorkOf("reduce rows=3 cols=5 dtype=fp16"), "fp32"), 3 * 4);
  EXPECT_EQ(OpsOn(WorkOf("reduce rows=3 cols=5 dtype=fp16 axis=col kind=mean"), "fp32"), 5 * 3);
  EXPECT_EQ(OpsOn(WorkOf("reduce rows=3 cols=5 dtype=fp16 axis=full kind=var"), "fp32"), 4 * 15);
  EXPECT_EQ(WorkOf("reduce rows=3 cols=5 dtype=fp16 axis=col kind=var").bytes_written, 2 * 5 * 4);
  const Work permute = WorkOf("permute d0=3 d1=5 dtype=fp16 perm=10");
  EXPECT_EQ(permute.bytes_read, 30);
  EXPECT_EQ(permute.bytes_written, 30);
  EXPECT_TRUE(permute.pipe_ops.empty());
}

TEST(OpWorkTest, RowWorkEqualsCountedLoops) {
  Counter s, r;
  const int rows = 3, cols = 5;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) {
      if (j > 0) s.fp32 += 2;  // maximum, sum
      s.fp32 += 2;             // exponent
      s.sfu += 1;
      s.fp32 += 1;  // scaling
      s.read += 2;
      s.written += 2;
      r.fp32 += 1;              // residual
      r.fp32 += j > 0 ? 2 : 1;  // squares
      r.fp32 += 2;              // rsqrt, weight
      r.read += 4 + 4;
      r.written += 4 + 4;
    }
    r.fp32 += 2;  // mean and eps
    r.sfu += 1;
  }
  r.read += cols * 4;
  const Work softmax = WorkOf("softmax rows=3 cols=5 dtype=bf16");
  EXPECT_EQ(OpsOn(softmax, "fp32"), s.fp32);
  EXPECT_EQ(OpsOn(softmax, "sfu"), s.sfu);
  EXPECT_EQ(softmax.bytes_read, s.read);
  EXPECT_EQ(softmax.bytes_written, s.written);
  const Work rms = WorkOf("rmsnorm rows=3 cols=5 dtype=fp32 residual=1");
  EXPECT_EQ(OpsOn(rms, "fp32"), r.fp32);
  EXPECT_EQ(OpsOn(rms, "sfu"), r.sfu);
  EXPECT_EQ(rms.bytes_read, r.read);
  EXPECT_EQ(rms.bytes_written, r.written);
  const Work chain = WorkOf("elementwise n=7 dtype=bf16 chain=silu(fma(a,b,a))");
  EXPECT_EQ(OpsOn(chain, "fp32"), 7 * (2 + 4));
  EXPECT_EQ(OpsOn(chain, "sfu"), 7);
  EXPECT_EQ(chain.bytes_read, 2 * 7 * 2);
  EXPECT_EQ(chain.bytes_written, 7 * 2);
}

TEST(OpWorkTest, SoftmaxVariantsCountWhatIsAttendedTo) {
  for (int bits = 0; bits < 16; ++bits) {
    const bool log = (bits & 1) != 0, causal = (bits & 2) != 0, scaled = (bits & 4) != 0, mask = (bits & 8) != 0;
    const std::string text = std::string("softmax rows=3 cols=5 dtype=bf16") + (log ? " log=1" : "") +
                             (causal ? " causal=1" : "") + (scaled ? " scaled=1" : "") + (mask ? " mask=1" : "");
    SCOPED_TRACE(text);
    EXPECT_EQ(MustParse(text).text, text);
    Counter s;
    for (int i = 0; i < 3; ++i) {
      const int attended = causal ? i + 1 + 5 - 3 : 5;
      for (int j = 0; j < attended; ++j) {
        if (mask) s.fp32 += scaled ? 2 : 1;  // t
        if (j > 0) s.fp32 += 2;              // maximum, sum
        s.fp32 += 2;                         // exponent
        s.sfu += 1;
        s.fp32 += log && scaled && !mask ? 2 : 1;  // result
        s.read += mask ? 4 : 2;
      }
      if (log) {
        s.fp32 += 2;  // maximum + ln 2 · log2(sum)
        s.sfu += 1;
      }
      s.written += 5 * 2;
    }
    const Work work = WorkOf(text);
    EXPECT_EQ(OpsOn(work, "fp32"), s.fp32);
    EXPECT_EQ(OpsOn(work, "sfu"), s.sfu);
    EXPECT_EQ(work.bytes_read, s.read);
    EXPECT_EQ(work.bytes_written, s.written);
  }
  EXPECT_EQ(ErrorReason(Catalog().Parse("softmax rows=6 cols=5 dtype=bf16 causal=1").status()), "CONSTRAINT");
  EXPECT_EQ(Catalog().Find("softmax")->Scalars(MustParse("softmax rows=2 cols=3 dtype=fp16")).size(), 0u);
  EXPECT_EQ(Catalog().Find("softmax")->Scalars(MustParse("softmax rows=2 cols=3 dtype=fp16 scaled=1")).size(), 1u);
}

TEST(OpWorkTest, LayernormAndGluWorkEqualsCountedLoops) {
  Counter l, g;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 5; ++j) {
      l.fp32 += 1;              // residual
      l.fp32 += j > 0 ? 1 : 0;  // sum
      l.fp32 += 1;              // difference
      l.fp32 += j > 0 ? 2 : 1;  // squares
      l.fp32 += 2 + 1 + 1;      // rsqrt, weight; bias; relu
      l.read += 2 + 2;
      l.written += 2 + 2;
      g.fp32 += 4 + 1;
      g.sfu += 1;
      g.read += 4 + 4;
      g.written += 4;
    }
    l.fp32 += 1 + 2;  // mean; variance and eps
    l.sfu += 1;
  }
  l.read += 2 * 5 * 2;
  const Work norm = WorkOf("layernorm rows=3 cols=5 dtype=fp16 residual=1 bias=1 act=relu");
  EXPECT_EQ(OpsOn(norm, "fp32"), l.fp32);
  EXPECT_EQ(OpsOn(norm, "sfu"), l.sfu);
  EXPECT_EQ(norm.bytes_read, l.read);
  EXPECT_EQ(norm.bytes_written, l.written);
  EXPECT_EQ(OpsOn(WorkOf("layernorm rows=3 cols=5 dtype=fp16"), "fp32"), l.fp32 - 3 * 15);
  for (const std::string kind : {"layernorm", "rmsnorm"}) {
    const Work plain = WorkOf(kind + " rows=3 cols=5 dtype=fp16");
    const std::map<std::string, std::pair<int, int>> acts = {{"relu", {1, 0}}, {"gelu", {7, 1}}, {"silu", {4, 1}}};
    for (const auto& [act, ops] : acts) {
      const Work activated = WorkOf(kind + " rows=3 cols=5 dtype=fp16 act=" + act);
      EXPECT_EQ(OpsOn(activated, "fp32"), OpsOn(plain, "fp32") + ops.first * 15) << kind << act;
      EXPECT_EQ(OpsOn(activated, "sfu"), OpsOn(plain, "sfu") + ops.second * 15) << kind << act;
      const Work both = WorkOf(kind + " rows=3 cols=5 dtype=fp16 act=" + act + " pre=" + act);
      EXPECT_EQ(OpsOn(both, "fp32"), OpsOn(plain, "fp32") + 2 * ops.first * 15) << kind << act;
      EXPECT_EQ(OpsOn(both, "sfu"), OpsOn(plain, "sfu") + 2 * ops.second * 15) << kind << act;
    }
  }
  for (const std::string packed : {"", " packed=0"}) {
    const Work glu = WorkOf("glu rows=3 cols=5 dtype=fp32" + packed);
    EXPECT_EQ(OpsOn(glu, "fp32"), g.fp32);
    EXPECT_EQ(OpsOn(glu, "sfu"), g.sfu);
    EXPECT_EQ(glu.bytes_read, g.read);
    EXPECT_EQ(glu.bytes_written, g.written);
  }
  EXPECT_EQ(OpsOn(WorkOf("glu rows=3 cols=5 dtype=fp32 act=gelu"), "fp32"), g.fp32 + 3 * 15);
}

TEST(OpWorkTest, QuantisedNormsWriteEightBitsAndScales) {
  for (const std::string kind : {"rmsnorm", "layernorm"}) {
    const Work plain = WorkOf(kind + " rows=3 cols=5 dtype=bf16");
    for (const std::string quant : {"fp8_e4m3", "int8"}) {
      const Op op = MustParse(kind + " rows=3 cols=5 dtype=bf16 quant=" + quant);
      EXPECT_EQ(op.text, kind + " rows=3 cols=5 dtype=bf16 quant=" + quant);
      const auto tensors = Catalog().Find(kind)->Tensors(op);
      ASSERT_TRUE(tensors.ok()) << tensors.status();
      EXPECT_EQ((*tensors)[2].spec.dtype(), quant == "int8" ? v1::INT8 : v1::FP8_E4M3);
      EXPECT_EQ(tensors->back().spec.name(), "scale");
      EXPECT_EQ(tensors->back().spec.dtype(), v1::FP32);
      EXPECT_EQ(tensors->back().elements, 3);
      const Work work = WorkOf(op.text);
      // Maximum cols - 1, the scale, products.
      EXPECT_EQ(OpsOn(work, "fp32"), OpsOn(plain, "fp32") + 3 * (4 + 1 + 5));
      EXPECT_EQ(work.bytes_read, plain.bytes_read);
      EXPECT_EQ(work.bytes_written, 3 * 5 + 3 * 4);
    }
  }
}

// What is counted one by one for a tensor of 130 × 256, with a scale for each `rows` × `cols` of them.
Counter CountQuantisation(int rows, int cols, bool given) {
  Counter c;
  for (int r = 0; r < 130; r += rows) {
    for (int j = 0; j < 256; j += cols) {
      for (int i = 0; i < std::min(rows, 130 - r) * std::min(cols, 256 - j); ++i) {
        if (!given && i > 0) c.fp32 += 1;  // maximum
        c.fp32 += 1;                       // product with the inverse
        c.read += 2;
        c.written += 1;
      }
      if (!given) c.fp32 += 2;  // floor, scale
      (given ? c.read : c.written) += 4;
    }
  }
  return c;
}

TEST(OpWorkTest, QuantisationWorkEqualsCountedLoops) {
  struct Case {
    const char* granularity;
    int rows, cols;
  };
  for (const Case& one : {Case{"tensor", 130, 256},
                          {"token", 1, 256},
                          {"block128", 128, 128},
                          {"group32", 1, 32},
                          {"group64", 1, 64},
                          {"group128", 1, 128}}) {
    SCOPED_TRACE(one.granularity);
    const bool given = one.rows == 130;
    const Counter c = CountQuantisation(one.rows, one.cols, given);
    const std::string text = std::string(" rows=130 cols=256 dtype=bf16 qtype=int8 granularity=") + one.granularity;
    const Work work = WorkOf("quantize" + text);
    EXPECT_EQ(OpsOn(work, "fp32"), c.fp32);
    EXPECT_EQ(work.bytes_read, c.read);
    EXPECT_EQ(work.bytes_written, c.written);
    const Work back = WorkOf("dequantize" + text);
    EXPECT_EQ(OpsOn(back, "fp32"), 130 * 256);
    EXPECT_EQ(back.bytes_written, 2 * 130 * 256);
    // Scales are read either way.
    EXPECT_EQ(back.bytes_read, 130 * 256 + (given ? 4 : c.written - 130 * 256));
  }
  // Rows of scales are padded to 16 bytes, int4 is half a byte.
  EXPECT_EQ(
      WorkOf("quantize rows=130 cols=256 dtype=bf16 qtype=int4 granularity=group64 scale_layout=col").bytes_written,
      130 * 256 / 2 + 4 * 132 * 4);
}

TEST(OpWorkTest, QuantisedGluWritesEightBitsAndScales) {
  const Work plain = WorkOf("glu rows=3 cols=5 dtype=bf16");
  for (const std::string quant : {"fp8_e4m3", "int8"}) {
    const Work work = WorkOf("glu rows=3 cols=5 dtype=bf16 quant=" + quant);
    // Maximum cols - 1, the scale, products.
    EXPECT_EQ(OpsOn(work, "fp32"), OpsOn(plain, "fp32") + 3 * (4 + 1 + 5));
    EXPECT_EQ(work.bytes_read, plain.bytes_read);
    EXPECT_EQ(work.bytes_written, 3 * 5 + 3 * 4);
  }
}

TEST(OpWorkTest, LargeWorkDoesNotWrap) {
  // 2 · 2^20 · 2^21 · 2^22 = 2^64.
  const Work work = WorkOf("gemm m=1048576 n=2097152 k=4194304 dtype=bf16");
  EXPECT_EQ(OpsOn(work, "tensor"), Int128{1} << 64);
  EXPECT_EQ(work.ToProto().pipe_ops(0).ops(), "18446744073709551616");
  EXPECT_EQ(work.ToProto().bytes_written(), "4398046511104");
}

TEST(OpWorkTest, ProtoHoldsEveryPipe) {
  const v1::Work proto = WorkOf("gemm m=2 n=2 k=2 dtype=bf16 act=silu").ToProto();
  ASSERT_EQ(proto.pipe_ops_size(), 3);
  EXPECT_EQ(proto.pipe_ops(0).dtype(), v1::BF16);
  EXPECT_EQ(proto.pipe_ops(2).pipe(), "sfu");
}

}  // namespace
}  // namespace rooftune

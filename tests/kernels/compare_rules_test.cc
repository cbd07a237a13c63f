// The rules by which a candidate's element is judged right: rt_judge of kernels/templates/common/support.cuh, compiled
// for the host. Infinities and NaNs of an output are part of an operator's definition, so they are compared, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

// What the header needs of CUDA. Kernels become inline functions that nobody calls; instructions vanish.
#define __device__
#define __global__ inline
#define __forceinline__ inline
#define __shared__
#define __launch_bounds__(...)
struct Dim {
  unsigned x;
};
inline Dim blockIdx, blockDim, gridDim, threadIdx;
template <typename T, typename U>
void atomicAdd(T* to, U value) {
  *to += value;
}
template <typename T, typename U>
void atomicMin(T*, U) {}
template <typename T, typename U>
void atomicMax(T*, U) {}
template <typename T>
T __shfl_xor_sync(unsigned, T v, int) {
  return v;
}
inline float __uint_as_float(unsigned bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline long long __double_as_longlong(double value) {
  long long bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline double __longlong_as_double(long long bits) {
  double value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
template <typename T>
T min(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __int2float_rn(int v) { return static_cast<float>(v); }
inline int __float2int_rn(float v) { return static_cast<int>(std::nearbyint(v)); }
inline long long clock64() { return 0; }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wsign-compare"
// `asm(…)` and the operands of `asm volatile(…)` disappear.
#define asm(...)
#define volatile(...) ("")
#include "kernels/templates/common/support.cuh"
#undef asm
#undef volatile
#pragma GCC diagnostic pop

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

RtTally Judge(double value, double reference, double bound = 0.5, int dtype = RT_FP32) {
  RtTally tally;
  rt_judge({value, false}, reference, bound, dtype, 7, &tally);
  return tally;
}
bool Right(double value, double reference, double bound = 0.5, int dtype = RT_FP32) {
  return Judge(value, reference, bound, dtype).wrong == 0;
}

TEST(CompareRulesTest, FiniteValuesStayWithinTheBound) {
  EXPECT_TRUE(Right(1.5, 1));
  EXPECT_TRUE(Right(0.5, 1));
  EXPECT_FALSE(Right(1.5000001, 1));
  EXPECT_TRUE(Right(3, 3, 0)) << "no error needs no bound";
  EXPECT_EQ(Judge(3, 3, 0).ratio, 0);
  const RtTally tally = Judge(2, 1);
  EXPECT_EQ(tally.wrong, 1u);
  EXPECT_EQ(tally.first, 7u);
  EXPECT_EQ(tally.abs, 1);
  EXPECT_EQ(tally.ratio, 2);
}

TEST(CompareRulesTest, ABoundThatIsNoNumberAcceptsNothing) { EXPECT_FALSE(Right(1, 1, kNan)); }

TEST(CompareRulesTest, NanMatchesNanAlone) {
  EXPECT_TRUE(Right(kNan, kNan));
  EXPECT_FALSE(Right(kNan, 1));
  EXPECT_FALSE(Right(kNan, kInf));
  EXPECT_FALSE(Right(1, kNan));
  EXPECT_FALSE(Right(kInf, kNan));
  EXPECT_EQ(Judge(kNan, kNan).nonfinite, 1u);
}

TEST(CompareRulesTest, InfinityIsRightWhereTheReferenceIsOrRoundsToIt) {
  EXPECT_TRUE(Right(kInf, kInf));
  EXPECT_TRUE(Right(-kInf, -kInf));
  EXPECT_FALSE(Right(kInf, -kInf));
  EXPECT_FALSE(Right(kInf, 1));
  EXPECT_FALSE(Right(1e38, kInf)) << "a finite value for an infinite one";
  // 65519 rounds to 65504 in fp16, 65520 to infinity.
  EXPECT_TRUE(Right(kInf, 65520, 0, RT_FP16));
  EXPECT_FALSE(Right(kInf, 65519, 0, RT_FP16));
  EXPECT_TRUE(Right(kInf, 65519, 1, RT_FP16)) << "within the bound of the overflow";
  EXPECT_FALSE(Right(-kInf, 65520, 0, RT_FP16));
  EXPECT_FALSE(Right(kInf, 65520, 0, RT_BF16));
  EXPECT_TRUE(Right(kInf, 3.4e38, 0, RT_BF16));
  EXPECT_FALSE(Right(kInf, 3.4e38, 0, RT_FP32));
}

TEST(CompareRulesTest, PoisonIsUnwrittenAndWrongEvenWhereNanIsExpected) {
  RtTally tally;
  rt_judge({kNan, true}, kNan, 1, RT_FP32, 3, &tally);
  EXPECT_EQ(tally.wrong, 1u);
  EXPECT_EQ(tally.unwritten, 1u);
  EXPECT_EQ(tally.nonfinite, 0u);
}

TEST(CompareRulesTest, PoisonIsAllBitsSet) {
  const uint32_t words[] = {0xFFFFFFFFu, 0x7FFFFFFFu};
  EXPECT_TRUE(rt_element(words, 0, RT_FP32).poison);
  EXPECT_FALSE(rt_element(words, 1, RT_FP32).poison) << "the NaN that arithmetic makes";
  EXPECT_TRUE(std::isnan(rt_element(words, 1, RT_FP32).value));
  const uint16_t halves[] = {0xFFFFu, 0x3F80u, 0x7FFFu};
  EXPECT_TRUE(rt_element(halves, 0, RT_BF16).poison);
  EXPECT_EQ(rt_element(halves, 1, RT_BF16).value, 1);
  EXPECT_FALSE(rt_element(halves, 2, RT_BF16).poison);
}

// Judged with the bounds of MakeErrorBound for one term.
bool RightFp8(double value, double reference, int dtype = RT_FP8_E4M3) {
  const double relative = dtype == RT_FP8_E4M3 ? 0.125 : 0.25;
  return Right(value, reference, rt_bound(reference, std::fabs(reference), dtype, relative, 12 * 0x1p-23, 1), dtype);
}

TEST(CompareRulesTest, Fp8IsRightOnBothSidesOfATieAndNowhereElse) {
  // Between 1 and 2 numbers lie 1/8 apart, below 1 1/16.
  EXPECT_TRUE(RightFp8(1.0, 1.0625));
  EXPECT_TRUE(RightFp8(1.125, 1.0625));
  EXPECT_TRUE(RightFp8(1.125, 1.0625 - 1e-7)) << "an fp32 rounding away from the tie";
  EXPECT_FALSE(RightFp8(1.125, 1.0625 * (1 - 1e-5))) << "a scale that is off by 1e-5";
  EXPECT_FALSE(RightFp8(1.0, 1.0625 * (1 + 1e-5)));
  EXPECT_FALSE(RightFp8(1.25, 1.125));
  EXPECT_TRUE(RightFp8(1.0, 0.96875));
  EXPECT_FALSE(RightFp8(1.0, 0.968));
  EXPECT_TRUE(RightFp8(1.0, 1 - 1e-9)) << "below a power of two";
  EXPECT_TRUE(RightFp8(448, 448));
  EXPECT_FALSE(RightFp8(416, 448));
  // Subnormals lie 2^-9 apart.
  EXPECT_TRUE(RightFp8(0, 0x1p-10));
  EXPECT_TRUE(RightFp8(0x1p-9, 0x1p-10));
  EXPECT_FALSE(RightFp8(0, 0x1.1p-10));
  EXPECT_TRUE(RightFp8(1.25, 1.375, RT_FP8_E5M2));
  EXPECT_FALSE(RightFp8(1.25, 1.376, RT_FP8_E5M2));
  EXPECT_FALSE(RightFp8(kNan, 1));
  EXPECT_FALSE(RightFp8(1, kNan));
}

TEST(CompareRulesTest, QuantisedElementsAreReadBack) {
  const uint8_t bytes[] = {0x38, 0xFE, 0x83, 0xFF, 0x7F};
  EXPECT_EQ(rt_element(bytes, 2, RT_INT8).value, -125);
  // The even index is the lower half: 0x38 holds 8 = -8, then 3.
  EXPECT_EQ(rt_element(bytes, 0, RT_INT4).value, -8);
  EXPECT_EQ(rt_element(bytes, 1, RT_INT4).value, 3);
  EXPECT_EQ(rt_element(bytes, 2, RT_INT4).value, -2);
  EXPECT_EQ(rt_element(bytes, 3, RT_INT4).value, -1);
  EXPECT_TRUE(rt_element(bytes, 3, RT_FP8_E5M2).poison);
  EXPECT_TRUE(rt_element(bytes, 3, RT_FP8_E4M3).poison);
  EXPECT_FALSE(rt_element(bytes, 4, RT_FP8_E4M3).poison);
}

// The generator's rounding must be the CPU's, bit for bit.
TEST(CompareRulesTest, Fp8IsStoredAsTheGeneratorSays) {
  struct Format {
    double smallest, spacing, max;
    int mantissa;
  };
  const auto value = [](uint8_t bits, const Format& f) {
    const int exponent = (bits & 0x7F) >> f.mantissa, fraction = bits & ((1 << f.mantissa) - 1);
    const double size = exponent == 0
                            ? fraction * f.spacing
                            : (1 + fraction / std::ldexp(1.0, f.mantissa)) * std::ldexp(f.smallest, exponent - 1);
    return (bits & 0x80) != 0 ? -size : size;
  };
  const auto expected = [](double x, const Format& f) {
    double spacing = f.spacing;
    while (std::fabs(x) >= spacing * std::ldexp(2.0, f.mantissa)) spacing *= 2;
    return std::copysign(std::fmin(std::nearbyint(std::fabs(x) / spacing) * spacing, f.max), x);
  };
  const Format e4m3 = {0x1p-6, 0x1p-9, 448, 3}, e5m2 = {0x1p-14, 0x1p-16, 57344, 2};
  for (int i = -40000; i <= 40000; ++i) {
    const float x = static_cast<float>(i * std::fabs(i)) * 3.1e-7f;
    EXPECT_EQ(value(RtType<RT_FP8_E4M3>::store(x), e4m3), expected(x, e4m3)) << x;
    EXPECT_EQ(value(RtType<RT_FP8_E5M2>::store(x * 1e-3f), e5m2), expected(x * 1e-3f, e5m2)) << x;
  }
  EXPECT_EQ(RtType<RT_FP8_E4M3>::store(1e9f), 0x7E);
  EXPECT_EQ(RtType<RT_FP8_E5M2>::store(-1e9f), 0xFB);
  EXPECT_EQ(RtType<RT_FP8_E4M3>::store(1.0625f), 0x38) << "a tie goes to the even one";
  EXPECT_EQ(RtType<RT_FP8_E4M3>::store(1.1875f), 0x3A);
}

TEST(CompareRulesTest, TheChecksumSeesEveryWordAndItsPlace) {
  const auto checksum = [](const void* p, rt_i64 bytes) {
    rt_u64 sum = 0;
    blockDim = {8};
    gridDim = {1};
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) rt_checksum(p, bytes, &sum);
    return sum;
  };
  const uint32_t a[] = {1, 2, 3, 4}, swapped[] = {1, 3, 2, 4}, other[] = {1, 2, 3, 5};
  EXPECT_EQ(checksum(a, 16), checksum(a, 16));
  EXPECT_NE(checksum(a, 16), checksum(swapped, 16));
  EXPECT_NE(checksum(a, 16), checksum(other, 16));
  EXPECT_EQ(checksum(a, 12), checksum(other, 12));
  // Bytes past the last whole word.
  const uint16_t b[] = {1, 2, 3, 0}, tail[] = {1, 2, 4, 0};
  EXPECT_NE(checksum(b, 6), checksum(tail, 6));
  EXPECT_EQ(checksum(b, 4), checksum(tail, 4));
  EXPECT_NE(checksum(b, 6), checksum(b, 8));
}

}  // namespace

#include "kernels/generate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/philox.h"

namespace rooftune {
namespace {

// A binary floating-point format narrower than float.
struct Format {
  int mantissa_bits;  // stored
  int min_exponent;   // of the smallest normal number
  double max;         // largest finite number
  bool saturate;      // else overflow gives infinity
};
constexpr Format kFp16 = {10, -14, 65504.0, false};
constexpr Format kE4m3 = {3, -6, 448.0, true};
constexpr Format kE5m2 = {2, -14, 57344.0, true};

double PowerOfTwo(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

double RoundToFormat(double value, const Format& format) {
  if (!std::isfinite(value)) return std::isinf(value) && format.saturate ? std::copysign(format.max, value) : value;
  if (value == 0) return value;
  const int exponent = static_cast<int>((std::bit_cast<uint64_t>(value) >> 52) & 0x7ff) - 1023;
  // Spacing of the format's numbers at this size; scaling by it is exact.
  const double spacing = PowerOfTwo(std::max(exponent, format.min_exponent) - format.mantissa_bits);
  const double rounded = std::nearbyint(value / spacing) * spacing;
  if (std::fabs(rounded) <= format.max) return rounded;
  return std::copysign(format.saturate ? format.max : std::numeric_limits<double>::infinity(), value);
}

double RoundToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return value;
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

// Finalizer of splitmix64.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double RoundToInteger(float value, double min, double max) {
  if (std::isnan(value)) return 0;
  return std::clamp(std::nearbyint(static_cast<double>(value)), min, max);
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

double RoundToDType(float value, v1::DType dtype) {
  switch (dtype) {
    case v1::FP16:
      return RoundToFormat(value, kFp16);
    case v1::BF16:
      return RoundToBf16(value);
    case v1::FP8_E4M3:
      return RoundToFormat(value, kE4m3);
    case v1::FP8_E5M2:
      return RoundToFormat(value, kE5m2);
    case v1::INT8:
      return RoundToInteger(value, -128, 127);
    case v1::INT4:
      return RoundToInteger(value, -8, 7);
    case v1::INT32:
      return RoundToInteger(value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    default:
      return value;
  }
}

int64_t GenerateIndex(uint64_t seed, uint32_t tensor, uint64_t index, int64_t range) {
  const std::array<uint32_t, 4> words =
      Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), tensor, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<int64_t>((uint64_t{words[0]} << 32 | words[1]) % static_cast<uint64_t>(range));
}

int64_t GenerateDistinctIndex(uint64_t seed, uint32_t tensor, uint64_t index, int64_t range) {
  int half = 1;
  while (uint64_t{1} << 2 * half < static_cast<uint64_t>(range)) ++half;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  uint64_t x = index;
  do {
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t left = x >> half, right = x & mask;
      const uint64_t mixed = Mix(seed + (uint64_t{tensor} << 32) * 0x9E3779B9u + (round << 40) + right);
      x = right << half | (left ^ (mixed & mask));
    }
  } while (x >= static_cast<uint64_t>(range));
  return static_cast<int64_t>(x);
}

bool GenerateSkip(uint64_t seed, uint32_t tensor, uint64_t index, int64_t skip) {
  if (skip <= 0) return false;
  const std::array<uint32_t, 4> words =
      Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), tensor, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return words[2] % static_cast<uint64_t>(skip) == 0;
}

int64_t GenerateGroupStart(uint64_t seed, uint32_t tensor, int64_t group, int64_t groups, int64_t total) {
  const int64_t empty = groups > 1 ? groups / 2 : groups;
  int64_t before = 0, all = 0;
  for (int64_t i = 0; i < groups; ++i) {
    if (i == empty) continue;
    const std::array<uint32_t, 4> words =
        Philox4x32({static_cast<uint32_t>(i), 0, tensor, 0},
                   {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const int64_t weight = 65536 + (words[0] >> 15);
    all += weight;
    if (i < group) before += weight;
  }
  const int64_t filled = groups > 1 ? groups - 1 : 1;
  const int64_t ones = std::min(total, filled);
  const int64_t filled_before = group - (group > empty ? 1 : 0);
  return filled_before * ones / filled + (total - ones) * before / all;
}

double GenerateElement(uint64_t seed, uint32_t tensor, uint64_t index, float mean, float stddev, v1::DType dtype) {
  const std::array<uint32_t, 4> words =
      Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), tensor, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  // Four numbers of 24 bits; their mean is subtracted exactly.
  const int32_t centred =
      static_cast<int32_t>((words[0] >> 8) + (words[1] >> 8) + (words[2] >> 8) + (words[3] >> 8)) - 2 * ((1 << 24) - 1);
  const float scale = static_cast<float>(static_cast<double>(stddev) * (1.7320508075688772 / 16777216.0));
  // volatile keeps compilers that contract by default (g++ on AArch64) from fusing product and sum.
  const volatile float product = static_cast<float>(centred) * scale;
  return RoundToDType(mean + product, dtype);
}

}  // namespace rooftune

// Counter-based inputs: element i of tensor t is a function of (seed, t, i) alone, so that the GPU fills a
// tensor and the CPU recomputes any element of it, bit for bit.
//
// Philox4x32-10 with key = seed and counter = (i low, i high, t, 0) gives four words; the sum of their upper
// 24 bits, centred, is a near-normal integer g of variance 4·(2^48 − 1)/12; the element is
// round_to_dtype(mean + stddev · g · 2^-24·√3) computed as float(g) times one float constant, then one
// float add (no fused multiply-add). common/generate.cuh is the same in CUDA.
#ifndef ROOFTUNE_KERNELS_GENERATE_H_
#define ROOFTUNE_KERNELS_GENERATE_H_

#include <cstdint>

#include "rooftune/v1/types.pb.h"

namespace rooftune {

// The element as a double, after rounding to `dtype` (round to nearest even; integers saturate).
double GenerateElement(uint64_t seed, uint32_t tensor, uint64_t index, float mean, float stddev, v1::DType dtype);

// Element of a tensor of indices: (word 0 · 2^32 + word 1) of the same Philox call, modulo `range` (at least 1).
int64_t GenerateIndex(uint64_t seed, uint32_t tensor, uint64_t index, int64_t range);

// Element `index` (below `range`) of a permutation of 0 … range − 1: four Feistel rounds over the smallest even number
// of bits (at least 2) that holds range − 1, repeated until the result is below `range`. A round turns (left, right)
// into (right, left ^ low bits of mix(seed + 2^32·tensor·odd + 2^40·round + right)); mix is the finalizer of
// splitmix64. In at most 2^31 numbers no index comes twice, and neighbours lie far apart.
int64_t GenerateDistinctIndex(uint64_t seed, uint32_t tensor, uint64_t index, int64_t range);

// True for about one in `skip` elements (never for 0), whose index is -1 instead: word 2 modulo `skip` is 0.
bool GenerateSkip(uint64_t seed, uint32_t tensor, uint64_t index, int64_t skip);

// Rows of `total` that the first `group` of `groups` ragged groups have; from 0 for the first group to `total` for
// `group` = `groups`. The group in the middle, number groups / 2, has none (unless it is the only one). Of the others
// as many as there are rows have one; what is left is shared out by weights of 2^16 + (word 0 >> 15), one to nearly
// three times the least. At most 4096 groups and 2^31 rows.
int64_t GenerateGroupStart(uint64_t seed, uint32_t tensor, int64_t group, int64_t groups, int64_t total);

// Rounds a float to a dtype and back.
double RoundToDType(float value, v1::DType dtype);

}  // namespace rooftune

#endif  // ROOFTUNE_KERNELS_GENERATE_H_

// Exact fractions of 128-bit integers, every operation checked. Values lie within ±(2^127 − 1): the range is
// symmetric, so that negation never overflows.
#ifndef ROOFTUNE_EXPR_RATIONAL_H_
#define ROOFTUNE_EXPR_RATIONAL_H_

#include "base/int128.h"

namespace rooftune::expr_internal {

// Why a value does not exist.
enum class Fault { kNone, kOverflow, kDivisionByZero, kNotInteger, kNegativeExponent, kNotPositive };

// In lowest terms, den > 0. Trivial on purpose: evaluation keeps arrays of these without setting them.
struct Rational {
  Int128 num;
  Int128 den;

  bool IsInteger() const { return den == 1; }
};

inline Rational FromInteger(Int128 value) { return {value, 1}; }

// Each writes *result only when it returns kNone; `result` may be one of the operands.
Fault Add(const Rational& a, const Rational& b, Rational* result);
Fault Subtract(const Rational& a, const Rational& b, Rational* result);
Fault Multiply(const Rational& a, const Rational& b, Rational* result);
Fault Divide(const Rational& a, const Rational& b, Rational* result);
// Python's // and %: the quotient is rounded down, the remainder has the divisor's sign.
Fault FloorDivide(const Rational& a, const Rational& b, Rational* result);
Fault Modulo(const Rational& a, const Rational& b, Rational* result);
Fault CeilDivide(const Rational& a, const Rational& b, Rational* result);
// Exponents are non-negative integers; 0**0 is 1.
Fault Power(const Rational& base, const Rational& exponent, Rational* result);
// Largest k with 2^k ≤ a, and smallest power of two ≥ a, of a positive integer.
Fault Log2(const Rational& a, Rational* result);
Fault PowerOfTwoCeil(const Rational& a, Rational* result);

// Negative, zero or positive as a < b, a == b, a > b; exact for all values.
int Compare(const Rational& a, const Rational& b);

}  // namespace rooftune::expr_internal

#endif  // ROOFTUNE_EXPR_RATIONAL_H_

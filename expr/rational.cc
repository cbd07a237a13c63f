#include "expr/rational.h"

#include <utility>

namespace rooftune::expr_internal {
namespace {

using Uint128 = unsigned __int128;

constexpr Int128 kMin = static_cast<Int128>(Uint128{1} << 127);  // outside the symmetric range

Uint128 Magnitude(Int128 a) { return a < 0 ? -static_cast<Uint128>(a) : static_cast<Uint128>(a); }

bool AddChecked(Int128 a, Int128 b, Int128* result) { return !__builtin_add_overflow(a, b, result) && *result != kMin; }
bool MulChecked(Int128 a, Int128 b, Int128* result) { return !__builtin_mul_overflow(a, b, result) && *result != kMin; }

Int128 Gcd(Int128 a, Int128 b) {
  Uint128 x = Magnitude(a), y = Magnitude(b);
  while (y != 0) x = std::exchange(y, x % y);
  return static_cast<Int128>(x);
}

Int128 FloorQuotient(Int128 a, Int128 b) {
  const Int128 q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

}  // namespace

Fault Add(const Rational& a, const Rational& b, Rational* result) {
  if (a.IsInteger() && b.IsInteger()) {
    Int128 sum;
    if (!AddChecked(a.num, b.num, &sum)) return Fault::kOverflow;
    *result = FromInteger(sum);
    return Fault::kNone;
  }
  // Over the least common denominator, so that nothing overflows that need not.
  const Int128 common = Gcd(a.den, b.den);
  Int128 left, right, num, den;
  if (!MulChecked(a.num, b.den / common, &left) || !MulChecked(b.num, a.den / common, &right) ||
      !AddChecked(left, right, &num) || !MulChecked(a.den, b.den / common, &den)) {
    return Fault::kOverflow;
  }
  const Int128 reduce = Gcd(num, den);
  *result = {num / reduce, den / reduce};
  return Fault::kNone;
}

Fault Subtract(const Rational& a, const Rational& b, Rational* result) { return Add(a, {-b.num, b.den}, result); }

Fault Multiply(const Rational& a, const Rational& b, Rational* result) {
  const Int128 g1 = b.IsInteger() && a.IsInteger() ? 1 : Gcd(a.num, b.den);
  const Int128 g2 = b.IsInteger() && a.IsInteger() ? 1 : Gcd(b.num, a.den);
  Int128 num, den;
  if (!MulChecked(a.num / g1, b.num / g2, &num) || !MulChecked(a.den / g2, b.den / g1, &den)) return Fault::kOverflow;
  *result = {num, den};
  return Fault::kNone;
}

Fault Divide(const Rational& a, const Rational& b, Rational* result) {
  if (b.num == 0) return Fault::kDivisionByZero;
  const Int128 sign = b.num < 0 ? -1 : 1;
  const Int128 g = Gcd(a.num, b.num);
  const Int128 h = Gcd(a.den, b.den);
  Int128 num, den;
  if (!MulChecked(sign * (a.num / g), b.den / h, &num) || !MulChecked(a.den / h, sign * (b.num / g), &den)) {
    return Fault::kOverflow;
  }
  *result = {num, den};
  return Fault::kNone;
}

Fault FloorDivide(const Rational& a, const Rational& b, Rational* result) {
  if (b.num == 0) return Fault::kDivisionByZero;
  if (a.IsInteger() && b.IsInteger()) {
    *result = FromInteger(FloorQuotient(a.num, b.num));
    return Fault::kNone;
  }
  Rational quotient;
  const Fault fault = Divide(a, b, &quotient);
  if (fault != Fault::kNone) return fault;
  *result = FromInteger(FloorQuotient(quotient.num, quotient.den));
  return Fault::kNone;
}

Fault Modulo(const Rational& a, const Rational& b, Rational* result) {
  if (b.num == 0) return Fault::kDivisionByZero;
  if (a.IsInteger() && b.IsInteger()) {
    const Int128 r = a.num % b.num;
    *result = FromInteger(r != 0 && (r < 0) != (b.num < 0) ? r + b.num : r);
    return Fault::kNone;
  }
  Rational part;
  Fault fault = FloorDivide(a, b, &part);
  if (fault == Fault::kNone) fault = Multiply(part, b, &part);
  if (fault == Fault::kNone) fault = Subtract(a, part, result);
  return fault;
}

Fault CeilDivide(const Rational& a, const Rational& b, Rational* result) {
  Rational floor;
  const Fault fault = FloorDivide({-a.num, a.den}, b, &floor);
  if (fault == Fault::kNone) *result = FromInteger(-floor.num);
  return fault;
}

Fault Power(const Rational& base, const Rational& exponent, Rational* result) {
  if (!exponent.IsInteger()) return Fault::kNotInteger;
  if (exponent.num < 0) return Fault::kNegativeExponent;
  Rational square = base, product = FromInteger(1);
  for (Int128 left = exponent.num; left != 0;) {
    if (left % 2 != 0) {
      const Fault fault = Multiply(product, square, &product);
      if (fault != Fault::kNone) return fault;
    }
    left /= 2;
    if (left == 0) break;
    const Fault fault = Multiply(square, square, &square);
    if (fault != Fault::kNone) return fault;
  }
  *result = product;
  return Fault::kNone;
}

Fault Log2(const Rational& a, Rational* result) {
  if (!a.IsInteger()) return Fault::kNotInteger;
  if (a.num <= 0) return Fault::kNotPositive;
  int log = 0;
  for (Int128 left = a.num; left > 1; left /= 2) ++log;
  *result = FromInteger(log);
  return Fault::kNone;
}

Fault PowerOfTwoCeil(const Rational& a, Rational* result) {
  if (!a.IsInteger()) return Fault::kNotInteger;
  if (a.num <= 0) return Fault::kNotPositive;
  Int128 power = 1;
  while (power < a.num) {
    if (power > (static_cast<Int128>(1) << 125)) return Fault::kOverflow;
    power *= 2;
  }
  *result = FromInteger(power);
  return Fault::kNone;
}

int Compare(const Rational& a, const Rational& b) {
  Int128 p = a.num, q = a.den, r = b.num, s = b.den;
  // Continued fractions: compares whole parts, then the reciprocals of the rests; cross products could
  // overflow, this cannot.
  while (q != s) {
    const Int128 whole_a = FloorQuotient(p, q), whole_b = FloorQuotient(r, s);
    if (whole_a != whole_b) return whole_a < whole_b ? -1 : 1;
    const Int128 rest_a = p - whole_a * q, rest_b = r - whole_b * s;
    if (rest_a == 0 || rest_b == 0) return rest_a == rest_b ? 0 : rest_a == 0 ? -1 : 1;
    // rest_a/q < rest_b/s exactly if s/rest_b < q/rest_a.
    p = s;
    r = q;
    q = rest_b;
    s = rest_a;
  }
  return p == r ? 0 : p < r ? -1 : 1;
}

}  // namespace rooftune::expr_internal

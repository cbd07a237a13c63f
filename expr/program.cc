#include "expr/program.h"

#include <algorithm>

namespace rooftune::expr_internal {
namespace {

// Truth of comparison `code` (kLess…kNotEqual) given the sign of a − b.
bool Holds(int code, int sign) {
  switch (code) {
    case kLess:
      return sign < 0;
    case kLessEqual:
      return sign <= 0;
    case kGreater:
      return sign > 0;
    case kGreaterEqual:
      return sign >= 0;
    case kEqual:
      return sign == 0;
    default:
      return sign != 0;
  }
}

Fault Binary(int code, const Rational& a, const Rational& b, Rational* result) {
  switch (code) {
    case kAdd:
      return Add(a, b, result);
    case kSubtract:
      return Subtract(a, b, result);
    case kMultiply:
      return Multiply(a, b, result);
    case kDivide:
      return Divide(a, b, result);
    case kFloorDivide:
      return FloorDivide(a, b, result);
    case kModulo:
      return Modulo(a, b, result);
    case kPower:
      return Power(a, b, result);
    case kCeilDivide:
      return CeilDivide(a, b, result);
    case kMin:
      if (Compare(b, a) < 0) *result = b;
      return Fault::kNone;
    case kMax:
      if (Compare(b, a) > 0) *result = b;
      return Fault::kNone;
    default:
      *result = FromInteger(Holds(code, Compare(a, b)));
      return Fault::kNone;
  }
}

Fault Unary(int code, Rational* a) {
  switch (code) {
    case kNegate:
      a->num = -a->num;
      return Fault::kNone;
    case kNot:
      *a = FromInteger(a->num == 0);
      return Fault::kNone;
    case kAbs:
      a->num = a->num < 0 ? -a->num : a->num;
      return Fault::kNone;
    case kLog2:
      return Log2(*a, a);
    default:
      return PowerOfTwoCeil(*a, a);
  }
}

// Division, rounded as Python does. Divisors of 0 are faults and −1 may overflow: left to the exact evaluation.
bool FastDivision(int code, int64_t a, int64_t b, int64_t* result) {
  if (b == 0 || b == -1) return false;
  const int64_t quotient = a / b, rest = a % b;
  const bool negative = rest != 0 && (a < 0) != (b < 0);
  switch (code) {
    case kFloorDivide:
      *result = quotient - negative;
      return true;
    case kCeilDivide:
      *result = quotient + (rest != 0 && !negative);
      return true;
    case kModulo:
      *result = negative ? rest + b : rest;
      return true;
    default:
      *result = quotient;
      return rest == 0;
  }
}

inline bool FastBinary(int code, int64_t a, int64_t b, int64_t* result) {
  switch (code) {
    case kAdd:
      return !__builtin_add_overflow(a, b, result);
    case kSubtract:
      return !__builtin_sub_overflow(a, b, result);
    case kMultiply:
      return !__builtin_mul_overflow(a, b, result);
    case kPower: {
      if (b < 0 || b > 62) return false;
      int64_t product = 1;
      for (int64_t i = 0; i < b; ++i) {
        if (__builtin_mul_overflow(product, a, &product)) return false;
      }
      *result = product;
      return true;
    }
    case kMin:
      *result = std::min(a, b);
      return true;
    case kMax:
      *result = std::max(a, b);
      return true;
    case kLess:
      *result = a < b;
      return true;
    case kLessEqual:
      *result = a <= b;
      return true;
    case kGreater:
      *result = a > b;
      return true;
    case kGreaterEqual:
      *result = a >= b;
      return true;
    case kEqual:
      *result = a == b;
      return true;
    case kNotEqual:
      *result = a != b;
      return true;
    default:
      return FastDivision(code, a, b, result);
  }
}

inline bool FastUnary(int code, int64_t* a) {
  switch (code) {
    case kNot:
      *a = *a == 0;
      return true;
    case kNegate:
      return !__builtin_sub_overflow(int64_t{0}, *a, a);
    case kAbs:
      return *a >= 0 || !__builtin_sub_overflow(int64_t{0}, *a, a);
    case kLog2:
      if (*a <= 0) return false;
      *a = 63 - __builtin_clzll(static_cast<uint64_t>(*a));
      return true;
    default:
      if (*a <= 0 || *a > (int64_t{1} << 62)) return false;
      if (*a > 1) *a = int64_t{1} << (64 - __builtin_clzll(static_cast<uint64_t>(*a - 1)));
      return true;
  }
}

}  // namespace

Fault EvaluateExact(const std::vector<Instruction>& code, const int64_t* values, Rational* result, int* column) {
  Rational stack[kMaxStack + 1];  // [0] stays empty
  Rational* top = stack;          // the last value pushed
  for (const Instruction *at = code.data(), *end = at + code.size(); at < end; ++at) {
    Fault fault = Fault::kNone;
    switch (at->code) {
      case kConstant:
        *++top = FromInteger(at->operand);
        break;
      case kName:
        *++top = FromInteger(values[at->operand]);
        break;
      case kJump:
        at += at->operand - 1;
        break;
      case kJumpIfFalse:
        if ((top--)->num == 0) at += at->operand - 1;
        break;
      case kJumpIfFalseOrPop:
      case kJumpIfTrueOrPop:
        if ((top->num != 0) == (at->code == kJumpIfTrueOrPop)) {
          at += at->operand - 1;
        } else {
          --top;
        }
        break;
      case kInElement:
        if (Compare(top[-2], top[0]) == 0) top[-1] = FromInteger(1);
        --top;
        break;
      case kInEnd:
      case kNotInEnd:
        --top;
        *top = FromInteger((top[1].num != 0) == (at->code == kInEnd));
        break;
      default:
        if (at->code >= kChainLess) {
          const bool holds = Holds(at->code - kChainLess + kLess, Compare(top[-1], top[0]));
          --top;
          *top = holds ? top[1] : FromInteger(0);
          if (!holds) at += at->operand - 1;
        } else if (at->code >= kNegate) {
          fault = Unary(at->code, top);
        } else {
          --top;
          fault = Binary(at->code, top[0], top[1], top);
        }
    }
    if (fault != Fault::kNone) {
      *column = at->column;
      return fault;
    }
  }
  *result = stack[1];
  return Fault::kNone;
}

bool EvaluateFast(const std::vector<Instruction>& code, const int64_t* values, int64_t* result) {
  int64_t stack[kMaxStack + 1];
  int64_t* top = stack;
  for (const Instruction *at = code.data(), *end = at + code.size(); at < end; ++at) {
    switch (at->code) {
      case kConstant:
        *++top = at->operand;
        break;
      case kName:
        *++top = values[at->operand];
        break;
      case kJump:
        at += at->operand - 1;
        break;
      case kJumpIfFalse:
        if (*top-- == 0) at += at->operand - 1;
        break;
      case kJumpIfFalseOrPop:
      case kJumpIfTrueOrPop:
        if ((*top != 0) == (at->code == kJumpIfTrueOrPop)) {
          at += at->operand - 1;
        } else {
          --top;
        }
        break;
      case kInElement:
        if (top[-2] == top[0]) top[-1] = 1;
        --top;
        break;
      case kInEnd:
      case kNotInEnd:
        --top;
        *top = (top[1] != 0) == (at->code == kInEnd);
        break;
      default:
        if (at->code >= kChainLess) {
          --top;
          const bool holds = Holds(at->code - kChainLess + kLess, top[0] < top[1] ? -1 : top[0] > top[1]);
          *top = holds ? top[1] : 0;
          if (!holds) at += at->operand - 1;
        } else if (at->code >= kNegate) {
          if (!FastUnary(at->code, top)) return false;
        } else {
          --top;
          if (!FastBinary(at->code, top[0], top[1], top)) return false;
        }
    }
  }
  *result = stack[1];
  return true;
}

}  // namespace rooftune::expr_internal

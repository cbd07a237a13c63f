#!/usr/bin/env python3
"""Writes random expressions with the value Python gives them, as "TEXT<tab>VALUE" lines.

Python evaluates the very text, with every number an exact fraction. VALUE is an integer, or ERROR where there is
none (division by zero, fraction, outside 64 bits), or SYNTAX where Python does not parse it. Expressions with
numbers over 2^60 on the way other than a final product are left out: there the limits of rooftune's own
intermediates begin, which the table tests cover.
"""
import ast
import fractions
import random
import sys

NAMES = {"a": 7, "b": -3, "c": 0, "block_m": 128}
LIMIT = 2**60


class LeftOut(Exception):
    pass


class Value(fractions.Fraction):
    """A fraction that stays small."""


def checked(value):
    value = fractions.Fraction(value)
    if abs(value.numerator) > LIMIT or value.denominator > LIMIT:
        raise LeftOut
    return Value(value)


def power(base, exponent):
    if exponent.denominator != 1 or exponent < 0:
        raise ArithmeticError
    if exponent > 64 and base not in (-1, 0, 1):
        raise LeftOut
    return base**int(exponent)


def wrap(name, operation):
    def method(self, other):
        return checked(operation(fractions.Fraction(self), fractions.Fraction(other)))

    def reflected(self, other):
        return checked(operation(fractions.Fraction(other), fractions.Fraction(self)))

    setattr(Value, f"__{name}__", method)
    setattr(Value, f"__r{name}__", reflected)


for name, operation in (("add", lambda x, y: x + y), ("sub", lambda x, y: x - y), ("mul", lambda x, y: x * y),
                        ("truediv", lambda x, y: x / y), ("floordiv", lambda x, y: x // y),
                        ("mod", lambda x, y: x % y), ("pow", power)):
    wrap(name, operation)
Value.__neg__ = lambda self: checked(-fractions.Fraction(self))
Value.__pos__ = lambda self: self
Value.__abs__ = lambda self: checked(abs(fractions.Fraction(self)))


def positive(value):
    value = fractions.Fraction(value)
    if value.denominator != 1 or value <= 0:
        raise ArithmeticError
    return int(value)


FUNCTIONS = {
    "min": min, "max": max, "abs": lambda x: abs(checked(x)),
    "ceildiv": lambda x, y: checked(-(-fractions.Fraction(x) // fractions.Fraction(y))),
    "log2": lambda x: checked(positive(x).bit_length() - 1),
    "pow2ceil": lambda x: checked(1 << (positive(x) - 1).bit_length()),
}


def refuse_tuples(tree):
    """Leaves out texts where Python computes with a tuple: rooftune has them only after `in`, at a chain's end."""
    good = {node.comparators[-1] for node in ast.walk(tree)
            if isinstance(node, ast.Compare) and isinstance(node.ops[-1], (ast.In, ast.NotIn))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and node not in good:
            raise LeftOut


class Numbers(ast.NodeTransformer):
    def visit_Constant(self, node):
        return ast.Call(ast.Name("number", ast.Load()), [node], [])


def evaluate(text):
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return "SYNTAX"
    refuse_tuples(tree)
    tree = ast.fix_missing_locations(Numbers().visit(tree))
    names = {k: Value(v) for k, v in NAMES.items()}
    try:
        value = fractions.Fraction(eval(compile(tree, "", "eval"), {"number": Value, **FUNCTIONS, **names}))
    except (ArithmeticError, ValueError):
        return "ERROR"
    return str(value.numerator) if value.denominator == 1 else "ERROR"


def generate(rng, depth):
    if depth == 0 or rng.random() < 0.1:
        return rng.choice([str(rng.randint(0, 9)), str(rng.randint(10, 4096)), "0x%x" % rng.randint(0, 255), "1_000",
                           "True", "False", *NAMES])
    sub = lambda: generate(rng, depth - 1)
    form = rng.randrange(12)
    if form < 5:
        text = f"{sub()} {rng.choice(['+', '-', '*', '/', '//', '%', '**', '*', '//'])} {sub()}"
    elif form == 5:
        text = " ".join([sub()] + [f"{rng.choice(['<', '<=', '>', '>=', '==', '!='])} {sub()}"
                                   for _ in range(rng.randint(1, 3))])
    elif form == 6:
        text = f"{sub()} {rng.choice(['and', 'or'])} {sub()}"
    elif form == 7:
        text = rng.choice(["not ", "-", "- -", "+"]) + sub()
    elif form == 8:
        text = f"{sub()} if {sub()} else {sub()}"
    elif form == 9:
        text = f"{sub()} {rng.choice(['in', 'not in'])} ({', '.join(sub() for _ in range(rng.randint(1, 3)))},)"
    elif form == 10:
        text = f"{rng.choice(['min', 'max', 'ceildiv'])}({sub()}, {sub()})"
    else:
        text = f"{rng.choice(['abs', 'log2', 'pow2ceil'])}({sub()})"
    return f"({text})" if rng.random() < 0.35 else text


def main(seed, count):
    rng = random.Random(seed)
    while count > 0:
        text = generate(rng, rng.randint(1, 4))
        try:
            value = evaluate(text)
        except LeftOut:
            continue
        print(f"{text}\t{value}")
        count -= 1


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

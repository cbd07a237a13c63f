"""Expressions against Python's own evaluation, and what the language does not have."""
import random
import unittest
from fractions import Fraction

from rooftune import expr

NAMES = {"m": 4096, "n": 7, "block": 128, "zero": 0, "negative": -3}


class ExprTest(unittest.TestCase):
    def check(self, text, value):
        self.assertEqual(expr.evaluate(text, NAMES), value, text)

    def test_table(self):
        for text, value in (
                ("ceildiv(m, block) * 2", 64), ("ceildiv(n, 2)", 4), ("-7 // 2", -4), ("-7 % 2", 1), ("7 / 2 * 2", 7),
                ("2 ** 3 ** 2", 512), ("-2 ** 2", -4), ("0 ** 0", 1), ("0 or 5", 5), ("3 and 0", 0), ("not 3", 0),
                ("1 < n < 8", 1), ("1 < n < 7", 0), ("n in (5, 7)", 1), ("n in (5)", 0), ("n not in ()", 1),
                ("1 if zero else 2", 2), ("1 // zero if zero else 9", 9), ("zero and 1 // zero", 0),
                ("min(n, 3, m)", 3), ("max(n, 3)", 7), ("abs(negative)", 3), ("log2(m)", 12), ("log2(m - 1)", 11),
                ("pow2ceil(n)", 8), ("pow2ceil(1)", 1), ("0x10 + 1_000", 1016), ("True + True", 2),
                ("\n m\n + 1 ", 4097), ("m % ((n * 2) / 7) == 0", 1), ("2 ** 63 - 1", 2**63 - 1), ("(-1) ** 1001", -1)):
            self.check(text, value)

    def test_random_arithmetic_agrees_with_python(self):
        generator = random.Random(1)

        def make(depth):
            if depth == 0 or generator.random() < 0.2:
                return generator.choice([*NAMES, str(generator.randrange(20))])
            kind = generator.randrange(6)
            a, b, c = (make(depth - 1) for _ in range(3))
            return (f"({a} {generator.choice(['+', '-', '*', '//', '%'])} {b})", f"-{a}", f"({a} if {b} else {c})",
                    f"({a} {generator.choice(['and', 'or'])} {b})", f"(not {a})",
                    f"({a} {generator.choice(['<', '<=', '==', '!='])} {b})")[kind]

        agreed = 0
        for _ in range(2000):
            text = make(4)
            try:
                value = eval(text, {"__builtins__": {}}, {k: Fraction(v) for k, v in NAMES.items()})
            except ZeroDivisionError:
                with self.assertRaises(ZeroDivisionError, msg=text):
                    expr.evaluate(text, NAMES)
                continue
            if abs(value) < 2**63:
                self.check(text, int(value))
                agreed += 1
        self.assertGreater(agreed, 1000)

    def test_values_that_do_not_exist(self):
        for text, error in (("1 // 0", ZeroDivisionError), ("1 / 2", ValueError), ("2 ** -1", ValueError),
                            ("2 ** (1 / 2)", ValueError), ("log2(0)", ValueError), ("pow2ceil(-1)", ValueError),
                            ("2 ** 63", OverflowError), ("2 ** 126 * 4", OverflowError), ("7 ** 10 ** 9", OverflowError),
                            ("unknown + 1", KeyError), ("1 or unknown", KeyError)):
            with self.assertRaises(error, msg=text):
                expr.evaluate(text, NAMES)

    def test_what_is_not_part_of_the_language(self):
        for text in ("", "1 +", "1.5", "'a'", "[1]", "m.real", "m[0]", "lambda: 1", "f(1)", "min(x=1)", "1 << 2", "m & 1",
                     "~m", "n is 7", "__import__('os')", "(1, 2)", "min(1)", "abs(1, 2)", "ceildiv(1)", "m := 3", "1) + (2",
                     "[i for i in (1, 2)]", "1\n2", "1 # one", "1 + \\\n2"):
            with self.assertRaises((ValueError, KeyError), msg=text):
                expr.evaluate(text, NAMES)


if __name__ == "__main__":
    unittest.main()

"""The expression language of recipes (docs/expressions.md): Python's syntax and meaning on exact fractions."""
import ast
import functools
from fractions import Fraction

_LIMIT = 2**127


def _positive(value):
    if value.denominator != 1 or value <= 0:
        raise ValueError(f"{value} is no positive integer")
    return int(value)


def _power(base, exponent):
    if exponent.denominator != 1 or exponent < 0:
        raise ValueError(f"the exponent {exponent} is no non-negative integer")
    if exponent > 127 and abs(base) not in (0, 1):
        raise OverflowError("too large")
    return base ** int(exponent) if exponent <= 127 else base ** (int(exponent) % 2 + 2)


_BINARY = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b, ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b, ast.Pow: _power,
}
_COMPARE = {
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
}
# Function, least and most arguments.
_CALLS = {
    "min": (min, 2, None), "max": (max, 2, None), "abs": (abs, 1, 1), "ceildiv": (lambda a, b: -((-a) // b), 2, 2),
    "log2": (lambda a: _positive(a).bit_length() - 1, 1, 1),
    "pow2ceil": (lambda a: 1 << (_positive(a) - 1).bit_length(), 1, 1),
}


@functools.lru_cache(maxsize=4096)
def _parse(text):
    if "#" in text or "\\" in text:
        raise ValueError(f"{text!r} is no expression: it has no comments and no continued lines")
    try:
        # Line breaks are blanks.
        return ast.parse(" ".join(text.split()), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no expression: {error.msg}") from None


def evaluate(text, names):
    """The integer value of `text`. ValueError for what the language does not have and for fractions, KeyError for a name
    that is not in `names`, ZeroDivisionError, and OverflowError beyond 64 bits."""
    tree = _parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in names and node.id not in _CALLS:
            raise KeyError(node.id)
    value = _eval(tree, names)
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not an integer: {value}")
    if not -(2**63) <= value < 2**63:
        raise OverflowError(f"{text!r} is too large")
    return int(value)


def _checked(value):
    value = Fraction(value)
    if abs(value.numerator) >= _LIMIT or value.denominator >= _LIMIT:
        raise OverflowError("too large")
    return value


def _eval(node, names):
    evaluator = _NODES.get(type(node))
    if evaluator is None:
        raise ValueError(f"not part of the expression language: {type(node).__name__}")
    return _checked(evaluator(node, names))


def _constant(node, names):
    if not isinstance(node.value, int):  # True and False are 1 and 0
        raise ValueError(f"numbers are integers, not {node.value!r}")
    return int(node.value)


def _binary(node, names):
    if type(node.op) not in _BINARY:
        raise ValueError(f"not part of the expression language: {type(node.op).__name__}")
    return _BINARY[type(node.op)](_eval(node.left, names), _eval(node.right, names))


def _unary(node, names):
    value = _eval(node.operand, names)
    if isinstance(node.op, ast.Not):
        return int(not value)
    if isinstance(node.op, ast.USub):
        return -value
    if isinstance(node.op, ast.UAdd):
        return value
    raise ValueError(f"not part of the expression language: {type(node.op).__name__}")


def _boolean(node, names):
    value = 0
    for operand in node.values:
        value = _eval(operand, names)
        if bool(value) == isinstance(node.op, ast.Or):
            break
    return value


def _compare(node, names):
    left = _eval(node.left, names)
    for op, right_node in zip(node.ops, node.comparators):
        if isinstance(op, (ast.In, ast.NotIn)):
            elements = right_node.elts if isinstance(right_node, ast.Tuple) else [right_node]
            holds = (left in [_eval(e, names) for e in elements]) == isinstance(op, ast.In)
        elif type(op) in _COMPARE:
            right = _eval(right_node, names)
            holds, left = _COMPARE[type(op)](left, right), right
        else:
            raise ValueError(f"not part of the expression language: {type(op).__name__}")
        if not holds:
            return 0
    return 1


def _call(node, names):
    name = node.func.id if isinstance(node.func, ast.Name) else None
    if name not in _CALLS or node.keywords:
        raise ValueError(f"no such function: {name}")
    function, least, most = _CALLS[name]
    if len(node.args) < least or (most is not None and len(node.args) > most):
        raise ValueError(f"{name} takes {least} arguments{'' if most == least else ' or more'}, not {len(node.args)}")
    return function(*[_eval(a, names) for a in node.args])


_NODES = {
    ast.Constant: _constant, ast.Name: lambda node, names: names[node.id], ast.BinOp: _binary, ast.UnaryOp: _unary,
    ast.BoolOp: _boolean, ast.Compare: _compare, ast.Call: _call,
    ast.IfExp: lambda node, names: _eval(node.body if _eval(node.test, names) else node.orelse, names),
}

"""The expression language of recipes (docs/expressions.md): integers with Python's meaning, `/` exact."""
import ast
from fractions import Fraction

_BINARY = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: Fraction(a) / Fraction(b), ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b,
}
_COMPARE = {
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
}
_CALLS = {
    "min": min, "max": max, "abs": abs, "ceildiv": lambda a, b: -((-a) // b), "log2": lambda a: int(a).bit_length() - 1,
    "pow2ceil": lambda a: 1 << (int(a) - 1).bit_length() if a > 1 else 1,
}


def evaluate(text, names):
    """The integer value of `text`; ValueError for what the language does not have, KeyError for unknown names."""
    value = _eval(ast.parse(text.strip(), mode="eval").body, names)
    if value != int(value):
        raise ValueError(f"{text!r} is not an integer: {value}")
    return int(value)


def _eval(node, names):
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, bool)):
        return int(node.value)
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp):
        left, right = _eval(node.left, names), _eval(node.right, names)
        if isinstance(node.op, ast.Pow):
            if right < 0 or right > 63:
                raise ValueError("exponents are between 0 and 63")
            return left ** right
        if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp):
        value = _eval(node.operand, names)
        if isinstance(node.op, ast.Not):
            return int(not value)
        if isinstance(node.op, (ast.USub, ast.UAdd)):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BoolOp):
        for operand in node.values:
            value = _eval(operand, names)
            if bool(value) == isinstance(node.op, ast.Or):
                return value
        return value
    if isinstance(node, ast.IfExp):
        return _eval(node.body if _eval(node.test, names) else node.orelse, names)
    if isinstance(node, ast.Compare):
        left = _eval(node.left, names)
        for op, right_node in zip(node.ops, node.comparators):
            if isinstance(op, (ast.In, ast.NotIn)):
                found = left in [_eval(e, names) for e in right_node.elts]
                if found == isinstance(op, ast.NotIn):
                    return 0
                continue
            right = _eval(right_node, names)
            if not _COMPARE[type(op)](left, right):
                return 0
            left = right
        return 1
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS and not node.keywords:
        return _CALLS[node.func.id](*[_eval(a, names) for a in node.args])
    raise ValueError(f"not part of the expression language: {ast.dump(node)[:80]}")

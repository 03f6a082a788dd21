"""Expressions as text, for manifests, messages and dumps; and back, for dimensions written in JSON graphs."""

from __future__ import annotations

import ast

from .expr import Expr, const, dim

_INFIX = {
    "add": "+",
    "mul": "*",
    "floordiv": "//",
    "mod": "%",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}


def to_text(e: Expr) -> str:
    """Readable text, e.g. ``4*batch + 1``.

    >>> to_text(dim("batch") * 4 + 1)
    '4*batch + 1'
    """
    if e.op == "const":
        return str(e.data)
    if e.op in ("dim", "element"):
        return str(e.data)
    if e.op == "axis":
        return str(e.data[0]) if isinstance(e.data, tuple) else str(e.data)
    if e.op == "acc":
        return str(e.data)
    if e.op == "load":
        return f"{e.data}[{', '.join(map(to_text, e.args))}]"
    if e.op == "add":
        return " + ".join(map(to_text, e.args))
    if e.op in _INFIX:
        glue = _INFIX[e.op] if e.op == "mul" else f" {_INFIX[e.op]} "
        return glue.join(f"({to_text(a)})" if a.op in _INFIX else to_text(a) for a in e.args)
    if e.op == "cast":
        return f"{e.dtype.name}({to_text(e.args[0])})"
    return f"{e.op}({', '.join(map(to_text, e.args))})"


def parse_dim(text: str) -> Expr:
    """A dimension from text: names, integers, ``+ - * //`` and brackets.

    Raises:
        ValueError: for anything else.

    >>> parse_dim("2 * seq + 1")
    2*seq + 1
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return dim(text)  # exporters name dimensions freely; such a name is a symbol of its own

    def build(node: ast.AST) -> Expr:
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
            return const(node.value)
        if isinstance(node, ast.Name):
            return dim(node.id)
        if isinstance(node, ast.BinOp):
            left, right = build(node.left), build(node.right)
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Mult):
                return left * right
            if isinstance(node.op, ast.FloorDiv) and not (right.op == "const" and right.data == 0):
                return left // right
        raise ValueError(f"not a dimension: {text!r}")

    try:
        return build(tree)
    except ValueError:
        return dim(text)

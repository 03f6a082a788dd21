"""Expressions as text, for manifests, messages and dumps; and back, for dimensions written in JSON graphs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from .expr import OPERATORS, SYMBOLS, Expr, as_int, const, dim, walk_new
from .functions import call
from .index import length

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
    "and": "and",
    "or": "or",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
_CALLS = {"select": 3, "min": 2, "max": 2, "abs": 1}  # functions of sizes that conditions are written with


LIMIT = 1 << 10  # nodes that are written down
_DIGITS = 4000  # in a size that is read: a number that Python makes of them it can also write


def to_text(e: Expr, limit: int = LIMIT, names: Mapping[str, str] | None = None) -> str:
    """Readable text, e.g. ``4*batch + 1``.

    Args:
        limit: the number of nodes that are written; in a longer expression, ``...`` stands for parts.
        names: what symbols are called, where not by their own names.

    >>> to_text(dim("batch") * 4 + 1)
    '4*batch + 1'
    >>> to_text((dim("a") * dim("b") + 3) // (dim("c") + 1) - 1, limit=6)
    '... - 1'
    """
    if e.op != "axis" and length(e) > limit:
        limit //= max(len(e.args), 2)
        return "..." if limit < 2 else _join_text(e, [to_text(a, limit, names) for a in e.args])
    texts: dict[Expr, str] = {}
    for x in walk_new(e, texts):  # not by recursion: a size may nest as deep as it is long
        if names and x.op in SYMBOLS:
            texts[x] = names.get(str(x.data), str(x.data))
        elif not x.args or x.op == "axis":
            texts[x] = str(x.data[0]) if isinstance(x.data, tuple) else str(x.data)
        else:
            texts[x] = _join_text(x, [texts[a] for a in x.args])
    return texts[e]


def _join_text(e: Expr, parts: list[str]) -> str:
    """The text of an expression from those of its parts."""
    if e.op == "load":
        return f"{e.data}[{', '.join(parts)}]"
    if e.op == "add":
        return parts[0] + "".join(map(_append_term, e.args[1:], parts[1:]))
    if e.op in _INFIX:
        glue = _INFIX[e.op] if e.op == "mul" else f" {_INFIX[e.op]} "
        return glue.join(f"({text})" if a.op in _INFIX else text for a, text in zip(e.args, parts, strict=True))
    if e.op == "cast":
        return f"{e.dtype.name}({parts[0]})"
    return f"{e.op}({', '.join(parts)})"


def _append_term(e: Expr, text: str) -> str:
    """A further term of a sum: less a number where it begins with one below zero, and not with a name like that."""
    number = e.args[0] if e.op == "mul" else e
    if number.op != "const" or not text.startswith("-"):
        return f" + {text}"
    return f" - {text[3:] if text.startswith('-1*') else text[1:]}"


def stated(left: Expr, right: Expr) -> Expr | None:
    """What has to hold where two sizes are ``select(condition, 1, 0)`` and 1; None for sizes that have to be equal."""
    if right is const(1) and left.op == "select" and left.args[1:] == (const(1), const(0)):
        return left.args[0]
    return None


def condition_text(left: Expr, right: Expr, limit: int = LIMIT, names: Mapping[str, str] | None = None) -> str:
    """A condition for a message: ``n != 1``, or ``past + seq == total``.

    >>> condition_text(dim("past") + dim("seq"), dim("total"))
    'past + seq == total'
    """
    condition = stated(left, right)
    sides = (left, right) if condition is None else (condition,)
    return " == ".join(to_text(e, limit, names) for e in sides)


def parse_dim(text: str) -> Expr:
    """A dimension from text, as :func:`parse_size`; any other text is a name, as exporters name dimensions freely.

    >>> parse_dim("2 * seq + 1")
    2*seq + 1
    """
    try:
        return parse_size(text)
    except ValueError:
        return dim(text)


def parse_condition(text: str) -> Expr:
    """A condition on sizes from text, as :func:`condition_text` writes it.

    Raises:
        ValueError: it cannot be read, such as one with parts left out.

    >>> to_text(parse_condition("n != 1 or 2*m < n"))
    '(n != 1) or ((2*m) < n)'
    """
    return _parse(text, _condition)


def _condition(node: ast.AST, build: Callable[[ast.AST], Expr]) -> Expr | None:
    """What only conditions have; None for the rest."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        return call(_COMPARE[type(node.ops[0])], build(node.left), build(node.comparators[0]))
    if isinstance(node, ast.BoolOp):
        whole = build(node.values[0])
        for value in node.values[1:]:
            whole = call("and" if isinstance(node.op, ast.And) else "or", whole, build(value))
        return whole
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return call("not", build(node.operand))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return call(node.func.id, *map(build, node.args)) if _CALLS.get(node.func.id) == len(node.args) else None
    return None


def parse_size(text: str) -> Expr:
    """A size from text: names, integers, ``+ - * // %`` and brackets.

    Raises:
        ValueError: for anything else, and for a number below 0.

    >>> parse_size("(batch + 1) % 2")
    (batch + 1) % 2
    """
    found = _parse(text, lambda node, build: None)
    if (value := as_int(found)) is not None and value < 0:
        raise ValueError(f"not a dimension: {text!r}")
    return found


def _parse(text: str, more: Callable[[ast.AST, Callable[[ast.AST], Expr]], Expr | None]) -> Expr:
    """An expression of sizes, and of what else `more` reads."""
    if sum(map(str.isdigit, text)) > _DIGITS:
        raise ValueError("a dimension of numbers too long")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise ValueError(f"not a dimension: {text!r}") from e

    def build(node: ast.AST) -> Expr:
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
            return const(node.value)
        if isinstance(node, ast.Name):
            return dim(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return const(0) - build(node.operand)
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
            if isinstance(node.op, ast.Mod) and not (right.op == "const" and right.data == 0):
                return left % right
        found = more(node, build)
        if found is None:
            raise ValueError(f"not a dimension: {text!r}")
        return found

    try:
        return build(tree)
    except (TypeError, RecursionError) as e:  # a condition where a size should be, or thousands of terms
        raise ValueError(f"not a dimension: {text!r}") from e


OPERATORS["text"] = to_text

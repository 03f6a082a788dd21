"""Damaged models: bytes flipped at random, and well-formed messages with senseless fields."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from onnx import ModelProto

from .zoo import zoo

_INTS = (0, 1, -1, 2, 3, 7, 100, -100, 2**31, 2**40, 2**62, -(2**63), 2**63 - 1)
_TEXTS = ("", "x", "y", "NOTSET", "linear", "ij,jk->ik", "->", "é", "../../w", "Relu", "Conv")


def mutants(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of damaged models, the same for the same seed."""
    rng = random.Random(seed)
    pool = [(name, s.model) for name, s in sorted(zoo().items())]
    for k in range(count):
        name, model = rng.choice(pool)
        change = rng.choice((_bytes, _fields, _fields, _structure))
        yield f"{k}: {name}, {change.__name__.strip('_')}", change(model, rng)


def _bytes(model: ModelProto, rng: random.Random) -> bytes:
    data = bytearray(model.SerializeToString())
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(data))
        how = rng.randrange(4)
        if how == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif how == 2:
            del data[at : at + rng.randrange(1, 9)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        if not data:
            break
    return bytes(data)


def _fields(model: ModelProto, rng: random.Random) -> bytes:
    """Some scalar fields anywhere in the message get other values of their type."""
    m = ModelProto()
    m.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_scalars(m.graph)) + list(_scalars(m.opset_import[0]))
        message, field, index = rng.choice(places)
        old = getattr(message, field) if index is None else getattr(message, field)[index]
        new = _other(old, rng)
        try:
            if index is None:
                setattr(message, field, new)
            else:
                getattr(message, field)[index] = new
        except (ValueError, TypeError):  # out of the field's range
            continue
    return m.SerializeToString()


def _other(old: Any, rng: random.Random) -> Any:
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return rng.choice((*_INTS, old + 1, old - 1, -old))
    if isinstance(old, float):
        return rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf"), -old))
    if isinstance(old, bytes):
        return rng.choice((b"", old[:-1], old + b"\0", bytes(reversed(old)), b"\xff" * len(old)))
    return rng.choice((*_TEXTS, old[:-1], old * 2))


def _scalars(message: Any) -> Iterator[tuple[Any, str, int | None]]:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from _scalars(inner)
        elif field.is_repeated:
            yield from ((message, field.name, k) for k in range(min(len(value), 4)))
        else:
            yield message, field.name, None


def _structure(model: ModelProto, rng: random.Random) -> bytes:
    """Parts are removed, doubled, moved or rewired."""
    m = ModelProto()
    m.CopyFrom(model)
    g = m.graph
    names = [v for n in g.node for v in (*n.input, *n.output)]
    for _ in range(rng.choice((1, 2, 3))):
        part: Any = rng.choice(
            [p for p in (g.node, g.input, g.output, g.initializer, m.opset_import) if len(p)] or [m.functions]
        )
        if not len(part):
            continue
        k = rng.randrange(len(part))
        how = rng.randrange(5)
        if how == 0:
            del part[k]
        elif how == 1:
            part.add().CopyFrom(part[k])
        elif how == 2 and len(g.node):
            n = rng.choice(g.node)
            operands: Any = rng.choice([x for x in (n.input, n.output) if len(x)] or [[""]])
            operands[rng.randrange(len(operands))] = rng.choice(names)
        elif how == 3 and len(g.input):
            dims = rng.choice(g.input).type.tensor_type.shape.dim
            if len(dims):
                d = rng.choice(dims)
                d.dim_value = rng.choice((0, 1, 2, 2**40, -1)) if rng.random() < 0.5 else d.dim_value
                d.dim_param = rng.choice(("n", "n*2", "n//0", "-n")) if rng.random() < 0.5 else d.dim_param
        elif how == 4 and len(g.node):
            n = rng.choice(g.node)
            n.op_type = rng.choice(g.node).op_type
    return m.SerializeToString()

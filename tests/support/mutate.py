"""Mutants: models of the zoo and of onnx's node cases, of which fields hold senseless values, or bytes are flipped."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.conformance.cases import all_cases

from .zoo import zoo

INTS = (0, 1, -1, 2, 3, 7, 100, -100, 2**31 - 1, 2**31, 2**40, 2**61, 2**62, 6148914691236517206, -(2**63), 2**63 - 1)
FLOATS = (0.0, -0.0, -1.0, 1.0, 0.5, 1e-30, 1e30, 3e38, float("nan"), float("inf"), -float("inf"))
TEXTS = (
    "", "x", "NOTSET", "SAME_UPPER", "VALID", "linear", "cubic", "reflect", "wrap", "sum", "mean", "ij,jk->ik", "->",
    "é", "{{ x }}", "../../w", "Relu", "Conv", "int64", "float32", "*/",
)  # fmt: skip
DIMS = (0, 1, 2, 7, -1, 2**31, 2**40, 2**62, 2**63 - 1)
_LARGE = 20_000  # bytes of a model that is not taken


@dataclass(frozen=True)
class Origin:
    """A model to mutate, with values of its inputs where they are known."""

    name: str
    model: ModelProto
    feeds: dict[str, Any] = field(default_factory=dict)


@lru_cache(maxsize=1)
def origins() -> tuple[Origin, ...]:
    """All of them, ordered by name; takes some seconds."""
    found = [Origin(f"zoo: {name}", s.model) for name, s in zoo().items()]
    for case in all_cases():
        if not case.operator.startswith("[") and case.model.ByteSize() < _LARGE:
            found.append(Origin(case.name, case.model, case.feeds(0) if case.data_sets else {}))
    return tuple(sorted(found, key=lambda o: o.name))


def mutant(seed: int) -> tuple[str, bytes]:
    """A mutant's name and bytes, the same for the same seed."""
    rng = random.Random(seed)
    origin = rng.choice(origins())
    model = ModelProto()
    model.CopyFrom(origin.model)
    if rng.random() < 0.5:
        _bake(model, origin.feeds, rng)
    if rng.random() < 0.03:
        return f"{seed}: {origin.name}, bytes", _flipped(model, rng)
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(CHANGES)
        try:
            change(model, rng)
        except (ValueError, TypeError, OverflowError, LookupError, NotImplementedError):  # no field can hold it
            continue
        done.append(change.__name__.strip("_"))
    return f"{seed}: {origin.name}, {', '.join(done)}", model.SerializeToString()


def _flipped(model: ModelProto, rng: random.Random) -> bytes:
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


def _bake(model: ModelProto, feeds: dict[str, Any], rng: random.Random) -> None:
    """Some inputs become initializers, as exporters write shapes and weights."""
    for value in [*model.graph.input]:
        array = feeds.get(value.name)
        if isinstance(array, np.ndarray) and array.size < 1000 and rng.random() < 0.6:
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            model.graph.input.remove(value)


# -- what is changed ---------------------------------------------------------------------------------------------------


def graphs(model: ModelProto) -> list[GraphProto]:
    """The graph of a model, and those inside it."""
    found, k = [model.graph], 0
    while k < len(found):
        found += [a.g for n in found[k].node for a in n.attribute if a.HasField("g")]
        k += 1
    return found


def _node(model: ModelProto, rng: random.Random) -> NodeProto:
    return rng.choice([n for g in graphs(model) for n in g.node])


def _attribute(model: ModelProto, rng: random.Random) -> AttributeProto:
    found = [a for g in graphs(model) for n in g.node for a in n.attribute if a.type != AttributeProto.GRAPH]
    if not found:
        _attribute_added(model, rng)
        raise ValueError
    return rng.choice(found)


def _attribute_value(model: ModelProto, rng: random.Random) -> None:
    a = _attribute(model, rng)
    name, old = a.name, helper.get_attribute_value(a)
    a.CopyFrom(helper.make_attribute(name, _other(old, rng), attr_type=a.type))


def _attribute_type(model: ModelProto, rng: random.Random) -> None:
    a = _attribute(model, rng)
    a.CopyFrom(helper.make_attribute(a.name, _any(rng)))


def _attribute_dropped(model: ModelProto, rng: random.Random) -> None:
    n = _node(model, rng)
    if n.attribute:
        del n.attribute[rng.randrange(len(n.attribute))]


def _attribute_added(model: ModelProto, rng: random.Random) -> None:
    """One that the operator's schema knows, with a value of its type; else any."""
    n = _node(model, rng)
    try:
        known = [*onnx.defs.get_schema(n.op_type, n.domain).attributes.values()]
    except onnx.defs.SchemaError:
        known = []
    if not known or rng.random() < 0.1:
        n.attribute.append(helper.make_attribute(rng.choice(("axis", "foo", "to", "body")), _any(rng)))
        return
    schema = rng.choice(known)
    kept = [a for a in n.attribute if a.name != schema.name]
    made = helper.make_attribute(schema.name, _of_type(schema.type.value, rng), attr_type=schema.type.value)
    del n.attribute[:]
    n.attribute.extend([*kept, made])


def _of_type(kind: int, rng: random.Random) -> Any:
    many = range(rng.choice((0, 1, 2, 4)))
    match kind:
        case AttributeProto.FLOAT:
            return rng.choice(FLOATS)
        case AttributeProto.INT:
            return rng.choice(INTS)
        case AttributeProto.STRING:
            return rng.choice(TEXTS)
        case AttributeProto.FLOATS:
            return [rng.choice(FLOATS) for _ in many]
        case AttributeProto.INTS:
            return [rng.choice(INTS) for _ in many]
        case AttributeProto.STRINGS:
            return [rng.choice(TEXTS) for _ in many]
        case AttributeProto.TENSOR:
            return _tensor(rng)
    raise ValueError(kind)


def _any(rng: random.Random) -> Any:
    kinds = (
        AttributeProto.FLOAT,
        AttributeProto.INT,
        AttributeProto.STRING,
        AttributeProto.INTS,
        AttributeProto.TENSOR,
    )
    value = _of_type(rng.choice(kinds), rng)
    return value if value != [] else 1


def _tensor(rng: random.Random) -> TensorProto:
    shape = rng.choice(((), (1,), (2,), (0,), (2, 2)))
    array = np.full(shape, rng.choice((0, 1, -1, 7)), rng.choice((np.float32, np.int64, np.int32, np.uint8, np.bool_)))
    return numpy_helper.from_array(array, "t")


def _other(old: Any, rng: random.Random) -> Any:
    """Another value of the same type."""
    if isinstance(old, float):
        return rng.choice((*FLOATS, -old))
    if isinstance(old, int):
        return rng.choice((*INTS, old + 1, old - 1, -old))
    if isinstance(old, bytes):
        return rng.choice((*TEXTS, old[:-1], old * 2))
    if isinstance(old, TensorProto):
        return _changed_tensor(old, rng)
    if isinstance(old, Sequence):
        values = [*old]
        how = rng.randrange(4)
        if how == 0 and values:
            del values[rng.randrange(len(values))]
        elif how == 1:
            values.append(values[-1] if values else 1)
        else:
            for k in range(len(values)):
                if how == 2 or rng.random() < 0.5:
                    values[k] = _other(values[k], rng)
        return values
    raise ValueError(old)


def _changed_tensor(old: TensorProto, rng: random.Random) -> TensorProto:
    t = TensorProto()
    t.CopyFrom(old)
    how = rng.randrange(6)
    if how == 0:  # dimensions that do not fit the contents
        if t.dims:
            t.dims[rng.randrange(len(t.dims))] = rng.choice(DIMS)
        else:
            t.dims.append(rng.choice(DIMS))
        return t
    if how == 1:
        t.data_type = rng.choice(range(24))
        return t
    array = numpy_helper.to_array(t)
    if how == 2 and array.size:
        array = array.copy()
        values = INTS if array.dtype.kind in "iu" else FLOATS
        with np.errstate(all="ignore"):
            array.reshape(-1)[rng.randrange(array.size)] = np.asarray(rng.choice(values)).astype(array.dtype)
    elif how == 3:
        array = array.reshape(rng.choice(((1, *array.shape), (*array.shape, 1), (array.size,))))
    elif how == 4:
        array = array.reshape(-1)[: rng.randrange(array.size + 1)]
    else:
        with np.errstate(all="ignore"):
            array = array.astype(
                rng.choice((np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8, np.bool_))
            )
    return numpy_helper.from_array(array, t.name)


def _initializer(model: ModelProto, rng: random.Random) -> None:
    found = [t for g in graphs(model) for t in g.initializer]
    if found:
        t = rng.choice(found)
        t.CopyFrom(_changed_tensor(t, rng))


def _unbaked(model: ModelProto, rng: random.Random) -> None:
    """An initializer becomes an input."""
    g = model.graph
    if g.initializer:
        t = rng.choice(g.initializer)
        dims = rng.choice(([*t.dims], ["n" for _ in t.dims], None))
        g.input.append(helper.make_tensor_value_info(t.name, t.data_type, dims))
        g.initializer.remove(t)


def _names(model: ModelProto) -> list[str]:
    found = {v: None for g in graphs(model) for n in g.node for v in (*n.input, *n.output)}
    return [*found, "", "nowhere"]


def _operands(model: ModelProto, rng: random.Random) -> None:
    """Operands or results dropped, added, swapped, doubled, renamed."""
    n = _node(model, rng)
    part: Any = n.input if rng.random() < 0.8 else n.output
    values = [*part]
    how = rng.randrange(6)
    if how == 0 and values:
        values.pop(rng.randrange(len(values)))
    elif how == 1:
        values.append(rng.choice(_names(model)))
    elif how == 2 and len(values) > 1:
        rng.shuffle(values)
    elif how == 3 and values:
        values.append(rng.choice(values))
    elif how == 4 and values:
        values *= rng.choice((2, 30))
    elif values:
        values[rng.randrange(len(values))] = rng.choice(_names(model))
    del part[:]
    part.extend(values)


def _value_infos(model: ModelProto, rng: random.Random) -> onnx.ValueInfoProto:
    return rng.choice([v for g in graphs(model) for v in (*g.input, *g.output, *g.value_info)])


def _element_type(model: ModelProto, rng: random.Random) -> None:
    kinds = (1, 1, 2, 3, 6, 7, 9, 10, 11, 16, 8, 14, 17, 22, 0, 99)
    _value_infos(model, rng).type.tensor_type.elem_type = rng.choice(kinds)


def _dimensions(model: ModelProto, rng: random.Random) -> None:
    kind = _value_infos(model, rng).type.tensor_type
    dims, how = kind.shape.dim, rng.randrange(5)
    if how == 0:
        kind.ClearField("shape")
    elif how == 1 and len(dims):
        del dims[rng.randrange(len(dims))]
    elif how == 2:
        dims.add().dim_value = rng.choice((1, 2, 3))
    elif len(dims) and how == 3:
        rng.choice(dims).dim_param = rng.choice(("n", "m", "n*2", "n//0", "-n", "n*9223372036854775807*8"))
    elif len(dims):
        rng.choice(dims).dim_value = rng.choice(DIMS)


def _opset(model: ModelProto, rng: random.Random) -> None:
    if model.opset_import:
        rng.choice(model.opset_import).version = rng.choice((0, -1, 99, *range(1, 27)))


def _nodes(model: ModelProto, rng: random.Random) -> None:
    """Nodes removed, doubled, moved, or of another operator or domain."""
    g = rng.choice([g for g in graphs(model) if g.node])
    k, how = rng.randrange(len(g.node)), rng.randrange(6)
    if how == 0:
        del g.node[k]
    elif how == 1:
        g.node.add().CopyFrom(g.node[k])
    elif how == 2:
        kept = sorted([NodeProto.FromString(n.SerializeToString()) for n in g.node], key=lambda _: rng.random())
        del g.node[:]
        g.node.extend(kept)
    elif how == 3:
        g.node[k].domain = rng.choice(("", "ai.onnx.ml", "com.microsoft", "foo", "torshc"))
    else:
        g.node[k].op_type = rng.choice(rng.choice(origins()).model.graph.node).op_type


def _outputs(model: ModelProto, rng: random.Random) -> None:
    """Outputs dropped, doubled, or other values; of branches and bodies too."""
    g = rng.choice(graphs(model))
    how = rng.randrange(3)
    if how == 0 and g.output:
        del g.output[rng.randrange(len(g.output))]
    elif how == 1 and g.output:
        g.output.add().CopyFrom(rng.choice(g.output))
    else:
        g.output.add().name = rng.choice(_names(model))


def _wide(model: ModelProto, rng: random.Random) -> None:
    """A number anywhere in a node, in a message that other changes do not know."""
    places = [p for n in _node(model, rng).attribute for p in _scalars(n)]
    message, name, index = rng.choice(places)
    part = message if index is None else getattr(message, name)
    key: Any = name if index is None else index
    old = getattr(message, name) if index is None else part[index]
    new = _other(old.encode() if isinstance(old, str) else old, rng)
    if index is None:
        setattr(part, key, new)
    else:
        part[key] = new


def _scalars(message: Any) -> Iterator[tuple[Any, str, int | None]]:
    for described, value in message.ListFields():
        if described.message_type is not None:
            for inner in value if described.is_repeated else [value]:
                yield from _scalars(inner)
        elif described.is_repeated:
            yield from ((message, described.name, k) for k in range(min(len(value), 4)))
        else:
            yield message, described.name, None


CHANGES: tuple[Callable[[ModelProto, random.Random], None], ...] = (
    _attribute_value, _attribute_value, _attribute_value, _attribute_added, _attribute_added, _attribute_type,
    _attribute_dropped, _initializer, _initializer, _initializer, _unbaked, _operands, _operands, _operands,
    _element_type, _dimensions, _dimensions, _opset, _nodes, _outputs, _wide,
)  # fmt: skip

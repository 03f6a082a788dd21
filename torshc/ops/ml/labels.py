"""Tables from numbers or strings to numbers or strings: LabelEncoder, CategoryMapper, OneHotEncoder, ZipMap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import F32, I64, MAP, SEQUENCE, STRING, const
from ...graph import Builder, Node, Partial, TensorType, Value
from ..core.axes import constraints_of
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, affordable, need, operator, same_dim
from ..core.functions import equal, gather
from ..core.host import HostOp, emit
from ..core.scalar import Scalar, element, isnan, where
from ..core.source import SourceNode, Unsupported, text_of
from ..core.tensor import Tensor
from ..tensor.view import Reshape
from ..text.numbers import ToText
from ..text.strings import find, pick, texts

Array = np.ndarray[Any, Any]

DOMAIN = "ai.onnx.ml"


@operator("KeyPlace", "torshc")
@dataclass(frozen=True)
class KeyPlace(Op):
    """The place of each number among keys[K], which are all different; K where it is none of them. NaN is NaN."""

    family: ClassVar[str] = "nest"

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(I64, need(inputs[0], "the operand of KeyPlace").shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        (keys,) = node.operands[1].shape

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            x, key = read(0, at), read(1, inner)
            same = equal(x, key)
            if x.dtype.is_float:
                same = same | isnan(x) & isnan(key)
            return where(same, element(inner[0]), element(keys))

        return LoopNest(body, (keys,), "min")


def _native(x: Value, keys: Sequence[Any]) -> list[Any]:
    """The keys as elements of the operand's type, "nan" for NaN; None for those that none of its elements equals.

    Raises:
        ModelError: for keys of another kind than the operand.
    """
    if any((x.dtype is STRING) != isinstance(k, (str, bytes)) for k in keys):
        raise ModelError(
            f"keys {list(keys[:3])} for an operand of {x.dtype!r}: strings go with strings, numbers with numbers"
        )
    if x.dtype is STRING:
        return [text_of(k, "a key") for k in keys]
    with np.errstate(over="ignore", invalid="ignore"):
        table = np.asarray(keys).astype(x.dtype.numpy).tolist()
    return ["nan" if k != k else t if t == k else None for k, t in zip(keys, table, strict=True)]


def _place(b: Builder, x: Value, keys: Sequence[Any], must: bool = False) -> tuple[Value, list[Any]]:
    """The position of each element among native keys, each of which counts once, and the keys in that order."""
    if x.dtype is STRING:
        return find(b, x, keys, must)
    if must and not x.dtype.is_int:
        raise Unsupported("a category that must be there, of numbers that are not integers")
    if must:
        written = b.host_op(ToText(), [x], [Partial(STRING, x.shape)])[0]
        places, ordered = find(b, written, [str(k) for k in keys if k is not None], must)
        return places, [int(k) for k in ordered]
    distinct = list(dict.fromkeys(k for k in keys if k is not None)) or [0]
    affordable("a table of keys", const(len(distinct)), x.type.size)
    table = np.array([np.nan if k == "nan" else k for k in distinct], x.dtype.numpy)
    return b.one(KeyPlace(), x, b.constant(table)), distinct


def chosen(b: Builder, places: Value, values: Sequence[str] | Array) -> Value:
    """The values at some places, counted from 0; all of these must be in range."""
    if isinstance(values, np.ndarray):
        return gather(Tensor(b, b.constant(values)), Tensor(b, places), axis=0).value
    return pick(b, (Tensor(b, places) + 1).value, texts(b, values))


def _looked_up(b: Builder, x: Value, keys: Sequence[Any], values: Sequence[Any], default: Any, dtype: Any) -> Value:
    """The value of each element's key, the last where there are several; the default where there is no key."""
    if len(keys) != len(values) or not len(keys):
        raise ModelError(f"a table of {len(keys)} keys and {len(values)} values, where each key needs a value")
    native = _native(x, keys)
    places, ordered = _place(b, x, native)
    table = dict(zip(native, values, strict=True))
    found = [*(table.get(k, default) for k in ordered), default]
    if dtype is str:
        return chosen(b, places, [text_of(v, "a value") for v in found])
    return chosen(b, places, np.array(found, dtype))


def named(cls: type[Op], source: SourceNode, integers: str) -> list[Value]:
    """A classifier whose labels are strings: it is read with labels from 0 on, each of which stands for its string.

    Args:
        integers: the attribute for labels that are integers.

    Raises:
        Unsupported: for a single label, which has no other beside it.
    """
    names = [text_of(n, "a label") for n in source.attribute("classlabels_strings")]
    if len(names) < 2:
        raise Unsupported(f"{source.op_type} with one label, which is a string")
    attributes = {k: v for k, v in source.attributes.items() if k != "classlabels_strings"}
    label, *scores = cls.read(replace(source, attributes={**attributes, integers: tuple(range(len(names)))}))
    return [chosen(source.builder, label, names), *scores]


@operator("LabelEncoder", DOMAIN)
@dataclass(frozen=True)
class LabelEncoder(Op):
    """Each element's value in a table; the default where it is none of the keys.

    Keys and values are numbers or strings. The last of equal keys counts; NaN is a key like others. In opset 1, the
    place of a string in a list, or the string at a place.
    """

    objects: ClassVar[bool] = True

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, x = source.builder, source.required(0)
        if source.opset < 2:
            return [_by_place(source)]
        given = {n: source.attribute(f"keys_{n}") for n in ("strings", "int64s", "floats", "tensor")}
        keys = [v for v in given.values() if v is not None]
        results = {n: source.attribute(f"values_{n}") for n in ("strings", "int64s", "floats", "tensor")}
        values = [(n, v) for n, v in results.items() if v is not None]
        defaults = {n: source.attribute(f"default_{n}") for n in ("string", "int64", "float", "tensor")}
        source.fields(cls)
        if len(keys) != 1 or len(values) != 1:
            raise ModelError("LabelEncoder needs one kind of keys and one of values")
        ((kind, table),) = values
        default, dtype = _default(kind, table, defaults)
        return [_looked_up(b, x, _flat(keys[0]), _flat(table), default, dtype)]


def _flat(values: Any) -> list[Any]:
    return list(values.reshape(-1)) if isinstance(values, np.ndarray) else list(values)


def _default(kind: str, table: Any, defaults: dict[str, Any]) -> tuple[Any, Any]:
    """The value for keys that are missing, and the NumPy dtype of the values; str for strings."""
    if kind == "tensor":
        dtype = str if table.dtype.kind in "OUT" else table.dtype
        fallback: Any = "_Unused" if dtype is str else -0.0 if table.dtype.kind == "f" else -1
        given = defaults["tensor"]
        if given is not None and given.size == 0:
            raise ModelError("default_tensor has no element")
        return (fallback if given is None else given.reshape(-1)[0]), dtype
    if kind == "strings":
        return ("_Unused" if defaults["string"] is None else defaults["string"]), str
    if kind == "int64s":
        return (-1 if defaults["int64"] is None else defaults["int64"]), np.int64
    return (-0.0 if defaults["float"] is None else defaults["float"]), np.float32


def _by_place(source: SourceNode) -> Value:
    """LabelEncoder of opset 1: strings to their places in a list, or places to strings."""
    x, classes = source.required(0), list(source.attribute("classes_strings") or ())
    unknown = source.attribute("default_int64", -1), source.attribute("default_string", "_Unused")
    source.fields(LabelEncoder)
    return _map_labels(source.builder, x, classes, list(range(len(classes))), unknown)


def _map_labels(b: Builder, x: Value, strings: list[Any], numbers: list[int], unknown: tuple[int, Any]) -> Value:
    """Strings to numbers, or numbers to strings, whichever x is not; of equal keys the first counts."""
    strings, numbers = strings[::-1], numbers[::-1]
    if x.dtype is STRING:
        return _looked_up(b, x, strings, numbers, unknown[0], np.int64)
    if x.dtype is not I64:
        raise ModelError(f"a table of strings and numbers for {x.dtype!r}, where strings or i64 are needed")
    return _looked_up(b, x, numbers, strings, unknown[1], str)


@operator("CategoryMapper", DOMAIN)
@dataclass(frozen=True)
class CategoryMapper(Op):
    """Strings to integers, or integers to strings, by a table; the first of equal keys counts."""

    objects: ClassVar[bool] = True

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, strings = source.required(0), list(source.attribute("cats_strings") or ())
        numbers = list(source.attribute("cats_int64s") or ())
        unknown = source.attribute("default_int64", -1), source.attribute("default_string", "_Unused")
        source.fields(cls)
        return [_map_labels(source.builder, x, strings, numbers, unknown)]


@operator("OneHotEncoder", DOMAIN)
@dataclass(frozen=True)
class OneHotEncoder(Op):
    """1 at the place of an element's category along a new last dimension, else 0, in f32.

    Floats are cast to integers first. Where `zeros` is 0, an element in no category is an error of the run.
    """

    objects: ClassVar[bool] = True

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, x, must = source.builder, source.required(0), not source.attribute("zeros", 1)
        given = source.attribute("cats_int64s"), source.attribute("cats_strings")
        source.fields(cls)
        categories = list(given[0] or given[1] or ())
        if not categories:
            raise ModelError("OneHotEncoder needs categories")
        if x.dtype.is_float:
            x = Tensor(b, x).cast(I64).value
        native = _native(x, categories)
        places, ordered = _place(b, x, native, must)
        last = {k: i for i, k in enumerate(native)}
        column = np.array([last.get(k, -1) for k in ordered], np.int64)
        wide = Tensor(b, chosen(b, places, np.append(column, -1))).reshape(*x.shape, 1)
        return [equal(wide, wide.constant(np.arange(len(categories), dtype=np.int64))).cast(F32).value]


@operator("ZipMap", DOMAIN)
@dataclass(frozen=True)
class ZipMap(HostOp):
    """A sequence with a map from the labels to the scores for each row of x[N, C]; a vector is one row."""

    function: ClassVar[str] = "t_op_zip_map"
    file: ClassVar[str] = "t_op_ml.c"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, x = source.builder, source.required(0)
        numbers, names = source.attribute("classlabels_int64s"), source.attribute("classlabels_strings")
        source.fields(cls)
        if bool(numbers) == bool(names) or x.type.rank not in (1, 2):
            raise ModelError(
                f"ZipMap of {x.type!r} with {len(numbers or ())} integers and {len(names or ())} strings"
                "; labels have to be all integers or all strings, of a vector or a matrix"
            )
        if x.type.rank == 1:
            x = b.one(Reshape((const(1), *x.shape)), x)
        keys = texts(b, [text_of(n, "a label") for n in names]) if names else b.constant(np.asarray(numbers, np.int64))
        same_dim(x.shape[1], keys.shape[0], constraints_of(source), "columns and labels of ZipMap")
        each = Partial(keys.dtype, keys.shape, Partial(x.dtype, keys.shape))
        return emit(source, cls(), [x, keys], Partial(SEQUENCE, x.shape[:1], Partial(MAP, (const(2),), each)))

"""Operators over strings: what computes with text, and what only moves elements.

    Gather(strings, indices) -> places = Gather(1 2 3 ..., indices); Pick(places, strings)

Whatever moves elements moves the numbers of their places, by its own kernel or at compile time, and the host then picks
the strings at those places. Place 0 is the empty string, which is what strings have in place of zeros.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import BOOL, I64, STRING, Expr, as_int, const
from ...graph import Builder, Partial, Value
from ..core.base import Op, operator
from ..core.host import HostOp, emit
from ..core.source import SourceNode, Unsupported, text_of
from ..tensor.generate import Range
from ..tensor.view import Reshape
from .regex import compile_pattern

STATIC_MAX = 1 << 16  # places that are written down at compile time


@dataclass(frozen=True)
class Text(HostOp):
    """Base of this file's operators of the host."""

    domain: ClassVar[str] = "torshc"
    file: ClassVar[str] = "t_op_text.c"


def texts(b: Builder, values: Sequence[str]) -> Value:
    """A constant vector of strings."""
    array = np.empty(len(values), object)
    array[:] = values
    return b.graph.constant(array)


# ---- elements that are moved ----


@dataclass(frozen=True)
class Pick(Text):
    """The strings at some places, counted from 1 through all of the other operands; 0 gives the empty string."""

    name: ClassVar[str] = "Pick"
    function: ClassVar[str] = "t_op_text_pick"
    tensors: int = 1

    def integers(self) -> tuple[int, ...]:
        return (self.tensors,)


def pick(b: Builder, places: Value, *strings: Value) -> Value:
    """The strings at some places."""
    return b.host_op(Pick(len(strings)), [places, *strings], [Partial(STRING, places.shape)])[0]


@dataclass(frozen=True)
class TextView(Text):
    """The elements of a tensor of strings under another shape, or under its own where that is None."""

    name: ClassVar[str] = "TextView"
    function: ClassVar[str] = "t_op_text_view"
    shape: tuple[int, ...] | None = None

    def integers(self) -> tuple[int, ...]:
        return (-1,) if self.shape is None else (len(self.shape), *self.shape)


def _places(b: Builder, tensors: Sequence[Value]) -> list[Value]:
    """For each tensor, one of its shape that holds the places of its elements."""
    out, start = [], const(1)
    for v in tensors:
        sizes, first, count = v.type.static_shape, as_int(start), as_int(v.type.size)
        if sizes is not None and first is not None and count is not None and count <= STATIC_MAX:
            out.append(b.constant(np.arange(first, first + count, dtype=np.int64).reshape(sizes)))
        else:
            out.append(b.one(Reshape(v.shape), b.one(Range(start, const(1), v.type.size, I64))))
        start = start + v.type.size
    return out


_VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")

# Which operands hold elements that are moved (None: all); the results hold nothing else, unless they are in _NUMBERS.
_MOVERS: dict[str, tuple[int, ...] | None] = {
    "ArrayFeatureExtractor": (0,), "Concat": None, "DepthToSpace": (0,), "Expand": (0,), "Gather": (0,),
    "GatherElements": (0,), "GatherND": (0,), "OneHot": (2,), "Pad": (0, 2), "ReverseSequence": (0,),
    "Scatter": (0, 2), "ScatterElements": (0, 2), "ScatterND": (0, 2), "Shape": (0,), "Size": (0,), "Slice": (0,),
    "SpaceToDepth": (0,), "Split": (0,), "TensorScatter": (0, 1), "Tile": (0,), "Transpose": (0,), "Trilu": (0,),
    "Where": (1, 2),
    **dict.fromkeys(_VIEWS, (0,)),
}  # fmt: skip
_NUMBERS = ("Shape", "Size")


def _move(cls: type[Op], source: SourceNode) -> list[Value]:
    """An operator that moves elements, over strings."""
    b, which = source.builder, _MOVERS[cls.name]
    moved = [k for k in (range(len(source.inputs)) if which is None else which) if source.input(k) is not None]
    strings = [source.required(k) for k in moved]
    if any((v.dtype is STRING) != (k in moved) for k, v in enumerate(source.inputs) if v is not None):
        raise ModelError(f"{cls.name} of strings and others")
    inputs = list(source.inputs)
    for k, place in zip(moved, _places(b, strings), strict=True):
        inputs[k] = place
    if cls.name in ("ScatterElements", "ScatterND") and source.attribute("reduction", "none") != "none":
        raise Unsupported(f"{cls.name} of strings with a reduction")
    made = cls.read(replace(source, inputs=inputs))
    if cls.name in _NUMBERS:
        return made
    if cls.name in _VIEWS and (shape := made[0].type.static_shape) is not None:
        return emit(source, TextView(shape), strings, Partial(STRING, made[0].shape))
    return [pick(b, v, *strings) for v in made]


def _same(source: SourceNode) -> list[Value]:
    x = source.required(0)
    return emit(source, TextView(), [x], Partial(STRING, x.shape))


def reader(cls: type[Op], operands: Sequence[Value | None]) -> Callable[[SourceNode], list[Value]]:
    """How an operator's nodes are read with these operands.

    Raises:
        Unsupported: for strings, sequences and optionals where the operator is not made for them.
    """
    strange = next((v for v in operands if v is not None and v.dtype.is_object), None)
    if strange is None or cls.objects:
        return cls.read
    if strange.dtype is STRING and cls.name in _OVER_STRINGS:
        return _OVER_STRINGS[cls.name]
    if strange.dtype is STRING and cls.name in _MOVERS:
        return functools.partial(_move, cls)
    if cls.name == "Identity":
        return lambda source: [source.required(0)]
    raise Unsupported(f"{cls.name} of {strange.dtype!r} elements")


# ---- text that is looked at ----


def _broadcast_strings(source: SourceNode) -> tuple[Value, Value, tuple[Expr | None, ...]]:
    """Two operands of strings, and the dimensions they broadcast to; of two symbols the run decides which."""
    x, y = source.required(0), source.required(1)
    if x.dtype is not STRING or y.dtype is not STRING:
        raise ModelError(f"{source.op_type} of {x.dtype!r} and {y.dtype!r}, where strings are needed")
    dims: list[Expr | None] = []
    for pair in reversed(list(itertools.zip_longest(x.shape[::-1], y.shape[::-1], fillvalue=const(1)))):
        wide = [d for d in dict.fromkeys(pair) if as_int(d) != 1] or [const(1)]
        fixed = [d for d in wide if as_int(d) is not None]
        if len(fixed) > 1:
            raise ModelError(f"shapes {x.shape} and {y.shape} do not broadcast")
        dims.append(fixed[0] if fixed else wide[0] if len(wide) == 1 else None)
    return x, y, tuple(dims)


@operator()
@dataclass(frozen=True)
class StringConcat(Text):
    """The text of one operand with that of the other behind it; they broadcast."""

    function: ClassVar[str] = "t_op_text_concat"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, y, shape = _broadcast_strings(source)
        return emit(source, cls(), [x, y], Partial(STRING, shape))


@dataclass(frozen=True)
class TextEqual(Text):
    """Whether two strings are the same code points; they broadcast."""

    name: ClassVar[str] = "TextEqual"
    function: ClassVar[str] = "t_op_text_equal"


def _equal(source: SourceNode) -> list[Value]:
    x, y, shape = _broadcast_strings(source)
    return emit(source, TextEqual(), [x, y], Partial(BOOL, shape))


_OVER_STRINGS = {"Identity": _same, "Equal": _equal}


@operator()
@dataclass(frozen=True)
class StringSplit(Text):
    """The pieces of each text along a new last dimension, filled up with ""; and how many there are.

    Without a delimiter, or with an empty one, pieces are what stands between white space, which is Python's: Unicode's
    and the separators 28 to 31. The last piece of a text that was split `maxsplit` times is all the rest.
    """

    function: ClassVar[str] = "t_op_text_split"
    maxsplit: int = -1

    def integers(self) -> tuple[int, ...]:
        return (max(self.maxsplit, -1),)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, given = source.required(0), source.attribute("maxsplit")
        delimiter = text_of(source.attribute("delimiter") or "", "the delimiter of StringSplit")
        source.fields(cls)
        if x.dtype is not STRING:
            raise ModelError(f"StringSplit of {x.dtype!r}, where strings are needed")
        types = Partial(STRING, (*x.shape, None)), Partial(I64, x.shape)
        op = cls(-1 if given is None else int(given))
        return emit(source, op, [x, texts(source.builder, [delimiter])], *types)


@operator()
@dataclass(frozen=True)
class RegexFullMatch(Text):
    """Whether a pattern of RE2's syntax matches the whole of each text (:mod:`torshc.ops.text.regex`)."""

    function: ClassVar[str] = "t_op_text_match"
    file: ClassVar[str] = "t_op_regex.c"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        pattern = text_of(source.attribute("pattern") or "", "the pattern of RegexFullMatch")
        source.fields(cls)
        if x.dtype is not STRING:
            raise ModelError(f"RegexFullMatch of {x.dtype!r}, where strings are needed")
        program = source.builder.constant(compile_pattern(pattern))
        return emit(source, cls(), [x, program], Partial(BOOL, x.shape))


# ---- StringNormalizer ----


@dataclass(frozen=True)
class TextCase(Text):
    """Every code point replaced by what a map[rows, 4] says: by up to three others."""

    name: ClassVar[str] = "TextCase"
    function: ClassVar[str] = "t_op_text_case"


@functools.cache
def _case_map(action: str) -> np.ndarray[Any, Any]:
    change = str.lower if action == "LOWER" else str.upper
    rows = [(c, *map(ord, change(chr(c)))) for c in range(0x110000) if change(chr(c)) != chr(c)]
    return np.array([(*r, 0, 0)[:4] for r in rows], np.int64)


def _in_case(b: Builder, x: Value, action: str) -> Value:
    if action == "NONE":
        return x
    return b.host_op(TextCase(), [x, b.constant(_case_map(action))], [Partial(STRING, x.shape)])[0]


@dataclass(frozen=True)
class Find(Text):
    """The place of each string among keys in ascending order of their bytes; how many keys there are, where it is none.

    Attributes:
        must: 1 where a string that is none of them is an error of the run.
    """

    name: ClassVar[str] = "Find"
    function: ClassVar[str] = "t_op_text_find"
    must: int = 0

    def integers(self) -> tuple[int, ...]:
        return (self.must,)


def find(b: Builder, x: Value, keys: Sequence[str], must: bool = False) -> tuple[Value, list[str]]:
    """The places of strings among some keys, and the keys in the order that the places speak of, each once."""
    ordered = sorted(set(keys), key=str.encode)
    places = b.host_op(Find(int(must)), [x, texts(b, ordered)], [Partial(I64, x.shape)])[0]
    return places, ordered


@dataclass(frozen=True)
class Keep(Text):
    """The strings of a row whose place is `place`; one empty string when there are none."""

    name: ClassVar[str] = "Keep"
    function: ClassVar[str] = "t_op_text_keep"
    place: int = 0

    def integers(self) -> tuple[int, ...]:
        return (self.place,)


@operator()
@dataclass(frozen=True)
class StringNormalizer(Op):
    """A row of strings, [C] or [1, C], without stop words and in one case; one empty string when none is left.

    As in ONNX's text, an element is a stop word as a whole, and accents stay. (ONNX's reference takes stop words out of
    the middle of elements, accents off, and empty elements away.) Where case does not matter, what is compared is in
    lower case. Cases are those of Unicode for single code points, whatever `locale` says and wherever a sigma stands.
    """

    objects: ClassVar[bool] = True

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, x = source.builder, source.required(0)
        stopwords = [text_of(w, "a stop word") for w in source.attribute("stopwords") or ()]
        action = str(source.attribute("case_change_action", "NONE"))
        sensitive = bool(source.attribute("is_case_sensitive", 0))
        source.attribute("locale")
        source.fields(cls)
        one_row = x.type.rank == 2 and as_int(x.shape[0]) in (1, None)
        if x.dtype is not STRING or not (x.type.rank == 1 or one_row):
            raise ModelError(f"StringNormalizer of {x.type!r}, where strings are needed, a vector or one row")
        dims = (*((const(1),) if one_row else ()), None)
        kept = x if sensitive or not stopwords else _in_case(b, x, "LOWER")
        words = stopwords if sensitive else [w.lower() for w in stopwords]
        places, ordered = find(b, kept, words)
        return emit(source, Keep(len(ordered)), [_in_case(b, x, action), places], Partial(STRING, dims))

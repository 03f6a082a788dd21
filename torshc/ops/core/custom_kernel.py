"""Operators with a kernel of the user's own: functions in C, and in CUDA, that ``ops.kernel`` declares.

    @ops.kernel("Swirl", "com.example", c="swirl.c", libraries=["m"])
    def swirl(x, *, turns: float = 1.0):
        return ops.Work(x.type, tasks=x.shape[0])

The Python function says what types the results have. With those of an operator in the plan it also says how many tasks
there are and how much scratch a thread needs; an operator of the host (``host=True``) has None for a dimension that its
function in C decides in the run. The interface is ``templates/c/host/torshc_op.h``.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ...base.errors import ConfigError, ModelError
from ...base.manifest import DLPACK
from ...expr import MAP, OPTIONAL, SEQUENCE, DType, Expr, as_expr, as_int
from ...graph import Partial, Shape, TensorType, Value
from .base import Constraints, Inputs
from .custom import Custom, Reference, call_operator, checked_results, declare_operator, label_of, reading
from .host import HostOp, emit
from .signature import Operands
from .source import SourceNode
from .tensor import Tensor

MOST_ATTRIBUTES = 32  # T_ATTRIBUTES_MAX of t_custom.h
_INTS, _FLOATS, _TEXTS = 1, 2, 3  # TORSHC_OP_INTS and others
_ANY = -1  # a dimension that is decided in the run
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Operand:
    """An operand as a declaration sees it."""

    type: TensorType

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def rank(self) -> int:
        return self.type.rank


@dataclass(frozen=True)
class Result:
    """The type of a result of an operator of the host, whose dimensions may be None."""

    dtype: DType
    shape: tuple[Expr | int | None, ...]


Types = TensorType | Result | Sequence[TensorType | Result]


@dataclass(frozen=True)
class Work:
    """The work of an operator in the plan.

    Attributes:
        types: type of the result, or types of several.
        tasks: pieces that threads share.
        scratch: bytes that each thread gets; with CUDA, that the call gets.
    """

    types: Types
    tasks: Expr | int = 1
    scratch: Expr | int = 0


@dataclass(frozen=True)
class Described:
    """The results and the work that a declaration states for some operands, with expressions for all sizes."""

    types: tuple[TensorType | Result, ...]
    tasks: Expr
    scratch: Expr


@dataclass(frozen=True)
class Sources:
    """Where an operator's functions are, and what they need.

    Attributes:
        function: their name.
        c, cuda: the files; None where there is none.
        headers: files that these include, which lie beside them.
        includes: folders of headers of others.
        libraries: to link, as -l takes them.
    """

    function: str
    c: Path | None
    cuda: Path | None
    headers: tuple[Path, ...]
    includes: tuple[str, ...]
    libraries: tuple[str, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """All of the user's."""
        return tuple(f for f in (self.c, self.cuda, *self.headers) if f is not None)


class CustomKernel(Custom):
    """Base of the operators with functions of the user's.

    Class attributes:
        types: the declaration.
        operands: what a node may have.
        sources: the functions in C and CUDA.
    """

    types: ClassVar[Callable[..., Any]]
    operands: ClassVar[Operands]
    sources: ClassVar[Sources]

    @classmethod
    def described(cls, inputs: Inputs, attributes: dict[str, Any]) -> Described:
        """The results and the work that the declaration states for some operands.

        Raises:
            ConfigError: the declaration fails, or says what no types are.
        """
        operands = [None if v is None else Operand(v.type) for v in inputs]
        operands += [None] * (len(cls.operands.optional) - len(operands))
        with reading(cls, None):
            made = cls.types(*operands, **attributes)
            work = made if isinstance(made, Work) else Work(made)
            types = list(work.types) if isinstance(work.types, Sequence) else [work.types]
            for t in types:
                if not isinstance(t, TensorType | Result):
                    raise TypeError(
                        f"the result is {t!r}, where a type has to be, such as ops.TensorType(ops.F32, x.shape)"
                    )
                low = next((d for d in t.shape if d is not None and (as_int(as_expr(d)) or 0) < 0), None)
                if low is not None:
                    raise ValueError(f"a result has a dimension of {low!r}")
        return Described(tuple(map(_plain, types)), as_expr(work.tasks), as_expr(work.scratch))

    def described_here(self, inputs: Inputs) -> Described:
        """The declaration for some operands and this operator's attributes."""
        return self.described(inputs, self.given)

    @property
    def given(self) -> dict[str, Any]:
        """The attributes that are declared."""
        return {name: getattr(self, name) for name in self.defaults}

    @classmethod
    def arguments(cls, source: SourceNode) -> dict[str, Any]:
        """The attributes of a node, whose operands are checked."""
        given = source.fields(cls)
        attributes = {name: given.get(name, default) for name, default in cls.defaults.items()}
        for name, value in attributes.items():
            if value is dataclasses.MISSING:
                raise ModelError(f"{source.op_type} lacks its attribute {name!r}")
        for v in cls.operands.values(source):
            if v is not None and v.dtype in (SEQUENCE, OPTIONAL, MAP):
                raise ModelError(f"{source.op_type} of {v.type!r}, which functions of users cannot take")
        return attributes


@dataclass(frozen=True)
class PlannedKernel(CustomKernel):
    """An operator in the plan: its sizes are known before a run."""

    family: ClassVar[str] = "custom"
    epilogue: ClassVar[bool] = False

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        attributes = cls.arguments(source)
        return checked_results(cls, source, source.emit(cls(**attributes), source.inputs))

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        types = self.described_here(inputs).types
        known = [t for t in types if isinstance(t, TensorType)]
        if len(known) < len(types):
            raise ConfigError(
                f"{self.declared.place}: {label_of(type(self))} leaves a dimension to the run",
                "declare it with host=True",
            )
        return known


@dataclass(frozen=True)
class HostKernel(CustomKernel, HostOp):
    """An operator of the host.

    Attributes:
        made: for C: the numbers of its operands and results; then of each result code, bits, rank and dimensions, -1
            for one that the run decides.
    """

    file: ClassVar[str] = "t_custom_host.c"
    made: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        attributes = cls.arguments(source)
        work = cls.described(source.inputs, attributes)
        partials = [Partial(t.dtype, tuple(None if d is None else as_expr(d) for d in t.shape)) for t in work.types]
        absent = [None] * (len(cls.operands.optional) - len(source.inputs))
        inputs = [*source.inputs, *absent]
        made = ((len(inputs), len(partials)), *map(_type_words, partials))
        return checked_results(cls, source, emit(source, cls(**attributes, made=made), inputs, *partials))

    def integers(self) -> tuple[int, ...]:
        return (*(n for row in self.made for n in row), *attribute_words(self))


def _type_words(p: Partial) -> tuple[int, ...]:
    """A result's type for C."""
    sizes = [None if d is None else as_int(d) for d in p.dims or ()]
    return (*DLPACK[p.dtype.name], len(sizes), *(_ANY if d is None else d for d in sizes))


def _plain(t: TensorType | Result) -> TensorType | Result:
    """A type with expressions for its sizes; one without unknown dimensions is a tensor's."""
    if any(d is None for d in t.shape):
        return Result(t.dtype, t.shape)
    return TensorType(t.dtype, tuple(as_expr(d) for d in t.shape if d is not None))


def attribute_words(op: CustomKernel) -> tuple[int, ...]:
    """The attributes as ``t_read_attributes`` reads them."""
    words = [len(op.given)]
    for value in op.given.values():
        each = value if isinstance(value, tuple) else (value,)
        kind = _TEXTS if any(isinstance(e, str) for e in each) else _INTS
        if any(isinstance(e, float) for e in each):
            kind = _FLOATS
        if kind == _TEXTS:
            text = b"".join(e.encode() + b"\0" for e in each)
            found = struct.unpack(f"<{-(-len(text) // 8)}q", text.ljust(-(-len(text) // 8) * 8, b"\0"))
        elif kind == _FLOATS:
            found = struct.unpack(f"<{len(each)}q", struct.pack(f"<{len(each)}d", *each))
        else:
            found = tuple(map(int, each))
        words += [kind, len(each), len(found), *found]
    return tuple(words)


def host_function(sources: Sources) -> str:
    """The C function that the host calls, around the user's."""
    return f"t_custom_{sources.function}"


def word_text(n: int) -> str:
    """A word as C, which has no literal of the least."""
    return "INT64_MIN" if n == -(1 << 63) else str(n)


def kernel(
    name: str,
    domain: str,
    *,
    c: str = "",
    cuda: str = "",
    function: str = "",
    headers: Sequence[str] = (),
    includes: Sequence[str] = (),
    libraries: Sequence[str] = (),
    host: bool = False,
    reference: Reference | None = None,
) -> Callable[[F], F]:
    """Function decorator: declare an operator that a function in C computes; the decorated one gives types.

    Args:
        name, domain: of the operator in models.
        c, cuda: files of the function, in the folder of the file that declares it; either may be left out.
        function: its name; that of the decorated function where left out.
        headers: files that these include, in the same folder.
        includes: folders of headers that lie elsewhere.
        libraries: to link with, ``["jpeg"]`` for -ljpeg.
        host: whether the function decides sizes in the run.
        reference: the same in NumPy, of arrays and of attributes as keywords; ``verify`` compares with it.
    """

    def declare(python: F) -> F:
        folder = Path(python.__code__.co_filename).parent
        if not c and not cuda:
            raise ValueError(f"{name} has no function: name its file with c=, or cuda=")
        if host and not c:
            raise ValueError(f"{name} is of the host, so its function is in C: name the file with c=")
        sources = Sources(
            function or python.__name__,
            folder / c if c else None,
            folder / cuda if cuda else None,
            tuple(folder / h for h in headers),
            tuple(includes),
            tuple(libraries),
        )
        for file in sources.files:
            if not file.is_file():
                raise FileNotFoundError(f"{file} does not exist, which {name} names")
        words = [*sources.libraries, sources.function]
        if not all(
            w.isascii() and w.replace("+", "_").replace("-", "_").replace(".", "_").isidentifier() for w in words
        ):
            raise ValueError(f"{name} has a function or a library of an odd name: {', '.join(words)}")
        declare_operator(
            python, name, domain, "host kernel" if host else "kernel", HostKernel if host else PlannedKernel, reference,
            types=staticmethod(python), sources=sources, files=sources.files, function=host_function(sources),
        )  # fmt: skip
        cls: type[CustomKernel] = python.__operator__  # type: ignore[attr-defined]
        if len(cls.defaults) > MOST_ATTRIBUTES:
            raise ValueError(f"{name} has more than {MOST_ATTRIBUTES} attributes")

        @functools.wraps(python)
        def applied(*operands: Tensor | None, outputs: int = 1, **attributes: Any) -> Any:
            return call_operator(cls, operands, outputs, attributes)

        return applied  # type: ignore[return-value]

    return declare

"""Operators that users declare, in files (``--ops``) and in installed packages: what ``from torshc import ops`` gives.

    from torshc import ops

    @ops.composite("QuickGelu", "com.example")
    def quick_gelu(x, *, alpha: float = 1.702):
        return x * ops.sigmoid(alpha * x)

A declaration registers nothing: the operator stays with its function, and a compilation knows those that its files and
packages hold (:class:`CustomOperators`). So two compilations in one process do not see each other's. A function that
is called while a model is read adds nodes as the model's own are added, with ONNX's checks.
"""

from __future__ import annotations

import hashlib
import keyword
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_type_hints

import numpy as np

from ...base.errors import ConfigError, ModelError, TorshcError, did_you_mean
from ...graph import Builder, Value
from . import scalar
from .base import REGISTRY, Op
from .composite import Composite
from .functions import snake_case
from .pointwise import Pointwise, function_of
from .scalar import Scalar
from .signature import class_of
from .source import SourceNode, Unsupported
from .tensor import Tensor

GROUP = "torshc.operators"  # entry points of packages; each names a module
ATTRIBUTES = (bool, int, float, str, tuple[int, ...], tuple[float, ...], tuple[str, ...])
Reference = Callable[..., Any]
Calls = Callable[[SourceNode, str, str, Sequence[Any], Mapping[str, Any], int], Sequence[Value]]
Slope = Callable[[Any, Builder, Sequence[Tensor | None], Sequence[Tensor]], Sequence[Tensor | None]]
F = TypeVar("F", bound=Callable[..., Any])

_CALLS: list[Calls] = []  # how a call becomes nodes where no model is read

_READING: ContextVar[SourceNode | None] = ContextVar("the node of a custom operator that is being read", default=None)


@dataclass(frozen=True)
class Declared:
    """Where an operator was declared.

    Attributes:
        form: "composite", "nest", "kernel" or "host kernel".
        file: the operator file, or the package's module.
        line: line of the declaration in it.
        reference: computes the results of arrays and attributes in NumPy; None where nothing but the operator does.
    """

    form: str
    file: str
    line: int
    reference: Reference | None = None

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.file}:{self.line}"

    @property
    def sha256(self) -> str:
        """Of the file."""
        return hashlib.sha256(Path(self.file).read_bytes()).hexdigest()


class Custom(Op):
    """Base of the operators that users declare.

    Class attributes:
        declared: where.
        files: what it is made of beside the Python file: sources and headers.
        defaults: of its attributes; those that a node must have are MISSING.
        __gradient__: gives the gradients of a node's operands, as `gradient_of` states them; None where nothing does.
    """

    declared: ClassVar[Declared]
    defaults: ClassVar[Mapping[str, Any]]
    files: ClassVar[tuple[Path, ...]] = ()
    __gradient__: ClassVar[Slope | None] = None  # attributes have all other names


class CustomComposite(Composite, Custom):
    """Base of the operators that are functions over tensors."""

    floats: ClassVar[bool] = False
    mixed: ClassVar[bool] = True

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        with reading(cls, source):
            return checked_results(cls, source, super().read(source))


def composite(name: str, domain: str, *, reference: Reference | None = None) -> Callable[[F], F]:
    """Function decorator: declare the operator that a function over tensors computes.

    Args:
        name, domain: of the operator in models.
        reference: the same in NumPy, of arrays and of attributes as keywords; `verify` compares with it.
    """

    def declare(function: F) -> F:
        return declare_operator(function, name, domain, "composite", CustomComposite, reference)

    return declare


def gradient_of(operator: Callable[..., Any]) -> Callable[[F], F]:
    """Function decorator: state the gradients of the operands of an operator that `nest` or `kernel` declares.

    The function takes the gradient of the result, of several results a list; then the operands, None where one is
    absent; then the attributes as keywords. It gives a gradient for each operand, or None for one that has none; of a
    single operand the tensor alone. torshc's own operators have another decorator of this name:
    :func:`torshc.ops.core.gradient.gradient_of`.
    """
    cls: type[Custom] | None = getattr(operator, "__operator__", None)
    if cls is None:
        raise TypeError(f"gradient_of() of {operator!r}; give it the function that ops.nest or ops.kernel declares")
    if issubclass(cls, CustomComposite):
        raise TypeError(f"gradient_of() of {cls.name}, a composite, whose parts are differentiated")
    if cls.__gradient__ is not None:
        raise TypeError(f"{cls.name} has its gradient already")

    def declare(function: F) -> F:
        where = Declared("gradient", function.__code__.co_filename, function.__code__.co_firstlineno)

        def slope(
            op: Custom, b: Builder, operands: Sequence[Tensor | None], gradients: Sequence[Tensor]
        ) -> Sequence[Tensor | None]:
            with reading(cls, _node_alone(cls, b), where):
                given = gradients[0] if len(gradients) == 1 else list(gradients)
                made = function(given, *operands, **{name: getattr(op, name) for name in op.defaults})
                found = [made] if made is None or isinstance(made, Tensor) else list(made)
                _require_gradients(operands, found)
            return found

        cls.__gradient__ = staticmethod(slope)
        return function

    return declare


def _require_gradients(operands: Sequence[Tensor | None], found: Sequence[Tensor | None]) -> None:
    if len(found) > len(operands):
        raise ValueError(f"{len(found)} gradients of {len(operands)} operands")
    for k, (x, g) in enumerate(zip(operands, found, strict=False)):
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(f"the gradient of operand {k} is {g!r}, and no tensor")
        if g is not None and x is not None and (g.dtype is not x.dtype or g.rank != x.rank):
            raise ValueError(f"the gradient of operand {k}, {x.type!r}, is {g.type!r}")


def serve_calls(calls: Calls) -> None:
    """Say how the calls of a function become nodes where no model is read: a front end knows."""
    _CALLS[:] = [calls]


def _node_alone(cls: type[Custom], b: Builder) -> SourceNode:
    """A node for a function that runs when a graph is changed that was imported before."""
    node = SourceNode(cls.name, 1, {}, [], 0, b)

    def note(other: type[Op]) -> None:
        b.graph.custom = tuple(dict.fromkeys((*b.graph.custom, other)))

    node.apply, node.note = partial(_CALLS[0], node), note
    return node


def declare_operator(
    python: F, name: str, domain: str, form: str, base: type[Custom], reference: Reference | None, **members: Any
) -> F:
    """The function, with the class of its operator.

    Args:
        form: as of :class:`Declared`.
        base: what the class derives from.
        members: further members of it.
    """
    if not name.isidentifier() or not name.isascii():
        raise ValueError(f"an operator cannot be named {name!r}; take letters, digits and _")
    code = python.__code__
    where = Declared(form, code.co_filename, code.co_firstlineno, reference)
    cls = class_of(python, name, base, declared=where, **members)
    cls.name, cls.domain = name, domain
    kinds, own = get_type_hints(cls), fields(cls)[len(fields(base)) :]
    cls.defaults = {f.name: f.default for f in own}
    for f in own:
        if kinds[f.name] not in ATTRIBUTES:
            raise TypeError(
                f"attribute {f.name!r} of {python.__name__}() is {f.type}; "
                "give it the type bool, int, float, str, or a tuple of these as tuple[int, ...]"
            )
    python.__operator__ = cls  # type: ignore[attr-defined]
    return python


class CustomOperators:
    """The operators that a compilation knows beside torshc's own: those of files, and of packages that are installed.

    Args:
        paths: operator files, which are run.

    Raises:
        ConfigError: a file that cannot be read or fails, or an operator that two of them declare.
    """

    def __init__(self, paths: Sequence[Path] = ()) -> None:
        self.of_files: dict[tuple[str, str], type[Custom]] = {}
        self._of_packages: dict[tuple[str, str], type[Custom]] | None = None
        for path in paths:
            _add(self.of_files, _run_file(path))

    def find(self, domain: str, name: str) -> type[Custom] | None:
        """The class of an operator; None where neither a file nor an installed package declares it."""
        found = self.of_files.get((domain, name))
        return found if found is not None else self._packages().get((domain, name))

    def names(self, domain: str) -> list[str]:
        """What is declared of a domain."""
        return [n for d, n in (*self.of_files, *self._packages()) if d == domain]

    def _packages(self) -> Mapping[tuple[str, str], type[Custom]]:
        if self._of_packages is None:
            self._of_packages = {}
            for entry in entry_points(group=GROUP):
                _add(self._of_packages, _load_package(entry))
        return self._of_packages


NONE = CustomOperators()


def _add(known: dict[tuple[str, str], type[Custom]], found: Mapping[str, Any]) -> None:
    """Add the operators that a module's names stand for."""
    classes = [c for c in (getattr(v, "__operator__", None) for v in found.values()) if c is not None]
    for cls in dict.fromkeys(classes):
        other = known.setdefault((cls.domain, cls.name), cls)
        if other is not cls:
            raise ConfigError(
                f"{cls.declared.place}: operator {label_of(cls)} is declared at {other.declared.place} too",
                "leave one of them out, or give it another name or domain",
            )


def label_of(cls: type[Op]) -> str:
    """Domain and name of an operator."""
    return f"{cls.domain}.{cls.name}" if cls.domain else cls.name


def _run_file(path: Path) -> dict[str, Any]:
    """The names that an operator file defines."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the operator file {path}: {error.strerror or error}", "name a file of Python with --ops"
        ) from error
    module = types.ModuleType(f"torshc_ops_{path.stem}")
    module.__file__ = str(path)
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)  # what the option is for
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno or 1}: {error.msg}", "mend the operator file") from error
    except TorshcError:
        raise
    except Exception as error:
        raise _fault(error, str(path), str(path)) from error
    if not any(hasattr(v, "__operator__") for v in vars(module).values()):
        raise ConfigError(
            f"{path} declares no operator", "declare one: @ops.composite(NAME, DOMAIN), after `from torshc import ops`"
        )
    return vars(module)


def _load_package(entry: EntryPoint) -> dict[str, Any]:
    try:
        return dict(vars(entry.load()))
    except Exception as error:  # a package's module raises what comes
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
        raise ConfigError(
            f"the operators of the installed package {package} cannot be loaded: {type(error).__name__}: {error}",
            "mend or uninstall the package",
        ) from error


def _fault(error: Exception, file: str, place: str, what: str = "") -> ConfigError:
    """The error of code in an operator file that raised something: the line there, or else `place`."""
    return ConfigError(
        f"{_line(error, file) or place}: {what}{type(error).__name__}: {error}", "mend the operator file"
    )


def _line(error: BaseException, file: str) -> str:
    """The last line of a file that ran before something was raised; empty where none did."""
    found: BaseException | None = error
    while found is not None:
        lines = [frame.lineno for frame in traceback.extract_tb(found.__traceback__) if frame.filename == file]
        if lines:
            return f"{file}:{lines[-1]}"
        found = found.__cause__
    return ""


@contextmanager
def reading(cls: type[Custom], source: SourceNode | None, where: Declared | None = None) -> Iterator[None]:
    """A user's function runs: for a node it may call operators, and its faults are told with its file and line.

    Raises:
        ConfigError: it raised something else than an error of torshc.
    """
    where, before = where or cls.declared, _READING.set(source)
    try:
        yield
    except ModelError as error:
        raise type(error)(f"{error.message} (at {_line(error, where.file) or where.place})", error.remedy) from error
    except Unsupported as error:
        raise Unsupported(f"{error} (at {_line(error, where.file) or where.place})") from error
    except TorshcError:
        raise
    except Exception as error:
        node = f" of node {source.builder.name!r}" if source is not None and source.builder.name else ""
        raise _fault(error, where.file, where.place, f"{label_of(cls)}{node}: ") from error
    finally:
        _READING.reset(before)


def checked_results(cls: type[Custom], source: SourceNode, values: list[Value]) -> list[Value]:
    """The results of a user's operator, which are as many as a node names at the least.

    Raises:
        ModelError: they are fewer.
    """
    if len(values) < source.outputs:
        raise ModelError(f"{cls.name} has {len(values)} results, and {source.outputs} are named")
    return values


def now_reading(name: str) -> SourceNode:
    """The node whose function runs.

    Raises:
        TypeError: there is none, so that the function of a name computes nothing.
    """
    node = _READING.get()
    if node is None:
        raise TypeError(
            f"{name}() stands for a node; call it in the function of an operator, with tensors; what declares an "
            "operator is ops.composite, ops.nest or ops.kernel, and ops.gradient_of states its gradient"
        )
    return node


class Domain:
    """The operators of a domain as functions of tensors, by their names in snake case: ``ops.microsoft.gelu(x)``.

    Operands are tensors, numbers, lists, arrays, or None for one that is absent; keywords are ONNX's attributes, and
    `outputs` says how many results are wanted of an operator that has a varying number.
    """

    def __init__(self, domain: str) -> None:
        self._domain = domain

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith(("_", "pytest")):  # what Python, and pytest, ask any object for
            raise AttributeError(name)
        return _Function(self._domain, name)


@dataclass(frozen=True)
class _Function:
    domain: str
    name: str

    def __call__(self, *operands: Any, outputs: int = 0, **attributes: Any) -> Any:
        if any(isinstance(v, Scalar) for v in operands):
            return _of_elements(self.domain, self.name)(*operands, **attributes)
        node = now_reading(self.name)
        assert node.apply is not None  # where it is read
        given = [v.value if isinstance(v, Tensor) else v for v in operands]
        found = node.apply(self.domain, self.name, given, attributes, outputs)
        tensors = [Tensor(node.builder, v) for v in found]
        return tensors[0] if len(tensors) == 1 and not outputs else tensors


def _of_elements(domain: str, name: str) -> Callable[..., Any]:
    """An operator as a function of elements.

    Raises:
        AttributeError: no operator that has one element for another is called so.
    """
    own: dict[str, Callable[..., Any]] = {
        "clip": scalar.clip, "max": scalar.maximum, "min": scalar.minimum, "where": scalar.where,
    }  # fmt: skip
    if not domain and name in own:
        return own[name]
    names = named_operators([n for d, n in REGISTRY if d == domain and issubclass(REGISTRY[d, n], Pointwise)])
    if name not in names:
        hint = did_you_mean(name, sorted({*names, *own}))
        raise AttributeError(f"no operator of elements is called as {name}(){hint}")
    return function_of(REGISTRY[domain, names[name]])


def call_operator(cls: type[Custom], operands: Sequence[Any], outputs: int, attributes: Mapping[str, Any]) -> Any:
    """The results of a user's operator that another's function calls, with tensors."""
    node = now_reading(cls.name)
    assert node.note is not None  # where it is read
    node.note(cls)
    values = [v.value if isinstance(v, Tensor) else v for v in operands]
    found = cls.read(SourceNode(cls.name, 1, attributes, values, outputs, node.builder))
    tensors = [Tensor(node.builder, v) for v in found]
    return tensors[0] if len(tensors) == 1 else tensors


def named_operators(names: Sequence[str]) -> dict[str, str]:
    """Operators by what functions call them: in snake case, with _ behind a word that Python reserves."""
    snakes = ((snake_case(name), name) for name in names)
    return {f"{snake}_" if keyword.iskeyword(snake) else snake: name for snake, name in snakes}


def reference_results(cls: type[Custom], arrays: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """What an operator's reference says.

    Raises:
        ConfigError: there is none, or it fails.
    """
    where = cls.declared
    assert where.reference is not None
    try:
        found = where.reference(*arrays, **attributes)
    except Exception as error:  # the user's code raises what comes
        raise _fault(error, where.file, where.place, f"the reference of {label_of(cls)}: ") from error
    return [np.asarray(a) for a in (found if isinstance(found, tuple | list) else (found,))]
